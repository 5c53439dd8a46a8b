"""Whatever a pod's root changes on a whole interface, the host gets the interface back as it was.

Each property of the table has a change here that a pod makes, or a reason why this kernel cannot try it.
"""

import ctypes
import dataclasses
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

import pytest

from drakit_nic import pod_interfaces
from drakit_nic.netlink import link_requests, namespaces, rtnetlink
from drakit_nic.passthrough import properties
from fakes import bpf_programs, log_lines, netns, nic_attach, nic_network, nic_pods

pytestmark = pytest.mark.root

MARK = pod_interfaces.mark_of(f"properties-{netns.WORKER}")
NAME = "uplink0"
WANTED = pod_interfaces.InterfaceConfig(name=NAME, addresses=("10.1.2.3/24",))
_SIOCETHTOOL = 0x8946
_SET_CHANNELS, _SET_GRO, _SET_GSO, _SET_LINK_SETTINGS = 0x3D, 0x2C, 0x24, 0x02

Change = Callable[[netns.Namespace], object]


def ip(*words: str) -> Change:
    return lambda pod: pod.ip("link", *(NAME if word == "DEV" else word for word in words))


def ethtool(command: int, values: bytes, name: str = NAME) -> Change:
    """Set something by the ethtool ioctl, as the ethtool program does."""

    def call() -> None:
        buffer = ctypes.create_string_buffer(struct.pack("=I", command) + values, 4 + len(values))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), ctypes.addressof(buffer)))

    return lambda pod: nic_network.inside(pod, call)


def number(attribute: int, value: int) -> Change:
    """Set a number of the link that this version of ip does not know."""

    def change(pod: netns.Namespace) -> None:
        with rtnetlink.Socket.open(pod.name) as sock:
            link_requests.set_attributes(sock, link_requests.existing(sock, NAME).ifindex, rtnetlink.number(attribute, value))

    return change


def index_of(pod: netns.Namespace) -> int:
    return int(str(pod.links()[NAME]["ifindex"]))


def attach_xdp(pod: netns.Namespace) -> None:
    program = bpf_programs.load(bpf_programs.XDP)
    with rtnetlink.Socket.open(pod.name) as sock:
        content = rtnetlink.pack(1, struct.pack("=i", program)) + rtnetlink.number(3, 2)
        link_requests.set_attributes(sock, index_of(pod), rtnetlink.pack(43 | 0x8000, content))
    os.close(program)


def attach_tcx(pod: netns.Namespace) -> None:
    program = bpf_programs.load(bpf_programs.SCHED_CLS)
    bpf_programs.attach(pod, program, index_of(pod), bpf_programs.AT_TCX_INGRESS)
    os.close(program)


def up_and_down(pod: netns.Namespace) -> None:
    pod.ip("link", "set", NAME, "down")


CHANGES: Mapping[str, Change] = {
    "altnames": ip("property", "add", "dev", "DEV", "altname", "cni0", "altname", "of-the-pod"),
    "xdpPrograms": attach_xdp,
    "tcxPrograms": attach_tcx,
    "promiscuous": ip("set", "DEV", "promisc", "on"),
    "allMulticast": ip("set", "DEV", "allmulticast", "off"),
    "multicast": ip("set", "DEV", "multicast", "off"),
    "noArp": ip("set", "DEV", "arp", "off"),
    "mac": ip("set", "DEV", "address", "02:ee:00:00:00:99"),
    "broadcast": ip("set", "DEV", "broadcast", "02:ee:00:00:00:98"),
    "transmitQueueLength": ip("set", "DEV", "txqueuelen", "17"),
    "group": ip("set", "DEV", "group", "9"),
    "linkMode": ip("set", "DEV", "mode", "dormant"),
    "channels": ethtool(_SET_CHANNELS, struct.pack("=8I", 0, 0, 0, 0, 1, 2, 0, 0)),
    "features": ethtool(_SET_GRO, struct.pack("=I", 1)),
    "gsoMaxSize": number(41, 4096),
    "gsoMaxSegments": number(40, 7),
    "groMaxSize": number(58, 8192),
    "gsoIpv4MaxSize": number(63, 4096),
    "groIpv4MaxSize": number(64, 8192),
    "mtu": ip("set", "DEV", "mtu", "1300"),
    "up": up_and_down,
    "addresses": lambda pod: pod.ip("address", "flush", "dev", NAME),
}
AT_THE_MOVE = {"sysctls"}
"""Properties that the kernel resets at a move, so that the driver restores the host's own."""
ELSEWHERE = {"protoDown": "macvlan", "coalescing": "tun", "linkSpeed": "tun"}
"""Properties that the kernel has for other interfaces than a veth: tried there."""
UNTRIED = {"rings", "privateFlags", "pause", "forwardErrorCorrection", "energyEfficiency", "wakeOnLan", "driverMessages"}
"""Properties of hardware, of which this kernel has none."""


