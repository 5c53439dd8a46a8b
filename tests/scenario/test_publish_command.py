"""``drakit publish`` as processes: of two one writes, and when that one is killed the other takes over and mends what was broken meanwhile."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import LEASE, NAMESPACE, SLICE
from fakes import forked_cli, waits

DRIVER = "tpu.drakit.dev"
ELECTION = {"duration": "4", "renew_deadline": "3", "retry": "0.5"}


class Cluster:
    """An API server that enforces rights, and publishers beside it with the rights of the manifests."""

    def __init__(self, server: apiserver.ApiServer, folder: pathlib.Path, commands: forked_cli.Commands) -> None:
        self.server, self._commands = server, commands
        self.kubeconfig = folder / "config"
        server.write_kubeconfig(self.kubeconfig)

    def words(self, *arguments: str, machine: str = "tpu-v5e-8x8") -> list[str]:
        settings = [f"--set=election.{key}={value}" for key, value in ELECTION.items()]
        return ["publish", "tpu", "--mock", machine, "--kubeconfig", str(self.kubeconfig), *settings, *arguments]

    @contextlib.contextmanager
    def publisher(self, identity: str) -> Iterator[forked_cli.Started]:
        words = self.words("--set", f"election.identity={identity}")
        with pathlib.Path(os.devnull).open("wb") as nothing:
            process = self._commands.start(*words, out=nothing.fileno(), folder=pathlib.Path.cwd(), environment=os.environ)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def once(self, *arguments: str, machine: str = "tpu-v5e-8x8") -> subprocess.CompletedProcess[str]:
        return self._commands.run(*self.words("--once", *arguments, machine=machine))

    def slices(self) -> list[Object]:
        return self.server.registry.list(SLICE).items

    def devices(self) -> int:
        return sum(len(json_types.items(one, "spec", "devices")) for one in self.slices())

    def holder(self) -> str:
        try:
            return json_types.text(self.server.registry.get(LEASE, DRIVER, "drakit-system"), "spec", "holderIdentity")
        except errors.NotFoundError:
            return ""


@pytest.fixture
def cluster(tmp_path: pathlib.Path, commands: forked_cli.Commands) -> Iterator[Cluster]:
    with apiserver.ApiServer(registry.Registry()) as server:
        server.registry.create(NAMESPACE, {"metadata": {"name": "drakit-system"}})
        yield Cluster(server, tmp_path, commands)


def until(holds: Callable[[], bool], what: str, seconds: float = waits.SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)


@pytest.mark.long
def test_one_of_two_publishers_writes_and_the_other_takes_over_after_a_kill(cluster: Cluster) -> None:
    with cluster.publisher("first") as first:
        until(lambda: cluster.devices() == 31 and cluster.holder() == "first", "the first publisher's slices")
        with cluster.publisher("second"):
            published = cluster.slices()
            first.kill()
            cluster.server.registry.delete_collection(SLICE)
            until(lambda: cluster.holder() == "second", "the second publisher's lease")
            until(lambda: cluster.devices() == 31, "the slices of the second")
            assert len(cluster.slices()) == len(published)
            assert {json_types.text(one, "spec", "pool", "name") for one in cluster.slices()} == {"tpus"}


def test_a_stopped_publisher_releases_the_lease_and_keeps_the_slices(cluster: Cluster) -> None:
    with cluster.publisher("first") as first:
        until(lambda: cluster.devices() == 31, "the slices")
        first.send_signal(signal.SIGTERM)
        assert first.wait(waits.SECONDS) == 0
    assert (cluster.holder(), cluster.devices()) == ("", 31)
    done = cluster.once()
    assert done.returncode == 0, done.stderr


def test_publish_once_writes_the_slices_and_fails_while_another_leads(cluster: Cluster) -> None:
    assert cluster.once(machine="tpu-v5e-16x16").returncode == 0
    assert cluster.devices() == 127
    assert cluster.once().returncode == 0
    assert (cluster.devices(), cluster.holder()) == (31, "")
    with cluster.publisher("first"):
        until(lambda: cluster.holder() == "first", "the lease")
        refused = cluster.once()
        assert refused.returncode == 1
        assert refused.stderr.strip().endswith("another publisher leads: first")


def test_withdrawing_leaves_no_slice_and_refuses_while_a_publisher_leads(cluster: Cluster) -> None:
    with cluster.publisher("first") as first:
        until(lambda: cluster.devices() == 31 and cluster.holder() == "first", "the slices")
        refused = cluster.once("--withdraw")
        assert (refused.returncode, cluster.devices()) == (1, 31)
        assert refused.stderr.strip().endswith("another publisher leads: first")
        first.send_signal(signal.SIGTERM)
        assert first.wait(waits.SECONDS) == 0
    done = cluster.once("--withdraw")
    assert (done.returncode, cluster.slices(), cluster.holder()) == (0, [], ""), done.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["publish", "gpu", "--mock", "tpu-v5e-8x8"], "'gpu' has no devices of several nodes; installed are gpu, nic, tpu"),
        (["publish", "tpu"], "TPUs are only known as mock machines yet; name one, for example tpu-v5e-8x8"),
        (["publish", "tpu", "--mock", "dgx-h100"], "dgx-h100 has no TPUs; machines with some: tpu-v5e-16x16, tpu-v5e-8x8"),
        (["publish", "tpu", "--mock", "tpu-v5e-8x8", "--set", "tpu.nodes=[a, b]"], "tpu.nodes: 2 node names for 16 nodes"),
        (["publish", "tpu", "--mock", "tpu-v5e-8x8", "--set", "election.renew_deadline=20"], "election.renew_deadline: must be below"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_fix(
    arguments: list[str], message: str, cluster: Cluster, commands: forked_cli.Commands
) -> None:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = commands.run(*arguments, environment=environment)
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert message in line
    assert not cluster.slices()
