"""Addresses of shares from a real DHCP server (dnsmasq) by a real client (udhcpc of busybox), on the real kernel."""

import concurrent.futures
import dataclasses
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from drakit.core import records
from drakit_nic.addresses import address_leases, dhcp, dhcp_renewal
from drakit_nic.attach import sandboxes
from fakes import netns, nic_attach

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(300)]
SERVER = "10.66.0.1"
PARAMETERS: records.Record = {"interfaceName": "net1", "dhcp": True, "routes": [{"destination": "10.67.0.0/16", "gateway": SERVER}]}


@dataclasses.dataclass
class Server:
    """The NIC's network, and its server with two addresses."""

    space: netns.Namespace
    folder: pathlib.Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=nic0-wire", "--bind-interfaces", "--user=root")
        pool = ("--dhcp-range=10.66.0.50,10.66.0.51,255.255.255.0,2m", f"--dhcp-leasefile={self.folder}/leases", "--no-ping")
        self.process = subprocess.Popen(("ip", "netns", "exec", self.space.name, *words, *pool), stderr=subprocess.DEVNULL)
        nic_attach.until(lambda: ":67 " in self.space.run("ss", "-lnu"), "dnsmasq did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def ends(self) -> dict[str, int]:
        """When the lease of each address ends, as the server has it."""
        lines = (self.folder / "leases").read_text().splitlines()
        return {line.split()[2]: int(line.split()[0]) for line in lines if line}


@pytest.fixture
def server() -> Iterator[Server]:
    missing = [tool for tool in ("dnsmasq", "busybox", "ss") if shutil.which(tool) is None]
    if netns.why_not() or missing:
        pytest.skip(netns.why_not() or f"{', '.join(missing)} is not installed")
    with netns.namespace() as space, tempfile.TemporaryDirectory(prefix="dk") as folder:
        made = Server(space, pathlib.Path(folder))
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def world(server: Server) -> Iterator[nic_attach.World]:
    with nic_attach.world() as made:
        made.node.ip("link", "set", "nic0-wire", "netns", server.space.name)
        server.space.ip("address", "add", f"{SERVER}/24", "dev", "nic0-wire")
        server.space.ip("link", "set", "nic0-wire", "up")
        server.start()
        yield made


def addresses(pod: nic_attach.Pod) -> list[str]:
    (link,) = json.loads(pod.space.ip("-4", "-j", "address", "show", "dev", "net1"))
    return [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"]]


def leased(driver: nic_attach.Running) -> list[address_leases.Lease]:
    context = driver.local.context
    return [lease for grant in context.grants() for lease in address_leases.leases_of(context, grant)]


def renewer(driver: nic_attach.Running, clock: list[float]) -> dhcp_renewal.Renewer:
    context, kernel = driver.local.context, sandboxes.KernelSandboxes(driver.world.namespace)
    leases = address_leases.AddressLeases(context, node=nic_attach.NODE)
    return dhcp_renewal.Renewer(context, dhcp.Udhcpc(context.data_dir, kernel.run_inside), leases, now=lambda: clock[0])


def test_each_pod_of_a_claim_gets_an_address_of_the_server_and_keeps_it(world: nic_attach.World, server: Server) -> None:
    with world.driver() as driver, nic_attach.pod("aaaa") as first, nic_attach.pod("bbbb") as other:
        second = dataclasses.replace(other, uid="1f1f1f1f-0000-4000-8000-000000000000")
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        for pod in (first, second, first):
            said = world.call(ref, pod, "c2")
            assert said.code == 0, said.stderr
            pod.space.run("ping", "-c", "1", "-w", "5", SERVER)
        got = [addresses(pod) for pod in (first, second)]
        assert sorted(text for texts in got for text in texts) == ["10.66.0.50/24", "10.66.0.51/24"]
        assert {f"{address}/24" for address in server.ends()} == {text for texts in got for text in texts}
        assert f"10.67.0.0/16 via {SERVER} dev net1" in first.space.ip("route")
        with nic_attach.pod("cccc") as last:
            third = dataclasses.replace(last, uid="2f2f2f2f-0000-4000-8000-000000000000")
            before = time.monotonic()
            said = world.call(ref, third)
            assert time.monotonic() - before < dhcp.SECONDS + 1
            assert "no lease on nic0 in 6 seconds" in said.stderr, "the server has no third address"
            assert "give the claim addresses instead of NicConfig.dhcp" in said.stderr
            assert "net1" not in third.space.links()
        assert len(leased(driver)) == len(driver.members()) == 2
        driver.unprepare(ref)
        assert leased(driver) == []


def test_a_nic_that_was_renamed_since_the_claim_was_prepared_gets_its_lease(world: nic_attach.World) -> None:
    with world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        for words in (("down",), ("name", "other0"), ("up",)):
            world.node.ip("link", "set", "other0" if words == ("up",) else "nic0", *words)
        said = world.call(ref, pod)
        assert said.code == 0, said.stderr
        assert addresses(pod)[0].startswith("10.66.0.5")
        driver.unprepare(ref)


def test_a_sandbox_that_is_created_again_gets_the_address_of_the_former(world: nic_attach.World) -> None:
    with world.driver() as driver:
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        got = []
        for sandbox in ("aaaa", "bbbb"):
            with nic_attach.pod(sandbox) as pod:
                assert world.call(ref, pod).code == 0
                got.append(addresses(pod))
        assert got[0] == got[1]
        driver.unprepare(ref)


def test_a_restarted_driver_keeps_addresses_without_a_server_and_renews_them_later(world: nic_attach.World, server: Server) -> None:
    with nic_attach.pod() as pod:
        with world.driver() as driver:
            ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
            assert world.call(ref, pod).code == 0
        server.stop()
        with world.driver() as driver:
            before = addresses(pod)
            said = world.call(ref, pod, "c2")
            assert (said.code, addresses(pod)) == (0, before), said.stderr
            (lease,) = leased(driver)
            assert lease.terms is not None
            boot = time.clock_gettime(time.CLOCK_BOOTTIME)
            assert boot + 100 < lease.terms.until <= boot + 120, "a wall clock that is set ends no lease"
            clock = [lease.terms.until - lease.terms.seconds / 2 - 1.0]
            renewing = renewer(driver, clock)
            renewing.renew_due()
            assert leased(driver) == [lease], "half of its time is not over"
            address = lease.addresses[0].partition("/")[0]
            former_end = server.ends()[address]
            server.start()
            clock[0] = lease.terms.until - 10.0
            renewing.renew_due()
            (renewed,) = leased(driver)
            assert renewed.terms is not None
            assert renewed.terms.until == int(clock[0]) + 120
            assert renewed.addresses == lease.addresses
            assert server.ends()[address] >= former_end
            driver.unprepare(ref)


def test_a_dead_server_is_an_error_with_the_field_and_leaves_nothing(world: nic_attach.World, server: Server) -> None:
    server.stop()
    with world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        before = time.monotonic()
        said = world.call(ref, pod)
        assert time.monotonic() - before < dhcp.SECONDS + 1
        assert "DHCP: no lease on nic0 in 6 seconds" in said.stderr
        assert "check that the NIC's network has a DHCP server with a free address" in said.stderr
        assert "net1" not in pod.space.links()
        assert driver.members() == []
        assert leased(driver) == []
        driver.unprepare(ref)


def test_a_call_that_waits_for_a_server_delays_no_other_pod_of_the_nic(world: nic_attach.World, server: Server) -> None:
    server.stop()
    with (
        world.driver() as driver,
        nic_attach.pod("aaaa") as waiting,
        nic_attach.pod("bbbb") as other,
        concurrent.futures.ThreadPoolExecutor(1) as threads,
    ):
        first = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        second = driver.prepare(nic_attach.claim(2, parameters={"addresses": ["10.66.0.9/24"]}))
        slow = threads.submit(world.call, first, waiting)
        time.sleep(0.5)
        before = time.monotonic()
        assert world.call(second, other).code == 0
        assert time.monotonic() - before < 3
        assert slow.result().code == 1
        for ref in (first, second):
            driver.unprepare(ref)


def test_a_missing_client_is_an_error_with_the_fix(world: nic_attach.World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(nic_attach.claim(1, parameters=PARAMETERS))
        monkeypatch.setenv("PATH", "/nowhere")
        said = world.call(ref, pod)
        monkeypatch.undo()
        assert "NicConfig.dhcp needs the program udhcpc; install busybox or udhcpc where the driver runs" in said.stderr
        driver.unprepare(ref)
