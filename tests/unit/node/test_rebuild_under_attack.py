"""While a lost journal is made good: deaths, full disks, and a kubelet that goes on calling.

A running pod keeps its hardware, what it holds goes to nobody else, and nothing that has ended comes back to life.
"""

from collections.abc import Callable, Sequence

import pytest

from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import errors, inventory, lifecycle, names, records
from drakit.node import engine, recovery
from drakit.node.restore import rebuild
from fakes import author, cdi, claim_statuses, world

DEVICE = "chip-0"
STEPS = ("before begin", "after begin", "before complete", "after complete")


class Recalling(author.FakeDriver):
    """A driver that can tell from a device what it must have planned. ``looks`` counts its discoveries."""

    looks = 0

    def discover(self) -> inventory.Inventory:
        self.looks += 1
        return super().discover()

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)


class Asked(claim_statuses.FakeClaimList):
    """An API server whose answer is old by the time it arrives: ``meanwhile`` happens before."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        found = super().allocated(driver, serves)
        self.meanwhile()
        return found


class Town:
    """A node whose journal was lost while a claim was in use. ``touched`` are the steps of its hardware since."""

    def __init__(self, device: str = DEVICE) -> None:
        self.world = world.World()
        self.world.driver_type = Recalling
        before = self.world.boot()
        self.ref = self.world.claim(device)
        assert before.prepare([self.ref], self.world.caller)[self.ref.uid].error == ""
        self.files = dict(self.world.cdi.files)
        self.world.journal.begin_unprepare(self.ref.uid)
        self.world.journal.finish_unprepare(self.ref.uid)
        self.listing = Asked(self.world.claims.fetch(self.ref))
        self.touched: list[str] = []
        self.world.hardware.step = self.touched.append
        self.named: frozenset[names.ClaimUid] = frozenset()
        self.engine = self.start()

    def start(self) -> engine.Engine:
        """Another process, which finds the note of the quarantine."""
        self.engine = self.world.boot(recover=False)
        self.engine.memory_lost = True
        recovery.recover(self.engine, self.world.journal, self.world.cdi, sweep_orphans=False)
        return self.engine

    def rebuild(self, tracked: Sequence[names.ClaimUid] | None = None) -> rebuild.Report:
        lost = rebuild.Lost(
            driver=author.FakeDriver.name,
            pool=world.POOL,
            named=self.named,
            tracked=lambda: None if tracked is None else frozenset(tracked),
        )
        return rebuild.rebuild(self.engine, lost, self.world.journal, self.world.cdi, self.listing)

    def die_at(self, step: str) -> None:
        def told(what: str) -> None:
            if what == step:
                raise world.Crash

        self.world.step = told
        with pytest.raises(world.Crash):
            self.rebuild()
        self.world.step = lambda _: None

    def prepare(self, ref: claims.ClaimRef) -> str:
        return self.engine.prepare([ref], self.world.caller)[ref.uid].error

    def unprepare(self, ref: claims.ClaimRef) -> str:
        return self.engine.unprepare([ref], self.world.caller)[ref.uid]

    def state(self) -> lifecycle.State | None:
        entry = self.world.journal.entry(self.ref.uid)
        return None if entry is None else entry.state

    @property
    def is_untouched(self) -> bool:
        return not self.touched and self.world.cdi.files == self.files


@pytest.mark.parametrize("step", STEPS)
def test_a_death_on_the_way_takes_nothing_from_a_running_pod(step: str) -> None:
    town = Town()
    town.die_at(step)
    town.start()
    assert town.is_untouched
    assert town.rebuild().failed == ()
    assert (town.state(), town.is_untouched) == (lifecycle.State.PREPARED, True)


@pytest.mark.parametrize("step", STEPS)
def test_the_kubelet_may_ask_after_a_death_on_the_way(step: str) -> None:
    town = Town()
    town.die_at(step)
    town.start()
    assert town.prepare(town.ref) == ""
    assert (town.state(), town.is_untouched) == (lifecycle.State.PREPARED, True)


@pytest.mark.parametrize("step", STEPS)
def test_what_was_remembered_by_half_is_given_back_whole(step: str) -> None:
    town = Town()
    town.die_at(step)
    town.start()
    assert town.unprepare(town.ref) == ""
    assert town.world.is_clean
    assert town.rebuild() == rebuild.Report()


def test_a_disk_that_fills_up_on_the_way_takes_nothing_from_a_running_pod() -> None:
    town = Town()
    full: list[str] = []

    def refuse(what: str) -> None:
        if what == "before complete":
            full.append(what)
        if full and what.startswith("before"):
            raise errors.JournalError("database or disk is full")

    town.world.step = refuse
    assert town.rebuild().failed == (town.ref.uid,)
    assert "full" in town.prepare(town.ref)
    town.world.step = lambda _: None
    assert town.prepare(town.ref) == ""
    assert (town.state(), town.is_untouched) == (lifecycle.State.PREPARED, True)


def test_memory_is_not_whole_while_a_claim_is_remembered_by_half() -> None:
    town = Town()
    town.die_at("before complete")
    town.start()
    town.world.driver.failure = errors.HardwareError("probe", "broken")
    assert town.rebuild().failed == (town.ref.uid,)
    assert town.is_untouched
    town.world.driver.failure = None
    assert town.rebuild().restored == (town.ref.uid,)


def test_a_claim_that_ends_while_it_is_remembered_by_half_is_left_to_be_unprepared() -> None:
    town = Town()
    town.die_at("before complete")
    town.start()
    town.listing.known.clear()
    assert town.rebuild().left == (town.ref.uid,)
    assert town.state() is lifecycle.State.UNPREPARING
    assert town.unprepare(town.ref) == ""
    assert town.world.is_clean


@pytest.mark.parametrize("asks", [True, False])
def test_a_claim_that_is_allocated_anew_meanwhile_gives_its_first_device_back(asks: bool) -> None:  # noqa: FBT001 - whether the kubelet asks first
    town = Town()
    town.die_at("before complete")
    town.start()
    other = town.world.claim("chip-1")
    moved = claims.Claim(ref=town.ref, results=town.world.claims.fetch(other).results)
    town.world.claims.put(moved)
    town.listing.known = [moved]
    if not asks:
        assert town.rebuild().failed == ()
        assert (town.state(), town.world.hardware.made) == (None, {})
    assert town.prepare(town.ref) == ""
    assert set(town.world.hardware.made) == {"chip-1"}


def test_a_claim_that_ends_while_the_api_server_answers_does_not_come_back_to_life() -> None:
    town = Town()
    town.listing.meanwhile = lambda: town.unprepare(town.ref)
    town.rebuild()
    assert town.world.is_clean


def test_a_claim_that_ends_after_its_files_were_listed_does_not_come_back_to_life() -> None:
    town = Town()
    listed = town.world.cdi.claims()
    assert town.unprepare(town.ref) == ""

    class Late(cdi.MemoryCdi):
        """The directory as it was before the claim ended."""

        def claims(self) -> frozenset[names.ClaimUid]:
            return listed

    lost = rebuild.Lost(driver=author.FakeDriver.name, pool=world.POOL)
    rebuild.rebuild(town.engine, lost, town.world.journal, Late(author.FakeDriver.name), town.listing)
    assert town.world.is_clean


@pytest.mark.parametrize("tracked", [[], None], ids=["books", "no books"])
def test_a_claim_without_files_that_the_kubelet_unprepared_is_not_restored(tracked: list[names.ClaimUid] | None) -> None:
    town = Town()
    town.named = frozenset({town.ref.uid})
    assert town.unprepare(town.ref) == ""
    assert town.rebuild(tracked).failed == ()
    assert town.world.is_clean


@pytest.mark.parametrize("known", [True, False])
def test_a_claim_of_the_old_file_is_restored_unless_the_kubelet_denies_it(known: bool) -> None:  # noqa: FBT001
    town = Town()
    town.named = frozenset({town.ref.uid})
    town.world.cdi.files.clear()
    assert town.rebuild(tracked=[town.ref.uid] if known else None).restored == (town.ref.uid,)
    assert town.state() is lifecycle.State.PREPARED


def test_a_claim_without_files_whose_unprepare_failed_stays_prepared() -> None:
    town = Town()
    town.named = frozenset({town.ref.uid})
    town.world.cdi.files.clear()

    def refuse(what: str) -> None:
        if what == "before begin":
            raise errors.JournalError("database or disk is full")

    town.world.step = refuse
    assert "full" in town.unprepare(town.ref)
    town.world.step = lambda _: None
    assert town.rebuild().restored == (town.ref.uid,)
    assert town.state() is lifecycle.State.PREPARED
    assert town.unprepare(town.ref) == ""
    assert town.world.is_clean


def test_a_claim_that_was_given_back_is_not_held_up_by_who_has_its_device_now() -> None:
    town = Town()
    assert town.unprepare(town.ref) == ""
    other = town.world.claim(DEVICE)
    assert town.prepare(other) == ""
    assert town.unprepare(town.ref) == "", "asked again, because the first answer was lost on the way"
    assert set(town.world.hardware.made) == {DEVICE}
    assert [(entry.claim, entry.state) for entry in town.world.journal.entries()] == [(other, lifecycle.State.PREPARED)]


def test_a_device_in_the_files_of_two_claims_stays_and_the_error_names_the_other() -> None:
    town = Town()
    town.world.cdi.files.clear()
    other = town.world.claim(DEVICE)
    assert town.prepare(other) == ""
    town.world.cdi.files.update(town.files)
    town.touched.clear()
    assert other.uid in town.unprepare(town.ref)
    assert (town.touched, set(town.world.hardware.made)) == ([], {DEVICE})
    assert town.unprepare(other) == ""
    assert town.unprepare(town.ref) == ""
    assert town.world.is_clean


def test_what_was_remembered_by_half_in_an_earlier_boot_is_undone_and_prepared_anew() -> None:
    town = Town()
    town.die_at("before complete")
    town.world.boot_id = "boot-2"
    town.start()
    assert town.state() is None
    assert town.prepare(town.ref) == ""
    assert town.state() is lifecycle.State.PREPARED


@pytest.mark.parametrize("device", [DEVICE, f"{DEVICE}-left"])
def test_what_a_forgotten_claim_holds_is_given_to_nobody_else(device: str) -> None:
    town = Town(device)
    town.world.claims.remove(town.ref)
    other = town.world.claim(DEVICE)
    assert "is still held by" in town.prepare(other) or "used up" in town.prepare(other)
    assert town.is_untouched
    assert town.unprepare(town.ref) == ""
    assert town.prepare(other) == ""
    assert set(town.world.hardware.made) == {DEVICE}


def test_a_claim_that_is_gone_with_its_device_is_told_with_what_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    town = Town()
    town.listing.known.clear()
    town.world.claims.remove(town.ref)
    town.world.hardware.present.discard(DEVICE)
    town.start()
    assert town.rebuild().failed == (town.ref.uid,)
    assert "drakit unprepare" in capsys.readouterr().err
    assert town.unprepare(town.ref) == ""
    assert town.rebuild() == rebuild.Report()


def test_an_unknown_claim_on_a_missing_device_costs_later_claims_no_hardware_read() -> None:
    town = Town()
    town.world.hardware.present.discard(DEVICE)
    town.start()
    driver = town.world.driver
    assert isinstance(driver, Recalling)
    looks = driver.looks
    assert town.prepare(town.world.claim("chip-1")) == ""
    assert driver.looks == looks


def test_a_forgotten_half_leaves_the_other_half_free() -> None:
    town = Town(f"{DEVICE}-left")
    assert town.prepare(town.world.claim(f"{DEVICE}-right")) == ""
    assert town.prepare(town.world.claim("chip-1")) == ""


def test_a_call_that_slept_does_not_take_a_device_that_went_to_another() -> None:
    town = Town()
    slow, quick = town.engine, town.world.boot(recover=False)
    quick.memory_lost = True
    other: list[claims.ClaimRef] = []

    class Slow:
        """The API server, which answers the slow process once the quick one is done."""

        def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
            found = town.world.claims.fetch(ref)
            if not other:
                assert quick.unprepare([ref], town.world.caller)[ref.uid] == ""
                other.append(town.world.claim(DEVICE))
                assert quick.prepare(other, town.world.caller)[other[0].uid].error == ""
            return found

    slow._claims = Slow()
    assert town.unprepare(town.ref) == ""
    assert set(town.world.hardware.made) == {DEVICE}
    assert [entry.claim for entry in town.world.journal.entries()] == other
    assert town.prepare(other[0]) == ""
