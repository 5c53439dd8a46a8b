"""Whatever a claim holds is offered in no other form until the claim is unprepared, whoever changed the hardware meanwhile."""

import dataclasses

import pytest

from drakit.core import claim as claims
from drakit.core import context, inventory, quantity
from drakit.core import device as devices
from drakit.node import inventory_cache
from fakes import author, crash_node

TAINT = devices.Taint(key=f"{author.FakeDriver.name}/changed")
CHIPS = ("chip-0", "chip-1")


class Reforming(author.FakeDriver):
    """Chips that an admin cuts in halves: whole ones consume no counter, so only ``overlaps`` says what they have in common with their halves."""

    def discover(self) -> inventory.Inventory:
        found = super().discover()
        cut = {chip for chip in self.hardware.present if f"cut {chip}" in self.hardware.present}
        whole = [dataclasses.replace(one, consumes=()) for one in found.devices if one.name in CHIPS and one.name not in cut]
        halves = [one for one in found.devices if any(one.name.startswith(f"{chip}-") for chip in cut)]
        pipe = [one for one in found.devices if one.name == "pipe"]
        return inventory.Inventory(
            devices=(*halves, *whole, *pipe), counter_sets=tuple(one for one in found.counter_sets if one.name in cut)
        )

    def overlaps(self, first: devices.Device, second: devices.Device) -> bool:
        return _chip(first) == _chip(second) and {first.name, second.name} != {f"{_chip(first)}-left", f"{_chip(first)}-right"}


def _chip(device: devices.Device) -> str:
    return device.name.removesuffix("-left").removesuffix("-right")


def names_of(offered: inventory_cache.InventoryCache) -> set[str]:
    return {device.name for device in offered.current.flat.devices}


@pytest.fixture
def node() -> crash_node.CrashNode:
    made = crash_node.CrashNode()
    made.driver_type = Reforming
    made.boot()
    return made


def prepared(node: crash_node.CrashNode, *names: str, shared: bool = False) -> claims.ClaimRef:
    ref = node.claim(*names, shared=shared)
    assert node.engine.prepare([ref], node.caller)[ref.uid].error == ""
    return ref


def test_the_parts_of_a_held_whole_are_not_offered_until_it_is_unprepared(node: crash_node.CrashNode) -> None:
    ref = prepared(node, "chip-0")
    node.hardware.present.add("cut chip-0")
    node.offered.refresh()
    assert names_of(node.offered) == {"chip-0", "chip-1", "pipe"}
    (held,) = (device for device in node.offered.current.authored.devices if device.name == "chip-0")
    assert held.taints == (TAINT,)
    assert node.offered.current.displaced["chip-0"].claims == (ref,)
    assert node.engine.unprepare([ref], node.caller)[ref.uid] == ""
    node.offered.refresh()
    assert names_of(node.offered) == {"chip-0-left", "chip-0-right", "chip-1", "pipe"}


def test_the_whole_is_not_offered_while_a_part_is_held_and_other_parts_stay(node: crash_node.CrashNode) -> None:
    node.hardware.present |= {"cut chip-0", "cut chip-1"}
    node.offered.refresh()
    prepared(node, "chip-0-left")
    prepared(node, "chip-1-right")
    node.hardware.present.discard("cut chip-0")
    node.offered.refresh()
    assert names_of(node.offered) == {"chip-0-left", "chip-1-left", "chip-1-right", "pipe"}
    assert [device.taints for device in node.offered.current.flat.devices if device.name == "chip-1-right"] == [()]


def test_a_claim_that_got_a_withheld_device_is_refused_with_the_holder(node: crash_node.CrashNode) -> None:
    holder = prepared(node, "chip-0")
    node.hardware.present.add("cut chip-0")
    node.offered.refresh()
    late = node.claim("chip-0-left")
    error = node.engine.prepare([late], node.caller)[late.uid].error
    assert "chip-0-left has hardware in common with chip-0, which changed and is still held by" in error
    assert holder.uid in error
    assert node.journal.entry(late.uid) is None


