"""The socket of the hook's server: who may speak, what is read, how many at a time, and whose it is when two instances meet."""

import contextlib
import os
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from drakit.core import errors
from drakit_nic.attach import server
from fakes import exhaustion, log_lines, waits

pytestmark = pytest.mark.root

UID = "00000000-0000-4000-8000-000000000001"
SHARE = "00000000-0000-4000-8000-000000000002"
GOOD = f"attach 1\n{UID}\nnic0\n{SHARE}\nc1\n5a4d\n{UID}".encode()
NOBODY = 65534


class Attaching:
    """What is asked is noted; ``then`` is run for each call."""

    def __init__(self) -> None:
        self.asked: list[tuple[server.Request, str]] = []
        self.then: Callable[[Callable[[], bool]], None] = lambda _: None
        self.running = 0
        self._lock = threading.Lock()

    def __call__(self, request: server.Request, descriptor: int, is_waiting: Callable[[], bool]) -> None:
        with self._lock:
            self.asked.append((request, str(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink())))
            self.running += 1
        try:
            self.then(is_waiting)
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def path() -> Iterator[pathlib.Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may speak to the server")
    with tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp") as folder:
        yield pathlib.Path(folder) / "attach.sock"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor of a server or client outlives its test."""
    with exhaustion.nothing_left():
        yield


@contextlib.contextmanager
def serving(path: pathlib.Path, attaching: Attaching, overloaded: Callable[[], None] = lambda: None) -> Iterator[server.Server]:
    made = server.Server(path, attaching, overloaded=overloaded)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def connected(path: pathlib.Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(waits.SECONDS)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


def say(path: pathlib.Path, content: bytes, descriptors: int = 1) -> bytes:
    """The answer to a message that comes with so many descriptors of this process's own namespace."""
    with connected(path) as connection, pathlib.Path("/proc/self/ns/net").open("rb") as own:
        socket.send_fds(connection, [content], [own.fileno()] * descriptors)
        return connection.recv(4096)


def descriptors() -> int:
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def test_a_request_is_passed_on_with_its_namespace_and_answered(path: pathlib.Path) -> None:
    attaching = Attaching()
    with serving(path, attaching):
        assert say(path, GOOD) == server.OK
    ((request, namespace),) = attaching.asked
    assert request.share_id == SHARE
    assert namespace == str(pathlib.Path("/proc/self/ns/net").readlink())


def test_the_socket_is_root_s_alone(path: pathlib.Path) -> None:
    with serving(path, Attaching()):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content, given", [(b"x" * 3000, 1), (GOOD, 0), (GOOD, 2), (GOOD, 5), (b"", 1), (b"\xff", 1), (b"attach 9", 1)])
def test_what_is_no_request_is_refused_and_no_descriptor_kept(path: pathlib.Path, content: bytes, given: int) -> None:
    attaching = Attaching()
    with serving(path, attaching):
        say(path, b"")
        before = descriptors()
        assert say(path, content, given)[:3] in {b"no ", b""}
        assert waits.eventually(lambda: descriptors() <= before)
        assert say(path, GOOD) == server.OK
    assert len(attaching.asked) == 1


def is_ignored(path: pathlib.Path) -> bool:
    try:
        return say(path, GOOD) == b""
    except (ConnectionResetError, BrokenPipeError):  # The server was faster, and left the request unread.
        return True
    except BaseException:  # noqa: BLE001 - a forked child of a test must not run the test's own clean-up
        return False


def test_another_user_gets_no_answer(path: pathlib.Path) -> None:
    attaching = Attaching()
    path.parent.chmod(0o755)
    with serving(path, attaching):
        path.chmod(0o666)  # Were the modes ever wrong, the peer's credentials still tell.
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            os._exit(0 if is_ignored(path) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not attaching.asked


@pytest.mark.parametrize(
    "error, answer",
    [
        (server.RefusedError("not this one"), b"no not this one"),
        (errors.HardwareError("RTM_NEWLINK", "no memory"), b"no RTM_NEWLINK: no memory"),
        (ZeroDivisionError("secret"), b"no the NIC driver failed with an internal error; see its log"),
    ],
)
def test_why_not_is_reported_and_bugs_are_not_explained_to_users(path: pathlib.Path, error: Exception, answer: bytes) -> None:
    attaching = Attaching()

    def fail(_: object) -> None:
        raise error

    attaching.then = fail
    with serving(path, attaching):
        assert say(path, GOOD) == answer


def test_a_client_that_says_nothing_is_left_and_others_are_served_meanwhile(path: pathlib.Path) -> None:
    with serving(path, Attaching()), connected(path) as silent:
        assert say(path, GOOD) == server.OK
        assert silent.recv(10) == b""


def test_a_client_that_goes_away_is_noticed(path: pathlib.Path) -> None:
    attaching, seen = Attaching(), []
    reached, gone = threading.Event(), threading.Event()

    def look(is_waiting: Callable[[], bool]) -> None:
        seen.append(is_waiting())
        reached.set()
        gone.wait(waits.SECONDS)
        seen.append(is_waiting())

    attaching.then = look
    with serving(path, attaching):
        with connected(path) as connection, pathlib.Path("/proc/self/ns/net").open("rb") as own:
            socket.send_fds(connection, [GOOD], [own.fileno()])
            assert reached.wait(waits.SECONDS)
        gone.set()
        assert waits.eventually(lambda: len(seen) == 2)
    assert seen == [True, False]


def request_for(device: str) -> bytes:
    return f"attach 1\n{UID}\n{device}\n{SHARE}\nc1\n5a4d\n{UID}".encode()


@contextlib.contextmanager
def stuck(path: pathlib.Path, attaching: Attaching, device: str, count: int) -> Iterator[None]:
    """That many calls for a device that end only after the block; calls for other devices end at once."""
    over = threading.Event()

    def wait_if_stuck(_: object) -> None:
        if attaching.asked[-1][0].device == device:
            over.wait(waits.SECONDS)

    attaching.then = wait_if_stuck
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(pathlib.Path("/proc/self/ns/net").open("rb"))
        for number in range(count):
            connection = stack.enter_context(connected(path))
            socket.send_fds(connection, [request_for(device)], [own.fileno()])
            assert waits.eventually(lambda most=number: len(attaching.asked) == most + 1)  # type: ignore[misc] # the default is an int
        try:
            yield
        finally:
            over.set()
            assert waits.eventually(lambda: not attaching.running)


def test_a_device_with_too_many_calls_delays_no_other(path: pathlib.Path) -> None:
    attaching = Attaching()
    refused: list[None] = []
    with serving(path, attaching, lambda: refused.append(None)), stuck(path, attaching, "nic0", server.DEVICE_CALLS_MAX):
        assert say(path, request_for("nic1")) == server.OK
        assert say(path, request_for("nic0")) == b"no 128 calls for nic0 are in progress; the kubelet retries"
        assert say(path, request_for("nic1")) == server.OK
        assert len(refused) == 1


def test_connections_without_a_request_are_bounded_and_the_server_recovers(path: pathlib.Path) -> None:
    refused: list[None] = []
    with serving(path, Attaching(), lambda: refused.append(None)), contextlib.ExitStack() as silent:
        for _ in range(server.UNREAD_MAX + 8):
            silent.enter_context(connected(path))
        assert waits.eventually(lambda: bool(refused))
        assert waits.eventually(lambda: not is_ignored(path))


def test_a_server_without_descriptors_waits_and_serves_afterwards(path: pathlib.Path) -> None:
    refused: list[None] = []
    with (
        serving(path, Attaching(), lambda: refused.append(None)),
        pathlib.Path("/proc/self/ns/net").open("rb") as own,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        client.settimeout(waits.SECONDS)
        with exhaustion.no_descriptors():
            client.connect(str(path))
            assert waits.eventually(lambda: len(refused) > 1)
        socket.send_fds(client, [GOOD], [own.fileno()])
        assert client.recv(4096) == server.OK


def test_a_server_that_cannot_start_a_thread_serves_afterwards(path: pathlib.Path, logged: log_lines.LogLines) -> None:
    refused: list[None] = []
    with serving(path, Attaching(), lambda: refused.append(None)):
        with exhaustion.no_threads():
            for _ in range(3):
                assert is_ignored(path)
        assert say(path, GOOD) == server.OK
    assert len(refused) == 3
    assert [(record["event"], record["reason"]) for record in logged.lines] == [("connection refused", "threads")]


def test_a_new_instance_takes_the_socket_over_and_the_old_one_s_end_leaves_it(path: pathlib.Path) -> None:
    old, new = Attaching(), Attaching()
    with contextlib.ExitStack() as both:
        first = both.enter_context(contextlib.ExitStack())
        first.enter_context(serving(path, old))
        assert say(path, GOOD) == server.OK
        both.enter_context(serving(path, new))
        assert say(path, GOOD) == server.OK
        first.close()
        assert say(path, GOOD) == server.OK
    assert (len(old.asked), len(new.asked)) == (1, 2)


def is_served(path: pathlib.Path) -> bool:
    with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        return say(path, GOOD) == server.OK
    return False


def test_an_instance_whose_successor_died_takes_the_socket_back(path: pathlib.Path) -> None:
    old, new = Attaching(), Attaching()
    with serving(path, old):
        with serving(path, new):
            assert say(path, GOOD) == server.OK
        assert waits.eventually(lambda: is_served(path))
        path.unlink()
        assert waits.eventually(lambda: is_served(path))
    assert (len(old.asked), len(new.asked)) == (2, 1)


def test_who_only_looks_whether_somebody_listens_is_not_answered(path: pathlib.Path, logged: log_lines.LogLines) -> None:
    with serving(path, Attaching()):
        for _ in range(3):
            connected(path).close()
        assert say(path, GOOD) == server.OK
    assert not logged.lines


def test_a_stop_waits_for_the_call_at_hand(path: pathlib.Path) -> None:
    attaching, answers = Attaching(), []
    reached = threading.Event()

    def work(_: object) -> None:
        reached.set()
        time.sleep(0.2)

    attaching.then = work
    with serving(path, attaching):
        caller = threading.Thread(target=lambda: answers.append(say(path, GOOD)))
        caller.start()
        assert reached.wait(waits.SECONDS)
    caller.join(waits.SECONDS)
    assert answers == [server.OK]


def test_a_stopped_server_leaves_no_descriptor_and_nobody_behind_the_socket(path: pathlib.Path) -> None:
    before = descriptors()
    with serving(path, Attaching()):
        pass
    assert descriptors() == before
    with pytest.raises(ConnectionRefusedError):
        connected(path)


def test_what_a_crash_left_is_in_nobody_s_way(path: pathlib.Path) -> None:
    path.write_text("not a socket")
    path.with_name(f"{path.name}.new").write_text("left")
    with serving(path, Attaching()):
        assert say(path, GOOD) == server.OK


def test_a_path_too_long_for_a_socket_is_refused_by_the_setting(path: pathlib.Path) -> None:
    with pytest.raises(errors.HardwareError, match=r"choose a shorter node\.plugins_dir"):
        server.Server(path.parent / ("x" * 100) / "attach.sock", Attaching())
