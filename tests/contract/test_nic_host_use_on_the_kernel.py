"""An interface that carries the traffic of others is not offered, whatever way they use it, on the real kernel."""

import contextlib
import ctypes
import itertools
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from drakit_nic import kernel_port
from drakit_nic import options as nic_options
from drakit_nic.discovery import offers
from drakit_nic.netlink import link_requests, namespaces, rtnetlink
from drakit_nic.shaping import bpf
from fakes import log_lines, netns, nic_attach

pytestmark = pytest.mark.root

OPTIONS = nic_attach.OPTIONS
PROGRAM_SCHED_CLS, PROGRAM_XDP = 3, 6
XDP_PASS, TCX_NEXT = 2, -1
MOV_R0, EXIT = 0xB7, 0x95
IFLA_XDP, IFLA_XDP_FD, IFLA_XDP_FLAGS, XDP_FLAGS_SKB_MODE = 43, 1, 3, 2
BPF_LINK_CREATE, BPF_TCX_INGRESS = 28, 46
COMPAT = "net.ipv4.nexthop_compat_mode"


@pytest.fixture
def node() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        made.ip("link", "set", "lo", "up")
        made.make_nic("nic0", mac=nic_attach.NIC_MAC)
        yield made


def why_withheld(node: netns.Namespace, options: nic_options.NicOptions = OPTIONS) -> str:
    """The reason that nic0 is not offered, empty where it is."""
    surveyed = offers.survey(kernel_port.KernelPort(node.name).interfaces(), options)
    return next((withheld.reason for withheld in surveyed.withheld if withheld.name == "nic0"), "")


@pytest.mark.parametrize(
    "commands, reason",
    [
        (["link add mgmt0 link nic0 type macvlan mode bridge"], "carries the host's mgmt0 (macvlan)"),
        (["link add vtap0 link nic0 type macvtap mode bridge"], "carries the host's vtap0 (macvtap)"),
        (["link add tun0 type vxlan id 5 dev nic0 dstport 4789"], "carries the host's tun0 (vxlan)"),
        (["route add 10.0.0.0/8 dev nic0"], "has a route of the host (10.0.0.0/8)"),
        (["route add 10.0.0.0/8 dev nic0 table 100"], "has a route of the host (10.0.0.0/8)"),
        (["-6 route add 2001:db8::/32 via fe80::1 dev nic0"], "has a route of the host (2001:db8::/32)"),
        (["route add 0.0.0.0/1 dev nic0", "route add 128.0.0.0/1 dev nic0"], "carries the host's default route"),
        (["-6 route add 2000::/3 via fe80::1 dev nic0"], "carries the host's default route"),
        (["nexthop add id 7 dev nic0", "route add default nhid 7"], "carries the host's default route"),
        (["nexthop add id 7 dev nic0", "nexthop add id 8 group 7", "route add 10.0.0.0/8 nhid 8"], "has a route of the host (10.0.0.0/8)"),
        (["route add 10.0.0.0/8 nexthop dev nic0 nexthop dev nic0-wire"], "has a route of the host (10.0.0.0/8)"),
        (["link add mgmt0 link nic0 type macvlan", "link set mgmt0 up", "route add default dev mgmt0"], "carries the host's default route"),
    ],
    ids=lambda value: value if isinstance(value, str) else "; ".join(value)[:60],
)
@pytest.mark.parametrize("compat", ["1", "0"], ids=["nexthops expanded", "nexthops by id"])
def test_a_nic_that_the_host_uses_is_withheld_with_the_reason(node: netns.Namespace, commands: list[str], reason: str, compat: str) -> None:
    node.run("sysctl", "-qw", f"{COMPAT}={compat}")
    assert why_withheld(node) == ""
    for command in commands:
        node.ip(*command.split())
    assert why_withheld(node) == reason


def test_link_local_routes_are_no_use_of_the_host(node: netns.Namespace) -> None:
    node.ip("route", "add", "169.254.0.0/16", "dev", "nic0", "scope", "link", "metric", "1000")
    assert why_withheld(node) == ""


@pytest.mark.parametrize("moved", [False, True], ids=["created in the pod", "moved to the pod"])
def test_a_nic_that_a_pod_of_another_plugin_uses_is_withheld(node: netns.Namespace, moved: bool) -> None:  # noqa: FBT001
    with netns.namespace() as pod:
        node.ip("link", "add", "net1", "link", "nic0", *(() if moved else ("netns", pod.name)), "type", "macvlan")
        if moved:
            node.ip("link", "set", "net1", "netns", pod.name)
        assert why_withheld(node).startswith("carries net1 (macvlan) of another network namespace (nsid ")
        pod.ip("link", "delete", "net1")
    assert why_withheld(node) == ""


def test_a_nic_whose_frames_a_tc_filter_of_another_handles_is_withheld(node: netns.Namespace) -> None:
    node.run("tc", "qdisc", "add", "dev", "nic0", "clsact")
    assert why_withheld(node) == ""
    words = "filter add dev nic0 ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev lo"
    node.run("tc", *words.split())
    assert why_withheld(node) == "has tc filters of another program"


