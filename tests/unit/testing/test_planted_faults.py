"""The conformance suite finds each of these faulty drivers by the obligation that it breaks; each fault is one small change of a good driver."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import drakit
from drakit import testing
from fakes import obligations

OTHERS = "a claim leaves the hardware of other claims as it was"
REQUESTS = "requests of one claim do not overwrite each other's hardware"
INTENTS = "plan() gives no two claims the same intent"
PARTS = "no two claims get the same exclusive part"

Grant = drakit.Grant[drakit.NoConfig]
Hardware = dict[str, Any]


class Card(drakit.Driver[drakit.NoConfig], drakit.IntentRecovery[drakit.NoConfig]):
    """A card with two interchangeable engines, given as partitions, and a link that claims share."""

    name = "card.example.com"

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware

    def discover(self) -> drakit.Inventory:
        engines = drakit.CounterSet(name="card", counters={"engines": 2})
        policy = drakit.RequestPolicy(default=1, valid_range=drakit.ValidRange(min=1, step=1))
        link = drakit.Device(name="link", capacity={"rate": drakit.Capacity(value=9, policy=policy)}, allow_multiple_allocations=True)
        return drakit.Inventory(devices=(_part("a", 1), _part("b", 1), _part("both", 2), link), counter_sets=(engines,))

    def plan(self, grant: Grant) -> drakit.Record:
        if grant.share_id:
            return {"engines": "", "key": self.key(grant)}
        taken = self.taken(grant)
        free = [engine for engine in "01" if engine not in taken]
        return {"engines": "".join(free[: 2 if grant.device.name == "both" else 1]), "key": self.key(grant)}

    def taken(self, grant: Grant) -> str:
        return "".join(str(intent["engines"]) for intent in self.planned(grant.device))

    def recall(self, grant: Grant) -> drakit.Record:
        if grant.found is None:
            raise drakit.DeviceGoneError("no CDI file has the engines")
        engines = next((value for name, value in grant.found.env.items() if name.startswith("ENGINES")), "").replace(",", "")
        return {"engines": engines, "key": self.key(grant)}

    def key(self, grant: Grant) -> str:
        return str(grant.share_id or grant.device.name)

    def prepare(self, grant: Grant) -> drakit.Prepared:
        amount = grant.consumed_capacity["rate"].value if grant.share_id else grant.intent["engines"]
        self.hardware[self.key(grant)] = amount
        name = str(grant.share_id or grant.device.name)[:8].upper().replace("-", "_")
        engines = ",".join(str(grant.intent["engines"]))
        edits = drakit.Edits(env={f"ENGINES_{name}": engines}) if engines else drakit.Edits(env={f"LINK_{name}": str(amount)})
        return drakit.Prepared(edits=edits, record={"made": True})

    def unprepare(self, grant: Grant) -> None:
        self.hardware.pop(self.key(grant), None)


def _part(name: str, engines: int) -> drakit.Device:
    drawn = drakit.CounterConsumption(counter_set="card", counters={"engines": engines})
    return drakit.Device(name=name, attributes={"engines": engines}, consumes=(drawn,))


class ClearsEverything(Card):
    def unprepare(self, grant: Grant) -> None:
        self.hardware.clear()


class ClearsItsCard(Card):
    def unprepare(self, grant: Grant) -> None:
        for part in ("a", "b", "both") if grant.share_id is None else (self.key(grant),):
            self.hardware.pop(part, None)


class ClearsTheNextPart(Card):
    """Damages a part that was prepared after its own, so only the end of the older claim shows it."""

    def unprepare(self, grant: Grant) -> None:
        super().unprepare(grant)
        self.hardware.pop(chr(ord(grant.device.name[0]) + 1), None)


class ResetsFirst(Card):
    def prepare(self, grant: Grant) -> drakit.Prepared:
        if self.key(grant) not in self.hardware:
            self.hardware.clear()
        return super().prepare(grant)


class OneSlotForAllParts(Card):
    def key(self, grant: Grant) -> str:
        return str(grant.share_id or "slot0")


class SharesByDevice(Card):
    def key(self, grant: Grant) -> str:
        return grant.device.name


class SharesByClaim(Card):
    def key(self, grant: Grant) -> str:
        return f"{grant.device.name} of {grant.claim.uid}"


class RequestsByClaim(Card):
    def key(self, grant: Grant) -> str:
        return grant.claim.uid


class IgnoresPlanned(Card):
    """Always gives the lowest engines."""

    def key(self, grant: Grant) -> str:
        return str(grant.share_id or "engines")

    def taken(self, grant: Grant) -> str:
        return ""


class GivesOneEngineTwice(Card):
    """Gives different intents, in which the engine is the same."""

    def taken(self, grant: Grant) -> str:
        return ""


class GivesOneNodeTwice(Card):
    def prepare(self, grant: Grant) -> drakit.Prepared:
        made = super().prepare(grant)
        node = drakit.DeviceNode(path="/dev/null")
        return made if grant.share_id else drakit.Prepared(edits=drakit.Edits(device_nodes=(node,)), record=made.record)

    def recall(self, grant: Grant) -> drakit.Record:
        return self.plan(grant)


class CountsUsers(Card):
    """Gives both parts one slot and counts its users, so that the hardware looks right."""

    def key(self, grant: Grant) -> str:
        return str(grant.share_id or "slot0")

    def plan(self, grant: Grant) -> drakit.Record:
        return {"engines": "0"}

    def prepare(self, grant: Grant) -> drakit.Prepared:
        made = super().prepare(grant)
        if not grant.share_id:
            self.hardware.pop("slot0")
            self.hardware.setdefault("users", {})[grant.claim.uid] = True
        return made

    def unprepare(self, grant: Grant) -> None:
        users = self.hardware.get("users", {})
        users.pop(grant.claim.uid, None)
        if not users:
            self.hardware.pop("users", None)
        super().unprepare(grant)


class RaisesForTheUnknown(Card):
    def unprepare(self, grant: Grant) -> None:
        del self.hardware[self.key(grant)]


class LeavesShares(Card):
    def unprepare(self, grant: Grant) -> None:
        if grant.share_id is None:
            super().unprepare(grant)


class NeedsItsRecord(Card):
    def unprepare(self, grant: Grant) -> None:
        if grant.record:
            super().unprepare(grant)


class MakesAnother(Card):
    """Makes new hardware for each prepare of a prepared claim."""

    def prepare(self, grant: Grant) -> drakit.Prepared:
        self.hardware["calls"] = self.hardware.get("calls", 0) + 1
        made = super().prepare(grant)
        return drakit.Prepared(edits=made.edits, record={"call": self.hardware["calls"]})

    def unprepare(self, grant: Grant) -> None:
        self.hardware.pop("calls", None)
        super().unprepare(grant)


class RecallsByPlanning(Card):
    """Gives a restored claim the lowest free engines, not those that its container has."""

    def recall(self, grant: Grant) -> drakit.Record:
        return self.plan(grant)


class DisturbsTheNextPart(Card):
    """Damages a part that was prepared after its own, when the kubelet calls prepare again."""

    def prepare(self, grant: Grant) -> drakit.Prepared:
        if self.key(grant) in self.hardware:
            self.hardware.pop(chr(ord(grant.device.name[0]) + 1), None)
        return super().prepare(grant)


class GivesEachShareTheSame(Card):
    def prepare(self, grant: Grant) -> drakit.Prepared:
        if grant.share_id is None:
            return super().prepare(grant)
        return super().prepare(dataclasses.replace(grant, consumed_capacity={"rate": drakit.ONE}))


FAULTS: list[tuple[Callable[[Hardware], Card], str]] = [
    (ClearsEverything, OTHERS),
    (ClearsItsCard, OTHERS),
    (ClearsTheNextPart, OTHERS),
    (ResetsFirst, OTHERS),
    (OneSlotForAllParts, OTHERS),
    (SharesByDevice, OTHERS),
    (SharesByClaim, REQUESTS),
    (RequestsByClaim, REQUESTS),
    (IgnoresPlanned, OTHERS),
    (GivesOneEngineTwice, PARTS),
    (GivesOneNodeTwice, PARTS),
    (CountsUsers, INTENTS),
    (RaisesForTheUnknown, "unprepare succeeds without an intent, after a lost journal"),
    (LeavesShares, "prepare and then unprepare leave nothing behind"),
    (NeedsItsRecord, "a crash at any line, then a retry or unprepare, leaves nothing behind"),
    (RecallsByPlanning, "claims are restored after a lost journal, and can be undone"),
    (DisturbsTheNextPart, OTHERS),
    (MakesAnother, "prepare of a prepared claim returns the same result"),
]


def check(make: Callable[[Hardware], Card], *, exclusive: tuple[str, ...], every: int = 90) -> testing.Report:
    hardware: Hardware = {}
    try:
        return testing.check_driver(lambda: make(hardware), hardware=lambda: repr(hardware), exclusive=exclusive, every=every)
    except testing.CheckError as error:
        return error.report


@pytest.mark.parametrize("make, obligation", FAULTS)
def test_a_planted_fault_is_found_by_the_obligation_that_it_breaks(make: Callable[[Hardware], Card], obligation: str) -> None:
    hardware: Hardware = {}
    found = obligations.judged(
        obligation, lambda: make(hardware), lambda: repr(hardware), ("a",), ("link",), exclusive=("ENGINES_*", "/dev/null"), every=90
    )
    assert found.verdict is drakit.Verdict.FAILED


def test_a_driver_that_ignores_the_amount_of_a_claim_is_warned() -> None:
    warned = {
        item.name: item.message
        for item in check(GivesEachShareTheSame, exclusive=("ENGINES_*",), every=900).checks
        if item.verdict is drakit.Verdict.WARNING
    }
    text = "link: hardware and edits are the same whether a claim takes rate 1 or 2; enforce grant.consumed_capacity, if the hardware can"
    assert warned == {"the amounts of a claim make a difference": text}


def test_the_driver_without_a_fault_passes_and_a_wrong_pattern_is_named() -> None:
    assert not [str(item) for item in check(Card, exclusive=("ENGINES_*",)).checks if item.verdict is drakit.Verdict.FAILED]
    report = check(Card, exclusive=("ENGINES_*", "VALVE_*"), every=900)
    assert [item.message for item in report.checks if item.verdict is drakit.Verdict.FAILED] == [
        "exclusive 'VALVE_*': no container gets a variable or device node of this name; correct the pattern"
    ]


def test_without_hardware_the_report_says_what_it_cannot_see() -> None:
    report = testing.check_driver(lambda: Card({}), every=900)
    skipped = {item.name: item.message for item in report.checks if item.verdict is drakit.Verdict.UNKNOWN}
    assert skipped[OTHERS] == "hardware= is not given, so damage to another claim's device cannot be seen"
