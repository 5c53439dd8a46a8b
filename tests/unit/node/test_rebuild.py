"""After the journal was lost: what is found again, and what the kubelet may ask meanwhile."""

import dataclasses
import pathlib
import threading
from typing import ClassVar

import pytest

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, lifecycle, names, node_selection, records
from drakit.node import engine, orphans
from drakit.node.restore import rebuild
from fakes import author, claim_statuses, ticking, world

LOST = rebuild.Lost(driver=author.FakeDriver.name, pool=world.POOL)


class Recalling(author.FakeDriver):
    """A driver that can tell from a device what it must have planned."""

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        return self.plan(grant)


class Lost:
    """A node with two prepared claims whose journal is empty; ``other`` is gone from the API server too."""

    def __init__(self, driver_type: type[author.FakeDriver] = Recalling) -> None:
        self.world = world.World()
        self.world.driver_type = driver_type
        before = self.world.boot()
        self.ref, self.other = self.world.claim("chip-0-left"), self.world.claim("chip-1")
        for ref in (self.ref, self.other):
            assert before.prepare([ref], self.world.caller)[ref.uid].error == ""
        self.files, self.made = dict(self.world.cdi.files), dict(self.world.hardware.made)
        for ref in (self.ref, self.other):
            self.world.journal.begin_unprepare(ref.uid)
            self.world.journal.finish_unprepare(ref.uid)
        self.listing = claim_statuses.FakeClaimList(self.world.claims.fetch(self.ref))
        self.world.claims.remove(self.other)
        self.engine = self.world.boot(recover=False)
        self.engine.memory_lost = True
        self.known = LOST

    def rebuild(self) -> rebuild.Report:
        return rebuild.rebuild(self.engine, self.known, self.world.journal, self.world.cdi, self.listing)

    def unprepare(self, ref: claims.ClaimRef) -> str:
        return self.engine.unprepare([ref], self.world.caller)[ref.uid]


def test_a_claim_in_use_is_remembered_without_a_change_to_its_hardware_or_files() -> None:
    lost = Lost()
    effects: list[str] = []
    lost.world.hardware.step = effects.append
    report = lost.rebuild()
    assert (report.restored, report.left, report.failed) == ((lost.ref.uid,), (lost.other.uid,), ())
    entry = lost.world.journal.entry(lost.ref.uid)
    assert entry is not None
    assert (entry.state, entry.claim, entry.grants[0].record) == (lifecycle.State.PREPARED, lost.ref, {"made": "chip-0-left"})
    assert (lost.world.cdi.files, lost.world.hardware.made, effects) == (lost.files, lost.made, [])


class Member(Recalling):
    """A driver whose node has a part in a device of a pool that belongs to no node."""

    def cluster_device(self, pool: str, name: str) -> devices.Device | None:
        return devices.Device(name="chip-0", reach=node_selection.AllNodes()) if (pool, name) == ("fabric", "chip-0") else None


def test_a_claim_of_a_cluster_pool_is_restored_with_its_pool() -> None:
    node = world.World()
    node.driver_type = Member
    ref = node.claim("chip-0", pool="fabric")
    assert node.boot().prepare([ref], node.caller)[ref.uid].error == ""
    node.journal.begin_unprepare(ref.uid)
    node.journal.finish_unprepare(ref.uid)
    started = node.boot(recover=False)
    started.memory_lost = True
    lost = dataclasses.replace(LOST, cluster_device=Member(node.hardware).cluster_device)
    report = rebuild.rebuild(started, lost, node.journal, node.cdi, claim_statuses.FakeClaimList(node.claims.fetch(ref)))
    entry = node.journal.entry(ref.uid)
    assert report.restored == (ref.uid,)
    assert entry is not None
    assert [(grant.pool, grant.device.name) for grant in entry.grants] == [("fabric", "chip-0")]


