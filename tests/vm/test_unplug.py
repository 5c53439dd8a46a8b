"""A claimed NIC is pulled out of the machine and plugged in again, while the driver runs or is dead."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit.core import claim as claims
from drakit.core import records
from fakes import log_lines, nic_attach
from vm import virtual_functions

MAC = "02:ee:00:00:00:01"
SETTINGS: records.Record = {"mac": MAC, "vlan": 7, "spoofCheck": False, "trust": True}
WATCHED_SECONDS = 6
OPTIONS = dataclasses.replace(virtual_functions.OPTIONS, whole=("driver:igb", "driver:igbvf"))
PCI = pathlib.Path("/sys/bus/pci")
Pull = Callable[[], object]


@pytest.fixture
def parent() -> Iterator[virtual_functions.Parent]:
    with virtual_functions.parent() as made:
        try:
            yield made
        finally:
            if not made.device.exists():
                plug_in(made)


@pytest.fixture
def world(parent: virtual_functions.Parent) -> Iterator[nic_attach.World]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder:
        made = virtual_functions.node(pathlib.Path(folder))
        made.options = OPTIONS
        yield made


@pytest.fixture
def logged() -> log_lines.LogLines:
    return log_lines.LogLines()


@dataclasses.dataclass(frozen=True)
class Slot:
    """The PCI address of a NIC."""

    address: str

    def pull(self) -> None:
        (PCI / "devices" / self.address / "remove").write_text("1")
        virtual_functions.until(lambda: not (PCI / "devices" / self.address).exists(), "the device was not removed")


def slot_of(interface: str) -> Slot:
    return Slot((virtual_functions.NETWORK / interface / "device").resolve().name)


def plug_in(parent: virtual_functions.Parent, count: int = 3) -> None:
    """Find all devices again, and give the physical function its virtual functions."""
    (PCI / "rescan").write_text("1")
    virtual_functions.until(parent.device.exists, "the physical function did not come back")
    subprocess.run(["udevadm", "settle"], check=True)
    virtual_functions.ip("link", "set", parent.name, "up")
    carrier = virtual_functions.NETWORK / parent.name / "carrier"
    virtual_functions.until(lambda: carrier.read_text().strip() == "1", "the NIC has no link")
    parent.make(count)


def left(world: nic_attach.World) -> dict[str, Any]:
    """What a driver left on the node: ifbs, its queues and filters, CDI files, and intents in the journal."""
    links = virtual_functions.ip("link", "show")
    queues = subprocess.run(["tc", "qdisc", "show"], check=True, capture_output=True, text=True).stdout
    with world.driver(start=False) as driver:
        intents = len(list(driver.local.journal.intents()))
        leftovers = list(driver.local.author.leftovers())  # type: ignore[attr-defined]
    return {
        "interfaces": [link["ifname"] for link in links if link["ifname"].startswith("dr")],
        "marked": [link["ifname"] for link in links if link.get("ifalias", "").startswith("drakit")],
        "queues": [line for line in queues.splitlines() if "htb" in line or "clsact" in line],
        "files": sorted(file.name for file in world.cdi.glob("*.json")),
        "intents": intents,
        "leftovers": leftovers,
    }


NOTHING = {"interfaces": [], "marked": [], "queues": [], "files": [], "intents": 0, "leftovers": []}


def offered(driver: nic_attach.Running) -> set[str]:
    return set(nic_attach.author_of(driver).discover().by_name())


def refused(driver: nic_attach.Running, wanted: claims.Claim) -> str:
    driver.world.source.put(wanted)
    return driver.local.engine.prepare([wanted.ref], nic_attach.Waiting())[wanted.ref.uid].error


def another(wanted: claims.Claim) -> claims.Claim:
    """Another claim of the same device."""
    (result,) = wanted.results
    (other,) = nic_attach.claim(2).results
    fresh = dataclasses.replace(result, share_id=other.share_id if result.share_id else None)
    return dataclasses.replace(wanted, ref=nic_attach.claim(2).ref, results=(fresh,), configs=())


def shared_device(world: nic_attach.World, parent: virtual_functions.Parent) -> str:
    return virtual_functions.device_of(world, parent.name).removesuffix("-whole")


def whole(device: str) -> claims.Claim:
    """A claim of a whole interface that is no virtual function."""
    made = virtual_functions.claim(device)
    (result,) = made.results
    return dataclasses.replace(made, results=(dataclasses.replace(result, share_id=None, consumed_capacity={}),))


def form(kind: str, world: nic_attach.World, parent: virtual_functions.Parent) -> tuple[claims.Claim, Pull]:
    """A claim, and what takes its NIC away. The kernel lets nobody remove a virtual function by itself."""
    pull = slot_of(parent.name).pull
    if kind == "share":
        return virtual_functions.claim(shared_device(world, parent)), pull
    if kind == "whole physical function":
        parent.make(0)
        return whole(virtual_functions.device_of(world, parent.name)), pull
    device = virtual_functions.device_of(world, parent.interfaces()[0])
    return virtual_functions.claim(device, SETTINGS), pull


@pytest.mark.parametrize(
    "kind,where", [("share", "prepared"), ("share", "in a pod"), ("whole physical function", "in a pod"), ("virtual function", "in a pod")]
)
def test_a_pulled_nic_is_withdrawn_and_its_claim_ends_without_a_trace(
    kind: str, where: str, world: nic_attach.World, parent: virtual_functions.Parent, logged: log_lines.LogLines
) -> None:
    wanted, pull = form(kind, world, parent)
    device = wanted.results[0].device
    assert left(world) == NOTHING
    with world.driver() as driver, nic_attach.pod() as pod:
        ref = driver.prepare(wanted)
        if where == "in a pod":
            assert world.call(ref, pod) == nic_attach.Said(0, "")
        logged.clear()
        pull()
        time.sleep(WATCHED_SECONDS)
        assert len(logged.lines) <= 2, logged.text
        assert device not in offered(driver)
        error = refused(driver, wanted)
        assert device in error
        assert "is no longer there; plug the NIC in" in error
        driver.unprepare(ref)
    assert left(world) == NOTHING
    plug_in(parent)
    works_again(world, parent, wanted)


def works_again(world: nic_attach.World, parent: virtual_functions.Parent, wanted: claims.Claim) -> None:
    """The device is offered, has nothing of the old claim, and a pod gets it."""
    before = parent.functions()
    for function in before:
        assert (function["address"] != MAC, function["vlan_list"], function["rate"]["max_tx"], function["trust"]) == (True, [{}], 0, False)
    with world.driver() as driver, nic_attach.pod() as pod:
        assert wanted.results[0].device in offered(driver)
        ref = driver.prepare(another(wanted))
        virtual_functions.attach(world, ref, pod)
        driver.unprepare(ref)
    assert left(world) == NOTHING
    assert virtual_functions.settled(parent.functions, before) == before


def die_with(world: nic_attach.World, wanted: claims.Claim, pull: Pull) -> None:
    """A process of the driver that prepares a claim, loses the NIC and is killed."""
    child = os.fork()
    if child == 0:
        try:
            with world.driver() as driver:
                driver.prepare(wanted)
                pull()
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the driver did not come so far"


@pytest.mark.parametrize("kind", ["share", "whole physical function", "virtual function"])
@pytest.mark.parametrize("nic", ["gone", "back"])
def test_a_driver_that_was_killed_after_the_unplug_ends_the_claim(
    kind: str, nic: str, world: nic_attach.World, parent: virtual_functions.Parent
) -> None:
    wanted, pull = form(kind, world, parent)
    die_with(world, wanted, pull)
    if nic == "back":
        plug_in(parent)
    with world.driver() as driver:
        driver.unprepare(wanted.ref)
    assert left(world) == NOTHING
    if nic == "gone":
        plug_in(parent)
    works_again(world, parent, wanted)
