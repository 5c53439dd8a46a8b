"""What root in a container puts into its claim's pipe folder leads neither the daemon nor the driver elsewhere.

The container's mount of the folder is played by writing to the folder as root.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_gpu import identity
from drakit_gpu.sharing.mps import control_daemon, daemon_folder, processes
from fakes import mps_daemon, waits

GPU = "GPU-00000000-0000-0000-0000-000000000001"
WANTED = identity.Mps(percentage=50)
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of one's own needs root")]


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A folder with a short path, because MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        yield pathlib.Path(folder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Daemon:
    """A grant's folder and its daemon."""

    folder: pathlib.Path
    control: control_daemon.ControlDaemon

    @property
    def pipe(self) -> pathlib.Path:
        return self.folder / "pipe"

    def start(self) -> int:
        return self.control.start(GPU, WANTED)

    def kill(self) -> None:
        pids = list(processes.with_environment(daemon_folder.variable(self.folder)))
        for process in pids:
            process.send(signal.SIGKILL)
        assert waits.eventually(lambda: not any(process.is_alive() for process in pids))


def daemon_of(place: pathlib.Path, name: str) -> Iterator[Daemon]:
    folder, root = place / name, mps_daemon.install(place / "root")
    daemon_folder.create(folder)
    made = Daemon(folder=folder, control=control_daemon.ControlDaemon(folder, root, own_shm=True, stop_seconds=0.5))
    yield made
    made.control.stop()


@pytest.fixture
def daemon(place: pathlib.Path) -> Iterator[Daemon]:
    yield from daemon_of(place, "mine")


@pytest.fixture
def other(place: pathlib.Path) -> Iterator[Daemon]:
    yield from daemon_of(place, "other")


def test_a_link_planted_before_a_daemon_starts_is_removed_and_not_followed(place: pathlib.Path, daemon: Daemon) -> None:
    victim = place / "victim"
    victim.write_text("of the node")
    daemon.start()
    daemon.kill()
    pipe = daemon.pipe
    (pipe / "told").unlink()
    (pipe / "told").symlink_to(victim)
    (pipe / "a-folder").mkdir()
    (pipe / "a-folder" / "out").symlink_to(place)
    os.mkfifo(pipe / "log")
    daemon.start()
    assert victim.read_text() == "of the node"
    assert sorted(file.name for file in pipe.iterdir()) == ["control", "told"]
    assert (pipe / "told").is_file()


def test_a_link_planted_while_a_daemon_runs_is_not_followed_by_it(place: pathlib.Path, daemon: Daemon) -> None:
    victim = place / "victim"
    victim.write_text("of the node")
    daemon.start()
    pipe = daemon.pipe
    (pipe / "told").unlink()
    (pipe / "told").symlink_to(victim)
    daemon.control.check()
    assert victim.read_text() == "of the node"


def test_a_device_node_planted_in_the_folders_cannot_be_opened_by_the_daemon(daemon: Daemon) -> None:
    pid, shm = daemon.start(), daemon.folder / "shm"
    for folder, seen in ((daemon.pipe, daemon.pipe), (shm, pathlib.Path("/dev/shm"))):
        os.mknod(folder / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        with (folder / "zero").open("rb") as works:
            assert works.read(1) == b"\0"
        command = ["nsenter", f"--target={pid}", "--mount", "head", "-c1", str(seen / "zero")]
        assert "Permission denied" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_link_to_another_claims_control_socket_ends_nobody_elses_daemon(daemon: Daemon, other: Daemon) -> None:
    daemon.start()
    other.start()
    (daemon.pipe / "control").unlink()
    (daemon.pipe / "control").symlink_to(other.pipe / "control")
    with pytest.raises(errors.HardwareError, match="no process listens on the control socket"):
        daemon.control.check()
    daemon.control.stop()
    other.control.check()
    assert not (other.pipe / "told").read_text().count("quit")


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


def test_a_socket_that_a_pod_serves_is_sent_nothing_and_is_named(daemon: Daemon) -> None:
    daemon.start()
    with false_daemon(daemon.pipe) as false:
        with pytest.raises(
            errors.HardwareError, match="a process other than the daemon listens on the control socket; a pod of the claim put it there"
        ):
            daemon.control.check()
        false.kill()
        assert false.stdout is not None
        assert set(false.stdout.read().splitlines()) <= {"''"}


IN_A_POD = """
import pathlib, sys
from drakit.core import errors
from drakit_gpu import driver_root
from drakit_gpu import identity
from drakit_gpu.sharing.mps import control_daemon

daemon = control_daemon.ControlDaemon(pathlib.Path(sys.argv[1]), driver_root.DriverRoot(path=pathlib.Path(sys.argv[2])), own_shm=True)
daemon.start(sys.argv[3], identity.Mps())
print("ready", flush=True)
input()
try:
    daemon.check()
except errors.HardwareError as error:
    print(error, flush=True)
"""


def test_a_containers_process_is_no_daemon_whatever_its_environment_says(place: pathlib.Path, daemon: Daemon) -> None:
    """A pod of a daemon has its own PID namespace, as containers of the claim have."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", IN_A_POD]
    arguments = [str(daemon.folder), str(place / "root"), GPU]
    with subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout is not None
        assert pod.stdout.readline() == "ready\n"
        with false_daemon(daemon.pipe, "env", daemon_folder.variable(daemon.folder)):
            listener = daemon_folder.control_listener(daemon.pipe)
            assert listener in {process.pid for process in processes.with_environment(daemon_folder.variable(daemon.folder))}
            told, _ = pod.communicate("\n", timeout=waits.SECONDS)
    assert "a process other than the daemon listens" in told


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_the_listener_is_identified_by_peer_credentials(tmp_path: pathlib.Path, kind: socket.SocketKind) -> None:
    assert daemon_folder.control_listener(tmp_path) is None
    with socket.socket(socket.AF_UNIX, kind) as listening:
        listening.bind(str(tmp_path / "control"))
        assert daemon_folder.control_listener(tmp_path) is None, "bound, and nobody listens"
        listening.listen()
        assert daemon_folder.control_listener(tmp_path) == os.getpid()
    assert daemon_folder.control_listener(tmp_path) is None
