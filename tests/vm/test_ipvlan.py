"""Shares whose pods get ipvlans, which have the NIC's own MAC address, on a real NIC: rates, cheating, removal, and a driver that is killed."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

from drakit.core import claim as claims
from drakit.core import records
from drakit_nic import options as nic_options
from drakit_nic import port
from fakes import netns, nic_attach, nic_network
from vm import rdma_subsystem, virtual_functions

pytestmark = pytest.mark.timeout(900)
PARTNER, HOST, NETWORK = "10.7.0.1", "10.7.0.2", 24
RATE = 4 * 10**6
HOSTS_CLASS, STRAY_CLASS, DEFAULT_CLASS = "da:2", "da:3", "da:4"
FRAMES, NOISE = 200, 20
ATTACH_STEP = 18
"""The changes of the kernel that prepare makes, about."""
BITS = virtual_functions.BITS
RULE = nic_options.NicRule(match="driver:igb", speed=BITS("200M"), reserve=BITS("50M"), min=BITS("1M"), step=BITS("1M"), child="ipvlan")
OPTIONS = nic_options.NicOptions(include=("driver:igb",), offer_addressed=True, rules=(RULE,))


@dataclasses.dataclass(frozen=True)
class Site:
    """The igb NIC of the host, which has an address, a partner on the wire, and the node of a driver that shares the NIC."""

    nic: str
    partner: netns.Namespace
    wire: str
    world: nic_attach.World

    @property
    def device(self) -> str:
        return virtual_functions.device_of(self.world, self.nic).removesuffix("-whole")

    def claim(self, number: int, parameters: records.Record | None = None) -> claims.Claim:
        """A claim of a share for one pod, whose interface is ``net1``."""
        wanted = {"interfaceName": "net1", "addresses": [f"{address(number)}/{NETWORK}", f"{address6(number)}/64"], **(parameters or {})}
        return virtual_functions.of_device(nic_attach.claim(number, parameters=wanted, bandwidth="4M"), self.device)

    def counted(self, direction: str) -> dict[str, int]:
        """The packets that each class of the NIC, or of its ifb, has sent."""
        ifindex = (pathlib.Path("/sys/class/net") / self.nic / "ifindex").read_text().strip()
        name = self.nic if direction == "egress" else f"drb{ifindex}"
        listed = json.loads(rdma_subsystem.run("tc", "-s", "-j", "class", "show", "dev", name))
        return {entry["handle"]: int(entry["stats"]["packets"]) for entry in listed if entry["class"] == "htb"}

    def gained(self, work: Callable[[], object], direction: str = "egress") -> dict[str, int]:
        """The packets that each class sends meanwhile, as soon as they are sent."""
        before = self.counted(direction)
        work()

        def now() -> dict[str, int]:
            return {name: count - before.get(name, 0) for name, count in self.counted(direction).items()}

        nic_attach.until(lambda: sum(count for name, count in now().items() if name != "da:1") >= FRAMES - NOISE, f"no frames: {now()}")
        return now()


def address(number: int) -> str:
    return f"10.7.0.{10 + number}"


def address6(number: int) -> str:
    return f"fd07::{10 + number}"


@pytest.fixture
def site() -> Iterator[Site]:
    virtual_functions.until(lambda: rdma_subsystem.interfaces_of("virtio_net"), "the NIC is still in the namespace of another test")
    (nic,), (wire,) = rdma_subsystem.interfaces_of("igb"), rdma_subsystem.interfaces_of("virtio_net")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dk"))
        partner = stack.enter_context(netns.namespace())
        rdma_subsystem.run("ip", "link", "set", wire, "netns", partner.name)
        partner.ip("address", "add", f"{PARTNER}/{NETWORK}", "dev", wire)
        partner.ip("address", "add", "fd07::1/64", "dev", wire, "nodad")
        partner.ip("link", "set", wire, "up")
        rdma_subsystem.run("ip", "link", "set", nic, "up")
        rdma_subsystem.run("ip", "address", "add", f"{HOST}/{NETWORK}", "dev", nic)
        stack.callback(rdma_subsystem.run, "ip", "address", "flush", "dev", nic)
        virtual_functions.until(lambda: (virtual_functions.NETWORK / nic / "carrier").read_text().strip() == "1", "the NIC has no link")
        yield Site(nic, partner, wire, virtual_functions.node(pathlib.Path(folder), OPTIONS))
        left = [link["ifname"] for link in virtual_functions.ip("link", "show") if link["ifname"].startswith("dr")]
        assert not left, "the ifb is left"


@contextlib.contextmanager
def attached(site: Site, driver: nic_attach.Running, number: int = 1) -> Iterator[nic_attach.Pod]:
    """A pod with a share, which has reached the partner once."""
    ref = driver.prepare(site.claim(number))
    try:
        with nic_attach.pod(f"5a4d{number}") as pod:
            said = site.world.call(ref, pod)
            if "did not answer in time" in said.stderr:  # As on a busy emulated processor; a runtime calls again, too.
                said = site.world.call(ref, pod)
            assert said.code == 0, said.stderr
            pod.space.run("ping", "-c", "1", "-w", "20", PARTNER)
            yield pod
    finally:
        driver.unprepare(ref)


def goodput(source: netns.Namespace, target: netns.Namespace, to: str) -> float:
    """What iperf3 measures in one connection, in bits a second."""
    server = subprocess.Popen(["ip", "netns", "exec", target.name, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        nic_attach.until(lambda: ":5201 " in target.run("ss", "-ltn"), "iperf3 did not start")
        result = json.loads(source.run("iperf3", "-c", to, "-t", "10", "-O", "3", "-J", timeout=120))
    finally:
        server.terminate()
        server.wait(30)
    return float(result["end"]["sum_received"]["bits_per_second"])


def test_a_pod_gets_a_private_ipvlan_and_its_rate_in_both_directions(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver) as pod:
        (link,) = [link for link in json.loads(pod.space.ip("-j", "-d", "link")) if link["ifname"] == "net1"]
        assert link["linkinfo"]["info_kind"] == "ipvlan"
        assert "private" in pod.space.ip("-d", "link", "show", "dev", "net1")
        out = goodput(pod.space, site.partner, PARTNER)
        into = goodput(site.partner, pod.space, address(1))
        assert 0.25 * RATE < out < RATE, "an emulated processor may be busy elsewhere"
        assert 0.25 * RATE < into < RATE


def raw(space: netns.Namespace, link: str, source: str) -> None:
    """Send raw IP packets with the NIC's address and an IP source address of choice."""
    mac = json.loads(space.ip("-j", "link", "show", "dev", link))[0]["address"].replace(":", "")
    packet = bytes.fromhex("4500003c000000004011") + bytes(2) + socket.inet_aton(source) + socket.inet_aton(PARTNER) + bytes(40)

    def work() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind((link, 0))
            for _ in range(FRAMES):
                sock.send(bytes.fromhex("020000000099" + mac + "0800") + packet)

    nic_network.inside(space, work)


