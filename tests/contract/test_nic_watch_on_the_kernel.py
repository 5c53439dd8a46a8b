"""A watch hears of what matters to a NIC driver, and the changes of other pods' interfaces do not even wake it."""

from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port, port
from fakes import log_lines, netns, waits

pytestmark = pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not())

NOT = 0.3


@pytest.fixture
def node() -> Iterator[netns.Namespace]:
    with netns.namespace() as space:
        space.make_nic("nic0", mac="02:00:00:00:00:20")
        space.ip("link", "add", "cni0", "type", "bridge")
        space.ip("link", "set", "cni0", "up")
        yield space


@pytest.fixture
def watch(node: netns.Namespace) -> Iterator[port.Watch]:
    machine = kernel_port.KernelPort(node.name)
    made = machine.watch()
    nic = machine.interface("nic0")
    assert nic is not None
    made.narrow(port.Interest(ifindexes=frozenset({nic.ifindex}), globs=("nic*",)))
    made.drain()
    yield made
    made.close()
    machine.close()


def come_and_go(node: netns.Namespace, name: str, pod: netns.Namespace) -> None:
    """What a CNI does for a pod, and takes away again."""
    node.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pod.name)
    node.ip("link", "set", name, "master", "cni0", "up")
    node.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", "10mbit", "burst", "20k", "latency", "50ms")
    pod.ip("link", "set", "eth0", "up")
    node.ip("link", "delete", name)


def test_veths_of_foreign_pods_do_not_wake_the_watch(node: netns.Namespace, watch: port.Watch) -> None:
    with netns.namespace() as pod:
        come_and_go(node, "veth1a2b", pod)
    assert not watch.wait(NOT)


@pytest.mark.parametrize(
    "words",
    [
        ("ip", "link", "set", "nic0", "mtu", "1400"),
        ("tc", "qdisc", "add", "dev", "nic0", "root", "pfifo"),
        ("tc", "qdisc", "add", "dev", "nic0", "clsact"),
        ("ip", "link", "set", "nic0", "master", "cni0"),
        ("ip", "link", "set", "nic0", "down"),
        ("ip", "link", "delete", "nic0"),
        ("ip", "link", "add", "mgmt0", "link", "nic0", "type", "macvlan"),
        ("ip", "link", "add", "nic7", "type", "veth", "peer", "name", "other"),
        ("ip", "link", "set", "cni0", "name", "nic8"),
        ("ip", "link", "set", "lo", "up"),
    ],
    ids="-".join,
)
def test_every_change_of_a_watched_nic_wakes_the_watch(node: netns.Namespace, watch: port.Watch, words: tuple[str, ...]) -> None:
    node.run(*words)
    assert watch.wait(waits.SECONDS)
    assert is_quiet_soon(watch)


def is_quiet_soon(watch: port.Watch) -> bool:
    """Whether events end. The kernel reports a change of the carrier up to a second after the change that caused it."""
    for _ in range(4):
        watch.drain()
        if not watch.wait(NOT):
            return True
    return False


def test_new_hardware_wakes_the_watch_whatever_its_name(node: netns.Namespace) -> None:
    """The loopback stands for hardware here, because it has no kind either."""
    made = kernel_port.KernelPort(node.name).watch()
    try:
        made.narrow(port.Interest())
        node.ip("link", "set", "lo", "up")
        assert made.wait(waits.SECONDS)
    finally:
        made.close()


def test_a_new_filter_causes_one_wake_up_and_an_unchanged_one_none(watch: port.Watch) -> None:
    assert watch.narrow(port.Interest(ifindexes=frozenset({1, 2})))
    assert not watch.narrow(port.Interest(ifindexes=frozenset({2, 1})))


def test_a_refused_filter_is_logged_once_and_every_change_wakes_the_watch(
    node: netns.Namespace, watch: port.Watch, logged: log_lines.LogLines
) -> None:
    limit = "/proc/sys/net/core/optmem_max"
    if "optmem_max" not in node.run("ls", "/proc/sys/net/core"):
        pytest.skip("this kernel has one optmem_max for all namespaces")
    node.run("sh", "-c", f"echo 1024 > {limit}")
    for last in (900, 901):
        watch.narrow(port.Interest(ifindexes=frozenset(range(100, last))))
    assert logged.events.count("event filter refused") == 1
    watch.drain()
    node.ip("link", "add", "veth1", "type", "veth", "peer", "name", "veth2")
    assert watch.wait(waits.SECONDS)


def test_changes_of_a_shared_nic_s_ifb_wake_the_watch(node: netns.Namespace) -> None:
    machine = kernel_port.KernelPort(node.name)
    made = machine.watch()
    try:
        made.narrow(port.Interest())
        made.drain()
        nic = machine.interface("nic0")
        assert nic is not None
        share = port.Share(id="s", interface="nic0", ifindex=nic.ifindex, mac="02:11:22:33:44:55", bandwidth=10**8, minor=0x100)
        machine.install(port.Uplink(interface="nic0", ifindex=nic.ifindex, mac=nic.mac, speed=10**9), share)
        assert made.wait(waits.SECONDS)
        made.narrow(port.Interest())
        made.drain()
        node.run("tc", "qdisc", "del", "dev", f"drb{nic.ifindex}", "root")
        assert made.wait(waits.SECONDS)
    finally:
        made.close()
        machine.close()


def test_with_more_interfaces_than_a_filter_holds_all_wake_the_watch(node: netns.Namespace) -> None:
    made = kernel_port.KernelPort(node.name).watch()
    try:
        made.narrow(port.Interest(ifindexes=frozenset(range(10**4, 10**4 + 5000))))
        made.drain()
        node.ip("link", "add", "veth1", "type", "veth", "peer", "name", "veth2")
        assert made.wait(waits.SECONDS)
    finally:
        made.close()


def test_reading_interfaces_wakes_no_watch(node: netns.Namespace) -> None:
    machine = kernel_port.KernelPort(node.name)
    made = machine.watch()
    try:
        nic = machine.interface("nic0")
        assert nic is not None
        share = port.Share(id="s", interface="nic0", ifindex=nic.ifindex, mac="02:11:22:33:44:55", bandwidth=10**8, minor=0x100)
        uplink = port.Uplink(interface="nic0", ifindex=nic.ifindex, mac=nic.mac, speed=10**9)
        machine.install(uplink, share)
        made.narrow(port.Interest(ifindexes=frozenset({nic.ifindex})))
        made.drain()
        for _ in range(3):
            machine.interfaces(), machine.shares(), machine.traffic(), machine.members(), machine.check(uplink, [share])
        assert not made.wait(NOT)
    finally:
        made.close()
        machine.close()