@pytest.fixture
def bench() -> Iterator[nic_pods.PodBench]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_pods.on_kernel(queues=4) as made:
        nic0 = ("dev", "nic0")
        made.node.ip_batch(
            ("link", "property", "add", *nic0, "altname", "of-the-host"),
            ("link", "set", *nic0, "txqueuelen", "500", "group", "7", "gso_max_size", "32000", "allmulticast", "on"),
        )
        sysctls = {"ipv4/conf/nic0/rp_filter": 1, "ipv4/conf/nic0/arp_ignore": 2, "ipv6/conf/nic0/accept_ra": 0}
        writes = [f"echo {value} > /proc/sys/net/{name}" for name, value in sysctls.items() if netns.HAS_IPV6 or name.startswith("ipv4")]
        made.node.run("sh", "-e", "-c", "\n".join(writes))
        made.pod.ip_batch(("link", "add", "cni0", "type", "bridge"), ("link", "set", "cni0", "name", "bridge0"))
        yield made


def state(bench: nic_pods.PodBench) -> pod_interfaces.HostState:
    """The state of the host's interface, when the link is up again."""
    nic_attach.until(lambda: bench.node.links()["nic0"]["operstate"] in {"UP", "DOWN"}, "the link did not come up again")
    result = bench.pods.host_state("nic0")
    assert result is not None
    return result


def shown(bench: nic_pods.PodBench) -> object:
    """What ip says of the host's interface, also of what the driver does not read."""
    links = bench.node.links()["nic0"]
    return {key: value for key, value in links.items() if key not in {"ifindex", "flags", "operstate", "link_index"}}, sorted(
        map(str, links["flags"])  # type: ignore[call-overload] # a list
    )


def move_in(bench: nic_pods.PodBench, host_state: pod_interfaces.HostState) -> pod_interfaces.Passthrough:
    bench.pods.mark(host_state, MARK)
    whole = pod_interfaces.Passthrough(mark=MARK, host_state=host_state)
    bench.pods.move_in(whole, pod_interfaces.InterfaceRef(namespace=bench.namespace, name=NAME), WANTED)
    return whole


def in_pod(bench: nic_pods.PodBench, name: str) -> object:
    present = nic_pods.KernelPods(bench.pod.name).host_state(NAME)
    assert present is not None
    return pod_interfaces.properties_of(present, was_away=True)[name]


def test_every_property_is_tested_or_listed_as_untested() -> None:
    names = [row.name for row in properties.TABLE]
    assert sorted(names) == sorted({*CHANGES, *AT_THE_MOVE, *ELSEWHERE, *UNTRIED})
    assert (
        set(properties.OF_STATE)
        == pod_interfaces.properties_of(pod_interfaces.HostState(name="nic0", mac="", mtu=1, up=True), was_away=True).keys()
    )


@pytest.mark.parametrize("name", CHANGES)
def test_properties_changed_by_a_pod_are_restored(bench: nic_pods.PodBench, name: str, logged: log_lines.LogLines) -> None:
    before, before_shown = state(bench), shown(bench)
    whole = move_in(bench, before)
    in_pod_before = in_pod(bench, name)
    CHANGES[name](bench.pod)
    assert in_pod(bench, name) != in_pod_before, "the pod's change has an effect"
    failures: list[Mapping[str, str]] = []
    assert bench.pods.return_to_host(whole, on_failed=failures.append)
    assert failures == [{}]
    assert not logged.lines
    assert state(bench) == before
    assert shown(bench) == before_shown


