"""MPS daemons as child processes, beyond the contract that both kinds keep: crashes of the driver, notes, options, shared memory.

Shown on a stand-in for nvidia-cuda-mps-control.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_gpu.sharing import gpu_settings
from drakit_gpu.sharing.mps import child_daemons, launcher, processes
from fakes import mps_daemon

GRANT = "67c1cba1-aaab-58cb-bb24-8e2024acd678/gpu-0/"
GPU = "GPU-00000000-0000-0000-0000-000000000001"
WANTED = gpu_settings.Mps(percentage=50, memory=3 << 30)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of one's own needs root")


@pytest.fixture
def daemons(tmp_path: pathlib.Path) -> Iterator[child_daemons.ChildDaemons]:
    made = child_daemons.ChildDaemons(home=tmp_path / "mps", root=mps_daemon.install(tmp_path / "root"), own_shm=False)
    yield made
    made.stop(GRANT)


def behaving(daemons: child_daemons.ChildDaemons, behaviour: str) -> child_daemons.ChildDaemons:
    mps_daemon.install(daemons.root.path, behaviour)
    return dataclasses.replace(daemons, stop_seconds=0.5)


def living(daemons: child_daemons.ChildDaemons) -> list[int]:
    """Pids of everything that has a folder below the home in its environment."""
    assert daemons.home is not None
    return [
        process.pid
        for folder in daemons.home.glob("*")
        for process in processes.with_environment(f"CUDA_MPS_PIPE_DIRECTORY={folder / 'pipe'}")
    ]


def test_a_server_for_several_users_is_asked_for_by_an_option(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, gpu_settings.Mps(multi_user=True))
    assert daemons.home is not None
    assert mps_daemon.commands_received(daemons.home)[0] == "-f -multiuser-server"


def test_a_driver_without_a_folder_has_no_daemons() -> None:
    with pytest.raises(errors.HardwareError, match="no folder to keep daemons in"):
        child_daemons.ChildDaemons().ensure(GRANT, GPU, WANTED)


def test_a_pid_that_another_process_has_now_is_left_alone(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    daemons.stop(GRANT)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        process = processes.Process.find(stranger.pid)
        assert process is not None
        folder = daemons._folder(GRANT)  # where a daemon of an earlier boot left its file
        folder.mkdir(parents=True)
        (folder / "daemon.json").write_text(f'{{"pid": {process.pid}, "start": {process.start}}}')
        assert not daemons.is_alive(GRANT)
        daemons.stop(GRANT)
        assert stranger.poll() is None


def test_the_gate_stays_shut_when_the_driver_dies_before_it_wrote_the_pid_down() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", launcher.__file__, "shut", "-", "-", "/bin/echo", "opened"], input=b"", capture_output=True, check=True
    )
    opened = subprocess.run(
        [sys.executable, "-I", launcher.__file__, "shut", "-", "-", "/bin/echo", "opened"], input=b"!", capture_output=True, check=True
    )
    assert (ended.stdout, opened.stdout) == (b"", b"opened\n")


@pytest.mark.root
@needs_root
def test_the_daemon_has_the_grants_folder_as_its_shared_memory() -> None:
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as name:  # The daemon does not see the host's /dev/shm.
        folder = pathlib.Path(name)
        daemons = child_daemons.ChildDaemons(home=folder / "mps", root=mps_daemon.install(folder / "root", shm=True))
        daemons.ensure(GRANT, GPU, WANTED)
        try:
            assert not pathlib.Path("/dev/shm/mps-stand-in").exists()
            assert [file.read_text() for file in (folder / "mps").glob("*/shm/mps-stand-in")] == ["shared"]
        finally:
            daemons.stop(GRANT)


def test_an_unreadable_record_stops_no_daemon_and_does_not_prevent_a_stop(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    assert daemons.home is not None
    (note,) = daemons.home.glob("*/daemon.json")
    first = living(daemons)
    note.write_text("")
    daemons.ensure(GRANT, GPU, WANTED)
    assert living(daemons) == first, "found by its environment and its command line"
    note.write_text("[]")
    daemons.stop(GRANT)
    assert not living(daemons)


def control(daemons: child_daemons.ChildDaemons) -> int:
    """The pid of the only daemon, without its server."""
    assert daemons.home is not None
    (note,) = daemons.home.glob("*/daemon.json")
    pid: int = json.loads(note.read_text())["pid"]
    return pid


@contextlib.contextmanager
def hung(pid: int) -> Iterator[None]:
    """A process that does nothing, as one does that waits for the GPU or that a loaded machine gives no time."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_gate_that_a_dead_driver_left_is_not_taken_for_a_daemon_that_ended_at_once(daemons: child_daemons.ChildDaemons) -> None:
    folder = daemons._folder(GRANT)  # where a driver leaves its note before it opens the gate
    (folder / "pipe").mkdir(parents=True)
    command = [sys.executable, "-I", launcher.__file__, "shut", "-", "-", "/bin/echo"]
    env = {child_daemons.PIPE_VARIABLE: str(folder / "pipe")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as left:
        process = processes.Process.find(left.pid)
        assert process is not None
        (folder / "daemon.json").write_text(f'{{"pid": {process.pid}, "start": {process.start}, "limited": false}}')
        assert left.stdin is not None
        driver_dies = threading.Timer(0.5, left.stdin.close)
        driver_dies.start()
        daemons.ensure(GRANT, GPU, WANTED)
        driver_dies.join()
    daemons.check(GRANT)


def test_a_daemon_without_limits_gets_them_and_keeps_running(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    assert daemons.home is not None
    first = living(daemons)
    (note,) = daemons.home.glob("*/daemon.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "limited": False}))
    daemons.ensure(GRANT, GPU, WANTED)
    assert living(daemons) == first
    limits = ["set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 3072M"]
    assert mps_daemon.commands_received(daemons.home)[2:] == limits * 2


def test_a_folder_of_a_grant_that_nobody_knows_is_swept_unless_something_of_it_lives(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    assert daemons.home is not None
    (kept,) = daemons.home.iterdir()
    lost = daemons.home / hashlib.sha256(b"lost").hexdigest()[:16]
    claimed = daemons.home / hashlib.sha256(b"known").hexdigest()[:16]
    lost.mkdir()
    claimed.mkdir()
    daemons.sweep(lambda: {"known"})
    assert sorted(daemons.home.iterdir()) == sorted([kept, claimed])
    daemons.check(GRANT)
