"""A lost journal is restored before the driver serves: claims in use keep their hardware, gone ones are journaled, and a crash loses nothing."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, lifecycle, names, records
from drakit.core.slices import node_selection
from drakit.node import orphans, restore_loop, restorer
from fakes import author, claim_statuses, crash_node, manual_clock


class Recalling(author.FakeDriver):
    """Chooses an identity that neither claim nor device tell, and reads it from the CDI file. Without an intent it finds nothing to unprepare."""

    found: ClassVar[list[edits.Edits | None]] = []
    refusal: ClassVar[Exception | None] = None

    def plan(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return {"identity": f"{super().plan(grant)['identity']}@7"}

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        self.found.append(grant.found)
        if self.refusal is not None:
            raise self.refusal
        if grant.found is None:
            raise errors.ConfigError("no CDI file has it")
        return {"identity": next(iter(grant.found.env.values()))}

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        if grant.intent:
            super().unprepare(grant)

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:
        return devices.Device(name="chip-0", reach=node_selection.AllNodes()) if (pool, name) == ("fabric", "chip-0") else None


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recalling, "found", [])
    monkeypatch.setattr(Recalling, "refusal", None)


class Lost:
    """A node whose journal was lost with claims prepared. ``steps`` are the effects on hardware since."""

    def __init__(self, *of_claims: tuple[str, ...], driver: type[author.FakeDriver] = Recalling, pool: str = crash_node.POOL) -> None:
        self.world = crash_node.CrashNode()
        self.world.driver_type = driver
        before = self.world.boot()
        self.refs = [self.world.claim(*of, shared=of == ("pipe",), pool=pool) for of in of_claims or (("chip-0-left",), ("chip-1",))]
        for ref in self.refs:
            assert before.prepare([ref], self.world.caller)[ref.uid].error == ""
        self.files, self.made = dict(self.world.cdi.files), dict(self.world.hardware.made)
        self.intents = self.intents_now()
        self.listing = claim_statuses.FakeClaimList(*(self.world.claims.fetch(ref) for ref in self.refs))
        self.world.journal.lose()
        self.world.boot(recover=False)
        self.steps: list[str] = []
        self.world.hardware.step = self.steps.append

    @property
    def ref(self) -> claims.ClaimRef:
        return self.refs[0]

    def intents_now(self) -> Mapping[str, list[records.Record]]:
        return {entry.claim.uid: [grant.intent for grant in entry.grants] for entry in self.world.journal.entries()}

    def delete(self, ref: claims.ClaimRef) -> None:
        self.world.claims.remove(ref)
        self.listing.known = [claim for claim in self.listing.known if claim.ref != ref]

    def move(self, ref: claims.ClaimRef, *to: str) -> set[str]:
        """The claim is allocated otherwise now; return the identities of its new devices."""
        results = self.world.claims.fetch(self.world.claim(*to, shared=to == ("pipe",))).results
        moved = claims.Claim(ref=ref, results=results)
        self.world.claims.put(moved)
        self.listing.known = [claim for claim in self.listing.known if claim.ref != ref] + [moved]
        return {f"{result.share_id or result.device}@7" for result in results}

    def restore(self, *, without_devices: bool = False) -> Mapping[names.ClaimUid, str]:
        """A process restores and, once nothing is missing, recovers as ``Node`` does."""
        restorer = self.world.restorer()
        with restorer.alone(lambda: True):
            failed = restorer.restore(self.listing, without_devices=without_devices)
        if not failed:
            self.world.recover()
        return failed

    def start(self) -> None:
        """Another process."""
        self.world.step = lambda _: None
        self.world.boot(recover=False)

    def state(self, ref: claims.ClaimRef) -> lifecycle.State | None:
        entry = self.world.journal.entry(ref.uid)
        return None if entry is None else entry.state

    def prepare(self, ref: claims.ClaimRef) -> str:
        return self.world.engine.prepare([ref], self.world.caller)[ref.uid].error

    def unprepare(self, ref: claims.ClaimRef) -> str:
        return self.world.engine.unprepare([ref], self.world.caller)[ref.uid]

    @property
    def is_untouched(self) -> bool:
        return (self.steps, self.world.hardware.made, self.world.cdi.files) == ([], self.made, self.files)

    @property
    def is_lost(self) -> bool:
        return self.world.journal.lost_claims() is not None


def test_claims_in_use_are_restored_without_a_change_to_hardware_or_files() -> None:
    lost = Lost()
    assert lost.restore() == {}
    assert [lost.state(ref) for ref in lost.refs] == [lifecycle.State.PREPARED] * 2
    assert (lost.intents_now(), lost.is_untouched, lost.is_lost) == (lost.intents, True, False)
    assert [lost.unprepare(ref) for ref in lost.refs] == ["", ""]
    assert lost.world.is_clean


def test_a_claim_of_a_cluster_pool_is_restored_with_its_pool() -> None:
    lost = Lost(("chip-0",), pool="fabric")
    assert lost.restore() == {}
    entry = lost.world.journal.entry(lost.ref.uid)
    assert entry is not None
    assert [(grant.pool, grant.device.name) for grant in entry.grants] == [("fabric", "chip-0")]


@pytest.mark.parametrize("call", ["kubelet", "orphans"])
def test_a_claim_that_is_gone_is_journaled_and_unprepared_later(call: str) -> None:
    lost = Lost(("chip-1",))
    lost.delete(lost.ref)
    assert lost.restore() == {}
    assert (lost.state(lost.ref), lost.intents_now(), lost.is_untouched) == (lifecycle.State.PREPARED, lost.intents, True)
    if call == "kubelet":
        assert lost.unprepare(lost.ref) == ""
    else:
        clock = manual_clock.ManualClock(last=10**6)
        collector = orphans.OrphanCollector(
            lost.world.engine,
            lost.world.journal,
            lost.world.claims,
            tracked=frozenset,
            is_registered=lambda: True,
            clock=clock,
        )
        unprepared = []
        for clock.moment in (0.0, orphans.GRACE - 1, orphans.GRACE + 1):
            unprepared.append(collector.check(threading.Event()))
        assert unprepared == [0, 0, 1]
    assert lost.world.is_clean


MOVES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "another chip": (("chip-0-left", "chip-0-right"), ("chip-1",)),
    "the other half": (("chip-0-left",), ("chip-0-right",)),
    "one of two": (("chip-0-left", "chip-1"), ("chip-1", "chip-0-right")),
    "another share": (("pipe",), ("pipe",)),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_a_claim_allocated_otherwise_keeps_its_old_devices_until_the_next_prepare(move: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    before, after = move
    lost = Lost(before)
    wanted = lost.move(lost.ref, *after)
    assert lost.restore() == {}
    assert (lost.state(lost.ref), lost.intents_now(), lost.is_untouched) == (lifecycle.State.PREPARED, lost.intents, True)
    assert lost.prepare(lost.ref) == ""
    assert (set(lost.world.hardware.made), len(lost.world.cdi.files)) == (wanted, len(wanted))
    assert lost.unprepare(lost.ref) == ""
    assert lost.world.is_clean


def test_a_claim_that_exists_and_cannot_be_read_is_not_taken_for_one_that_is_gone() -> None:
    lost = Lost()
    lost.listing.unreadable = frozenset({lost.ref.uid})
    failed = lost.restore()
    assert "cannot be read" in failed[lost.ref.uid]
    assert (lost.state(lost.ref), lost.is_untouched, lost.is_lost) == (None, True, True)
    lost.listing.unreadable = frozenset()
    assert lost.restore() == {}


def test_a_device_of_a_claim_in_use_that_is_gone_fails_until_the_grace_ends() -> None:
    lost = Lost()
    lost.world.hardware.present.discard("chip-1")
    lost.start()
    failed = lost.restore()
    assert list(failed) == [lost.refs[1].uid]
    assert (lost.state(lost.ref), lost.is_untouched, lost.is_lost) == (lifecycle.State.PREPARED, True, True)
    assert lost.restore(without_devices=True) == {}
    assert (lost.state(lost.refs[1]), lost.is_lost) == (None, False)
    assert lost.world.cdi.claims() == frozenset({lost.ref.uid})


def test_of_a_claim_with_one_device_gone_the_other_is_kept_after_the_grace() -> None:
    lost = Lost(("chip-0", "chip-1"))
    lost.world.hardware.present.discard("chip-1")
    lost.start()
    assert lost.restore().keys() == {lost.ref.uid}
    assert lost.restore(without_devices=True) == {}
    entry = lost.world.journal.entry(lost.ref.uid)
    assert entry is not None
    assert [grant.device.name for grant in entry.grants] == ["chip-0"]
    assert lost.unprepare(lost.ref) == ""
    assert (lost.world.journal.entries(), lost.world.cdi.files, set(lost.world.hardware.made)) == ((), {}, {"chip-1@7"})


def test_a_named_claim_without_files_is_prepared_if_it_exists_and_dropped_if_not() -> None:
    lost = Lost()
    lost.world.cdi.files.clear()
    lost.world.journal.lose(*(ref.uid for ref in lost.refs))
    lost.delete(lost.refs[1])
    assert lost.restore() == {}
    assert [lost.state(ref) for ref in lost.refs] == [lifecycle.State.PREPARED, None]


def test_a_failing_claim_keeps_the_others_from_nothing_and_is_retried() -> None:
    lost = Lost()
    lost.delete(lost.refs[1])
    lost.world.driver.failure = errors.HardwareError("probe", "broken")
    failed = lost.restore()
    assert (list(failed), "broken" in failed[lost.ref.uid]) == ([lost.ref.uid], True)
    assert (lost.state(lost.ref), lost.state(lost.refs[1])) == (lifecycle.State.PREPARING, lifecycle.State.PREPARED)
    assert lost.is_untouched
    lost.world.driver.failure = None
    assert lost.restore() == {}
    assert (lost.state(lost.ref), lost.is_untouched) == (lifecycle.State.PREPARED, True)


def test_a_bug_of_the_author_fails_that_claim_only() -> None:
    lost = Lost()
    Recalling.refusal = RuntimeError("bug")
    assert set(lost.restore().values()) == {"bug"}
    assert lost.is_untouched


@pytest.mark.parametrize("refusal", [errors.DeviceBusyError("taken"), errors.ConfigError("no")])
def test_a_file_the_author_refuses_fails_a_claim_in_use_but_not_a_gone_one(refusal: Exception) -> None:
    lost = Lost()
    lost.delete(lost.refs[1])
    Recalling.refusal = refusal
    assert lost.restore() == {lost.ref.uid: str(refusal)}
    assert (lost.state(lost.refs[1]), lost.intents_now()[lost.refs[1].uid]) == (lifecycle.State.PREPARED, [{}])
    assert lost.is_untouched


def test_the_author_reads_the_edits_of_the_cdi_file() -> None:
    lost = Lost()
    assert lost.restore() == {}
    assert sorted(str(found.env) for found in Recalling.found if found) == [
        "{'FAKE_CHIP_0_LEFT': 'chip-0-left@7'}",
        "{'FAKE_CHIP_1': 'chip-1@7'}",
    ]


def test_a_cdi_file_edited_by_hand_is_not_believed() -> None:
    lost = Lost()
    for file, content in lost.world.cdi.files.items():
        lost.world.cdi.files[file] = content.replace(b'"env"', b'"environment"')
    assert set(lost.restore().values()) == {"no CDI file has it"}
    assert Recalling.found == [None, None]
    assert (lost.world.hardware.made, lost.world.journal.entries()) == (lost.made, ())


class Numbering(author.FakeDriver):
    """Gives each share of the pipe the lowest free number, and reads it from the container's file."""

    def plan(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        taken = {str(intent["identity"]) for intent in self.planned(grant.device)}
        return {"identity": next(number for number in "01234" if number not in taken)}

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        assert grant.found
        [number] = grant.found.env.values()
        if number in {intent["identity"] for intent in self.planned(grant.device)}:
            raise errors.DeviceBusyError(f"{number} is another's")
        return {"identity": number}


def test_an_intent_without_a_file_is_planned_after_all_others_are_restored() -> None:
    lost = Lost(("pipe",), ("pipe",), driver=Numbering)
    first = min(lost.refs, key=lambda ref: ref.uid)
    for file in [file for file in lost.world.cdi.files if first.uid in file]:
        del lost.world.cdi.files[file]
    lost.world.journal.lose(*(ref.uid for ref in lost.refs))
    assert lost.restore() == {}
    assert lost.intents_now() == lost.intents


def test_of_two_claims_whose_files_say_the_same_one_is_restored() -> None:
    lost = Lost(("pipe",), ("pipe",), driver=Numbering)
    for file, content in lost.world.cdi.files.items():
        lost.world.cdi.files[file] = content.replace(b'=1"', b'=0"')
    assert list(lost.restore().values()) == ["0 is another's"]
    assert sorted(map(str, map(lost.state, lost.refs))) == sorted(map(str, (lifecycle.State.PREPARED, None)))


@pytest.mark.parametrize("uid_order", [1, -1])
def test_a_device_that_two_files_name_belongs_to_the_claim_in_use(uid_order: int) -> None:
    lost = Lost(("chip-0",), ("chip-1",))
    used, gone = sorted(lost.refs, key=lambda ref: ref.uid)[::uid_order]
    device = lost.world.claims.fetch(used).results[0].device
    lost.delete(gone)
    copied = {file: content for file, content in lost.world.cdi.files.items() if used.uid in file}
    lost.world.cdi.files = copied | {
        file.replace(used.uid, gone.uid): content.replace(used.uid.encode(), gone.uid.encode()) for file, content in copied.items()
    }
    assert lost.restore() == {}
    assert [lost.state(used), lost.state(gone)] == [lifecycle.State.PREPARED, None]
    assert (lost.world.cdi.claims(), f"{device}@7" in lost.world.hardware.made) == (frozenset({used.uid}), True)


# Crashes.


def _named_without_files(lost: Lost) -> None:
    lost.world.cdi.files.clear()
    lost.world.journal.lose(*(ref.uid for ref in lost.refs))


SCENES: dict[str, Callable[[Lost], object]] = {
    "in use": lambda _: None,
    "gone": lambda lost: lost.delete(lost.ref),
    "moved": lambda lost: lost.move(lost.ref, "chip-0-right"),
    "hardware made before": lambda lost: lost.world.hardware.made.clear(),
    "named without files": _named_without_files,
}


def crash_at(lost: Lost, number: int) -> bool:
    """Restore and crash at this step; whether there is such a step."""
    left = [number]

    def step(what: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise crash_node.Crash(what)

    lost.world.step = lost.world.hardware.step = step
    try:
        with contextlib.suppress(crash_node.Crash):
            lost.restore()
            return False
        return True
    finally:
        lost.world.hardware.step = lost.steps.append


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
@pytest.mark.parametrize("crashes", [1, 2])
def test_after_a_crash_at_any_step_the_next_start_continues(scene: Callable[[Lost], object], crashes: int) -> None:
    number, went_on = 0, True
    while went_on:
        lost = Lost()
        scene(lost)
        went_on = crash_at(lost, number)
        for _ in range(crashes - 1):
            lost.start()
            crash_at(lost, number)
        lost.start()
        if lost.is_lost:
            assert lost.restore() == {}
        lost.world.recover()
        expected = Lost()
        scene(expected)
        assert expected.restore() == {}
        assert [lost.state(ref) for ref in lost.refs] == [expected.state(ref) for ref in expected.refs], number
        assert lost.world.hardware.made == expected.world.hardware.made
        assert len(lost.world.cdi.files) == len(expected.world.cdi.files)
        assert [lost.unprepare(ref) for ref in lost.refs] == ["", ""]
        assert lost.world.is_clean, number
        number += 1
    assert number > 6


def test_a_full_disk_takes_nothing_from_a_running_pod() -> None:
    lost = Lost()

    def refuse(what: str) -> None:
        if what == "before complete":
            raise errors.JournalError("database or disk is full")

    lost.world.step = refuse
    assert lost.restore().keys() == {ref.uid for ref in lost.refs}
    assert lost.is_untouched
    lost.start()
    assert lost.restore() == {}
    assert lost.is_untouched


def test_a_claim_that_ends_after_a_crash_is_journaled_as_it_was_begun() -> None:
    lost = Lost(("chip-0",))
    assert crash_at(lost, 2)
    assert lost.state(lost.ref) is lifecycle.State.PREPARING
    lost.delete(lost.ref)
    lost.start()
    assert lost.restore() == {}
    assert (lost.state(lost.ref), lost.is_untouched) == (lifecycle.State.PREPARED, True)
    assert lost.unprepare(lost.ref) == ""
    assert lost.world.is_clean


def test_a_half_restored_claim_of_an_earlier_boot_is_undone_and_prepared_again() -> None:
    lost = Lost(("chip-0",))
    assert crash_at(lost, 2)
    lost.world.boot_id = "boot-2"
    lost.world.cdi.files.clear()
    lost.world.hardware.made.clear()
    lost.start()
    assert lost.restore() == {}
    assert lost.state(lost.ref) is None
    assert lost.prepare(lost.ref) == ""
    assert lost.state(lost.ref) is lifecycle.State.PREPARED


# Release by hand, and the loop.


def test_a_missing_claim_is_released_by_hand() -> None:
    lost = Lost()
    lost.world.driver.failure = errors.HardwareError("probe", "broken")
    assert lost.restore().keys() == {ref.uid for ref in lost.refs}
    restorer = lost.world.restorer()
    for ref in lost.refs:
        restorer.release(ref.uid)
        assert lost.unprepare(ref) == ""
    assert restorer.missing() == []
    assert lost.restore() == {}
    assert lost.world.is_clean


def test_only_one_process_restores_at_a_time() -> None:
    lost = Lost()
    elder = lost.world.restorer()
    lost.world.boot(recover=False)
    younger = lost.world.restorer()
    with elder.alone(lambda: True):
        with pytest.raises(errors.CallerGoneError), younger.alone(lambda: False):
            pass
        assert elder.restore(lost.listing) == {}
    with younger.alone(lambda: True):
        assert younger.restore(lost.listing) == {}
    assert (lost.intents_now(), lost.is_untouched) == (lost.intents, True)


def loop(lost: Lost, clock: manual_clock.ManualClock, failed: Callable[[], None] = lambda: None) -> restore_loop.RestoreLoop:
    return restore_loop.RestoreLoop(lost.world.restorer(), lost.listing, clock, failed)


def test_the_loop_retries_until_the_api_server_answers_and_says_why() -> None:
    lost, clock, statuses = Lost(), manual_clock.ManualClock(last=10**6), list[str]()
    lost.listing.failures = [errors.ApiError("away", status=503)] * 2
    runs = loop(lost, clock, lambda: statuses.append(runs.status))
    assert runs.run(threading.Event())
    assert len(statuses) == 2
    assert all("journal lost" in status and "away" in status for status in statuses)
    assert clock.waits[0] == restore_loop.FIRST_PAUSE
    assert not lost.is_lost


def test_the_loop_names_failed_claims_and_what_to_do() -> None:
    lost, statuses, stop = Lost(), list[str](), threading.Event()
    lost.world.driver.failure = errors.HardwareError("probe", "broken")

    def failed() -> None:
        statuses.append(runs.status)
        stop.set()

    runs = loop(lost, manual_clock.ManualClock(last=10**6), failed)
    assert not runs.run(stop)
    assert "2 claims to restore" in statuses[0]
    assert f"{lost.ref.uid}: " in statuses[0]
    assert "drakit unprepare UID" in statuses[0]


def test_the_loop_gives_up_a_gone_device_after_the_grace() -> None:
    lost, clock = Lost(), manual_clock.ManualClock(last=10**6)
    lost.delete(lost.refs[1])
    lost.world.hardware.present.discard("chip-1")
    lost.start()
    attempts: list[float] = []

    def failed() -> None:
        attempts.append(clock.moment)
        clock.moment += restorer.DEVICE_GRACE / 2

    assert loop(lost, clock, failed).run(threading.Event())
    assert attempts[0] == 0
    assert attempts[-1] < restorer.DEVICE_GRACE
    assert lost.world.cdi.claims() == frozenset({lost.ref.uid})


def test_after_a_long_outage_a_gone_device_has_its_whole_grace() -> None:
    lost, clock = Lost(), manual_clock.ManualClock(last=10**6)
    lost.delete(lost.refs[1])
    lost.world.hardware.present.discard("chip-1")
    lost.start()
    lost.listing.failures = [errors.ApiError("away", status=503)] * 10
    listed: list[float] = []

    def failed() -> None:
        if "chip-1" in runs.status:
            listed.append(clock.moment)

    runs = loop(lost, clock, failed)
    assert runs.run(threading.Event())
    assert listed[0] > restorer.DEVICE_GRACE
    assert clock.moment - listed[0] >= restorer.DEVICE_GRACE
    assert lost.world.cdi.claims() == frozenset({lost.ref.uid})
