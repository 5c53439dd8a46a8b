"""MPS daemons in pods: a daemon lives as long as its grant, has its limits, and is never ended while its grant is prepared.

Shown on a stand-in for nvidia-cuda-mps-control; pods are processes that a fake kubelet runs with the real program.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from drakit.core import errors
from drakit_gpu import driver_root, identity
from drakit_gpu.sharing.mps import control_daemon, daemon_folder, pod_daemons, processes, supervisor
from fakes import mps_daemon, mps_pods, waits

GRANT = "67c1cba1-aaab-58cb-bb24-8e2024acd678/gpu-0/"
OTHER = f"{GRANT}share"
GPU = "GPU-00000000-0000-0000-0000-000000000001"
WANTED = identity.Mps(percentage=50, memory=3 << 30)
LIMITS = ["set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 3072M"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """The daemons of a node, which a new process of the driver finds."""

    folder: pathlib.Path
    kubelet: mps_pods.FakePods

    @property
    def daemons(self) -> pod_daemons.PodDaemons:
        root = driver_root.DriverRoot(path=self.folder / "root")
        return pod_daemons.PodDaemons(pods=self.kubelet, home=self.home, root=root, own_shm=False, stop_seconds=0.5)

    @property
    def home(self) -> pathlib.Path:
        return self.folder / "mps"

    def serve(self, grant: str = GRANT, wanted: identity.Mps = WANTED) -> None:
        self.daemons.ensure(grant, GPU, wanted, claim="default/a")
        self.daemons.check(grant)

    def behave(self, behaviour: str) -> None:
        mps_daemon.install(self.folder / "root", behaviour)

    def living(self, grant: str = GRANT) -> list[processes.Process]:
        """The daemon and all that it started."""
        return mps_pods.living(self.home).get(daemon_folder.name_of(grant), [])


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder with a short path, because MPS has a socket in it."""
    with tempfile.TemporaryDirectory(prefix="dk", dir="/tmp") as made:
        yield pathlib.Path(made)


@pytest.fixture
def kubelet(folder: pathlib.Path) -> Iterator[mps_pods.FakePods]:
    made = mps_pods.FakePods(folder / "pods.log", grace=0.5)
    yield made
    made.close()


@pytest.fixture
def node(folder: pathlib.Path, kubelet: mps_pods.FakePods) -> Node:
    mps_daemon.install(folder / "root")
    return Node(folder=folder, kubelet=kubelet)


@pytest.fixture
def pods(node: Node) -> pod_daemons.PodDaemons:
    return node.daemons


def test_a_daemon_gets_its_device_and_its_limits_and_serves(node: Node) -> None:
    node.serve()
    assert mps_daemon.commands_received(node.home) == ["-f", GPU, *LIMITS]
    assert node.daemons.is_alive(GRANT)


