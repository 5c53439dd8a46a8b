"""What root in a container puts into its claim's pipe folder leads neither the daemon nor the driver elsewhere.

The container's mount of the folder is played by writing to the folder as root.
"""

import contextlib
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_gpu.sharing import gpu_settings
from drakit_gpu.sharing.mps import child_daemons, daemon_folder, processes
from fakes import mps_daemon

GRANT, OTHER = "67c1cba1-aaab-58cb-bb24-8e2024acd678/gpu-0/", "67c1cba1-aaab-58cb-bb24-8e2024acd678/gpu-1/"
GPU = "GPU-00000000-0000-0000-0000-000000000001"
WANTED = gpu_settings.Mps(percentage=50)
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of one's own needs root")]


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A folder with a short path, because MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def daemons(place: pathlib.Path) -> Iterator[child_daemons.ChildDaemons]:
    made = child_daemons.ChildDaemons(home=place / "mps", root=mps_daemon.install(place / "root"), answer_seconds=5.0, stop_seconds=0.5)
    yield made
    for grant in (GRANT, OTHER):
        made.stop(grant)


def pipe_of(daemons: child_daemons.ChildDaemons, grant: str = GRANT) -> pathlib.Path:
    return pathlib.Path(daemons.access(grant).mounts[0].host_path)


def kill_all(daemons: child_daemons.ChildDaemons, grant: str = GRANT) -> None:
    pids = list(processes.with_environment(f"{child_daemons.PIPE_VARIABLE}={pipe_of(daemons, grant)}"))
    for process in pids:
        process.send(signal.SIGKILL)
    waiting = threading.Event()
    assert any(not any(process.is_alive() for process in pids) or waiting.wait(0.01) for _ in range(3000))


def test_a_link_planted_before_a_daemon_starts_is_removed_and_not_followed(
    place: pathlib.Path, daemons: child_daemons.ChildDaemons
) -> None:
    victim = place / "victim"
    victim.write_text("of the node")
    daemons.ensure(GRANT, GPU, WANTED)
    kill_all(daemons)
    pipe = pipe_of(daemons)
    (pipe / "told").unlink()
    (pipe / "told").symlink_to(victim)
    (pipe / "a-folder").mkdir()
    (pipe / "a-folder" / "out").symlink_to(place)
    os.mkfifo(pipe / "log")
    daemons.ensure(GRANT, GPU, WANTED)
    assert victim.read_text() == "of the node"
    assert sorted(file.name for file in pipe.iterdir()) == ["control", "told"]
    assert (pipe / "told").is_file()


def test_a_link_planted_while_a_daemon_runs_is_not_followed_by_it(place: pathlib.Path, daemons: child_daemons.ChildDaemons) -> None:
    victim = place / "victim"
    victim.write_text("of the node")
    daemons.ensure(GRANT, GPU, WANTED)
    pipe = pipe_of(daemons)
    (pipe / "told").unlink()
    (pipe / "told").symlink_to(victim)
    daemons.check(GRANT)
    assert victim.read_text() == "of the node"


def test_a_device_node_planted_in_the_folders_cannot_be_opened_by_the_daemon(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    pipe, shm = (pathlib.Path(mount.host_path) for mount in daemons.access(GRANT).mounts)
    (running,) = [
        process for process in processes.with_environment(f"{child_daemons.PIPE_VARIABLE}={pipe}") if "-f" in process.command_line()
    ]
    for folder, seen in ((pipe, pipe), (shm, pathlib.Path("/dev/shm"))):
        os.mknod(folder / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        with (folder / "zero").open("rb") as works:
            assert works.read(1) == b"\0"
        command = ["nsenter", f"--target={running.pid}", "--mount", "head", "-c1", str(seen / "zero")]
        assert "Permission denied" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_link_to_another_claims_control_socket_ends_nobody_elses_daemon(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    daemons.ensure(OTHER, GPU, WANTED)
    pipe = pipe_of(daemons)
    (pipe / "control").unlink()
    (pipe / "control").symlink_to(pipe_of(daemons, OTHER) / "control")
    with pytest.raises(errors.HardwareError, match="no process listens on the control socket"):
        daemons.check(GRANT)
    daemons.stop(GRANT)
    daemons.check(OTHER)
    assert not (pipe_of(daemons, OTHER) / "told").read_text().count("quit")


FALSE_DAEMON = """
import contextlib, os, socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    while True:
        line, _ = listener.accept()
        with line, contextlib.suppress(OSError):
            print(repr(line.makefile().read()), flush=True)
            line.sendall(b"100.0\\n")
"""


@contextlib.contextmanager
def false_daemon(pipe: pathlib.Path, *before: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that is no daemon and listens in its place."""
    (pipe / "control").unlink(missing_ok=True)
    command = [*before, sys.executable, "-c", FALSE_DAEMON, str(pipe / "control")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield running
        finally:
            running.kill()


def test_a_socket_that_a_pod_serves_is_sent_nothing_and_is_named(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    with false_daemon(pipe_of(daemons)) as false:
        with pytest.raises(
            errors.HardwareError, match="a process other than the daemon listens on the control socket; a pod of the claim put it there"
        ):
            daemons.check(GRANT)
        false.kill()
        assert false.stdout is not None
        assert set(false.stdout.read().splitlines()) <= {"''"}


def test_a_containers_process_is_no_daemon_whatever_its_environment_says(daemons: child_daemons.ChildDaemons) -> None:
    daemons.ensure(GRANT, GPU, WANTED)
    pipe = pipe_of(daemons)
    variable = f"{child_daemons.PIPE_VARIABLE}={pipe}"
    with false_daemon(pipe, "unshare", "--pid", "--fork", "--kill-child", "env", variable):
        listener = daemon_folder.control_listener(pipe)
        assert listener is not None
        assert variable.encode() in pathlib.Path(f"/proc/{listener}/environ").read_bytes().split(b"\0")
        assert listener not in {process.pid for process in processes.with_environment(variable)}
        with pytest.raises(errors.HardwareError, match="a process other than the daemon listens"):
            daemons.check(GRANT)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_the_listener_is_who_the_kernel_says(tmp_path: pathlib.Path, kind: socket.SocketKind) -> None:
    assert daemon_folder.control_listener(tmp_path) is None
    with socket.socket(socket.AF_UNIX, kind) as listening:
        listening.bind(str(tmp_path / "control"))
        assert daemon_folder.control_listener(tmp_path) is None, "bound, and nobody listens"
        listening.listen()
        assert daemon_folder.control_listener(tmp_path) == os.getpid()
    assert daemon_folder.control_listener(tmp_path) is None