def test_a_claim_that_exists_and_cannot_be_read_is_not_taken_for_one_that_is_gone() -> None:
    lost = Lost()
    effects: list[str] = []
    lost.world.step = effects.append
    lost.listing.unreadable = frozenset({lost.ref.uid})
    report = lost.rebuild()
    assert (report.restored, report.left, report.failed) == ((), (lost.other.uid,), (lost.ref.uid,))
    assert lost.world.journal.entry(lost.ref.uid) is None, "nothing is withdrawn that a pod may be running with"
    assert (lost.world.cdi.files, lost.world.hardware.made) == (lost.files, lost.made)
    lost.listing.unreadable = frozenset()
    assert lost.rebuild().restored == (lost.ref.uid,), "and it is tried again"


def test_a_claim_that_is_gone_is_left_to_be_unprepared() -> None:
    lost = Lost()
    lost.rebuild()
    entry = lost.world.journal.entry(lost.other.uid)
    assert entry is not None
    assert entry.state is lifecycle.State.UNPREPARING
    assert lost.unprepare(lost.other) == ""
    assert "chip-1" not in lost.world.hardware.made


def test_leftovers_that_the_kubelet_never_requests_are_released_after_the_grace() -> None:
    lost = Lost()
    lost.rebuild()
    clock = ticking.Ticking(last=10**6)
    watch = orphans.OrphanCollector(
        lost.engine,
        lost.world.journal,
        lost.world.claims,
        tracked=lambda: frozenset({lost.ref.uid}),
        is_registered=lambda: True,
        clock=clock,
    )
    given_back = []
    for moment in (0.0, orphans.GRACE - 1, orphans.GRACE):
        clock.moment = moment
        given_back.append(watch.look(threading.Event()))
    assert given_back == [0, 0, 1]
    assert list(lost.world.hardware.made) == ["chip-0-left"]
    assert lost.world.journal.entry(lost.ref.uid) is not None


@pytest.mark.parametrize("books, patience", [(frozenset(), orphans.GRACE), (None, orphans.BLIND_GRACE)])
def test_files_of_a_claim_that_is_gone_with_its_devices_go_once_nobody_can_ask(
    books: frozenset[names.ClaimUid] | None, patience: float
) -> None:
    lost, clock = Lost(), ticking.Ticking(last=10**6)
    lost.world.hardware.present.discard("chip-1")
    lost.engine = lost.world.boot(recover=False)
    lost.engine.memory_lost = True
    silence = orphans.GracePeriod(lambda: books, clock)
    lost.known = dataclasses.replace(LOST, is_nobodys=silence.is_long)
    assert lost.rebuild().failed == (lost.other.uid,)
    clock.moment += patience - 1
    assert lost.rebuild().failed == (lost.other.uid,)
    assert lost.other.uid in lost.world.cdi.claims()
    clock.moment += 1
    assert lost.rebuild().failed == ()
    assert lost.world.cdi.claims() == frozenset({lost.ref.uid})


def test_files_of_a_claim_that_the_kubelet_knows_never_go() -> None:
    clock, tracked = ticking.Ticking(last=10**6), {names.ClaimUid("one")}
    silence = orphans.GracePeriod(lambda: tracked, clock)
    for _ in range(3):
        assert not silence.is_long(names.ClaimUid("one"))
        clock.moment += orphans.BLIND_GRACE
    tracked.clear()
    assert not silence.is_long(names.ClaimUid("one")), "the wait begins when the kubelet forgets"


def test_both_are_given_back_whole_after_a_rebuild() -> None:
    lost = Lost()
    lost.rebuild()
    assert [lost.unprepare(ref) for ref in (lost.ref, lost.other)] == ["", ""]
    assert lost.world.is_clean


def test_the_kubelet_may_unprepare_a_forgotten_claim_before_memory_is_rebuilt() -> None:
    lost = Lost()
    assert [lost.unprepare(ref) for ref in (lost.ref, lost.other)] == ["", ""]
    assert lost.world.is_clean


