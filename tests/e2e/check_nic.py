"""Shares of a real kernel interface: a veth pair on the node, with a peer in a network namespace that sends and counts."""

from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import node_work, objects, workspace
from e2e.driver import Driver
from e2e.session import Run
from e2e.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.gates("DRAConsumableCapacity")]

NIC = objects.NIC
INTERFACE, ADDRESS, PORT = "e2enic0", "10.99.0.1", 5201
_SECONDS = 4
_PEER = f"""
import ctypes, os, signal, socket, sys, threading, time
from drakit_nic.netlink import link_requests, rtnetlink

NEWLINK, HEADER = 16, bytes(16)

def pair(inside):
    peer = HEADER + rtnetlink.text(3, "e2enic1") + rtnetlink.number(19, inside)  # IFLA_IFNAME, IFLA_NET_NS_PID
    kind = rtnetlink.text(1, "veth") + rtnetlink.pack(2, rtnetlink.pack(1, peer))  # IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER
    return HEADER + rtnetlink.text(3, "{INTERFACE}") + rtnetlink.pack(18, kind)  # IFLA_LINKINFO

def delete(net):
    link = link_requests.find(net, "{INTERFACE}")
    if link:
        link_requests.delete(net, link.ifindex)

ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0
    os.write(ready[1], b"1")
    os.read(go[0], 1)
    with rtnetlink.Socket.open() as net:
        for name, addresses in (("lo", []), ("e2enic1", ["{ADDRESS}/16"])):
            index = link_requests.find(net, name).ifindex
            for address in addresses:
                link_requests.add_address(net, index, address)
            link_requests.alter(net, index, up=True)

    def serve(peer):
        with peer:
            if peer.recv(1) == b"R":
                end = time.monotonic() + {_SECONDS}
                try:
                    while time.monotonic() < end:
                        peer.sendall(bytes(65536))
                except OSError:
                    pass
                return
            count, start, first = 0, time.monotonic(), None
            while piece := peer.recv(1 << 20):
                now = time.monotonic()
                if now - start > 0.5:
                    first = first or now
                    count += len(piece)
            peer.sendall(str(count * 8 / (now - first) / 1e6).encode())

    with socket.create_server(("{ADDRESS}", {PORT})) as listening:
        while True:
            threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()

def end(*_):
    with rtnetlink.Socket.open() as net:
        delete(net)
    os.kill(child, signal.SIGKILL)
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
os.read(ready[0], 1)
with rtnetlink.Socket.open() as net:
    delete(net)
    net.ask(NEWLINK, pair(child), rtnetlink.CREATE | rtnetlink.EXCLUSIVE)
    link_requests.alter(net, link_requests.find(net, "{INTERFACE}").ifindex, up=True)
os.write(go[1], b"1")
print("ready", flush=True)
while True:
    signal.pause()
"""
_CLIENT = f"""
import socket, sys, time
direction = sys.argv[1]
deadline = time.monotonic() + 20
while True:
    try:
        peer = socket.create_connection(("{ADDRESS}", {PORT}), timeout=5)
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.2)
peer.settimeout(None)
peer.sendall(direction.encode())
start = time.monotonic()
if direction == "S":
    while time.monotonic() - start < {_SECONDS}:
        peer.sendall(bytes(1 << 16))
    peer.shutdown(socket.SHUT_WR)
    print(peer.recv(100).decode())
else:
    count, first = 0, None
    while piece := peer.recv(1 << 16):
        now = time.monotonic()
        if now - start > 0.5:
            first = first or now
            count += len(piece)
    print(count * 8 / (now - first) / 1e6)
"""


@pytest.fixture(scope="module")
def kernel(run: Run, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """The NIC driver on a veth pair of the node, in the place of the mock overlay."""
    driver = run.driver
    space = run.space
    rig = space.within(workspace.LABELLED)
    image = driver.image
    peer = node_work.on_host("peer", _PEER, network=True)
    space.clear()
    driver.delete("mock")
    try:
        rig.create(peer)
        space.api.wait("the veth pair", lambda: "ready" in rig.output("peer"))
        driver.apply(
            "nic",
            image,
            {"DRAKIT_NIC__INCLUDE": f"[{INTERFACE}]", "DRAKIT_NIC__RULES": f"[{{match: {INTERFACE}, speed: 1G}}]"},
        )
        driver.offers(NIC)
        yield driver
    finally:
        space.clear_namespace(workspace.NAMESPACE)
        driver.delete("nic")
        rig.end("peer")
        driver.apply("mock")
        driver.offers("gpu.drakit.dev", NIC)


@pytest.fixture
def area(kernel: Driver, run: Run) -> Iterator[Workspace]:
    space = run.space
    yield space
    space.clear_namespace(workspace.NAMESPACE)


def share(name: str, bandwidth: str, address: str) -> Object:
    config = objects.opaque(NIC, "NicConfig", interfaceName="fast0", addresses=[f"{address}/16"])
    return objects.claim(name, objects.share("net", bandwidth, interface=INTERFACE), config=[config])


def rate(space: Workspace, pod: str, direction: str) -> float:
    """Mbit/s that a pod sends ("S") or receives ("R")."""
    return float(space.execute(pod, "python3", "-c", _CLIENT, direction))


def test_a_pod_has_an_interface_with_its_address_and_its_rate_in_both_directions(area: Workspace) -> None:
    area.run(share("c", "100M", "10.99.1.3"), objects.pod("p", claims=["c"]))
    link = area.view("p").links["fast0"]
    assert link.address == "10.99.1.3"
    assert 80 < rate(area, "p", "S") < 101
    assert 80 < rate(area, "p", "R") < 101


@pytest.mark.gates("DRAResourceClaimDeviceStatus")
def test_the_status_of_a_share_has_the_interface_in_the_pod(area: Workspace) -> None:
    area.run(share("c", "100M", "10.99.1.3"), objects.pod("p", claims=["c"]))

    def network() -> Object:
        [status, *_] = json_types.objects(area.claim("c"), "status", "devices") or [{}]
        return json_types.mapping(status, "networkData")

    found = area.api.wait("the interface in the status of the share", network)
    assert json_types.strings(found, "ips") == ["10.99.1.3/16"]
    assert json_types.text(found, "hardwareAddress") == area.view("p").links["fast0"].mac


def test_two_pods_keep_the_rates_of_their_own_shares(area: Workspace) -> None:
    area.run(
        share("a", "200M", "10.99.1.4"), objects.pod("p", claims=["a"]), share("b", "50M", "10.99.1.5"), objects.pod("q", claims=["b"])
    )
    assert 160 < rate(area, "p", "S") < 201
    assert 40 < rate(area, "q", "S") < 51


def test_an_address_that_another_pod_has_is_refused_in_words(area: Workspace) -> None:
    area.run(share("c", "100M", "10.99.1.3"), objects.pod("p", claims=["c"]))
    area.create(objects.pod("q", claims=["c"]))

    def refusal() -> str:
        [status] = json_types.objects(area.pod("q"), "status", "containerStatuses") or [{}]
        return json_types.text(status, "state", "terminated", "message") or json_types.text(status, "state", "waiting", "message")

    assert "10.99.1.3" in area.api.wait("the refusal", refusal)