def test_a_shared_device_that_vanishes_takes_no_more_shares(node: crash_node.CrashNode) -> None:
    prepared(node, "pipe", shared=True)
    prepared(node, "pipe", shared=True)
    node.hardware.present.discard("pipe")
    node.offered.refresh()
    (pipe,) = (device for device in node.offered.current.flat.devices if device.name == "pipe")
    assert pipe.taints == (TAINT,)
    assert len(node.offered.current.displaced["pipe"].claims) == 2


def test_a_device_that_comes_back_is_offered_as_before(node: crash_node.CrashNode) -> None:
    before = node.offered.current.authored
    prepared(node, "chip-0")
    node.hardware.present.discard("chip-0")
    node.offered.refresh()
    assert "chip-0" in node.offered.current.displaced
    node.hardware.present.add("chip-0")
    node.offered.refresh()
    assert node.offered.current.authored == before
    assert not node.offered.current.displaced


def test_without_claims_and_for_claims_of_an_earlier_boot_hardware_decides_alone(node: crash_node.CrashNode) -> None:
    prepared(node, "chip-0")
    node.boot_id = "boot-2"
    node.hardware.present -= {"chip-0", "chip-1"}
    node.offered.refresh()
    assert names_of(node.offered) == {"pipe"}


def test_more_counters_of_the_same_set_after_an_upgrade_displace_nothing() -> None:
    node = crash_node.CrashNode()
    node.boot()
    prepared(node, "chip-0-left")
    node.driver_type = Finer
    node.boot()
    assert not node.offered.current.displaced
    assert "chip-0" in names_of(node.offered)


class Finer(author.FakeDriver):
    """A later version, whose devices draw one more counter of the same set."""

    def discover(self) -> inventory.Inventory:
        found = super().discover()
        more = {"heat": quantity.ONE}
        return inventory.Inventory(
            devices=tuple(
                dataclasses.replace(
                    one, consumes=tuple(dataclasses.replace(part, counters={**part.counters, **more}) for part in one.consumes)
                )
                for one in found.devices
            ),
            counter_sets=tuple(
                dataclasses.replace(one, counters={**one.counters, "heat": quantity.Quantity.of(2)}) for one in found.counter_sets
            ),
        )


def test_unprepare_of_a_displaced_device_triggers_a_discovery(node: crash_node.CrashNode) -> None:
    asked: list[str] = []
    node.offered.released = lambda: asked.append("again")
    plain, ref = prepared(node, "chip-1"), prepared(node, "chip-0")
    node.hardware.present.add("cut chip-0")
    node.offered.refresh()
    node.engine.unprepare([plain], node.caller)
    assert not asked
    node.engine.unprepare([ref], node.caller)
    assert asked == ["again"]


class Withholding(author.FakeDriver):
    """Sees every chip, and offers none that the host uses."""

    def withheld_devices(self) -> dict[str, str]:
        return {name: f"{name} is used by the host" for name in CHIPS if f"used {name}" in self.hardware.present}


def test_a_withheld_device_gets_no_advice_to_delete_pods() -> None:
    node = crash_node.CrashNode()
    node.driver_type = Withholding
    node.boot()
    ref = prepared(node, "chip-0")
    node.hardware.present.discard("chip-0")
    node.hardware.present.add("used chip-0")
    node.offered.refresh()
    assert [device.taints for device in node.offered.current.flat.devices if device.name == "chip-0"] == [(TAINT,)]
    entry = node.offered.current.displaced["chip-0"]
    assert (entry.is_withheld, entry.reason, entry.claims) == (True, "chip-0 is used by the host", (ref,))
    assert (entry.event.reason, entry.event.type) == ("DeviceWithheld", context.EventType.NORMAL)
    assert "chip-0 is used by the host" in entry.event.message
    assert "delete" not in entry.event.message
    node.hardware.present.discard("used chip-0")
    node.offered.refresh()
    assert not node.offered.current.displaced["chip-0"].is_withheld
    assert node.offered.current.displaced["chip-0"].event.reason == "DeviceChanged"