def test_a_forgotten_claim_is_not_unprepared_by_guess_while_the_api_server_is_away() -> None:
    lost = Lost()
    lost.world.claims.failures = [errors.ApiError("away", status=503)]
    assert "away" in lost.unprepare(lost.ref)
    assert lost.world.hardware.made == lost.made
    assert lost.unprepare(lost.ref) == ""
    assert "chip-0-left" not in lost.world.hardware.made


def test_the_kubelet_may_prepare_a_forgotten_claim_again_and_running_pods_keep_it() -> None:
    lost = Lost()
    effects: list[str] = []
    lost.world.hardware.step = effects.append
    assert lost.engine.prepare([lost.ref], lost.world.caller)[lost.ref.uid].error == ""
    assert (effects, lost.world.cdi.files) == ([], lost.files)


def test_a_claim_nobody_ever_prepared_is_success_and_told_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    lost = Lost()
    stranger = lost.world.claim("chip-0-right")
    lost.world.claims.remove(stranger)
    assert lost.unprepare(stranger) == ""
    assert "removing the CDI files of an unknown claim" in capsys.readouterr().err


def test_a_claim_that_cannot_be_prepared_now_keeps_its_hardware_and_is_tried_again() -> None:
    lost = Lost()
    lost.world.driver.failure = errors.HardwareError("probe", "broken")
    report = lost.rebuild()
    assert report.failed == (lost.ref.uid,)
    entry = lost.world.journal.entry(lost.ref.uid)
    assert entry is not None
    assert (entry.state, lost.world.hardware.made) == (lifecycle.State.PREPARING, lost.made)
    lost.world.driver.failure = None
    assert lost.rebuild().restored == (lost.ref.uid,)


def test_a_rebuild_is_tried_until_nothing_is_missing() -> None:
    lost = Lost()
    lost.listing.failures = [errors.ApiError("away", status=503)]
    clock, done = ticking.Ticking(last=20), threading.Event()
    rebuild.Rebuilding(lost.rebuild, done.set, clock).run(threading.Event())
    assert done.is_set()
    assert clock.waits == [rebuild.FIRST_PAUSE]
    assert lost.rebuild() == rebuild.Report()


class Reader(author.FakeDriver):
    """Knows what it planned from the containers alone, and keeps what it was told; ``refusal`` is what it says of all of it."""

    told: ClassVar[list[edits.Edits | None]] = []
    refusal: ClassVar[Exception | None] = None

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        self.told.append(grant.found)
        if self.refusal is not None:
            raise self.refusal
        return {"identity": next(iter(grant.found.env.values()))} if grant.found else {}

    def unprepare(self, grant: drivers.Grant[author.Tuning]) -> None:
        assert grant.found is None
        if grant.intent:
            super().unprepare(grant)


def reading(refusal: Exception | None = None) -> Lost:
    """A node whose driver is a ``Reader``; nothing was told yet."""
    Reader.told.clear()
    Reader.refusal = refusal
    return Lost(Reader)


def test_the_author_is_told_what_the_cdi_file_says_and_nobody_else_is() -> None:
    lost = reading()
    assert lost.rebuild().failed == ()
    assert sorted(str(found.env) for found in Reader.told if found) == ["{'FAKE_CHIP_0_LEFT': 'chip-0-left'}", "{'FAKE_CHIP_1': 'chip-1'}"]
    assert lost.world.hardware.made == lost.made
    assert [lost.unprepare(ref) for ref in (lost.ref, lost.other)] == ["", ""]
    assert lost.world.is_clean


def test_a_cdi_file_that_was_edited_by_hand_is_not_told() -> None:
    lost = reading()
    for file, content in lost.world.cdi.files.items():
        lost.world.cdi.files[file] = content.replace(b'"env"', b'"environment"')
    assert lost.unprepare(lost.ref) == ""
    assert Reader.told == [None]


