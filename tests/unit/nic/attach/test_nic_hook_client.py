"""The hook's client, the real program: what it makes of a runtime's state, and how it fails."""

import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest

from drakit.core import errors, names
from drakit_nic.attach import hook_program, server
from fakes import waits

UID = "00000000-0000-4000-8000-000000000001"
SHARE = "00000000-0000-4000-8000-000000000002"
GOOD = {"ociVersion": "1.3.0", "id": "c1", "status": "creating", "pid": os.getpid(), "bundle": "/run/x", "annotations": {"a": "b"}}
DEEP = 200
PT_LOAD, PT_INTERP = 1, 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if not any(map(shutil.which, ("cc", "musl-gcc"))):
        pytest.skip("the client is compiled with cc or musl-gcc, and there is neither")
    copies = hook_program.Copies(tmp_path_factory.mktemp("home"))
    name = copies.ensure()
    copies.try_out(name)
    return copies.path(name)


class Listener:
    """A driver that notes what it is asked and answers as it is told; None hangs."""

    def __init__(self, path: pathlib.Path, answer: bytes | None) -> None:
        self.path, self.answer = path, answer
        self.asked: list[bytes] = []
        self.namespaces: list[os.stat_result] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen()
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            content, descriptors, _, _ = socket.recv_fds(connection, 4096, 4)
            self.asked.append(content)
            for descriptor in descriptors:
                self.namespaces.append(os.fstat(descriptor))
                os.close(descriptor)
            if self.answer is None:
                self._kept.append(connection)
                continue
            with connection:
                connection.send(self.answer)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(waits.SECONDS)
        for connection in self._kept:
            connection.close()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp") as made:
        yield pathlib.Path(made)


@pytest.fixture
def listener(folder: pathlib.Path) -> Iterator[Listener]:
    made = Listener(folder / "s", b"ok")
    yield made
    made.close()


def call(program: pathlib.Path, path: pathlib.Path, state: bytes, *, seconds: str = "20") -> subprocess.CompletedProcess[bytes]:
    words = ["attach", str(path), seconds, UID, "nic0", SHARE]
    return subprocess.run(words, executable=program, input=state, capture_output=True, timeout=waits.SECONDS, env={}, check=False)


def encoded(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'"pid"',
    b"{",
    b"\x00",
    bytes(range(256)) * 16,
    encoded() + b"{}",
    encoded() + b"\0",
    encoded()[:-1],
    encoded(pid=None),
    encoded(pid=0),
    encoded(pid=-1),
    encoded(pid="1"),
    encoded(pid=1.5),
    encoded(pid=10**12),
    encoded(pid=[1]),
    encoded(id=""),
    encoded(id="a\nb"),
    encoded(id="../x"),
    encoded(id=7),
    encoded(annotations={"io.kubernetes.cri.sandbox-id": "a b"}),
    encoded(annotations={"io.kubernetes.cri.sandbox-id": "x" * 254}),
    json.dumps({key: value for key, value in GOOD.items() if key != "pid"}).encode(),
    json.dumps({key: value for key, value in GOOD.items() if key != "id"}).encode(),
    b'{"id":"c1","pid":1,"pid":2}',
    b'{"id":"c1","pid":1,"id":"c2"}',
    b'{"id":"c1","pid":1' + b',"a":"' + b"x" * (1 << 20) + b'"}',
    b'{"id":"c1","pid":1}' + b" " * (1 << 16),
    b'{"id":"c1","pid":1,"a":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"id":"c1","pid":1,"a":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    b'{"id":"c1","pid":1,"a":"\x01"}',
    b'{"id":"c1","pid":1,"a":"\\',
    b'{"id":"c1","annotations":{"pid":"1"}}',
    b'{"id":"c1","annotations":{"pid":1}}',
    b'{"id":"c1","x":{"pid":1}}',
    b'{"id":"c1","x":[{"pid":1}]}',
]