def test_a_pod_cannot_send_on_the_share_of_another(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver, 1) as hostile, attached(site, driver, 2):
        mine, others = (traffic.share_id for traffic in sorted(driver.machine.traffic(), key=lambda traffic: traffic.share_id))

        def sent() -> dict[str, int]:
            return {traffic.share_id: traffic.egress.packets for traffic in driver.machine.traffic()}

        for source in (address(1), address(2), HOST, "10.7.0.99"):
            before = sent()
            gained = site.gained(lambda source=source: raw(hostile.space, "net1", source))  # type: ignore[misc]
            after = sent()
            assert after[mine] - before[mine] >= FRAMES - NOISE, source
            assert after[others] - before[others] < NOISE, source
            assert gained[HOSTS_CLASS] < NOISE, source


def test_an_address_that_a_pod_adds_gets_it_no_more_than_the_default_class(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver) as pod:
        pod.space.ip("address", "add", f"{address(9)}/{NETWORK}", "dev", "net1")
        for to, is_own in ((address(1), True), (address6(1), True), (address(9), False)):
            site.partner.run("ping", "-c", "1", "-w", "20", to)
            before = driver.machine.traffic()[0].ingress.packets
            gained = site.gained(lambda to=to: nic_network.inside(site.partner, lambda: datagrams(to)), "ingress")  # type: ignore[misc]
            assert (driver.machine.traffic()[0].ingress.packets - before >= FRAMES - NOISE) == is_own, to
            assert (gained[DEFAULT_CLASS] >= FRAMES - NOISE) == (not is_own), to
            assert gained[HOSTS_CLASS] < NOISE, to


def datagrams(to: str) -> None:
    """Send datagrams to an address."""
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(FRAMES):
            with contextlib.suppress(ConnectionRefusedError):
                sock.sendto(bytes(100), (to, 9))


def test_the_host_receives_in_its_own_class(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver):
        gained = site.gained(lambda: site.partner.run("ping", "-c", str(FRAMES), "-i", "0.01", HOST), "ingress")
        assert gained[HOSTS_CLASS] >= FRAMES - NOISE


def test_frames_from_a_nested_namespace_spend_no_share_and_not_the_hosts_class(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver) as pod, netns.namespace() as nested:
        pod.space.ip("link", "add", "in0", "type", "veth", "peer", "name", "out0", "netns", nested.name)
        pod.space.ip("address", "add", "10.8.0.1/24", "dev", "in0")
        nested.ip("address", "add", "10.8.0.2/24", "dev", "out0")
        for space, name in ((pod.space, "in0"), (nested, "out0")):
            space.ip("link", "set", name, "up")
        pod.space.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.net1.forwarding=1")
        pod.space.ip("link", "add", "tun0", "type", "ipip", "local", address(1), "remote", PARTNER)
        pod.space.ip("link", "set", "tun0", "up")
        nested.ip("route", "add", "default", "via", "10.8.0.1")
        for way in ("dev net1 via 10.7.0.1", "dev tun0"):
            pod.space.ip("route", "replace", "10.9.9.0/24", *way.split())

            before = driver.machine.traffic()[0].egress.packets
            gained = site.gained(lambda: nic_network.inside(nested, lambda: datagrams("10.9.9.9")))
            assert driver.machine.traffic()[0].egress.packets - before < NOISE, way
            assert gained[HOSTS_CLASS] < NOISE, way
            assert gained[STRAY_CLASS] + gained[DEFAULT_CLASS] >= FRAMES - NOISE, way


