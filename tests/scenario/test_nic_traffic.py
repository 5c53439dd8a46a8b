"""Shares hold their rates on the real kernel: short runs with real traffic, and what a hostile pod tries against them.

The figures of record are measured by ``make bench``; here runs are short and other work may share the processors, so each claim may be tried again.
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from drakit.devices.nic import port
from fakes import flood, netns, nic_town

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

MEGA = 10**6
GOODPUT = 0.956
TRIES = 5
BUSY = 0.25
FLOOD = str(pathlib.Path(flood.__file__))


@pytest.fixture
def town() -> Iterator[nic_town.Town]:
    if nic_town.why_not():
        pytest.skip(nic_town.why_not())
    with nic_town.town() as made:
        yield made


def holds(measure: Callable[[], Sequence[float]], bounds: Sequence[tuple[float, float]]) -> None:
    """Assert that every figure is within its bounds in one of some tries."""
    seen = []
    for _ in range(TRIES):
        figures = [round(figure, 1) for figure in measure()]
        if all(low <= figure <= high for figure, (low, high) in zip(figures, bounds, strict=True)):
            return
        seen.append(figures)
    raise AssertionError(f"{seen} never within {list(bounds)}")


def near(rate: float, part: float = 0.03) -> tuple[float, float]:
    """Never more than the rate. A busy machine delivers less than a class allows, so how exact rates are from below is measured by ``make bench``."""
    return (GOODPUT * rate * (1 - max(part, BUSY)), GOODPUT * rate * (1 + part))


def goodput(town: nic_town.Town, *flows: nic_town.Flow, seconds: float = 2) -> list[float]:
    return [seen.goodput / MEGA for seen in town.measure(flows, seconds)]


def test_a_share_gets_what_it_asked_for_in_both_directions_at_once(town: nic_town.Town) -> None:
    (pod,) = town.sharing(town.share(1, 100 * MEGA))
    both = [nic_town.Flow(pod.space), nic_town.Flow(pod.space, reverse=True)]
    holds(lambda: goodput(town, both[0]), [near(100)])
    holds(lambda: goodput(town, both[1]), [near(100)])
    holds(lambda: goodput(town, *both), [near(100, 0.06), near(100, 0.06)])


def test_datagrams_offered_beyond_the_rate_are_cut_to_it_in_both_directions(town: nic_town.Town) -> None:
    (pod,) = town.sharing(town.share(1, 100 * MEGA))
    bounds = [(90.0, 100.0)]
    holds(lambda: goodput(town, nic_town.Flow(pod.space, udp=300 * MEGA)), bounds)
    holds(lambda: goodput(town, nic_town.Flow(pod.space, udp=300 * MEGA, reverse=True)), bounds)


def test_two_shares_do_not_disturb_each_other(town: nic_town.Town) -> None:
    pods = town.sharing(town.share(1, 100 * MEGA), town.share(2, 50 * MEGA))
    holds(lambda: goodput(town, *(nic_town.Flow(pod.space) for pod in pods)), [near(100), near(50)])


def test_two_pods_of_one_claim_share_its_rate_fairly_whatever_number_of_flows_they_have(town: nic_town.Town) -> None:
    share = town.share(1, 100 * MEGA)
    (first,) = town.sharing(share)
    second = town.pod(2, share)
    many, one = nic_town.Flow(first.space, streams=8), nic_town.Flow(second.space)
    holds(lambda: goodput(town, many, one, seconds=3), [near(50, 0.1), near(50, 0.1)])
    back = [dataclasses.replace(flow, reverse=True) for flow in (many, one)]
    holds(lambda: goodput(town, *back, seconds=3), [near(50, 0.1), near(50, 0.1)])


def test_what_is_guaranteed_is_kept_and_what_is_left_is_borrowed(town: nic_town.Town) -> None:
    pods = town.sharing(town.share(1, 50 * MEGA, ceil=200 * MEGA), town.share(2, 150 * MEGA, ceil=200 * MEGA), speed=200 * MEGA)
    holds(lambda: goodput(town, *(nic_town.Flow(pod.space) for pod in pods)), [near(50, 0.05), near(150, 0.05)])
    holds(lambda: goodput(town, nic_town.Flow(pods[0].space)), [near(200, 0.05)])


@pytest.mark.full
def test_the_host_keeps_its_reserve(town: nic_town.Town) -> None:
    full = 200 * MEGA
    pods = town.sharing(town.share(1, 100 * MEGA, ceil=full), speed=full, reserve=100 * MEGA)
    holds(lambda: goodput(town, nic_town.Flow(pods[0].space, streams=4), nic_town.Flow(town.node)), [near(100, 0.05), near(100, 0.05)])


@pytest.mark.full
def test_latency_stays_low_with_many_flows(town: nic_town.Town) -> None:
    (pod,) = town.sharing(town.share(1, 100 * MEGA))
    holds(lambda: [town.measure([nic_town.Flow(pod.space, streams=8)], 2)[0].round_trip], [(0, 25)])


def test_a_rate_changed_under_traffic_holds_without_breaking_it(town: nic_town.Town) -> None:
    share = town.share(1, 200 * MEGA)
    (pod,) = town.sharing(share)
    changed = town.share(1, 100 * MEGA)
    timer = threading.Timer(1, lambda: town.port.repair(town.uplink(), [changed]))
    timer.start()
    (across,) = goodput(town, nic_town.Flow(pod.space), seconds=4)
    timer.join()
    assert 80 < across < 180
    holds(lambda: goodput(town, nic_town.Flow(pod.space)), [near(100)])


@contextlib.contextmanager
def flooding(space: netns.Namespace, *words: str) -> Iterator[None]:
    """A hostile program that runs in a namespace meanwhile."""
    process = subprocess.Popen(["ip", "netns", "exec", space.name, sys.executable, FLOOD, words[0], "60", *words[1:]])
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def arriving(town: nic_town.Town, seconds: float = 1.5) -> float:
    """What the network receives now, in megabits a second."""
    time.sleep(0.3)
    before, start = town.received(), time.monotonic()
    time.sleep(seconds)
    return (town.received() - before) * 8 / MEGA / (time.monotonic() - start)


def test_frames_with_a_sibling_s_address_count_as_the_sender_s(town: nic_town.Town) -> None:
    attacker, sibling = town.sharing(town.share(1, 100 * MEGA), town.share(2, 100 * MEGA))
    with flooding(attacker.space, "frames", "net1", sibling.mac):
        holds(lambda: goodput(town, nic_town.Flow(sibling.space)), [near(100)])
        holds(lambda: [arriving(town)], [(80.0, 102.0)])


@pytest.mark.full
def test_frames_forwarded_from_a_nested_namespace_are_nobody_s(town: nic_town.Town) -> None:
    attacker, sibling = town.sharing(town.share(1, 100 * MEGA), town.share(2, 100 * MEGA))
    with netns.namespace() as nested:
        attacker.space.ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", nested.name)
        attacker.space.ip("link", "set", "in0", "up")
        nested.ip("link", "set", "out0", "up")
        attacker.space.run("tc", "qdisc", "add", "dev", "in0", "clsact")
        redirect = ("match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", "net1")
        attacker.space.run("tc", "filter", "add", "dev", "in0", "ingress", "protocol", "all", "u32", *redirect)
        for forged in (sibling.mac, attacker.mac, nic_town.NIC_MAC, "02:00:00:00:00:99"):
            with flooding(nested, "frames", "out0", forged):
                holds(lambda: [arriving(town)], [(0.1, 1.5)])
                holds(lambda: goodput(town, nic_town.Flow(sibling.space)), [near(100)])


@pytest.mark.full
def test_a_nested_namespace_with_a_child_of_its_own_is_nobody_s(town: nic_town.Town) -> None:
    town.sharing(town.share(1, 100 * MEGA))
    stranger = town.pod(9)
    holds(lambda: [sent_as(town, stranger, "0")], [(0.1, 1.5)])


def sent_as(town: nic_town.Town, pod: nic_town.Pod, priority: str) -> float:
    with flooding(pod.space, "datagrams", nic_town.SERVER, priority):
        return arriving(town)


@pytest.mark.parametrize(
    "priority", ["0xda0002", *(pytest.param(other, marks=pytest.mark.full) for other in ("0xda0000", "0xda8001", "0xffffffff"))]
)
def test_a_socket_s_priority_chooses_no_class(town: nic_town.Town, priority: str) -> None:
    attacker, sibling = town.sharing(town.share(1, 50 * MEGA), town.share(2, 100 * MEGA), reserve=500 * MEGA)
    before = town.port.traffic()[1].egress.packets
    holds(lambda: [sent_as(town, attacker, priority)], [(40.0, 51.0)])
    assert town.port.traffic()[1].egress.packets - before < 100, "nothing of it counts as the sibling's"
    assert sibling.cookie != attacker.cookie


@pytest.mark.full
def test_another_address_changes_nothing(town: nic_town.Town) -> None:
    attacker, _ = town.sharing(town.share(1, 100 * MEGA), town.share(2, 100 * MEGA))
    attacker.space.ip("link", "set", "net1", "address", "02:de:ad:00:00:01")
    attacker.space.ip("neighbour", "replace", nic_town.SERVER, "lladdr", wire_mac(town), "dev", "net1")
    holds(lambda: [sent_as(town, attacker, "0")], [(80.0, 102.0)])


def wire_mac(town: nic_town.Town) -> str:
    return str(town.network.links()["wire"]["address"])


def test_deleting_qdiscs_in_the_pod_changes_nothing(town: nic_town.Town) -> None:
    (pod,) = town.sharing(town.share(1, 100 * MEGA))
    with contextlib.suppress(subprocess.CalledProcessError):
        pod.space.run("tc", "qdisc", "del", "dev", "net1", "root")
    pod.space.run("tc", "qdisc", "add", "dev", "net1", "root", "pfifo")
    holds(lambda: goodput(town, nic_town.Flow(pod.space)), [near(100)])


def test_a_pod_that_leaves_private_mode_alone_reaches_no_sibling_and_gains_nothing(town: nic_town.Town) -> None:
    attacker, sibling = town.sharing(town.share(1, 100 * MEGA), town.share(2, 100 * MEGA))
    attacker.space.ip("link", "set", "net1", "type", "macvlan", "mode", "bridge")
    assert "1 received" in attacker.space.run("ping", "-c", "1", "-W", "9", nic_town.SERVER)
    with pytest.raises(subprocess.CalledProcessError):
        attacker.space.run("ping", "-c", "1", "-W", "1", sibling.address)
    holds(lambda: goodput(town, nic_town.Flow(attacker.space)), [near(100)])


@pytest.mark.full
def test_by_address_alone_shares_hold_their_rates_but_a_forger_spends_its_sibling_s() -> None:
    """What holds on kernels that cannot tell namespaces apart, as the attribute ``shaping: mac`` says."""
    if nic_town.why_not():
        pytest.skip(nic_town.why_not())
    with nic_town.town(port.Classifier.MAC) as town:
        shares = [town.share(1, 100 * MEGA), town.share(2, 100 * MEGA)]
        attacker, sibling = town.sharing(*shares)
        assert town.port.check(town.uplink(), shares) == ()
        holds(lambda: goodput(town, nic_town.Flow(attacker.space)), [near(100)])
        holds(lambda: goodput(town, nic_town.Flow(sibling.space, reverse=True)), [near(100)])
        with flooding(attacker.space, "frames", "net1", "02:00:00:00:00:99"):
            holds(lambda: [arriving(town)], [(0.1, 1.5)])
        with flooding(attacker.space, "frames", "net1", sibling.mac):
            holds(lambda: [arriving(town)], [(80.0, 102.0)])
            holds(lambda: [sent_as(town, attacker, "0xda8001")], [(160.0, 204.0)])
