"""The shared memory of an MPS daemon: a tmpfs of its own where the host sees it, and nothing left of it whenever the driver dies.

The folder that is shared with the host is played by a mount of the test's own; the host, and the driver's container, by a process with another
mount namespace that shares it.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from drakit_gpu import identity
from drakit_gpu.sharing.mps import daemon_folder, pod_daemons
from fakes import log_lines, mps_daemon, mps_pods

Record = Callable[[str, object], None]

GRANT = "67c1cba1-aaab-58cb-bb24-8e2024acd678/gpu-0/"
GPU = "GPU-00000000-0000-0000-0000-000000000001"
WANTED = identity.Mps(percentage=50)
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")]


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A folder with a mount of its own that is shared, as a kubelet's plugin folder is for a pod with Bidirectional mounts. Its path is short."""
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        try:
            subprocess.run(["mount", "--make-private", folder], check=True)
            subprocess.run(["mount", "--make-shared", folder], check=True)
            yield pathlib.Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def daemons(place: pathlib.Path) -> Iterator[pod_daemons.PodDaemons]:
    with mps_pods.daemons(place, mps_daemon.install(place / "root", shm=True), own_shm=True) as running:
        yield running


def serve(daemons: pod_daemons.PodDaemons, grant: str = GRANT) -> None:
    daemons.ensure(grant, GPU, WANTED)
    daemons.check(grant)


def kubelet_of(daemons: pod_daemons.PodDaemons) -> mps_pods.FakePods:
    return cast("mps_pods.FakePods", daemons.pods)


def evict(daemons: pod_daemons.PodDaemons) -> None:
    """End all pods, which the kubelet does not start again."""
    for name in kubelet_of(daemons).pods:
        kubelet_of(daemons).evict(name)


def mounts(folder: pathlib.Path, pid: str = "self") -> list[list[str]]:
    """Fields of the mounts below a folder, as a process sees them: point, options, kind, options of the file system."""
    points = []
    for fields in map(str.split, pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()):
        if fields[4].startswith(f"{folder}/"):
            kind = fields.index("-") + 1
            points.append([fields[4], fields[5], fields[kind], fields[kind + 2]])
    return points


def memory_of(daemons: pod_daemons.PodDaemons) -> pathlib.Path:
    return pathlib.Path(daemons.access(GRANT).mounts[1].host_path)


