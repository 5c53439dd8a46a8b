"""The kernel's settings of a claim's interface are chosen: nothing on the wire, the host or in the pod's defaults decides them."""

import contextlib
from collections.abc import Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from drakit_nic import sysctls
from fakes import netns, nic_attach, nic_wire

pytestmark = pytest.mark.root

PARAMETERS: records.Record = {"interfaceName": "fast0", "addresses": ["10.99.1.2/16"]}
CLASS = claims.ConfigSource.CLASS
CONF = "/proc/sys/net"


@pytest.fixture(params=["share", "whole"])
def form(request: pytest.FixtureRequest) -> str:
    if netns.why_not() or not netns.HAS_IPV6:
        pytest.skip(netns.why_not() or "this kernel has no IPv6")
    return str(request.param)


@contextlib.contextmanager
def attached(wired: nic_wire.Wired, form: str, pod: nic_attach.Pod, **more: object) -> Iterator[None]:
    parameters: records.Record = {**PARAMETERS, **more}  # type: ignore[dict-item] # tests pass JSON
    make = (
        nic_wire.whole
        if form == "whole"
        else lambda number, parameters, source: nic_attach.claim(number, parameters=parameters, source=source)
    )
    with wired.world.driver() as driver:
        ref = driver.prepare(make(1, parameters, CLASS if more else claims.ConfigSource.CLAIM))
        assert wired.world.call(ref, pod) == nic_attach.Said(0, "")
        yield
        driver.unprepare(ref)


def read(space: netns.Namespace, interface: str, names: list[str]) -> dict[str, int]:
    files = [f"{CONF}/{family}/conf/{interface}/{leaf}" for family, _, leaf in (name.partition(".") for name in names)]
    return dict(zip(names, map(int, space.run("cat", *files).split()), strict=True))


def put(space: netns.Namespace, interface: str, values: dict[str, int]) -> None:
    for name, value in values.items():
        family, _, leaf = name.partition(".")
        space.run("sh", "-c", f"echo {value} > {CONF}/{family}/conf/{interface}/{leaf}")


def test_every_setting_is_the_driver_s_whatever_the_pod_would_inherit(form: str) -> None:
    names = sorted(sysctls.TABLE)
    others = {name: max(sysctls.TABLE[name].values - {sysctls.TABLE[name].chosen}) for name in names}
    with nic_wire.wired(nic_wire.WHOLE) as wired, nic_attach.pod() as pod:
        for interface in ("default", "all"):
            # Some cannot be set for all: the kernel has no such meaning for them.
            put(pod.space, interface, {name: value for name, value in others.items() if name != "ipv6.addr_gen_mode"})
        put(pod.space, "default", {"ipv6.addr_gen_mode": others["ipv6.addr_gen_mode"]})
        with attached(wired, form, pod):
            assert read(pod.space, "fast0", names) == {name: sysctls.TABLE[name].chosen for name in names}


def test_a_class_chooses_others(form: str) -> None:
    chosen = {"ipv4.rp_filter": 1, "ipv4.arp_ignore": 0, "ipv6.accept_ra": 2, "ipv6.autoconf": 1, "ipv6.addr_gen_mode": 1}
    with nic_wire.wired(nic_wire.WHOLE) as wired, nic_attach.pod() as pod, attached(wired, form, pod, sysctls=chosen, forwarding=True):
        wanted = {**chosen, "ipv4.forwarding": 1, "ipv6.forwarding": 1, "ipv4.accept_redirects": 0}
        assert read(pod.space, "fast0", list(wanted)) == wanted


@pytest.mark.long
def test_a_router_gives_an_address_and_a_route_only_where_the_class_says_so(form: str) -> None:
    def seen(**more: object) -> tuple[bool, bool]:
        with nic_wire.wired(nic_wire.WHOLE) as wired, nic_attach.pod() as pod, attached(wired, form, pod, **more):
            nic_attach.until(lambda: "tentative" not in pod.space.ip("-6", "address", "show", "dev", "fast0"), "no address of the link")
            wired.send(nic_wire.router_advertisement())
            # Frames stay in order, so what an echo follows was received.
            pod.space.run("ping", "-c1", "-W5", "10.99.0.1")
            addresses, routes = pod.space.ip("-6", "address", "show", "dev", "fast0"), pod.space.ip("-6", "route")
            return "2001:db8:77:" in addresses, "default via fe80::aa" in routes

    assert seen() == (False, False)
    assert seen(sysctls={"ipv6.accept_ra": 1, "ipv6.autoconf": 1}) == (True, True)
    assert seen(sysctls={"ipv6.accept_ra": 1, "ipv6.autoconf": 1, "ipv6.accept_ra_defrtr": 0}) == (True, False)


def test_a_redirect_changes_no_route_and_other_interfaces_keep_their_settings(form: str) -> None:
    with nic_wire.wired(nic_wire.WHOLE) as wired, nic_attach.pod() as pod:
        wired.net.ip("address", "add", "10.99.0.7/16", "dev", nic_wire.WIRE)
        pod.space.make_nic("eth0", mac="02:00:00:00:00:77")
        put(pod.space, "all", {"ipv4.accept_redirects": 1, "ipv4.route_localnet": 1})
        put(pod.space, "eth0", {"ipv4.accept_redirects": 0, "ipv4.route_localnet": 0})
        with attached(wired, form, pod):
            pod.space.ip("route", "add", "10.50.0.0/16", "via", "10.99.0.1")
            for gateway in ("10.99.0.1", "10.99.0.7"):
                pod.space.run("ping", "-c1", "-W5", gateway)

            def way_after_redirect() -> str:
                mac = str(pod.space.links()["fast0"]["address"])
                ways = {"victim": "10.99.1.2", "destination": "10.50.0.9", "router": "10.99.0.1", "better": "10.99.0.7"}
                wired.send(nic_wire.redirect(mac, **ways))
                pod.space.run("ping", "-c1", "-W5", "10.99.0.1")
                return pod.space.ip("route", "get", "10.50.0.9")

            assert "via 10.99.0.1 " in way_after_redirect()
            names = ["ipv4.accept_redirects", "ipv4.route_localnet"]
            for interface in ("eth0", "default"):
                assert read(pod.space, interface, names) == dict.fromkeys(names, 1), "as all said until now"
            assert read(pod.space, "all", names) == dict.fromkeys(names, 0)
            put(pod.space, "fast0", {"ipv4.accept_redirects": 1})
            assert "via 10.99.0.7 " in way_after_redirect(), "the frame is one that the kernel accepts"


def test_settings_that_the_pod_changed_stay_when_another_container_starts() -> None:
    if netns.why_not():
        pytest.skip(netns.why_not())
    with nic_wire.wired() as wired, nic_attach.pod() as pod, wired.world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        assert wired.world.call(ref, pod).code == 0
        put(pod.space, "fast0", {"ipv4.arp_ignore": 0})
        assert wired.world.call(ref, pod, "c2").code == 0
        assert read(pod.space, "fast0", ["ipv4.arp_ignore"]) == {"ipv4.arp_ignore": 0}
        driver.unprepare(ref)
