"""A claim gets another device while the journal is lost and its old one still has a file: no death on the way leaves the old one set up."""

import contextlib
import functools
from collections.abc import Callable

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import errors, lifecycle, records
from drakit.node import engine, recovery
from drakit.node.restore import rebuild
from fakes import author, claim_statuses, world

LOST = rebuild.Lost(driver=author.FakeDriver.name, pool=world.POOL)


class Recalling(author.FakeDriver):
    """Chooses an identity that neither claim nor device tell; without an intent it finds nothing to unprepare."""

    def plan(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return {"identity": f"{super().plan(grant)['identity']}@7"}

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        if grant.found is None:
            raise errors.ConfigError("no file says what it was")
        return {"identity": next(iter(grant.found.env.values()))}

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        if grant.intent:
            super().unprepare(grant)


class Town:
    """A node whose journal was lost; its claim had ``before``, prepared and with files, and is allocated ``after`` by now."""

    def __init__(self, before: tuple[str, ...] = ("chip-0-left", "chip-0-right"), after: tuple[str, ...] = ("chip-1",)) -> None:
        self.world = world.World()
        self.world.driver_type = Recalling
        started = self.world.boot()
        self.ref = self.world.claim(*before, shared=before == ("pipe",))
        assert started.prepare([self.ref], self.world.caller)[self.ref.uid].error == ""
        self.world.journal.begin_unprepare(self.ref.uid)
        self.world.journal.finish_unprepare(self.ref.uid)
        results = self.world.claims.fetch(self.world.claim(*after, shared=after == ("pipe",))).results
        moved = claims.Claim(ref=self.ref, results=results)
        self.world.claims.put(moved)
        self.listing = claim_statuses.FakeClaimList(moved)
        self.after = {f"{result.share_id or result.device}@7" for result in results}

    def start(self) -> engine.Engine:
        """Another process, which finds the note of the quarantine."""
        started = self.world.boot(recover=False)
        started.memory_lost = True
        recovery.recover(started, self.world.journal, self.world.cdi, sweep_orphans=False)
        return started

    def work(self, ways: str) -> None:
        """A process that looks for lost claims, answers a prepare, or an unprepare, one after the other; ``ways`` are their first letters."""
        started = self.start()
        for way in ways:
            if way == "l":
                rebuild.rebuild(started, LOST, self.world.journal, self.world.cdi, self.listing)
            elif way == "p":
                assert started.prepare([self.ref], self.world.caller)[self.ref.uid].error == ""
            else:
                assert started.unprepare([self.ref], self.world.caller)[self.ref.uid] == ""

    def die_at(self, number: int, ways: str) -> bool:
        """Work, and die at this step; whether there is such a step."""
        left = [number]

        def step(what: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise world.Crash(what)

        self.world.step = step
        with contextlib.suppress(world.Crash):
            self.work(ways)
            return False
        self.world.step = lambda _: None
        return True

    def check(self) -> None:
        """Another process prepares the claim: it has what it is allocated now and nothing else, and all of that is given back."""
        self.world.step = lambda _: None
        self.work("p")
        entry = self.world.journal.entry(self.ref.uid)
        assert entry is not None
        assert (entry.state, set(self.world.hardware.made)) == (lifecycle.State.PREPARED, self.after)
        assert len(self.world.cdi.files) == len(self.after)
        self.work("u")
        assert self.world.is_clean


MOVES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "another chip": (("chip-0-left", "chip-0-right"), ("chip-1",)),
    "the other half": (("chip-0-left",), ("chip-0-right",)),
    "one of two": (("chip-0-left", "chip-1"), ("chip-1", "chip-0-right")),
    "another share": (("pipe",), ("pipe",)),
}
ALL = pytest.mark.parametrize("move", [functools.partial(Town, *move) for move in MOVES.values()], ids=list(MOVES))


@ALL
@pytest.mark.parametrize("ways", ["p", "lp", "pl"])
def test_what_a_claim_had_before_is_given_back(move: Callable[[], Town], ways: str) -> None:
    town = move()
    town.work(ways)
    assert set(town.world.hardware.made) == town.after
    town.check()


@ALL
@pytest.mark.parametrize("ways", ["u", "lu", "pu"])
def test_a_claim_that_ends_gives_back_what_it_had_before_too(move: Callable[[], Town], ways: str) -> None:
    town = move()
    town.work(ways)
    assert town.world.is_clean


@ALL
def test_the_old_device_is_journaled_first_and_released_before_the_new_one(move: Callable[[], Town]) -> None:
    town = move()
    steps: list[str] = []
    town.world.step = lambda what: steps.append(" ".join(what.split()[:2])) if what.startswith("after") else None
    town.work("p")
    order = list(dict.fromkeys(steps))
    assert order == [
        "after begin",
        "after begin_unprepare",
        "after remove",
        "after unmake",
        "after finish_unprepare",
        "after make",
        "after write",
        "after complete",
    ]
    assert steps.index("after make") > steps.index("after finish_unprepare")


@ALL
@pytest.mark.parametrize("ways", ["p", "lp", "u"])
def test_a_death_at_any_step_leaves_nothing_of_the_old_device(move: Callable[[], Town], ways: str) -> None:
    number = 0
    while (town := move()).die_at(number, ways):
        town.check()
        number += 1
    assert number >= 10, "before and after every journal move, file and hardware call"


@ALL
def test_a_second_death_changes_nothing(move: Callable[[], Town]) -> None:
    first = 0
    while (town := move()).die_at(first, "p"):
        for second in range(30):
            if not town.die_at(second, "lp"):
                break
        town.check()
        first += 1
    assert first >= 10


@ALL
def test_a_claim_that_is_gone_after_a_death_is_given_back_whole(move: Callable[[], Town]) -> None:
    number = 0
    while (town := move()).die_at(number, "p"):
        town.world.claims.remove(town.ref)
        town.listing.known.clear()
        town.work("lu")
        assert town.world.is_clean
        number += 1
    assert number >= 10


def test_a_claim_whose_devices_all_have_files_keeps_them_whatever_else_lies_beside() -> None:
    town = Town(("chip-0", "chip-1"), ("chip-1",))
    touched: list[str] = []
    town.world.hardware.step = touched.append
    town.work("lp")
    assert (touched, set(town.world.hardware.made)) == ([], {"chip-0@7", "chip-1@7"})


def test_an_old_device_that_another_claim_has_by_now_is_left_alone() -> None:
    town = Town(("chip-0",), ("chip-1",))
    files = dict(town.world.cdi.files)
    town.world.cdi.files.clear()
    other = town.world.claim("chip-0")
    assert town.start().prepare([other], town.world.caller)[other.uid].error == ""
    town.world.cdi.files.update(files)
    town.work("p")
    assert set(town.world.hardware.made) == {"chip-0@7", "chip-1@7"}


def test_an_old_device_that_is_gone_keeps_nobody_from_the_new_one() -> None:
    town = Town(("chip-0",), ("chip-1",))
    town.world.hardware.present.discard("chip-0")
    town.work("lp")
    entry = town.world.journal.entry(town.ref.uid)
    assert entry is not None
    assert [grant.device.name for grant in entry.grants] == ["chip-1"]


@pytest.mark.parametrize("refusal", [errors.DeviceGoneError("not ours"), errors.HardwareError("probe", "broken")])
def test_the_new_device_waits_while_the_author_cannot_unprepare_the_old_one(refusal: Exception) -> None:
    class Stuck(Recalling):
        stuck = True

        def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
            if self.stuck and grant.device.name == "chip-0":
                raise refusal
            super().unprepare(grant)

    town = Town(("chip-0",), ("chip-1",))
    town.world.driver_type = Stuck
    started = town.start()
    assert str(refusal) in started.prepare([town.ref], town.world.caller)[town.ref.uid].error
    assert set(town.world.hardware.made) == {"chip-0@7"}
    Stuck.stuck = False
    town.check()


@pytest.mark.parametrize("before, after", [(("chip-0-left",), ("chip-0-left", "chip-1")), (("chip-0",), ("chip-1",))])
def test_a_device_named_by_the_file_of_another_unknown_claim_stays_with_that_claim(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    town = Town(before, after)
    other = town.world.claim("chip-1")
    assert town.world.boot(recover=False).prepare([other], town.world.caller)[other.uid].error == ""
    town.world.journal.begin_unprepare(other.uid)
    town.world.journal.finish_unprepare(other.uid)
    town.world.claims.remove(other)
    if "chip-0" in before:
        town.world.hardware.present.discard("chip-0")
    started = town.start()
    for _ in range(2):
        assert "chip-1 is still held" in started.prepare([town.ref], town.world.caller)[town.ref.uid].error
        rebuild.rebuild(started, LOST, town.world.journal, town.world.cdi, town.listing)
    assert started.unprepare([other], town.world.caller) == {other.uid: ""}
    assert started.prepare([town.ref], town.world.caller)[town.ref.uid].error == ""