def test_a_nic_with_an_xdp_program_is_withheld(node: netns.Namespace) -> None:
    program = loaded(PROGRAM_XDP, returns=XDP_PASS)
    try:
        with rtnetlink.Socket.open(node.name) as sock:
            flags = rtnetlink.number(IFLA_XDP_FLAGS, XDP_FLAGS_SKB_MODE)
            xdp = rtnetlink.pack(IFLA_XDP, rtnetlink.number(IFLA_XDP_FD, program) + flags)
            link_requests.set_attributes(sock, link_requests.existing(sock, "nic0").ifindex, xdp)
        assert why_withheld(node) == "has an XDP program of another program"
    finally:
        os.close(program)


def test_a_nic_with_a_tcx_program_is_withheld(node: netns.Namespace) -> None:
    program = loaded(PROGRAM_SCHED_CLS, returns=TCX_NEXT)
    try:
        attached = namespaces.run_in(node.name, lambda: attach_tcx(program, socket.if_nametoindex("nic0")))
        try:
            assert why_withheld(node) == "has tcx programs of another program"
        finally:
            os.close(attached)
        assert why_withheld(node) == ""
    finally:
        os.close(program)


def loaded(kind: int, *, returns: int) -> int:
    """The descriptor of a program of this type that returns a number at once."""
    code = struct.pack("=BBhi", MOV_R0, 0, 0, returns) + struct.pack("=BBhi", EXIT, 0, 0, 0)
    buffers = [ctypes.create_string_buffer(text, len(text)) for text in (code, b"GPL\0")]
    return bpf._bpf(bpf._LOAD, struct.pack("=IIQQIIQII16s", kind, len(code) // 8, *map(ctypes.addressof, buffers), *[0] * 5, b"test"))


def attach_tcx(program: int, ifindex: int) -> int:
    """The descriptor of a link that attaches a program at the ingress for as long as it is open."""
    return bpf._bpf(BPF_LINK_CREATE, struct.pack("=IIII32x", program, ifindex, BPF_TCX_INGRESS, 0))


def test_the_interfaces_of_a_shared_nic_s_own_pods_are_no_foreign_use() -> None:
    with nic_attach.untouched_world() as world, world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
        with nic_attach.pod() as pod:
            assert world.call(ref, pod).code == 0
            assert names(nic_attach.author_of(driver).survey()) == ["nic0"]
            pod.space.ip("link", "set", "fast0", "alias", "not drakit's")
            pod.space.ip("link", "add", "more0", "link", "fast0", "type", "macvlan")
            assert names(nic_attach.author_of(driver).survey()) == ["nic0"], "a pod cannot withdraw the NIC from others"
        driver.unprepare(ref)


class Killed(BaseException):
    """The process ends here; nobody may catch it, as nobody catches SIGKILL."""


class Steps:
    """Counts requests that change the kernel, and ends the process after so many."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def test_the_drivers_own_marks_on_a_nic_are_no_foreign_use_after_any_step() -> None:
    """Whatever a driver that was killed left on the NIC, the next one offers it."""
    for last in itertools.count(1):
        with nic_attach.world() as world, nic_attach.pod("5a4d") as pod:
            steps, kept = Steps(), nic_attach.claim(1, parameters={"interfaceName": "fast0"})
            with world.driver(start=False) as first:
                first.prepare(kept)
            with world.driver(step=steps, start=False) as killed, contextlib.suppress(Killed):
                steps.left = last
                ref = killed.prepare(nic_attach.claim(2))
                killed.unprepare(ref)
                killed.unprepare(kept.ref)
            assert why_withheld(world.node) == "", f"after {last} requests"
            with world.driver() as later:
                assert names(nic_attach.author_of(later).survey()) == ["nic0"]
                assert world.call(later.prepare(kept), pod).code == 0
                assert names(nic_attach.author_of(later).survey()) == ["nic0"]
                assert why_withheld(world.node) == "", "also without the journal"
            if steps.left > 0:
                break
    assert last > 10


def test_a_child_of_the_host_withdraws_the_nic_and_its_shares_go_on(logged: log_lines.LogLines) -> None:
    with nic_attach.untouched_world() as world, world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1, parameters={"interfaceName": "fast0"}))
        with nic_attach.pod() as pod:
            assert world.call(ref, pod).code == 0
            shares, members = driver.machine.shares(), driver.members()
            world.node.ip("link", "add", "mgmt0", "link", "nic0", "type", "macvlan")
            nic_attach.until(lambda: "interface no longer offered" in logged.events, "the NIC is withdrawn")
            assert nic_attach.look(driver) == {"nic0": ()}
            assert (driver.machine.shares(), driver.members()) == (shares, members)
            assert "fast0" in pod.space.links()
            assert world.call(ref, pod, "c2").code == 0, "the next container of the pod starts"
            world.node.ip("link", "delete", "mgmt0")
            assert names(nic_attach.author_of(driver).survey()) == ["nic0"]
        driver.unprepare(ref)


def names(surveyed: offers.Survey) -> list[str]:
    return [nic.interface.name for nic in surveyed.nics]