def test_it_sends_the_share_the_sandbox_and_the_namespace_and_is_silent_on_success(program: pathlib.Path, listener: Listener) -> None:
    cri = {"io.kubernetes.cri.sandbox-id": "5a4d", "io.kubernetes.cri.sandbox-uid": UID, "io.kubernetes.cri.sandbox-name": 'a "pod"'}
    said = call(program, listener.path, encoded(annotations=cri))
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")
    (asked,) = listener.asked
    assert server.decode(asked) == server.Request(
        claim=names.ClaimUid(UID), device="nic0", share_id=names.ShareId(SHARE), container="c1", sandbox="5a4d", pod=UID
    )
    (sent,) = listener.namespaces
    assert os.path.samestat(sent, pathlib.Path("/proc/self/ns/net").stat())


@pytest.mark.parametrize("state", HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_hostile_state_is_refused_in_one_sentence_and_the_driver_is_not_asked(
    program: pathlib.Path, listener: Listener, state: bytes
) -> None:
    said = call(program, listener.path, state)
    assert said.returncode == 1
    assert said.stderr.startswith(b"drakit: the container runtime's state ")
    assert said.stderr.count(b"\n") == 1
    assert not listener.asked


def test_an_annotation_named_pid_is_not_the_pid(program: pathlib.Path, listener: Listener) -> None:
    said = call(program, listener.path, encoded(annotations={"pid": "1", "id": "x", "annotations": '{"pid":1}', '"pid":1,': "\\"}))
    assert said.returncode == 0
    assert os.path.samestat(listener.namespaces[0], pathlib.Path("/proc/self/ns/net").stat())


@pytest.mark.parametrize("annotations", [None, {}, [], "x", {"io.kubernetes.cri-o.SandboxID": "5a4d"}], ids=repr)
def test_annotations_of_any_kind_or_none_do(program: pathlib.Path, listener: Listener, annotations: object) -> None:
    assert call(program, listener.path, encoded(annotations=annotations)).returncode == 0


def test_a_container_that_is_gone_is_said_to_be(program: pathlib.Path, listener: Listener) -> None:
    said = call(program, listener.path, encoded(pid=4194304 + 1))
    assert said.returncode == 1
    assert b"network namespace cannot be opened" in said.stderr


@pytest.mark.parametrize(
    "answer, sentence",
    [
        (b"no the share is not prepared", b"drakit: the share is not prepared\n"),
        (b"maybe", b"drakit: the NIC driver on this node gave no answer that is understood\n"),
        (b"ok ", b"drakit: the NIC driver on this node gave no answer that is understood\n"),
        (b"no 100%s%n", b"drakit: 100%s%n\n"),
        (b"", b"drakit: the NIC driver on this node broke off; the container is started again by itself\n"),
    ],
)
def test_what_the_driver_refuses_is_what_the_owner_reads(program: pathlib.Path, listener: Listener, answer: bytes, sentence: bytes) -> None:
    listener.answer = answer
    said = call(program, listener.path, encoded())
    assert (said.returncode, said.stderr) == (1, sentence)


def test_a_driver_that_is_down_is_waited_for_and_then_said_to_be(program: pathlib.Path, folder: pathlib.Path) -> None:
    start = time.monotonic()
    said = call(program, folder / "nobody", encoded(), seconds="2")
    assert said.returncode == 1
    assert said.stderr.startswith(b"drakit: the NIC driver on this node is not running (No such file or directory);")
    assert time.monotonic() - start >= 0.9


def test_a_driver_that_comes_back_meanwhile_is_found(program: pathlib.Path, folder: pathlib.Path) -> None:
    made: list[Listener] = []
    timer = threading.Timer(0.5, lambda: made.append(Listener(folder / "s", b"ok")))
    timer.start()
    said = call(program, folder / "s", encoded(), seconds="60")
    timer.join()
    made[0].close()
    assert said.returncode == 0


def test_a_driver_that_hangs_is_left_at_the_deadline(program: pathlib.Path, listener: Listener) -> None:
    listener.answer = None
    said = call(program, listener.path, encoded(), seconds="1")
    assert said.returncode == 1
    assert b"did not answer in time" in said.stderr


def test_a_runtime_that_never_ends_the_state_is_left_at_the_deadline(program: pathlib.Path, listener: Listener) -> None:
    words = ["attach", str(listener.path), "1", UID, "nic0", SHARE]
    with subprocess.Popen(words, executable=program, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={}) as hanging:
        assert hanging.stdin is not None
        hanging.stdin.write(b'{"pid":1')
        hanging.stdin.flush()
        assert hanging.wait(waits.SECONDS) == 1
        assert hanging.stderr is not None
        assert b"did not answer in time" in hanging.stderr.read()


@pytest.mark.parametrize(
    "words", [[], ["x"], ["a", "b", "c", "d"], ["s", "0", "c", "d", "e"], ["s", "-1", "c", "d", "e"], ["s", "x", "c", "d", "e"]]
)
def test_a_call_without_its_arguments_fails(program: pathlib.Path, words: list[str]) -> None:
    said = subprocess.run([program, *words], input=b"", capture_output=True, timeout=waits.SECONDS, check=False)
    assert (said.returncode, said.stderr[:13]) == (1, b"drakit: usage")


def test_it_needs_no_library_of_the_host(program: pathlib.Path) -> None:
    content = program.read_bytes()
    assert content.startswith(b"\x7fELF")
    headers, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    kinds = {struct.unpack_from("<I", content, headers + number * size)[0] for number in range(count)}
    assert PT_LOAD in kinds
    assert PT_INTERP not in kinds


def test_a_copy_is_named_by_its_content_and_put_back_when_it_was_altered(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copies = hook_program.Copies(tmp_path)
    name = copies.ensure()
    assert name == program.name
    assert copies.path(name).stat().st_mode & 0o777 == 0o700
    copies.path(name).write_bytes(b"altered")
    assert copies.ensure() == name
    assert copies.path(name).read_bytes() == program.read_bytes()
    assert [path.name for path in (tmp_path / hook_program.FOLDER).iterdir()] == [name]


def test_old_copies_stay_while_they_are_named_or_young(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copies = hook_program.Copies(tmp_path)
    own = copies.ensure()
    for name, age in (("attach-named", 10**6), ("attach-young", 0), ("attach-old", 10**6)):
        copies.path(name).write_bytes(b"")
        os.utime(copies.path(name), (time.time() - age, time.time() - age))
    copies.sweep({own, "attach-named"})
    assert {path.name for path in (tmp_path / hook_program.FOLDER).iterdir()} == {own, "attach-named", "attach-young"}


@pytest.mark.parametrize("name", ["../attach-x", "attach-../x", "other", "attach-absent"])
def test_a_name_that_is_no_copy_of_ours_is_not_used(tmp_path: pathlib.Path, name: str) -> None:
    assert not hook_program.Copies(tmp_path).has(name)


def test_a_program_that_cannot_be_run_is_refused_by_its_path(tmp_path: pathlib.Path) -> None:
    copies = hook_program.Copies(tmp_path)
    (tmp_path / hook_program.FOLDER).mkdir()
    copies.path("attach-broken").write_bytes(b"not a program")
    copies.path("attach-broken").chmod(0o700)
    with pytest.raises(errors.HardwareError, match="attach-broken failed"):
        copies.try_out("attach-broken")


@pytest.mark.root
def test_a_folder_mounted_noexec_is_refused_with_what_to_change(program: pathlib.Path, folder: pathlib.Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,size=4m", "tmpfs", folder], check=True, timeout=waits.SECONDS)
    try:
        copies = hook_program.Copies(folder)
        with pytest.raises(errors.HardwareError, match=r"mounted noexec; mount it without noexec, or move node\.plugins_dir"):
            copies.try_out(copies.ensure())
    finally:
        subprocess.run(["umount", folder], check=True, timeout=waits.SECONDS)
