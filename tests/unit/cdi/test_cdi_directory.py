"""Files appear whole or not at all, among those of others, and nothing that is not ours is touched."""

import dataclasses
import fcntl
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from drakit.cdi import directory, spec
from drakit.core import edits, errors
from fakes import cdi as cdi_fakes
from fakes import journal_samples as samples
from fakes import other_user

DRIVER = "gpu.example.com"
NAME = edits.CdiName(driver=DRIVER, claim_uid=samples.uid(1), device="gpu-0")
EDITS = edits.Edits(env={"A": "1"})
LEFTOVER = f".{DRIVER}-claim_0123456789abcdef.tmp"


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "run" / "cdi"


@pytest.fixture
def cdi(path: pathlib.Path) -> directory.Directory:
    return directory.Directory(path, driver=DRIVER)


def file_of(path: pathlib.Path, name: edits.CdiName = NAME) -> pathlib.Path:
    return path / spec.file_name(name)


def test_directory_and_files_can_be_read_by_every_runtime(path: pathlib.Path) -> None:
    before = os.umask(0o077)
    try:
        directory.Directory(path, driver=DRIVER).write(NAME, EDITS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert stat.S_IMODE(file_of(path).stat().st_mode) == 0o644
    assert file_of(path).read_bytes() == spec.encode(NAME, EDITS)


def test_writing_the_same_content_replaces_no_file(cdi: directory.Directory, path: pathlib.Path) -> None:
    cdi.write(NAME, EDITS)
    before = file_of(path).stat()
    cdi.write(NAME, EDITS)
    after = file_of(path).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    cdi.write(NAME, edits.Edits(env={"A": "2"}))
    assert file_of(path).stat().st_ino != before.st_ino


@pytest.mark.parametrize("change", [b"", b"x", b"{}"], ids=["emptied", "scribbled", "another"])
def test_a_file_changed_by_hand_is_detected_and_restored(cdi: directory.Directory, path: pathlib.Path, change: bytes) -> None:
    cdi.write(NAME, EDITS)
    file_of(path).write_bytes(change)
    assert not cdi_fakes.holds(cdi, NAME, EDITS)
    cdi.write(NAME, EDITS)
    assert cdi_fakes.holds(cdi, NAME, EDITS)
    with file_of(path).open("ab") as file:
        file.write(b"more")
    assert not cdi_fakes.holds(cdi, NAME, EDITS)


def test_a_deleted_directory_is_created_again(cdi: directory.Directory, path: pathlib.Path) -> None:
    path.rmdir()
    assert not cdi_fakes.holds(cdi, NAME, EDITS)
    assert cdi.claims() == frozenset()
    cdi.remove(samples.uid(1))
    assert not path.exists()
    cdi.write(NAME, EDITS)
    assert cdi_fakes.holds(cdi, NAME, EDITS)


def test_a_symbolic_link_in_place_of_a_file_is_replaced_not_followed(
    cdi: directory.Directory, path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    target = tmp_path / "precious"
    target.write_bytes(spec.encode(NAME, EDITS))
    file_of(path).symlink_to(target)
    assert not cdi_fakes.holds(cdi, NAME, EDITS)
    cdi.write(NAME, edits.Edits(env={"A": "2"}))
    assert not file_of(path).is_symlink()
    assert target.read_bytes() == spec.encode(NAME, EDITS)


def test_a_pipe_in_place_of_a_file_blocks_nobody(cdi: directory.Directory, path: pathlib.Path) -> None:
    os.mkfifo(file_of(path))
    assert not cdi_fakes.holds(cdi, NAME, EDITS)
    cdi.write(NAME, EDITS)
    assert cdi_fakes.holds(cdi, NAME, EDITS)


def contents(cdi: directory.Directory) -> dict[edits.CdiName, edits.Edits | None]:
    """What the files of all claims hold, in order of claim and file name."""
    return {name: held for uid in sorted(cdi.claims()) for name, held in cdi.of(uid).items()}


def test_named_pipes_and_sockets_are_not_files_and_do_not_hide_the_others(
    cdi: directory.Directory, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(NAME, claim_uid=samples.uid(2))
    cdi.write(other, EDITS)
    os.mkfifo(file_of(path))
    writer = os.open(file_of(path), os.O_RDWR)
    assert (cdi_fakes.holds(cdi, NAME, EDITS), contents(cdi)) == (False, {other: EDITS})
    os.close(writer)
    file_of(path).unlink()
    monkeypatch.chdir(path)  # a socket's path may be no longer than about a hundred bytes
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(file_of(path).name)
    assert (cdi_fakes.holds(cdi, NAME, EDITS), contents(cdi)) == (False, {other: EDITS})
    cdi.write(NAME, EDITS)
    assert contents(cdi) == {NAME: EDITS, other: EDITS}


def test_files_of_others_are_neither_listed_nor_touched(path: pathlib.Path) -> None:
    uid = samples.uid(1)
    others = [
        f"other.example.com-claim_{uid}-gpu-0.json",
        f"{DRIVER}-claim_{uid}.json",
        f"{DRIVER}-claim_{uid}-gpu-0.json.bak",
        f"{DRIVER}-claim_not-a-uid-gpu-0.json",
        f"x{DRIVER}-claim_{uid}-gpu-0.json",
        f"{DRIVER}-gpu_{uid}-gpu-0.json",
        f"gpuXexampleXcom-claim_{uid}-gpu-0.json",
        "nvidia.yaml",
        ".other.example.com-claim_0123456789abcdef.tmp",
        f".{DRIVER}-claim_short.tmp",
    ]
    path.mkdir(parents=True)
    for other in others:
        (path / other).write_text("theirs")
    cdi = directory.Directory(path, driver=DRIVER)
    assert cdi.claims() == frozenset()
    cdi.write(NAME, EDITS)
    assert cdi.claims() == {uid}
    cdi.remove(uid)
    assert sorted(entry.name for entry in path.iterdir()) == sorted(others)
    assert all((path / other).read_text() == "theirs" for other in others)


def test_leftovers_of_a_crash_are_swept_at_the_next_start(path: pathlib.Path, cdi: directory.Directory) -> None:
    cdi.write(NAME, EDITS)
    (path / LEFTOVER).write_text("half")
    assert cdi.claims() == {samples.uid(1)}
    directory.Directory(path, driver=DRIVER)
    assert [entry.name for entry in path.iterdir()] == [spec.file_name(NAME)]


def test_temporary_files_of_another_process_are_not_swept(path: pathlib.Path, cdi: directory.Directory) -> None:
    cdi.write(NAME, EDITS)
    with (path / LEFTOVER).open("w") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        directory.Directory(path, driver=DRIVER)
        assert (path / LEFTOVER).exists()
    directory.Directory(path, driver=DRIVER)
    assert not (path / LEFTOVER).exists()


def test_an_instance_that_starts_removes_no_files_of_others(path: pathlib.Path, cdi: directory.Directory) -> None:
    stop = threading.Event()

    def start() -> None:
        while not stop.is_set():
            directory.Directory(path, driver=DRIVER)

    starting = threading.Thread(target=start)
    starting.start()
    try:
        for number in range(300):
            cdi.write(NAME, edits.Edits(env={"A": str(number)}))
    finally:
        stop.set()
        starting.join()
    assert cdi_fakes.holds(cdi, NAME, edits.Edits(env={"A": "299"}))


def test_an_flock_of_another_user_on_the_directory_delays_nobody(path: pathlib.Path, cdi: directory.Directory) -> None:
    (path / LEFTOVER).write_text("half")
    with other_user.locking(path):
        seconds = []
        for number in range(20):
            began = time.monotonic()
            cdi.write(NAME, edits.Edits(env={"A": str(number)}))
            assert cdi.of(NAME.claim_uid)
            cdi.remove(NAME.claim_uid)
            seconds.append(time.monotonic() - began)
        assert min(seconds) < 0.5, "each of 20 writes took about as long as one that waits for the lock (0.75 s)"
        directory.Directory(path, driver=DRIVER)
        assert not (path / LEFTOVER).exists()


def test_a_reader_never_sees_half_a_file(cdi: directory.Directory, path: pathlib.Path) -> None:
    versions = [edits.Edits(env={"A": str(number) * 5000}) for number in range(2)]
    whole = {spec.encode(NAME, version) for version in versions}
    cdi.write(NAME, versions[0])
    stop = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not stop.is_set():
            seen.update(entry.read_bytes() for entry in path.glob("*.json"))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(60):
        cdi.write(NAME, versions[number % 2])
    stop.set()
    reader.join()
    assert seen <= whole


def test_threads_write_and_remove_at_the_same_time(cdi: directory.Directory, path: pathlib.Path) -> None:
    failures: list[Exception] = []

    def work(number: int) -> None:
        name = edits.CdiName(driver=DRIVER, claim_uid=samples.uid(number), device="gpu-0")
        try:
            for _ in range(5):
                cdi.write(name, EDITS)
                cdi.remove(samples.uid(number))
            cdi.write(name, EDITS)
        except errors.CdiError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert cdi.claims() == {samples.uid(number) for number in range(6)}
    assert not [entry for entry in path.iterdir() if entry.suffix == ".tmp"]


def test_a_directory_in_place_of_a_file_names_the_fix(cdi: directory.Directory, path: pathlib.Path) -> None:
    file_of(path).mkdir()
    with pytest.raises(errors.CdiError, match=r"gpu-0\.json: Is a directory; remove the directory"):
        cdi.write(NAME, EDITS)


def descriptors() -> int:
    return sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())


def test_a_directory_in_place_of_a_file_is_no_file_and_reported_once(
    cdi: directory.Directory, path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = edits.CdiName(driver=DRIVER, claim_uid=NAME.claim_uid, device="gpu-1")
    file_of(path).mkdir()
    assert (cdi.of(NAME.claim_uid), contents(cdi), cdi.claims(), cdi_fakes.holds(cdi, NAME, EDITS)) == ({}, {}, frozenset(), False)
    cdi.write(other, EDITS)
    before = descriptors()
    for _ in range(5):
        assert cdi.of(NAME.claim_uid) == contents(cdi) == {other: EDITS}
        assert not cdi_fakes.holds(cdi, NAME, EDITS)
        with pytest.raises(errors.CdiError):
            cdi.write(NAME, EDITS)
    assert descriptors() == before
    result = capsys.readouterr().err
    assert result.count("CDI file ignored: path is a directory") == 1
    assert str(file_of(path)) in result


def test_a_directory_in_place_of_a_file_is_not_removed_and_all_other_files_are(cdi: directory.Directory, path: pathlib.Path) -> None:
    for device in ("gpu-1", "a-gpu"):
        cdi.write(edits.CdiName(driver=DRIVER, claim_uid=NAME.claim_uid, device=device), EDITS)
    file_of(path).mkdir()
    (file_of(path) / "theirs").write_text("")
    with pytest.raises(errors.CdiError, match=r"gpu-0\.json: Is a directory; remove the directory"):
        cdi.remove(NAME.claim_uid)
    assert [entry.name for entry in path.iterdir()] == [spec.file_name(NAME)]
    assert [entry.name for entry in file_of(path).iterdir()] == ["theirs"]
    (file_of(path) / "theirs").unlink()
    file_of(path).rmdir()
    cdi.remove(NAME.claim_uid)


def test_a_path_that_is_no_directory_names_the_fix(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cdi").write_text("")
    with pytest.raises(errors.CdiError, match="cdi"):
        directory.Directory(tmp_path / "cdi", driver=DRIVER)


def test_a_driver_that_no_runtime_would_accept_is_refused_at_once(path: pathlib.Path) -> None:
    with pytest.raises(errors.CdiError, match="CDI vendor"):
        directory.Directory(path, driver="9p.example.com")
    assert not path.exists()


ON_A_SMALL_DISK = """
import pathlib, subprocess, sys
from drakit.cdi import directory
from drakit.core import edits, errors
from fakes import journal_samples as samples
disk = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
name = edits.CdiName(driver="gpu.example.com", claim_uid=samples.uid(1), device="gpu-0")
small, large = edits.Edits(env={"A": "1"}), edits.Edits(env={"A": "x" * 100_000})
cdi = directory.Directory(disk, driver="gpu.example.com")
cdi.write(name, small)
"""


@pytest.fixture
def on_a_small_disk(tmp_path: pathlib.Path) -> Callable[[str], str]:
    """Run a script whose CDI directory is a file system of 64 KiB, seen by it alone; what it printed."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs unshare with mounts of its own: {error}")

    def run(script: str) -> str:
        command = [*unshare, sys.executable, "-c", ON_A_SMALL_DISK + script, str(tmp_path)]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=pathlib.Path(__file__).parents[2])
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_a_full_disk_keeps_the_old_file_and_leaves_no_partial_one(on_a_small_disk: Callable[[str], str]) -> None:
    printed = on_a_small_disk("""
try:
    cdi.write(name, large)
except errors.CdiError as error:
    print(error)
print(cdi.of(name.claim_uid).get(name) == small, len(list(disk.iterdir())))
""")
    refusal, state = printed.splitlines()
    assert refusal.endswith("gpu-0.json: No space left on device; free space on its file system")
    assert state == "True 1"


def test_a_read_only_directory_names_the_fix_and_can_still_be_read(on_a_small_disk: Callable[[str], str]) -> None:
    printed = on_a_small_disk("""
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
for attempt in (lambda: cdi.write(name, large), lambda: cdi.remove(samples.uid(1))):
    try:
        attempt()
    except errors.CdiError as error:
        print(error)
cdi.write(name, small)
again = directory.Directory(disk, driver="gpu.example.com")
print(again.of(name.claim_uid).get(name) == small, again.claims() == {samples.uid(1)})
""")
    write, remove, state = printed.splitlines()
    assert "Read-only file system; mount it read-write" in write
    assert "Read-only file system; mount it read-write" in remove
    assert state == "True True"