def test_the_program_of_a_pod_starts_alone_and_ends_by_sigterm(folder: pathlib.Path) -> None:
    command = [sys.executable, "-I", "-m", supervisor.__name__, str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        assert program.stderr.readline().startswith("nothing to run: ")
        program.send_signal(signal.SIGTERM)
        assert program.wait(waits.SECONDS) == 0


def test_only_containers_of_the_claim_reach_its_daemon(node: Node) -> None:
    node.serve()
    access = node.daemons.access(GRANT)
    places = {mount.container_path: pathlib.Path(mount.host_path) for mount in access.mounts}
    folder = places["/tmp/nvidia-mps"].parent
    assert access.env == {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    assert [oct(path.stat().st_mode & 0o7777) for path in (folder.parent, folder, folder / "log")] == ["0o700"] * 3
    assert oct(places["/tmp/nvidia-mps"].stat().st_mode & 0o7777) == "0o755"
    assert oct(places["/dev/shm"].stat().st_mode & 0o7777) == "0o1777"
    assert {oct(file.stat().st_mode & 0o077) for file in folder.iterdir() if file.is_file() or file.is_socket()} == {"0o0"}


def test_another_process_of_the_driver_finds_the_daemon_and_leaves_it(node: Node) -> None:
    node.serve()
    first = node.living()
    assert len(first) == 2, "the daemon and its server"
    node.serve()
    assert node.living() == first
    assert mps_daemon.commands_received(node.home)[2:] == LIMITS


def test_a_dead_daemon_is_restarted_with_its_limits(node: Node) -> None:
    node.serve()
    first = node.living()
    for one in first:
        one.send(signal.SIGKILL)
    assert waits.eventually(lambda: not set(first) & set(node.living()))
    assert waits.eventually(lambda: not node.daemons.is_alive(GRANT) or bool(node.living()))

    def serves() -> bool:
        try:
            node.serve()
        except errors.HardwareError:
            return False  # its pod waits to be started again
        return True

    assert waits.eventually(serves)
    assert not set(first) & set(node.living())
    assert mps_daemon.commands_received(node.home) == ["-f", GPU, *LIMITS]


def test_each_grant_has_a_daemon_of_its_own(node: Node) -> None:
    node.serve()
    node.serve(OTHER)
    first = node.living()
    node.daemons.stop(OTHER)
    assert node.living() == first
    node.daemons.check(GRANT)
    assert (node.daemons.is_alive(GRANT), node.daemons.is_alive(OTHER)) == (True, False)


def test_a_stopped_daemon_leaves_nothing_and_stopping_again_succeeds(node: Node) -> None:
    node.serve()
    pids = node.living()
    node.daemons.stop(GRANT)
    node.daemons.stop(GRANT)
    assert list(node.home.iterdir()) == []
    assert not any(one.is_alive() for one in pids)
    assert not node.daemons.is_alive(GRANT)


def test_a_daemon_that_ignores_quit_is_killed_with_its_server(node: Node) -> None:
    node.behave("stubborn")
    node.serve()
    pids = node.living()
    node.daemons.stop(GRANT)
    assert not any(one.is_alive() for one in pids)


def test_a_daemon_that_exits_at_start_is_an_error_with_its_output(node: Node) -> None:
    node.behave("broken")
    with pytest.raises(errors.HardwareError, match="ended at once: no CUDA-capable device"):
        node.serve()
    node.daemons.stop(GRANT)
    assert node.living() == []


def test_a_missing_program_is_an_error_that_names_the_fix(node: Node) -> None:
    (node.folder / "root/usr/bin" / control_daemon.CONTROL).unlink()
    with pytest.raises(errors.HardwareError, match=r"is not installed below .*; MPS needs it: install it"):
        node.serve()


def test_a_daemon_that_does_not_answer_is_left_running_and_the_error_says_so(node: Node) -> None:
    node.serve()
    first = node.living()
    for one in first:
        os.kill(one.pid, signal.SIGSTOP)
    node.daemons.ensure(GRANT, GPU, WANTED)
    with pytest.raises(
        errors.HardwareError,
        match=r"pod drakit-mps-\w{16}: the claim's daemon does not answer .*; it is left running for its pods: wait, or end",
    ):
        node.daemons.check(GRANT)
    assert node.living() == first
    assert node.daemons.is_alive(GRANT)
    for one in first:
        os.kill(one.pid, signal.SIGCONT)
    node.daemons.check(GRANT)


def test_a_sweep_ends_only_daemons_of_unknown_grants(node: Node) -> None:
    node.serve()
    lost = node.home / daemon_folder.name_of("lost")
    lost.mkdir()
    node.daemons.sweep(lambda: {GRANT})
    assert sorted(node.home.iterdir()) == [node.home / daemon_folder.name_of(GRANT)]
    node.daemons.check(GRANT)


def test_a_sweep_that_knows_no_grant_ends_no_daemon(node: Node) -> None:
    node.serve()
    first = node.living()
    node.daemons.sweep(tuple)  # what a driver knows right after it lost its journal
    node.daemons.check(GRANT)
    assert node.living() == first


def test_only_the_first_prepare_of_a_pods_daemon_needs_the_api_server(kubelet: mps_pods.FakePods, pods: pod_daemons.PodDaemons) -> None:
    kubelet.away = True
    with pytest.raises(errors.ApiError, match=r"the pod of the claim's MPS daemon cannot be created: the API server does not answer"):
        pods.ensure(GRANT, GPU, WANTED)
    pods.stop(OTHER)
    kubelet.away = False
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    kubelet.away = True
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    pods.stop(GRANT)
    assert pods.home is not None
    assert not list(pods.home.iterdir())
    assert not mps_pods.living(pods.home)
    assert list(kubelet.pods), "the pod is left, without a daemon"
    kubelet.away = False
    pods.sweep(lambda: ())
    assert waits.eventually(lambda: not kubelet.pods)


def test_an_evicted_pod_is_replaced_and_one_that_never_starts_is_named(kubelet: mps_pods.FakePods, pods: pod_daemons.PodDaemons) -> None:
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    (name,) = kubelet.pods
    kubelet.evict(name)
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    assert list(kubelet.pods) == [name]
    kubelet.stuck = "ImagePullBackOff: no such image"
    pods.ensure(OTHER, GPU, WANTED)
    with pytest.raises(
        errors.HardwareError, match=r"pod drakit-mps-\w{16} of the claim's daemon is starting for 1 s: ImagePullBackOff: no such"
    ):
        dataclasses.replace(pods, start_seconds=1.0).check(OTHER)
    pods.stop(OTHER)
    assert list(kubelet.pods) == [name]


def test_a_drained_pod_serves_until_its_claim_is_unprepared(kubelet: mps_pods.FakePods, pods: pod_daemons.PodDaemons) -> None:
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    ((name, pod),) = kubelet.pods.items()
    assert pod.running is not None
    pod.running.send_signal(signal.SIGTERM)
    pods.check(GRANT)
    pods.stop(GRANT)
    assert pod.wanted.labels["drakit.dev/claim-uid"] == GRANT.split("/", maxsplit=1)[0]
    assert waits.eventually(lambda: name not in kubelet.pods)


def test_a_pod_that_could_not_be_deleted_serves_its_claim_again(kubelet: mps_pods.FakePods, pods: pod_daemons.PodDaemons) -> None:
    pods.ensure(GRANT, GPU, WANTED)
    pods.check(GRANT)
    kubelet.away = True
    pods.stop(GRANT)
    kubelet.away = False
    before = list(kubelet.pods)

    def serves() -> bool:
        """One call of the kubelet, which repeats it."""
        pods.ensure(GRANT, GPU, WANTED)
        with contextlib.suppress(errors.HardwareError):
            dataclasses.replace(pods, start_seconds=5.0).check(GRANT)
            return True
        return False

    assert before
    assert pods.home is not None
    assert waits.eventually(serves)
    assert mps_daemon.commands_received(pods.home) == ["-f", GPU, *LIMITS]


def test_a_claim_that_moved_here_has_a_pod_beside_that_of_its_silent_node(kubelet: mps_pods.FakePods, pods: pod_daemons.PodDaemons) -> None:
    kubelet.stuck = "the node is silent"
    for node in ("n1", "n2"):
        kubelet.node = node
        pods.ensure(GRANT, GPU, WANTED)
    assert len(kubelet.pods) == 2


def test_a_server_for_several_users_needs_an_option(node: Node) -> None:
    node.serve(wanted=identity.Mps(multi_user=True))
    assert mps_daemon.commands_received(node.home)[0] == "-f -multiuser-server"


def test_without_a_template_a_new_daemon_is_refused_and_the_error_names_the_setting(node: Node) -> None:
    with pytest.raises(
        errors.ConfigError, match=r"gpu\.mps_template is not set\. Install .* and set gpu\.mps_template to its NAMESPACE/NAME"
    ):
        dataclasses.replace(node.daemons, pods=None).ensure(GRANT, GPU, WANTED)
    assert not node.home.exists()


def test_without_a_template_the_daemon_of_an_earlier_driver_is_still_stopped(node: Node) -> None:
    node.serve()
    dataclasses.replace(node.daemons, pods=None).stop(GRANT)
    assert node.living() == []
    assert list(node.home.iterdir()) == []


@pytest.mark.parametrize("has_template", [False, True])
def test_the_folder_of_an_older_drivers_daemon_is_removed_with_its_claim(node: Node, has_template: bool) -> None:  # noqa: FBT001 - a parameter of the test
    left = node.home / daemon_folder.name_of(GRANT)
    daemon_folder.create(left)
    (left / "daemon.json").write_text('{"pid": 1, "start": 1, "limited": true}')
    daemons = node.daemons if has_template else dataclasses.replace(node.daemons, pods=None)
    daemons.sweep(lambda: {GRANT})
    assert not daemons.is_alive(GRANT)
    daemons.stop(GRANT)
    assert list(node.home.iterdir()) == []