@contextlib.contextmanager
def another_namespace(*, result: str = "unchanged") -> Iterator[subprocess.Popen[bytes]]:
    """A process with a mount namespace of its own, whose shared mounts stay shared with this one's."""
    command = ["unshare", "--mount", f"--propagation={result}", "sh", "-c", "echo ready; read _"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        try:
            yield running
        finally:
            running.communicate(b"\n")


def test_daemon_clients_and_host_see_one_tmpfs_with_a_bound_that_runs_no_programs(
    place: pathlib.Path, daemons: pod_daemons.PodDaemons
) -> None:
    with another_namespace() as host:
        serve(daemons)
        memory = memory_of(daemons)
        (point, options, kind, _) = mounts(place, str(host.pid))[0]
        assert (point, kind) == (str(memory), "tmpfs")
        assert {"nosuid", "nodev", "noexec"} <= set(options.split(","))
        assert oct(memory.stat().st_mode & 0o7777) == "0o1777"
        seen = pathlib.Path(f"/proc/{host.pid}/root{memory}/mps-stand-in")
        assert seen.read_text() == "shared", "what the daemon wrote to its /dev/shm"
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
        assert os.statvfs(memory).f_blocks * os.statvfs(memory).f_frsize == pytest.approx(half, rel=0.01)
        daemons.stop(GRANT)
        assert mounts(place, str(host.pid)) == mounts(place) == []
    assert daemons.home is not None
    assert list(daemons.home.iterdir()) == []


def control(daemons: pod_daemons.PodDaemons, grant: str = GRANT) -> int:
    """The pid of a grant's daemon, which is in its mount namespace."""
    pid = daemon_folder.control_listener(pipe_of(daemons, grant))
    assert pid is not None
    return pid


def pipe_of(daemons: pod_daemons.PodDaemons, grant: str = GRANT) -> pathlib.Path:
    return pathlib.Path(daemons.access(grant).mounts[0].host_path)


def test_memory_of_a_claim_that_has_gone_is_not_held_by_another_claims_daemon(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    other = f"{GRANT}other"
    serve(daemons)
    serve(daemons, other)
    gone = str(memory_of(daemons))
    daemons.stop(GRANT)
    assert gone not in {mount[0] for mount in mounts(place, str(control(daemons, other)))}
    daemons.stop(other)


def test_a_server_with_another_user_id_reaches_only_the_pipe_in_closed_folders(
    place: pathlib.Path, daemons: pod_daemons.PodDaemons
) -> None:
    """NVIDIA's daemon starts its servers under the user id of a client that is not root."""
    serve(daemons)
    serve(daemons, f"{GRANT}other")
    pipe = pipe_of(daemons)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    inside = ["nsenter", f"--target={control(daemons)}", "--mount", *user]

    def can(command: list[str]) -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert can([*inside, "ls", str(pipe / "control")])
    assert not can([*user, "ls", str(pipe / "control")]), "on the host the folders are closed"
    assert pipe.parent.stat().st_mode & 0o777 == 0o700
    home = subprocess.run([*inside, "ls", str(pipe.parents[1])], capture_output=True, text=True, check=True).stdout.split()
    assert home == [pipe.parent.name], "no other claim's folder"
    beside = subprocess.run([*inside, "ls", str(pipe.parent)], capture_output=True, text=True, check=True).stdout.split()
    assert beside == ["log", "pipe"]
    daemons.check(GRANT)
    daemons.stop(GRANT)
    daemons.stop(f"{GRANT}other")


def test_a_restarted_driver_and_a_new_daemon_keep_the_shared_memory(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    serve(daemons)
    client = memory_of(daemons) / "of-a-container"
    client.write_text("still in use")
    serve(dataclasses.replace(daemons))
    evict(daemons)
    serve(dataclasses.replace(daemons))
    assert client.read_text() == "still in use"
    assert len(mounts(place)) == 1, "nothing is mounted twice"
    daemons.stop(GRANT)
    assert mounts(place) == []


def test_shared_memory_is_created_again_after_a_reboot(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    serve(daemons)
    evict(daemons)
    daemon_folder.unmount_shm(memory_of(daemons))
    daemons.stop(GRANT)  # a claim of an earlier boot is undone first
    serve(daemons)
    assert daemon_folder.is_shm_mounted(memory_of(daemons))
    daemons.stop(GRANT)


def test_a_plain_folder_that_containers_have_is_not_hidden_from_a_new_daemon(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    """As of a claim that was prepared before memory was mounted."""
    subprocess.run(["mount", "--make-private", str(place)], check=True)
    serve(daemons)
    subprocess.run(["mount", "--make-shared", str(place)], check=True)
    evict(daemons)
    serve(daemons)
    assert mounts(place) == []
    daemons.stop(GRANT)


def test_memory_of_a_grant_that_nobody_knows_is_swept(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    serve(daemons)
    evict(daemons)
    daemons.sweep(lambda: {GRANT})
    assert daemon_folder.is_shm_mounted(memory_of(daemons)), "the grant is known"
    daemons.sweep(tuple)
    assert mounts(place) == []
    assert daemons.home is not None
    assert list(daemons.home.iterdir()) == []


def test_without_mount_propagation_the_folder_stays_plain_with_a_log_line(
    place: pathlib.Path, daemons: pod_daemons.PodDaemons, logged: log_lines.LogLines
) -> None:
    subprocess.run(["mount", "--make-private", str(place)], check=True)
    serve(daemons)
    try:
        assert mounts(place) == []
        assert (memory_of(daemons) / "mps-stand-in").read_text() == "shared", "daemon and clients share it all the same"
        assert "mounts are not shared with the host" in logged.text
    finally:
        daemons.stop(GRANT)


def test_shared_memory_in_use_is_freed_with_its_last_user(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    serve(daemons)
    with (memory_of(daemons) / "open").open("w") as used:
        daemons.stop(GRANT)
        used.write("a container is slow to end")
    assert mounts(place) == []


PREPARE = """
import os, pathlib, signal, sys
from drakit_gpu import driver_root
from drakit_gpu import identity
from drakit_gpu.sharing.mps import pod_daemons
from fakes import mps_pods

folder, grant, gpu = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
pods = mps_pods.RemotePods(address=folder / "kubelet")
pod_daemons.PodDaemons(pods=pods, home=folder / "mps", root=driver_root.DriverRoot(path=folder / "root")).ensure(grant, gpu, identity.Mps())
os.kill(os.getpid(), signal.SIGKILL)
"""


def python(code: str, *arguments: object, inside: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    """A program of ours in a process of its own."""
    paths = [str(pathlib.Path(pod_daemons.__file__).parents[3]), str(pathlib.Path(mps_daemon.__file__).parents[1])]
    env = {"PYTHONPATH": ":".join(paths), "PATH": os.environ["PATH"]}
    command = [*inside, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, check=False, timeout=3000)


def test_memory_outlives_the_container_of_the_driver_that_mounted_it(place: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    with mps_pods.served(kubelet_of(daemons), place / "kubelet"):
        ended = python(PREPARE, place, GRANT, GPU, inside=("unshare", "--mount", "--propagation=unchanged"))
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert daemon_folder.is_shm_mounted(memory_of(daemons)), "the host has it, though the namespace in which it was mounted is gone"
    daemons.check(GRANT)
    daemons.stop(GRANT)
    assert mounts(place) == []


MATRIX = """
import os, pathlib, signal, sys
from drakit_gpu import driver_root
from drakit_gpu import identity
from drakit_gpu.sharing.mps import daemon_folder, pod_daemons
from fakes import mps_pods

folder, grant, gpu = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
home, root = folder / "mps", driver_root.DriverRoot(path=folder / "root")
pods = mps_pods.RemotePods(address=folder / "kubelet")
daemons = pod_daemons.PodDaemons(pods=pods, home=home, root=root, stop_seconds=0.5)
files = {pod_daemons.__file__, daemon_folder.__file__}


def ensure():
    daemons.ensure(grant, gpu, identity.Mps())


def life(act, at):
    '''Fork a life that dies when the line with this number is first reached; whether it died.'''
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    met = set()

    def trace(frame, event, _):
        if frame.f_code.co_filename not in files:
            return None
        if event == "line" and (key := (frame.f_code, frame.f_lineno)) not in met:
            met.add(key)
            if len(met) > at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    act()
    os._exit(0)


def check(point):
    assert not home.exists() or not list(home.iterdir()), point
    assert f"{folder}/" not in pathlib.Path("/proc/self/mountinfo").read_text(), point


points = 0
step = int(sys.argv[4])
for act in (ensure, lambda: daemons.stop(grant)):
    at = 0
    while True:
        if act is not ensure:
            ensure()
            daemons.check(grant)
        died = life(act, at)
        if act is ensure and at % 2:
            ensure()
            daemons.check(grant)
            assert pathlib.Path("/proc/self/mountinfo").read_text().count(f"{folder}/") == 1, at
        daemons.stop(grant)
        check((act, at))
        if not died:
            break
        at, points = at + step, points + 1
print(points)
"""


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(3600)])], ids=["sampled", "every"])
def test_a_driver_killed_at_a_line_leaves_no_memory_behind(
    place: pathlib.Path, daemons: pod_daemons.PodDaemons, step: int, record_property: Record
) -> None:
    with mps_pods.served(kubelet_of(daemons), place / "kubelet"):
        result = python(MATRIX, place, GRANT, GPU, step)
    assert result.returncode == 0, result.stderr.decode()
    points = int(result.stdout)
    record_property("matrix", f"MPS: {points} kills of the driver, by line, with shared memory mounted")
    assert points >= 80 // step
