"""Device locks exclude threads and processes alike, never wait in a circle, and die with their holder."""

import contextlib
import fcntl
import os
import pathlib
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from drakit.core import errors, ports
from drakit.journal import locks
from fakes import forked_cli, waits

HOLDER = """
import pathlib, sys
from drakit.journal import locks
with locks.FileLocks(pathlib.Path(sys.argv[1])).hold(sys.argv[2:], lambda: True):
    print("held", flush=True)
    sys.stdin.read()
"""


def always() -> bool:
    return True


@contextlib.contextmanager
def another_process_holds(directory: pathlib.Path, *names: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(directory), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


def is_free(directory: pathlib.Path, name: str) -> bool:
    with (directory / "locks" / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_lock_is_held_for_the_body_and_no_longer(tmp_path: pathlib.Path) -> None:
    device_locks: ports.Locks = locks.FileLocks(tmp_path)
    with device_locks.hold(["gpu-1", "gpu-0", "gpu-1"], always):
        assert not is_free(tmp_path, "gpu-0")
        assert not is_free(tmp_path, "gpu-1")
    assert is_free(tmp_path, "gpu-0")
    with pytest.raises(ZeroDivisionError), device_locks.hold(["gpu-0"], always):
        raise ZeroDivisionError
    assert is_free(tmp_path, "gpu-0")


def test_lock_files_are_for_their_owner_alone(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with locks.FileLocks(tmp_path / "data").hold(["gpu-0"], always):
            assert (tmp_path / "data" / "locks").stat().st_mode & 0o777 == 0o700
            assert (tmp_path / "data" / "locks" / "gpu-0.lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "A", "x" * 64])
def test_a_name_that_is_no_label_reaches_no_path(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(errors.InventoryError, match="lock: "), locks.FileLocks(tmp_path).hold(["gpu-0", name], always):
        pass
    assert not list((tmp_path / "locks").iterdir())


def test_taking_more_while_holding_is_an_error_not_a_deadlock(tmp_path: pathlib.Path) -> None:
    device_locks = locks.FileLocks(tmp_path)
    with device_locks.hold(["gpu-0"], always):
        with pytest.raises(RuntimeError, match="already holds the locks gpu-0"), device_locks.hold(["gpu-0"], always):
            pass
        with pytest.raises(RuntimeError), device_locks.hold(["gpu-1"], always):
            pass
    with device_locks.hold(["gpu-1"], always):
        pass


def test_holding_no_lock_succeeds(tmp_path: pathlib.Path) -> None:
    with locks.FileLocks(tmp_path).hold([], always):
        pass


def test_threads_with_overlapping_sets_exclude_each_other_and_all_finish(tmp_path: pathlib.Path) -> None:
    device_locks = locks.FileLocks(tmp_path)
    devices = [f"gpu-{number}" for number in range(4)]
    holders = dict.fromkeys(devices, 0)
    overlaps: list[str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40):
            wanted = chance.sample(devices, chance.randint(1, 3))
            with device_locks.hold(wanted, always):
                for name in wanted:
                    holders[name] += 1
                overlaps.extend(name for name in wanted if holders[name] != 1)
                for name in wanted:
                    holders[name] -= 1

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=waits.SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert overlaps == []


def test_processes_exclude_each_other_by_name(tmp_path: pathlib.Path) -> None:
    device_locks = locks.FileLocks(tmp_path)
    taken = threading.Event()

    def take() -> None:
        with device_locks.hold(["gpu-0"], always):
            taken.set()

    with another_process_holds(tmp_path, "gpu-0", "gpu-2") as child:
        with device_locks.hold(["gpu-1"], always):
            pass
        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.1)
        child.communicate("")
        thread.join(timeout=waits.SECONDS)
        assert taken.is_set()


def test_a_killed_process_releases_its_locks(tmp_path: pathlib.Path) -> None:
    with another_process_holds(tmp_path, "gpu-0") as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        with locks.FileLocks(tmp_path).hold(["gpu-0"], always):
            assert not is_free(tmp_path, "gpu-0")


def test_processes_with_overlapping_sets_all_finish(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    script = """
import pathlib, random, sys
from drakit.journal import locks
device_locks, chance = locks.FileLocks(pathlib.Path(sys.argv[1])), random.Random(int(sys.argv[2]))
for _ in range(100):
    with device_locks.hold(chance.sample(["a", "b", "c", "d"], 2), lambda: True):
        pass
"""
    children = [commands.code(script, tmp_path, seed) for seed in range(3)]
    assert [child.wait(waits.SECONDS) for child in children] == [0, 0, 0]


def test_a_lock_file_deleted_by_hand_locks_again_on_the_new_one(tmp_path: pathlib.Path) -> None:
    device_locks = locks.FileLocks(tmp_path)
    entered = threading.Event()

    def take() -> None:
        with device_locks.hold(["gpu-0"], always):
            entered.set()

    with another_process_holds(tmp_path, "gpu-0") as first:
        waiting = threading.Thread(target=take)
        waiting.start()
        assert not entered.wait(0.1)
        (tmp_path / "locks" / "gpu-0.lock").unlink()
        with another_process_holds(tmp_path, "gpu-0") as second:
            first.communicate("")
            assert not entered.wait(0.1)
            second.communicate("")
            waiting.join(timeout=waits.SECONDS)
    assert entered.is_set()


def test_a_folder_that_cannot_be_made_names_the_fix(tmp_path: pathlib.Path) -> None:
    (tmp_path / "locks").write_text("")
    with pytest.raises(errors.JournalError, match="locks"):
        locks.FileLocks(tmp_path)


def test_a_wait_for_a_lock_ends_when_its_caller_leaves(tmp_path: pathlib.Path) -> None:
    for held, asking in [(locks.FileLocks(tmp_path), None), (locks.FileLocks(tmp_path), locks.FileLocks(tmp_path))]:
        outcomes: list[BaseException] = []
        with held.hold(["gpu-0"], always):
            waiter = threading.Thread(target=give_up, args=(asking or held, outcomes))
            waiter.start()
            waiter.join(waits.SECONDS)
        assert isinstance(outcomes[0], errors.CallerGoneError)
        with held.hold(["gpu-0"], always):
            pass


def give_up(device_locks: locks.FileLocks, outcomes: list[BaseException]) -> None:
    try:
        with device_locks.hold(["gpu-0"], lambda: False):
            pass
    except errors.CallerGoneError as error:
        outcomes.append(error)


def test_disposable_locks_exclude_and_leave_no_file_of_their_own(tmp_path: pathlib.Path) -> None:
    kinds = [locks.FileLocks(tmp_path, "claims", disposable=True) for _ in range(3)]
    inside, overlaps = [0], [0]

    def work(claim_locks: locks.FileLocks) -> None:
        for _ in range(50):
            with claim_locks.hold(["one-claim"], always):
                inside[0] += 1
                overlaps[0] += inside[0] != 1
                inside[0] -= 1

    threads = [threading.Thread(target=work, args=(kind,)) for kind in kinds for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(waits.SECONDS)
    assert overlaps == [0]
    assert [path.name for path in (tmp_path / "claims").iterdir()] == [locks.SHARED_FILE]
    assert stat.S_IMODE((tmp_path / "claims" / locks.SHARED_FILE).stat().st_mode) == 0o600


def test_disposable_locks_of_different_names_do_not_wait_for_each_other(tmp_path: pathlib.Path) -> None:
    mine, others = (locks.FileLocks(tmp_path, "claims", disposable=True) for _ in range(2))
    with mine.hold(["one-claim"], always):
        with others.hold(["another-claim"], always):
            pass
        with pytest.raises(errors.CallerGoneError), others.hold(["one-claim"], lambda: False):
            pass


def test_a_hold_that_was_never_closed_is_released_when_collected(tmp_path: pathlib.Path) -> None:
    """As where an exception falls between the end of the body and the lock's own: a tracer's, or a signal's."""
    taken = locks.FileLocks(tmp_path)
    hold = taken.hold(["gpu-0"], always)
    hold.__enter__()
    del hold
    with taken.hold(["gpu-0"], lambda: False):
        assert True


@pytest.mark.parametrize("disposable", [False, True], ids=["devices", "claims"])
def test_a_forked_child_keeps_no_lock(tmp_path: pathlib.Path, *, disposable: bool) -> None:
    taken = locks.FileLocks(tmp_path, disposable=disposable)
    with taken.hold(["gpu-0"], always):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with taken.hold(["gpu-0"], lambda: False):
            assert True
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("disposable", [False, True], ids=["devices", "claims"])
def test_the_error_of_a_wait_names_the_lock_and_the_kind_of_holder(tmp_path: pathlib.Path, *, disposable: bool) -> None:
    holder, asking = (locks.FileLocks(tmp_path, disposable=disposable) for _ in range(2))
    with holder.hold(["gpu-0"], always):
        with (
            pytest.raises(errors.LockedError, match=r"^gpu-0 is locked by another process, which did not") as caught,
            asking.hold(["gpu-0"], lambda: False),
        ):
            pass
        outcomes: list[BaseException] = []
        waiter = threading.Thread(target=give_up, args=(holder, outcomes))
        waiter.start()
        waiter.join(waits.SECONDS)
    assert caught.value.lock == "gpu-0"
    assert str(outcomes[0]).startswith("gpu-0 is locked by another call, which did not")
