"""Flows of one sandbox get equal parts of its share. Collected only on kernels with fq_codel (conftest.py)."""

import pytest

from drakit_nic import kernel_port
from fakes import netns, nic_network
from fakes.nic_samples import share, uplink

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MEMBER = "02:aa:00:00:00:01"


def queue(own: netns.Namespace, handle: str = "8000:") -> str:
    (line,) = (line for line in own.run("tc", "qdisc", "show", "dev", "nic0").splitlines() if line.split()[2] == handle)
    return line


def test_a_fair_queue_changed_by_hand_is_restored(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    nics.admit(share(own), cookie=7001, mac=MEMBER)
    before = queue(own)
    own.run("tc", "qdisc", "change", "dev", "nic0", "parent", "da:8000", "handle", "8000:", "fq_codel", "memory_limit", "4000")
    (why,) = nics.repair(uplink(own), [share(own)])
    assert "class da:8000 has limit 1000" in why
    assert queue(own) == before
    assert nics.check(uplink(own), [share(own)]) == ()


def test_a_fifo_of_an_older_driver_becomes_a_fair_queue(own: netns.Namespace, nics: kernel_port.KernelPort) -> None:
    nics.install(uplink(own), share(own))
    nics.admit(share(own), cookie=7001, mac=MEMBER)
    own.run("tc", "qdisc", "del", "dev", "nic0", "parent", "da:8000", "handle", "8000:")
    own.run("tc", "qdisc", "add", "dev", "nic0", "parent", "da:8000", "handle", "8000:", "bfifo", "limit", "300000")
    assert any("has limit -1" in why for why in nics.repair(uplink(own), [share(own)]))
    assert queue(own).split()[1] == "fq_codel"
    assert nics.check(uplink(own), [share(own)]) == ()


@pytest.mark.parametrize("way", ["outwards", "inwards"])
def test_two_flows_of_one_pod_get_equal_parts(way: str) -> None:
    if nic_network.why_not():
        pytest.skip(nic_network.why_not())
    with nic_network.network() as network:
        (pod,) = network.sharing(network.share(1, 50 * 10**6))
        flows = [nic_network.Flow(pod.space, reverse=way == "inwards")] * 2
        parts = []
        for _ in range(3):
            one, other = (seen.goodput for seen in network.measure(flows, 5))
            parts.append(min(one, other) / (one + other))
            if parts[-1] > 0.4:
                return
    pytest.fail(f"the smaller flow's part of three runs: {parts}")
