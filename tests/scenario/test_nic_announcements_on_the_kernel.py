"""An attached interface is announced to the neighbours, so that those that knew its address by another MAC reach the new pod at once."""

import contextlib
import functools
import pathlib
import socket
import time
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from fakes import netns, nic_attach, nic_network, nic_wire

pytestmark = [pytest.mark.root, pytest.mark.long]

V4, V6 = "10.99.1.2", "fd99::1:2"
PARAMETERS: records.Record = {"interfaceName": "fast0", "addresses": [f"{V4}/16", f"{V6}/64"]}
MACS = ("02:bb:00:00:00:01", "02:bb:00:00:00:02")
OVERRIDE, ROUTER = 0x20, 0x80


@pytest.fixture
def wired() -> Iterator[nic_wire.Wired]:
    if netns.why_not() or not netns.HAS_IPV6:
        pytest.skip(netns.why_not() or "this kernel has no IPv6")
    with nic_wire.wired(nic_wire.WHOLE) as made:
        nic_network.inside(made.net, keep_neighbours)
        yield made


def keep_neighbours() -> None:
    """Let the other end of the wire remember its neighbours while it has no link, as one behind a switch does, whose link stays."""
    for name in ("ipv4/conf/wire/arp_evict_nocarrier", "ipv6/conf/wire/ndisc_evict_nocarrier"):
        with contextlib.suppress(FileNotFoundError):  # before Linux 5.16 and 5.17
            pathlib.Path("/proc/sys/net", name).write_text("0")


@pytest.fixture(params=["share", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def claim(form: str, number: int = 1, **of_class: object) -> claims.Claim:
    parameters: records.Record = {**PARAMETERS, **of_class}  # type: ignore[dict-item] # tests pass JSON
    make = nic_wire.whole if form == "whole" else nic_attach.claim
    return make(number, parameters=parameters, source=claims.ConfigSource.CLASS)


def mac_of(pod: nic_attach.Pod) -> str:
    return str(pod.space.links()["fast0"]["address"])


@contextlib.contextmanager
def server(pod: nic_attach.Pod, address: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with nic_network.inside(pod.space, lambda: socket.socket(family, socket.SOCK_DGRAM)) as sock:
        sock.bind((address, 7777))
        sock.settimeout(2)
        yield sock


def is_reached(wired: nic_wire.Wired, pod: nic_attach.Pod, address: str) -> bool:
    """Whether one datagram of the neighbour arrives."""
    with server(pod, address) as sock, nic_network.inside(wired.net, lambda: socket.socket(sock.family, socket.SOCK_DGRAM)) as peer:
        peer.sendto(b"x", (address, 7777))
        try:
            sock.recv(10)
        except TimeoutError:
            return False
        return True


def is_known(wired: nic_wire.Wired, address: str, mac: str) -> bool:
    """Return whether the neighbour has learned the MAC of an address that it knew by another; only an announcement teaches it."""
    return f"{address} dev {nic_wire.WIRE} lladdr {mac} " in wired.net.ip("neighbour")


def test_neighbours_that_knew_the_address_by_another_mac_reach_the_new_pod(wired: nic_wire.Wired, form: str) -> None:
    with wired.world.driver() as driver:
        for number, mac in enumerate(MACS, 1):
            ref = driver.prepare(claim(form, number, mac=mac))
            with nic_attach.pod(f"5a{number}") as pod:
                assert wired.world.call(ref, pod) == nic_attach.Said(0, "")
                assert mac_of(pod) == mac
                for address in (V4, V6):
                    if number > 1:
                        nic_attach.until(functools.partial(is_known, wired, address, mac), f"{address} by {mac}: no announcement arrived")
                    assert is_reached(wired, pod, address), f"{address} by {mac}: {wired.net.ip('neighbour')}"
                driver.unprepare(ref)
            nic_attach.until(lambda: wired.world.node.links()["nic0"]["operstate"] == "UP", "the link did not come up again")


def test_every_address_is_announced_three_times_the_link_local_one_when_usable(wired: nic_wire.Wired, form: str) -> None:
    with wired.world.driver() as driver, nic_attach.pod() as pod, wired.heard() as heard:
        ref = driver.prepare(claim(form, forwarding=True))
        began = time.monotonic()
        assert wired.world.call(ref, pod).code == 0
        link_local = next(word for word in pod.space.ip("-6", "address", "show", "dev", "fast0").split() if word.startswith("fe80:"))
        expected = {(V4, 0): 3, (V6, OVERRIDE | ROUTER): 3}
        alone = (link_local.partition("/")[0], OVERRIDE | ROUTER)

        def count(address: str, flags: int) -> int:
            return heard.count(nic_wire.Announced(address=address, mac=mac_of(pod), flags=flags))

        nic_attach.until(lambda: bool(heard.listen()) and all(count(*key) >= times for key, times in expected.items()), f"{heard}")
        nic_attach.until(lambda: bool(heard.listen()) and count(*alone) >= 1, f"{heard}")
        assert time.monotonic() - began >= 3, "they are apart"
        assert {(entry.address, entry.flags): heard.count(entry) for entry in heard if entry.address in {V4, V6}} == expected
        assert {entry.mac for entry in heard} == {mac_of(pod)}
        driver.unprepare(ref)


def test_an_interface_without_a_link_is_announced_when_it_has_one(wired: nic_wire.Wired, form: str) -> None:
    wired.net.ip("link", "set", nic_wire.WIRE, "down")
    with wired.world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(claim(form))
        assert wired.world.call(ref, pod).code == 0
        wired.net.ip("link", "set", nic_wire.WIRE, "up")
        with wired.heard() as heard:
            expected = nic_wire.Announced(address=V4, mac=mac_of(pod))
            nic_attach.until(lambda: heard.listen().count(expected) == 3, f"{heard}")
        driver.unprepare(ref)


def test_an_interface_that_is_taken_back_at_once_is_not_announced_again(wired: nic_wire.Wired, form: str) -> None:
    with wired.world.driver() as driver, nic_attach.pod() as pod, wired.heard() as heard:
        ref = driver.prepare(claim(form))
        assert wired.world.call(ref, pod).code == 0
        driver.unprepare(ref)
        heard.listen().clear()
        time.sleep(1.5)  # The next announcement was due after a second.
        assert [entry for entry in heard.listen() if entry.address in {V4, V6}] == []


def test_a_sandbox_that_ends_right_after_its_attach_is_not_kept(wired: nic_wire.Wired) -> None:
    """The announcements of a whole interface hold its pod's namespace, until the claim is unprepared."""
    with wired.world.driver() as driver:
        ref = driver.prepare(claim("whole"))
        with nic_attach.pod() as pod:
            assert wired.world.call(ref, pod).code == 0
        driver.unprepare(ref)
        # A veth ends with its namespace, unless the driver was fast enough to bring it back.
        nic_attach.until(lambda: "wire" not in wired.net.links() or "nic0" in wired.world.node.links(), "the namespace did not end")
