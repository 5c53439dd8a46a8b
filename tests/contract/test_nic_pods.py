"""What the driver does to interfaces in pods on the real kernel, and to the host's own also on a mock machine."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import errors
from drakit_nic import config, mock_port, pod_interfaces, port
from fakes import netns, nic_attach, nic_pods

OUTFIT = pod_interfaces.InterfaceConfig(
    name="net1",
    mtu=1400,
    addresses=("10.1.2.3/24", *(["fd00::5/64"] if netns.HAS_IPV6 else [])),
    routes=(
        config.Route(destination="10.50.0.0/16", gateway="10.1.2.1"),
        config.Route(destination="10.60.0.0/16", table=100, metric=7),
        *([config.Route(destination="fd01::/64", gateway="fd00::1")] if netns.HAS_IPV6 else []),
    ),
    rules=(config.Rule(priority=1000, table=100, source="10.1.2.3/32"),),
    neighbours=(config.Neighbour(address="10.1.2.9", mac="02:bb:00:00:00:09"),),
    sysctls={"ipv4.arp_ignore": 1, "ipv4.forwarding": 1},
)
pytestmark = pytest.mark.root
MARK = pod_interfaces.mark_of(f"share-{netns.WORKER}")


def whole_of(former: pod_interfaces.HostState) -> pod_interfaces.Passthrough:
    return pod_interfaces.Passthrough(mark=MARK, host_state=former)


@pytest.fixture
def bench() -> Iterator[nic_pods.PodBench]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_pods.on_kernel() as made:
        yield made


@pytest.fixture(params=["mock", "kernel"])
def host(request: pytest.FixtureRequest) -> pod_interfaces.HostInterfaces:
    """A host with the NIC ``nic0``, to which an admin gave the alias "of the admin"."""
    if request.param == "kernel":
        kernel: nic_pods.PodBench = request.getfixturevalue("bench")
        return kernel.pods
    nic = port.Interface(ifindex=2, name="nic0", mac=nic_pods.NIC_MAC, mtu=9000)
    mock = mock_port.MockHostInterfaces(lambda name: nic if name == "nic0" else None)
    former = mock.host_state("nic0")
    assert former is not None
    mock.mark(former, "of the admin")
    return mock


def test_configuring_an_interface_again_changes_nothing(bench: nic_pods.PodBench) -> None:
    for _ in range(2):
        bench.pods.apply(bench.child, OUTFIT)
        observed = pod_interfaces.ObservedInterface(
            name="net1", mac="02:aa:00:00:00:01", mtu=1400, up=True, addresses=tuple(sorted(OUTFIT.addresses))
        )
        assert bench.pods.observed(bench.child) == observed
    assert "10.50.0.0/16 via 10.1.2.1 dev net1" in bench.pod.ip("route")
    assert "10.60.0.0/16 dev net1 " in bench.pod.ip("route", "show", "table", "100")
    assert bench.pod.ip("rule").count("from 10.1.2.3 lookup 100") == 1
    assert "10.1.2.9 lladdr 02:bb:00:00:00:09 PERMANENT" in bench.pod.ip("neighbour", "show", "dev", "net1")
    sysctls = ("/proc/sys/net/ipv4/conf/net1/arp_ignore", "/proc/sys/net/ipv4/conf/net1/forwarding")
    assert bench.pod.run("cat", *sysctls).split() == ["1", "1"]


def test_an_address_of_ipv6_may_be_used_at_once() -> None:
    if netns.why_not() or not netns.HAS_IPV6:
        pytest.skip(netns.why_not() or "this kernel has no IPv6")
    with nic_pods.on_kernel() as bench:
        bench.pods.apply(bench.child, OUTFIT)
        assert "fd00::5/64 scope global nodad" in bench.pod.ip("-6", "address", "show", "dev", "net1")


def test_a_virtual_interface_is_deleted_with_its_pod() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as node:
        node.make_nic("nic0", mac=nic_pods.NIC_MAC)
        kernel = nic_pods.KernelPods(node.name)
        former = kernel.host_state("nic0")
        assert former is not None
        with netns.namespace() as pod:
            kernel.mark(former, MARK)
            kernel.move_in(whole_of(former), pod_interfaces.InterfaceRef(namespace=pod.name, name="uplink0"), WHOLE)
            assert "uplink0" in pod.links()
            assert kernel.locate(whole_of(former)) is pod_interfaces.Location.ELSEWHERE
        nic_attach.until(lambda: kernel.locate(whole_of(former)) is pod_interfaces.Location.GONE, "the namespace did not end")
        assert not kernel.return_to_host(whole_of(former))
        assert "nic0" not in node.links()


def test_a_crash_after_any_request_leaves_what_the_next_call_completes() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    for steps in range(1, 14):
        with nic_pods.on_kernel(dies_after(steps)) as bench:
            whole = nic_pods.KernelPods(bench.node.name)
            former = whole.host_state("nic0")
            assert former is not None
            child = pod_interfaces.InterfaceRef(namespace=bench.namespace, name="uplink0")
            with contextlib.suppress(DiedError):
                bench.pods.mark(former, MARK)
            with contextlib.suppress(DiedError):
                bench.pods.move_in(whole_of(former), child, WHOLE)
            if whole.host_state("nic0"):
                whole.mark(former, MARK)
            whole.move_in(whole_of(former), child, WHOLE)
            with contextlib.suppress(DiedError):
                bench.pods.return_to_host(whole_of(former))
            assert whole.return_to_host(whole_of(former))
            assert whole.host_state("nic0") == former


class DiedError(Exception):
    """The process is dead from here on."""


def dies_after(steps: int) -> Callable[[], None]:
    """Die after so many requests to the kernel, once."""
    left = [steps]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise DiedError

    return count


def test_removing_the_configuration_leaves_nothing_behind(bench: nic_pods.PodBench) -> None:
    bench.pods.apply(bench.child, OUTFIT)
    for _ in range(2):
        bench.pods.remove_config(bench.child, OUTFIT)
    assert "lookup 100" not in bench.pod.ip("rule")


def test_a_pod_may_request_another_hardware_address(bench: nic_pods.PodBench) -> None:
    bench.pods.apply(bench.child, pod_interfaces.InterfaceConfig(name="net1", mac="02:cc:00:00:00:01"))
    observed = bench.pods.observed(bench.child)
    assert observed is not None
    assert (observed.mac, observed.up) == ("02:cc:00:00:00:01", True)


def test_configuring_a_missing_interface_is_an_error(bench: nic_pods.PodBench) -> None:
    with pytest.raises(errors.HardwareError, match=r"^apply: there is no interface net7$"):
        bench.pods.apply(bench.child, dataclasses.replace(OUTFIT, name="net7"))
    assert bench.pods.observed(pod_interfaces.InterfaceRef(namespace=bench.namespace, name="net7")) is None


def test_a_route_of_the_pod_s_own_is_never_replaced() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_pods.on_kernel() as bench:
        bench.pod.make_nic("eth0", mac="02:00:00:00:00:44")
        bench.pod.ip("address", "add", "10.244.0.5/24", "dev", "eth0")
        bench.pod.ip("route", "add", "default", "via", "10.244.0.1")
        default = config.Route(destination="0.0.0.0/0", gateway="10.1.2.1")
        text = r"apply: the pod has a route to 0\.0\.0\.0/0 in table 254 already, by eth0; set override: true .*, or give it a table and a rule$"
        with pytest.raises(errors.HardwareError, match=text):
            bench.pods.apply(bench.child, dataclasses.replace(OUTFIT, routes=(default,)))
        bench.pods.apply(bench.child, dataclasses.replace(OUTFIT, routes=(dataclasses.replace(default, metric=500),)))
        assert bench.pod.ip("route", "show", "default").splitlines() == [
            "default via 10.244.0.1 dev eth0 ",
            "default via 10.1.2.1 dev net1 proto static metric 500 ",
        ]


@pytest.mark.parametrize(
    "own, wanted, target",
    [
        (["route add default via 10.244.0.1"], config.Route(destination="0.0.0.0/0", gateway="10.1.2.1", override=True), "8.8.8.8"),
        (
            ["-6 address add fd44::5/64 dev eth0 nodad", "-6 route add default via fd44::1"],
            config.Route(destination="::/0", gateway="fe80::1", override=True),
            "2001:db8::1",
        ),
        (
            ["route add 10.50.0.0/16 via 10.244.0.1 metric 1"],
            config.Route(destination="10.50.0.0/16", gateway="10.1.2.1", override=True),
            "10.50.200.1",
        ),
    ],
    ids=["default", "IPv6 default", "a network"],
)
def test_an_overriding_route_wins_and_the_pod_s_own_route_stays(own: list[str], wanted: config.Route, target: str) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_pods.on_kernel() as bench:
        bench.pod.make_nic("eth0", mac="02:00:00:00:00:44")
        bench.pod.ip("address", "add", "10.244.0.5/24", "dev", "eth0")
        for command in own:
            bench.pod.ip(*command.split())
        chosen = config.NicConfig(routes=(wanted,))
        for _ in range(2):
            bench.pods.apply(bench.child, dataclasses.replace(OUTFIT, routes=pod_interfaces.interface_config(chosen, name="net1").routes))
        assert " dev net1 " in bench.pod.ip("route", "get", target)
        bench.pod.ip("link", "set", "net1", "down")
        assert " dev eth0 " in bench.pod.ip("route", "get", target), "the kernel removes the routes with the interface"


@pytest.mark.parametrize(
    "wanted, text",
    [
        ({"mtu": 65535}, r"the kernel refuses NicConfig\.mtu 65535 \(.*\); set NicConfig\.mtu to at most the NIC's MTU$"),
        ({"addresses": ("fd00::5/64",)}, r"the kernel refuses NicConfig\.addresses fd00::5/64 \(.*IPv6 is disabled.*\); remove it"),
        (
            {"routes": (config.Route(destination="10.50.0.0/16", gateway="10.77.0.1"),)},
            r"the kernel refuses NicConfig\.routes 10\.50\.0\.0/16 \(.*[Nn]exthop.*\); give it a gateway",
        ),
        (
            {"sysctls": {"ipv4.arp_ignore": 2, "ipv4.no_such": 1}},
            r"the kernel refuses NicConfig\.sysctls .* \(ipv4\.no_such 1: No such file",
        ),
    ],
    ids=["mtu", "addresses", "routes", "sysctls"],
)
def test_a_refusal_of_the_kernel_names_the_field_the_value_and_the_fix(wanted: dict[str, Any], text: str) -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_pods.on_kernel() as bench:
        bench.pod.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.net1.disable_ipv6=1")
        with pytest.raises(errors.HardwareError, match=rf"^apply: {text}"):
            bench.pods.apply(bench.child, dataclasses.replace(OUTFIT, **{"addresses": ("10.1.2.3/24",), "routes": (), **wanted}))


WHOLE = pod_interfaces.InterfaceConfig(name="uplink0", mtu=1400, mac="02:dd:00:00:00:01", addresses=("10.1.2.3/24",))


def moved_in(bench: nic_pods.PodBench) -> tuple[pod_interfaces.HostState, pod_interfaces.InterfaceRef]:
    former = bench.pods.host_state("nic0")
    assert former is not None
    child = pod_interfaces.InterfaceRef(namespace=bench.namespace, name="uplink0")
    for _ in range(2):
        bench.pods.mark(former, MARK)
    for _ in range(2):
        bench.pods.move_in(whole_of(former), child, WHOLE)
    return former, child


def test_a_whole_interface_moves_from_the_host_to_the_pod(bench: nic_pods.PodBench) -> None:
    former, child = moved_in(bench)
    as_made = pod_interfaces.HostState(
        name="nic0", mac=nic_pods.NIC_MAC, mtu=9000, up=True, addresses=("10.7.0.1/24",), alias="of the admin"
    )
    assert former == dataclasses.replace(as_made, identity=former.identity, properties=former.properties)
    assert bench.pods.observed(child) == pod_interfaces.ObservedInterface(
        name="uplink0", mac=WHOLE.mac, mtu=1400, up=True, addresses=("10.1.2.3/24",)
    )
    assert bench.pods.host_state("nic0") is None


def test_the_alias_of_an_interface_is_read_by_itself(host: pod_interfaces.HostInterfaces) -> None:
    assert (host.alias("nic0"), host.alias("nic9")) == ("of the admin", "")


def test_a_whole_interface_returns_with_its_former_configuration(bench: nic_pods.PodBench) -> None:
    former, child = moved_in(bench)
    for _ in range(2):
        assert bench.pods.return_to_host(whole_of(former))
        assert bench.pods.host_state("nic0") == former
        assert bench.pods.observed(child) is None


def test_an_interface_that_never_left_the_host_only_loses_its_mark(host: pod_interfaces.HostInterfaces) -> None:
    former = host.host_state("nic0")
    assert former is not None
    assert former.alias == "of the admin"
    host.mark(former, MARK)
    marked = host.host_state("nic0")
    assert marked is not None
    assert marked.alias == MARK
    assert host.return_to_host(whole_of(former))
    assert host.host_state("nic0") == former


def test_a_name_that_udev_made_an_alternative_one_is_the_interface_s_again(bench: nic_pods.PodBench) -> None:
    former = bench.pods.host_state("nic0")
    assert former is not None
    bench.pods.mark(former, MARK)
    # As the kernel returns hardware from a namespace that ended: under the pod's name.
    for words in (("set", "nic0", "down"), ("set", "nic0", "name", "uplink0"), ("property", "add", "dev", "uplink0", "altname", "nic0")):
        bench.node.ip("link", *words)
    assert bench.pods.return_to_host(whole_of(former))
    assert bench.pods.host_state("nic0") == former


def test_an_interface_of_the_host_s_is_configured_there(host: pod_interfaces.HostInterfaces) -> None:
    ref = pod_interfaces.InterfaceRef(namespace=pod_interfaces.HOST, name="nic0")
    host.apply(ref, dataclasses.replace(WHOLE, name="nic0"))
    configured = host.host_state("nic0")
    assert configured is not None
    assert (configured.mac, configured.mtu, configured.up) == (WHOLE.mac, WHOLE.mtu, True)
    assert set(WHOLE.addresses) <= set(configured.addresses)
    with pytest.raises(errors.HardwareError, match=r"^apply: there is no interface net7$"):
        host.apply(dataclasses.replace(ref, name="net7"), dataclasses.replace(WHOLE, name="net7"))


def test_a_name_that_the_pod_uses_is_refused(bench: nic_pods.PodBench) -> None:
    former = bench.pods.host_state("nic0")
    assert former is not None
    bench.pods.mark(former, MARK)
    with pytest.raises(errors.HardwareError, match=r"^move_in: the kernel refuses NicConfig\.interfaceName net1 "):
        bench.pods.move_in(whole_of(former), bench.child, dataclasses.replace(WHOLE, name="net1"))
    assert bench.pods.return_to_host(whole_of(former))


def test_an_interface_without_a_mark_is_not_moved(bench: nic_pods.PodBench) -> None:
    nobodys = pod_interfaces.Passthrough(
        mark="drakit whole nobody", host_state=pod_interfaces.HostState(name="nic0", mac=nic_pods.NIC_MAC, mtu=9000, up=True)
    )
    with pytest.raises(errors.HardwareError, match=r"^move_in: the interface nic0 is not in the host's network namespace$"):
        bench.pods.move_in(nobodys, pod_interfaces.InterfaceRef(namespace=bench.namespace, name="uplink0"), WHOLE)


def test_another_pod_s_veth_with_the_same_peer_numbers_is_left_alone() -> None:
    """The peer is in a namespace that ends; the next namespace and veth get the same nsid and index."""
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as node:
        kernel = nic_pods.KernelPods(node.name)
        with netns.namespace() as router:
            node.ip("link", "add", "nic0", "type", "veth", "peer", "name", "wire", "netns", router.name)
            former = kernel.host_state("nic0")
            assert former is not None
            kernel.mark(former, MARK)
            assert kernel.locate(whole_of(former)) is pod_interfaces.Location.HOST
        nic_attach.until(lambda: "nic0" not in node.links(), "the namespace did not end")
        with netns.namespace() as other:
            node.ip("link", "add", "cali0", "type", "veth", "peer", "name", "eth0", "netns", other.name)
            other_state = kernel.host_state("cali0")
            assert other_state is not None
            assert other_state.identity == former.identity, "the kernel reuses both numbers"
            assert kernel.locate(whole_of(former)) is pod_interfaces.Location.GONE
            assert not kernel.return_to_host(whole_of(former))
            assert "cali0" in node.links()
