"""Real containers run by runc get their interfaces through the CDI file and its hook, with address and rate; without the driver none starts.

The order is a real kubelet's and containerd's: claims prepared, sandbox, containers, sandbox gone, claims unprepared.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from drakit_nic import options as nic_options
from fakes import netns, nic_attach, nic_network, runc

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(300)]

MEGA = 10**6
GOODPUT = 0.956
TRIES = 5
SHOW = ["ip", "-o", "address", "show"]


class Stage:
    """A node whose NIC leads to a network with a server, the driver, and a runtime."""

    def __init__(self, network: nic_network.NicNetwork, world: nic_attach.World, runtime: runc.Runc) -> None:
        self.nic_network, self.world, self.runtime = network, world, runtime

    def goodput(self, *flows: nic_network.Flow) -> list[float]:
        return [seen.goodput / MEGA for seen in self.nic_network.measure(flows, 2)]


@pytest.fixture
def stage() -> Iterator[Stage]:
    for why_not in (nic_network.why_not(), runc.why_not()):
        if why_not:
            pytest.skip(why_not)
    rule = nic_options.NicRule(match="nic0", speed=nic_attach.BITS("10G"))
    options = nic_options.NicOptions(include=("nic0",), take_over=("nic0",), reserve=nic_attach.BITS("1M"), rules=(rule,))
    with nic_network.network() as network, runc.runtime() as runtime, tempfile.TemporaryDirectory(prefix="drk-", dir="/tmp") as folder:
        yield Stage(network, nic_attach.World(network.node, pathlib.Path(folder), options), runtime)


def test_each_container_of_a_pod_has_its_interface_with_address_and_rate(stage: Stage) -> None:
    with stage.world.driver() as driver, netns.namespace() as pod:
        ref = driver.prepare(nic_attach.claim(1, bandwidth="100M", parameters={"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}))
        edits = stage.world.edits(ref)
        first = stage.runtime.run(pod, SHOW, sandbox="5a4d", edits=edits)
        assert first.code == 0, first.stderr
        assert "fast0    inet 10.99.1.2/16" in first.stdout
        result = stage.runtime.run(pod, ["env"], sandbox="5a4d", edits=edits)
        assert "_INTERFACE=fast0\n" in result.stdout
        assert len(driver.members()) == 1, "the second container found what the first one has"
        with stage.runtime.running(pod, sandbox="5a4d", edits=edits) as container:
            assert "10.99.0.1" in stage.runtime.execute(container, "ip", "route", "get", "10.99.0.1")
            holds(stage, [nic_network.Flow(pod)], 100)
            holds(stage, [nic_network.Flow(pod, reverse=True)], 100)
        without = stage.runtime.run(pod, SHOW, sandbox="5a4d")
        assert "fast0" in without.stdout, "a container without the claim sees it too: the namespace is the pod's"
    with stage.world.driver() as driver:
        driver.unprepare(ref)


def holds(stage: Stage, flows: list[nic_network.Flow], rate: float) -> None:
    """Assert that each flow gets its rate within 5% in one of some tries."""
    seen = []
    for _ in range(TRIES):
        figures = stage.goodput(*flows)
        if all(abs(figure / (GOODPUT * rate) - 1) < 0.05 for figure in figures):
            return
        seen.append(figures)
    raise AssertionError(f"{seen} never near {rate}")


def test_two_pods_of_one_claim_have_an_interface_each_and_together_the_rate(stage: Stage) -> None:
    with stage.world.driver() as driver, netns.namespace() as one, netns.namespace() as other:
        ref = driver.prepare(nic_attach.claim(1, bandwidth="100M", parameters={"interfaceName": "fast0"}))
        edits = stage.world.edits(ref)
        with contextlib.ExitStack() as stack:
            for number, pod in enumerate((one, other), start=2):
                stack.enter_context(stage.runtime.running(pod, sandbox=f"pod{number}", edits=edits))
                pod.ip("address", "add", f"10.99.1.{number}/16", "dev", "fast0")
            holds(stage, [nic_network.Flow(one), nic_network.Flow(other)], 50)
        driver.unprepare(ref)


def test_with_the_driver_down_the_container_does_not_start_and_with_it_back_it_does(stage: Stage) -> None:
    with netns.namespace() as pod:
        with stage.world.driver() as driver:
            ref = driver.prepare(nic_attach.claim(1))
            edits = stage.world.edits(ref)
        refused = stage.runtime.run(pod, ["echo", "started"], sandbox="5a4d", edits=edits)
        assert refused.code != 0
        assert "started" not in refused.stdout
        assert "the NIC driver on this node is not running" in refused.stderr
        assert set(pod.links()) == {"lo"}
        with stage.world.driver() as driver:
            assert stage.runtime.run(pod, ["echo", "started"], sandbox="5a4d", edits=edits).stdout == "started\n"
            driver.unprepare(ref)


def test_a_pod_of_the_host_s_network_is_refused_with_the_reason(stage: Stage) -> None:
    with stage.world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1))
        refused = stage.runtime.run(stage.nic_network.node, ["true"], sandbox="5a4d", edits=stage.world.edits(ref))
        assert refused.code != 0
        assert "hostNetwork" in refused.stderr
        driver.unprepare(ref)


def test_a_recreated_sandbox_needs_no_second_prepare_and_an_ended_one_leaves_nothing(stage: Stage) -> None:
    before = stage.nic_network.node.state()
    with stage.world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
        edits = stage.world.edits(ref)
        for sandbox in ("first", "second"):
            with netns.namespace() as pod:
                assert "fast0" in stage.runtime.run(pod, [*SHOW[:2], "link"], sandbox=sandbox, edits=edits).stdout
        driver.unprepare(ref)
        assert not driver.members()
    nic_attach.must_become(stage.nic_network.node, before)