def test_the_host_s_own_sysctls_and_names_come_back(bench: nic_pods.PodBench) -> None:
    before = state(bench)
    expected = {"ipv4.rp_filter": "1", "ipv4.arp_ignore": "2", **({"ipv6.accept_ra": "0"} if netns.HAS_IPV6 else {})}
    assert expected.items() <= dict(before.properties["sysctls"]).items()  # type: ignore[call-overload] # a mapping
    assert bench.pods.return_to_host(move_in(bench, before))
    for name, value in expected.items():
        assert bench.node.run("cat", f"/proc/sys/net/{name.replace('.', '/conf/nic0/')}").strip() == value
    assert bench.node.links()["nic0"]["altnames"] == ["of-the-host"]


@pytest.mark.parametrize("kind, at, program", [("xdpPrograms", "xdp", "xdp"), ("tcxPrograms", "tcx", "cls")])
def test_a_program_that_a_link_of_the_pod_holds_is_detached(bench: nic_pods.PodBench, kind: str, at: str, program: str) -> None:
    before = state(bench)
    whole = move_in(bench, before)
    loaded = bpf_programs.load(bpf_programs.XDP if program == "xdp" else bpf_programs.SCHED_CLS)
    hook = bpf_programs.AT_XDP if at == "xdp" else bpf_programs.AT_TCX_INGRESS
    held = bpf_programs.link(bench.pod, loaded, index_of(bench.pod), hook)
    try:
        assert in_pod(bench, kind)
        assert bench.pods.return_to_host(whole)
        assert state(bench) == before
    finally:
        os.close(held)
        os.close(loaded)


def test_a_program_of_the_host_that_the_pod_removed_is_attached_again(bench: nic_pods.PodBench) -> None:
    program = bpf_programs.load(bpf_programs.XDP)
    content = rtnetlink.pack(1, struct.pack("=i", program)) + rtnetlink.number(3, 2)
    with rtnetlink.Socket.open(bench.node.name) as sock:
        link_requests.set_attributes(sock, link_requests.existing(sock, "nic0").ifindex, rtnetlink.pack(43 | 0x8000, content))
    before = state(bench)
    assert before.properties["xdpPrograms"]
    whole = move_in(bench, before)
    bench.pod.ip("link", "set", NAME, "xdpgeneric", "off")
    assert not in_pod(bench, "xdpPrograms")
    assert bench.pods.return_to_host(whole)
    assert state(bench) == before
    os.close(program)


DROPPED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "addresses": (("ip", "address", "add", "10.66.0.1/24", "dev", NAME),),
    "routes": (("ip", "route", "add", "10.67.0.0/16", "dev", NAME),),
    "neighbours": (("ip", "neighbour", "add", "10.1.2.9", "lladdr", "02:bb:00:00:00:09", "dev", NAME),),
    "qdiscs": (("tc", "qdisc", "add", "dev", NAME, "root", "tbf", "rate", "1mbit", "burst", "5000", "latency", "50ms"),),
    "filters": (
        ("tc", "qdisc", "add", "dev", NAME, "clsact"),
        ("tc", "filter", "add", "dev", NAME, "ingress", "protocol", "all", "u32", "match", "u32", "0", "0", "flowid", ":1"),
    ),
    "redirects to an ifb": (
        ("ip", "link", "add", "ifb7", "type", "ifb"),
        ("tc", "qdisc", "add", "dev", NAME, "ingress"),
        (
            "tc",
            "filter",
            "add",
            "dev",
            NAME,
            "parent",
            "ffff:",
            "u32",
            "match",
            "u32",
            "0",
            "0",
            "action",
            "mirred",
            "egress",
            "redirect",
            "dev",
            "ifb7",
        ),
    ),
    "bridge membership": (("ip", "link", "set", NAME, "master", "bridge0"),),
    "multicast memberships": (("ip", "maddress", "add", "33:33:00:00:12:34", "dev", NAME),),
    "forwarding entries": (("bridge", "fdb", "add", "02:bb:00:00:00:07", "dev", NAME, "self"),),
    "macvlan children": (("ip", "link", "add", "link", NAME, "name", "child0", "type", "macvlan"),),
    "sysctls": (("sh", "-c", f"echo 8 > /proc/sys/net/ipv4/conf/{NAME}/arp_ignore"),),
}