def test_the_kernels_refusal_beside_a_macvlan_is_named_and_ends_with_it(site: Site) -> None:
    with site.world.driver() as driver:
        ref = driver.prepare(site.claim(1))
        rdma_subsystem.run("ip", "link", "add", "mv0", "link", site.nic, "type", "macvlan", "mode", "private")
        with nic_attach.pod() as pod:
            said = site.world.call(ref, pod)
            assert f"the kernel allows no ipvlan on {site.nic}, which has macvlans" in said.stderr
            assert "set child: macvlan for it in nic.rules" in said.stderr
            (withheld,) = [entry for entry in nic_attach.author_of(driver).survey().withheld if entry.name == site.nic]
            assert withheld.reason == "carries the host's mv0 (macvlan), beside which the kernel allows no ipvlan"
            rdma_subsystem.run("ip", "link", "delete", "mv0")
            assert site.world.call(ref, pod).code == 0
        driver.unprepare(ref)


def test_a_share_of_the_other_kind_waits_for_the_end_of_the_present_ones(site: Site) -> None:
    with site.world.driver() as driver:
        ref = driver.prepare(site.claim(1))
    site.world.options = dataclasses.replace(OPTIONS, rules=(dataclasses.replace(RULE, child="macvlan"),))
    with site.world.driver() as driver:
        wanted = site.claim(2)
        site.world.source.put(wanted)
        error = driver.local.engine.prepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid].error
        assert f"{site.nic} has ipvlan shares, beside which the kernel allows no macvlan" in error
        with nic_attach.pod() as pod:
            assert site.world.call(ref, pod).code == 0
            assert pod.space.links()["net1"]["linkinfo"]["info_kind"] == "ipvlan", "a prepared share keeps its kind"  # type: ignore[index]
        driver.unprepare(ref)
        driver.unprepare(driver.prepare(wanted))


def test_a_pod_cannot_have_two_shares_of_one_nic(site: Site) -> None:
    with site.world.driver() as driver, attached(site, driver, 1) as pod:
        ref = driver.prepare(site.claim(2, {"interfaceName": "net2"}))
        said = site.world.call(ref, pod)
        assert f"the pod has another ipvlan of {site.nic}, net1" in said.stderr
        assert "net2" not in pod.space.links()
        driver.unprepare(ref)


def test_a_restarted_driver_finds_nothing_to_fix_and_removes_everything(site: Site) -> None:
    with nic_attach.pod() as pod:
        with site.world.driver() as driver:
            ref = driver.prepare(site.claim(1))
            assert site.world.call(ref, pod).code == 0
        with site.world.driver() as driver:
            assert not any(nic_attach.look(driver).values())
            (member,) = driver.members()
            assert member.cookie == nic_network.cookie_of(pod.space)
            pod.space.run("ping", "-c", "1", "-w", "20", PARTNER)
            driver.unprepare(ref)
        assert "net1" not in pod.space.links()
    assert "htb" not in rdma_subsystem.run("tc", "qdisc", "show", "dev", site.nic)


def killed(site: Site, wanted: claims.Claim, pod: nic_attach.Pod, step: int) -> bool:
    """Prepare a claim and attach a pod with a driver that kills itself after this many changes of the kernel; return whether it came so far."""
    child = os.fork()
    if child == 0:
        steps = iter(range(step))

        def die() -> None:
            if next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with site.world.driver(step=die) as driver:
                site.world.call(driver.prepare(wanted), pod, seconds=5)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_after_sigkill_during_an_attach_the_next_driver_completes_it(site: Site) -> None:
    wanted, step = site.claim(1), ATTACH_STEP
    while True:
        with nic_attach.pod() as pod:
            was_killed = killed(site, wanted, pod, step)
            with site.world.driver() as driver:
                ref = driver.prepare(wanted)
                said = site.world.call(ref, pod)
                assert said.code == 0, (step, said.stderr)
                assert [member.cookie for member in driver.members()] == [nic_network.cookie_of(pod.space)]
                pod.space.run("ping", "-c", "1", "-w", "20", PARTNER)
                driver.unprepare(ref)
                assert "net1" not in pod.space.links()
                assert driver.machine.shares() == ()
        if not was_killed:
            break
        step += 3
    assert step > ATTACH_STEP + 10


def test_the_slice_says_that_pods_get_ipvlans(site: Site) -> None:
    with site.world.driver() as driver:
        device = nic_attach.author_of(driver).discover().by_name()[site.device]
        assert device.attributes["child"] == port.ChildKind.IPVLAN.value
