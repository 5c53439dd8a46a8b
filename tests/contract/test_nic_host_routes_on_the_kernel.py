"""Which of the host's routes are read by an interface that leaves, and how many, on the real kernel."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit_nic import pod_interfaces
from drakit_nic.netlink import rtnetlink
from drakit_nic.passthrough import host_routes
from fakes import netns, nic_pods

pytestmark = pytest.mark.root
MARK = pod_interfaces.mark_of("share-routes")
DAEMONS = ("8", "mrt", "zebra", "bird", "xorp", "17", "babel", "openr", "bgp", "isis", "ospf", "rip", "eigrp")
KEPT = ("boot", "static", "dhcp", "keepalived", "77", "250")


class CountingSocket(rtnetlink.Socket):
    """Counts what the kernel tells in dumps."""

    told = 0

    def dump(self, kind: int, body: bytes) -> tuple[bytes, ...]:
        answers = super().dump(kind, body)
        self.told += len(answers)
        return answers


@pytest.fixture
def node() -> Iterator[netns.Namespace]:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with netns.namespace() as made:
        for number in (0, 1):
            made.make_nic(f"nic{number}", mac=f"02:00:00:00:00:2{number}")
            made.ip("address", "add", f"10.{7 + number}.0.1/24", "dev", f"nic{number}")
            if netns.HAS_IPV6:
                made.ip("address", "add", f"fd0{7 + number}::1/64", "dev", f"nic{number}", "nodad")
        yield made


def give(node: netns.Namespace, folder: pathlib.Path, count: int, *words: str) -> None:
    """Routes onto the link of nic0, each to an address of its own."""
    batch = folder / "routes"
    lines = (f"route add 10.90.{number // 256}.{number % 256}/32 dev nic0 {' '.join(words)}\n" for number in range(count))
    batch.write_text("".join(lines), "ascii")
    node.ip("-batch", str(batch))


def host_state(node: netns.Namespace) -> pod_interfaces.HostState:
    state = nic_pods.KernelPods(node.name).host_state("nic0")
    assert state is not None
    return state


def test_routes_of_routing_daemons_are_left_to_them(node: netns.Namespace) -> None:
    for number, protocol in enumerate((*DAEMONS, *KEPT)):
        node.ip("route", "add", f"10.80.{number}.0/24", "dev", "nic0", "proto", protocol)
    state = host_state(node)
    assert [route.destination for route in state.routes] == [f"10.80.{len(DAEMONS) + at}.0/24" for at in range(len(KEPT))]
    assert state.routes_left_out == 0


def test_a_daemon_s_route_stored_by_an_earlier_version_is_not_restored(node: netns.Namespace) -> None:
    hop = (host_routes.Hop(interface="nic0"),)
    wanted = [host_routes.HostRoute(destination=f"10.80.{protocol}.0/24", hops=hop, protocol=protocol, scope=253) for protocol in (77, 186)]
    with rtnetlink.Socket.open(node.name) as sock:
        index = int(str(node.links()["nic0"]["ifindex"]))
        assert list(host_routes.restore(sock, index, "nic0", wanted)) == []
    assert node.ip("route", "show", "proto", "77").split()[0] == "10.80.77.0/24"
    assert node.ip("route", "show", "proto", "bgp") == ""


@pytest.mark.parametrize("beyond", [0, 1, 1000])
def test_routes_beyond_the_limit_are_counted_and_not_stored(node: netns.Namespace, tmp_path: pathlib.Path, beyond: int) -> None:
    give(node, tmp_path, host_routes.MOST + beyond)
    state = host_state(node)
    assert (len(state.routes), state.routes_left_out) == (host_routes.MOST, beyond)


def test_thousands_of_routes_of_a_daemon_do_not_stop_an_attach(node: netns.Namespace, tmp_path: pathlib.Path) -> None:
    give(node, tmp_path, 3000, "proto", "bgp")
    state = host_state(node)
    assert (state.routes, state.routes_left_out) == ((), 0)


def test_an_interface_costs_nothing_for_routes_of_another(node: netns.Namespace, tmp_path: pathlib.Path) -> None:
    give(node, tmp_path, 1000)
    node.ip("route", "add", "10.60.0.0/16", "nexthop", "via", "10.7.0.2", "nexthop", "via", "10.8.0.2")
    wanted = {"10.60.0.0/16"}
    if netns.HAS_IPV6:
        node.ip("route", "add", "fd60::/48", "nexthop", "via", "fd07::2", "nexthop", "via", "fd08::2")
        wanted.add("fd60::/48")
    with CountingSocket.open(node.name) as sock:
        routes, left_out = host_routes.read(sock, int(str(node.links()["nic1"]["ifindex"])))
        assert {route.destination for route in routes} == wanted, "a route with several ways is every interface's"
        assert left_out == 0
        assert sock.told < 20, "the kernel's own and link-local ones, and the two"