@pytest.mark.parametrize("refusal", [errors.DeviceGoneError("not ours"), errors.DeviceBusyError("taken"), errors.ConfigError("no")])
def test_a_claim_the_author_refuses_stays_unknown_in_use_and_is_removed_once_ended(refusal: Exception) -> None:
    lost = reading(refusal)
    report = lost.rebuild()
    assert (report.restored, report.left, report.failed) == ((), (lost.other.uid,), (lost.ref.uid,))
    assert (lost.world.hardware.made, lost.world.cdi.files) == (lost.made, lost.files)
    assert [lost.unprepare(ref) for ref in (lost.ref, lost.other)] == ["", ""]
    assert (lost.world.journal.entries(), lost.world.cdi.files) == ((), {})


def test_an_author_who_cannot_tell_now_is_asked_again_before_anything_is_given_back() -> None:
    lost = reading(errors.HardwareError("probe", "broken"))
    assert set(lost.rebuild().failed) == {lost.ref.uid, lost.other.uid}
    assert "broken" in lost.unprepare(lost.ref)
    Reader.refusal = None
    assert lost.unprepare(lost.ref) == ""
    assert lost.made.keys() - lost.world.hardware.made.keys() == {"chip-0-left"}


class Numbering(author.FakeDriver):
    """Gives each share of the pipe the lowest free number, and knows it again from the container alone."""

    def plan(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        taken = {str(intent["identity"]) for intent in self.planned(grant.device)}
        return {"identity": next(number for number in "01234" if number not in taken)}

    def recall(self, grant: drivers.Grant[author.Tuning]) -> records.Record:
        assert grant.found
        [number] = grant.found.env.values()
        if number in {intent["identity"] for intent in self.planned(grant.device)}:
            raise errors.DeviceBusyError(f"{number} is another's")
        return {"identity": number}


class Pipe:
    """Two claims with numbers, none of which the journal knows any more."""

    def __init__(self) -> None:
        self.world = world.World()
        self.world.driver_type = Numbering
        self.engine = self.start()
        self.refs = [self.world.claim("pipe", shared=True) for _ in range(2)]
        assert [self.prepare(ref) for ref in self.refs] == ["0", "1"]
        for ref in self.refs:
            self.world.journal.begin_unprepare(ref.uid)
            self.world.journal.finish_unprepare(ref.uid)
        self.engine = self.start()
        self.engine.memory_lost = True

    def start(self) -> engine.Engine:
        started = self.world.boot(recover=False)
        drivers.open_driver(self.world.driver, started.planner.planned)
        return started

    def prepare(self, ref: claims.ClaimRef) -> str:
        """The claim's number, or why it has none."""
        answer = self.engine.prepare([ref], self.world.caller)[ref.uid]
        entry = self.world.journal.entry(ref.uid)
        return answer.error if entry is None else str(entry.grants[0].intent["identity"])


def test_a_new_claim_is_not_given_what_a_claim_has_that_is_not_known_again_yet() -> None:
    pipe = Pipe()
    assert pipe.prepare(pipe.world.claim("pipe", shared=True)) == "2"
    assert [pipe.prepare(ref) for ref in pipe.refs] == ["0", "1"]
    assert pipe.prepare(pipe.world.claim("pipe", "pipe", shared=True)) == "3"


def test_of_two_claims_whose_files_say_the_same_one_is_remembered() -> None:
    pipe = Pipe()
    for file, content in pipe.world.cdi.files.items():
        pipe.world.cdi.files[file] = content.replace(b'=1"', b'=0"')
    assert sorted(pipe.prepare(ref) for ref in pipe.refs) == ["0", "0 is another's"]
    assert pipe.prepare(pipe.world.claim("pipe", shared=True)) == "1"


class Town:
    """A node with one prepared claim, its kubelet's books, and a clock."""

    def __init__(self) -> None:
        self.world = world.World()
        self.engine: engine.Engine = self.world.boot()
        self.ref = self.world.claim("chip-0")
        assert self.engine.prepare([self.ref], self.world.caller)[self.ref.uid].error == ""
        self.clock = ticking.Ticking(last=10**6)
        self.tracked: frozenset[str] | None = frozenset()
        self.registered = True
        self.vanished = orphans.OrphanCollector(
            self.engine,
            self.world.journal,
            self.world.claims,
            tracked=lambda: self.tracked,  # type: ignore[arg-type, return-value]
            is_registered=lambda: self.registered,
            clock=self.clock,
        )

    def look_after(self, seconds: float) -> int:
        self.clock.moment += seconds
        return self.vanished.look(threading.Event())


def test_a_claim_that_is_there_is_left_alone() -> None:
    town = Town()
    assert [town.look_after(seconds) for seconds in (0, 10**6)] == [0, 0]


def test_a_deleted_claim_unknown_to_the_kubelet_is_unprepared_after_the_grace_period() -> None:
    town = Town()
    town.world.claims.remove(town.ref)
    assert [town.look_after(seconds) for seconds in (0, orphans.GRACE / 2, orphans.GRACE)] == [0, 0, 1]
    assert town.world.is_clean


def test_a_claim_of_another_uid_is_no_claim_of_ours() -> None:
    town = Town()
    town.world.claim("chip-1", name=town.ref.name)
    assert [town.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_the_kubelets_books_come_first() -> None:
    town = Town()
    town.world.claims.remove(town.ref)
    town.tracked = frozenset({town.ref.uid})
    assert [town.look_after(orphans.BLIND_GRACE) for _ in range(3)] == [0, 0, 0]
    town.tracked = frozenset()
    assert [town.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_without_the_kubelets_books_the_wait_is_long() -> None:
    town = Town()
    town.world.claims.remove(town.ref)
    town.tracked = None
    assert [town.look_after(seconds) for seconds in (0, orphans.GRACE, orphans.BLIND_GRACE)] == [0, 0, 1]


def test_errors_and_an_unregistered_driver_start_the_wait_anew() -> None:
    town = Town()
    town.world.claims.remove(town.ref)
    assert town.look_after(0) == 0
    town.world.claims.failures = [errors.ApiError("away", status=500)]
    assert town.look_after(orphans.GRACE) == 0
    assert town.look_after(0) == 0
    town.registered = False
    assert town.look_after(orphans.GRACE) == 0
    town.registered = True
    assert [town.look_after(seconds) for seconds in (0, orphans.GRACE)] == [0, 1]


def test_questions_are_asked_at_a_bounded_rate() -> None:
    town = Town()
    ref = town.world.claim("chip-1")
    town.engine.prepare([ref], town.world.caller)
    town.vanished.look(threading.Event())
    assert town.clock.waits == [orphans.BETWEEN_QUESTIONS] * 2


def test_the_kubelets_books_are_read_in_its_own_form_or_not_at_all(tmp_path: pathlib.Path) -> None:
    from drakit.kubelet import checkpoint
    from drakit_cluster.api.storage.store import Key
    from drakit_cluster.kubelet.pods import records as kubelets

    path = tmp_path / checkpoint.FILE
    assert checkpoint.tracked(path) is None
    kubelets.Checkpoint(path).save([kubelets.ClaimRecord(key=Key("default", "c"), uid="u-1")])
    assert checkpoint.tracked(path) == frozenset({names.ClaimUid("u-1")})
    kubelets.Checkpoint(path).save([])
    assert checkpoint.tracked(path) == frozenset()
    for damaged in (b"", b"[]", b"{}", b'{"Data": "{}", "Checksum": 1}', path.read_bytes().replace(b"Checksum", b"Checksun")):
        path.write_bytes(damaged)
        assert checkpoint.tracked(path) is None