def kernel_view(space: netns.Namespace, name: str) -> list[str]:
    commands = (
        f"ip -4 address show dev {name} | tail -n +2",
        f"ip route show dev {name}",
        f"ip neighbour show dev {name}",
        f"tc qdisc show dev {name}",
        f"tc filter show dev {name} ingress",
        f"tc filter show dev {name} parent ffff:",
        f"ip maddress show dev {name} | tail -n +2",
        f"bridge fdb show dev {name}",
        f"bridge link show dev {name}",
        f"cat /proc/sys/net/ipv4/conf/{name}/arp_ignore",
    )
    shown = space.run("sh", "-c", "; echo ----; ".join(f"{command} 2>&1" for command in commands) + "; true")
    return [" ".join(part.split()) for part in shown.split("----\n")]


@pytest.mark.parametrize("name", DROPPED)
def test_changes_that_the_kernel_drops_at_the_move_leave_no_trace(bench: nic_pods.PodBench, name: str) -> None:
    before, before_view = state(bench), kernel_view(bench.node, "nic0")
    links = set(bench.node.links())
    whole = move_in(bench, before)
    view = kernel_view(bench.pod, NAME), set(bench.pod.links())
    for command in DROPPED[name]:
        bench.pod.run(*command)
    assert (kernel_view(bench.pod, NAME), set(bench.pod.links())) != view, "the pod's change has an effect"
    assert bench.pods.return_to_host(whole)
    assert state(bench) == before
    assert [line.split("inet6")[0] for line in kernel_view(bench.node, "nic0")] == [line.split("inet6")[0] for line in before_view]
    assert set(bench.node.links()) == links
    assert "child0" not in bench.pod.links()


def test_an_altname_that_the_host_uses_stops_no_return_and_blocks_no_later_interface(bench: nic_pods.PodBench) -> None:
    bench.node.ip("link", "add", "cni0", "type", "bridge")
    before = state(bench)
    whole = move_in(bench, before)
    CHANGES["altnames"](bench.pod)
    assert bench.pods.return_to_host(whole)
    assert state(bench) == before
    bench.node.ip("link", "add", "of-the-pod", "type", "bridge")


def test_what_cannot_be_restored_is_named_and_the_interface_is_back(bench: nic_pods.PodBench, logged: log_lines.LogLines) -> None:
    before = state(bench)
    whole = move_in(bench, before)
    bench.node.ip("link", "add", "of-the-host", "type", "bridge")  # An admin takes the altname meanwhile.
    odd = dataclasses.replace(before, properties={**before.properties, "group": "seven", "gsoMaxSegments": 2**31}, mtu=20)
    failures: list[Mapping[str, str]] = []
    assert bench.pods.return_to_host(dataclasses.replace(whole, host_state=odd), on_failed=failures.append)
    (failed,) = failures
    assert failed.keys() == {"altnames", "group", "gsoMaxSegments", "mtu"}
    link = bench.node.links()["nic0"]
    assert (link["address"], link["ifalias"], link["txqlen"]) == (before.mac, before.alias, 500)
    warned = {record["property"] for record in logged.lines if record["event"] == "interface property not restored"}
    assert warned == failed.keys()


def test_properties_of_other_kinds_of_interfaces_are_restored() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as node:
        node.make_nic("nic0", mac=nic_pods.NIC_MAC)
        node.ip("link", "add", "child0", "link", "nic0", "type", "macvlan")
        node.ip("tuntap", "add", "tap0", "mode", "tap")
        changes: Mapping[str, tuple[str, Change]] = {
            "child0": ("protoDown", lambda space: space.ip("link", "set", "child0", "protodown", "on")),
            "tap0": (
                "linkSpeed",
                ethtool(
                    _SET_LINK_SETTINGS, struct.pack("=IIHBBBBBBIIHBBI2I", 0, 0, 2500, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "tap0"
                ),
            ),
        }
        for name, (row, change) in changes.items():
            with (
                rtnetlink.Socket.open(node.name) as sock,
                namespaces.opened(node.name) as descriptor,
                properties.opened(sock, descriptor, link_requests.existing(sock, name)) as interface,
            ):
                before = properties.read(interface)
                change(node)
                assert properties.differing(interface.again(), before) == (row,)
                assert properties.restore(interface, before) == {}
                assert properties.read(interface.again()) == before
