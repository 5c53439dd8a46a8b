"""A release of a driver reads the intents and records that an earlier one journaled in another form (``drakit.RecordUpgrade``)."""

import dataclasses
import pathlib
import types
from collections.abc import Callable
from typing import Any

import pytest

import drakit
from drakit import testing
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.core import lifecycle, record_versions
from drakit.node import engine, local_node, node, recovery, timing
from drakit.testing import node as nodes
from fakes import claim_source, node_with_intents, slice_store, versioned_driver, waits

Upgraded = tuple[testing.Node, drakit.ClaimRef]
STAMP = "drakit.dev/records-version"


@pytest.fixture
def board(tmp_path: pathlib.Path) -> versioned_driver.Board:
    (tmp_path / "board").mkdir()
    return versioned_driver.Board(tmp_path / "board")


class Site:
    """A node on which one release after the other runs; every claim stays known to the API server."""

    def __init__(self, folder: pathlib.Path, board: versioned_driver.Board) -> None:
        self._folder, self._board = folder, board
        self._claims: list[tuple[testing.Node, drakit.ClaimRef]] = []

    def run(self, release: Callable[[versioned_driver.Board], drivers.Driver[Any]]) -> testing.Node:
        node = testing.Node(lambda: release(self._board), folder=self._folder)
        for earlier, ref in self._claims:
            node.claims.put(earlier.claims.fetch(ref))
        return node

    def prepare(self, node: testing.Node) -> tuple[drakit.ClaimRef, testing.ContainerView]:
        ref = node.claim("board")
        self._claims.append((node, ref))
        return ref, node.prepare(ref)


@pytest.fixture
def site(tmp_path: pathlib.Path, board: versioned_driver.Board) -> Site:
    return Site(tmp_path / "node", board)


def test_a_claim_of_the_release_before_is_released(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release1) as node:
        ref, _ = site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        assert board.used() == {0: ref.uid}
        node.unprepare(ref)
        assert (board.used(), node.is_clean) == ({}, True)


def test_new_claims_get_other_parts_than_those_of_the_release_before(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release1) as node:
        old, _ = site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        new, _ = site.prepare(node)
        assert board.used() == {0: old.uid, 1: new.uid}


def test_a_prepared_claim_is_verified_and_its_record_gets_the_present_form(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release1) as node:
        ref, before = site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        assert node.prepare(ref) == before
        assert isinstance(node.driver, versioned_driver.Release2)
        assert node.driver.records == [{"at": (0,)}]
        (grant,) = node.entries[0].grants
        assert dict(grant.intent) == {"slot": 0}, "the journal keeps what the first release wrote"
        assert dict(grant.record) == {"at": (0,), STAMP: 2}
        node.restart()
        node.unprepare(ref)
        assert board.used() == {}


def test_the_driver_sees_no_version_in_its_own_intents(site: Site) -> None:
    with site.run(versioned_driver.Release2) as node:
        ref, _ = site.prepare(node)
        (seen,) = node.context.grants()
        assert (dict(seen.intent), dict(seen.record)) == ({"slots": (0,)}, {"at": (0,)})
        assert node.entries[0].grants[0].intent[STAMP] == 2
        node.unprepare(ref)


def test_a_failing_upgrade_fails_the_verb_and_the_claim_stays(site: Site, board: versioned_driver.Board) -> None:
    def broken(given: versioned_driver.Board) -> versioned_driver.Release2:
        made = versioned_driver.Release2(given)
        made.failure = KeyError("slot")
        return made

    with site.run(versioned_driver.Release1) as node:
        ref, _ = site.prepare(node)
    with site.run(broken) as node:
        with pytest.raises(testing.RefusedError, match=r"upgrade_intent\(\) failed for version 1: KeyError: 'slot'"):
            node.unprepare(ref)
        assert "upgrade_intent() failed" in node.try_prepare(node.claim("board")).error, "it cannot know which part is free"
        assert board.used() == {0: ref.uid}
    with site.run(versioned_driver.Release2) as node:
        node.unprepare(ref)
        assert (board.used(), node.is_clean) == ({}, True)


def test_the_release_before_refuses_a_newer_intent_and_pods_keep_the_device(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release2) as node:
        ref, view = site.prepare(node)
    with site.run(versioned_driver.Release1) as node:
        refusal = "the journal's intent has version 2, and this release of board.example.com reads versions up to 1; install the release"
        with pytest.raises(testing.RefusedError, match=refusal):
            node.unprepare(ref)
        assert refusal in node.try_prepare(ref).error
        assert refusal in node.try_prepare(node.claim("board")).error, "it would choose a slot that is taken"
        assert node.container(view.cdi_ids) == view
        assert [entry.claim for entry in node.entries] == [ref]
        assert board.used() == {0: ref.uid}
    with site.run(versioned_driver.Release2) as node:
        node.unprepare(ref)
        assert (board.used(), node.is_clean) == ({}, True)


def test_releases_may_follow_each_other_while_claims_of_each_are_prepared(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release1) as node:
        first, _ = site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        second, _ = site.prepare(node)
        node.unprepare(first)
        third, _ = site.prepare(node)
        assert board.used() == {0: third.uid, 1: second.uid}


def test_a_lost_journal_gets_intents_of_the_present_version(site: Site) -> None:
    class Recalling(versioned_driver.Release2):
        def recall(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
            assert grant.found is not None
            return {"slots": [int(name.removeprefix("SLOT_")) for name in grant.found.env]}

    with site.run(Recalling) as node:
        site.prepare(node)
        before = node.entries
        node.lose_journal()
        assert [entry.grants[0].intent for entry in node.entries] == [before[0].grants[0].intent]


def test_the_intents_of_the_whole_node_have_the_present_form(site: Site, board: versioned_driver.Board, tmp_path: pathlib.Path) -> None:
    with site.run(versioned_driver.Release1) as node:
        site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        site.prepare(node)
    seen: list[drakit.Intents] = []

    def make(intents: drakit.Intents) -> versioned_driver.Release2:
        seen.append(intents)
        return versioned_driver.Release2(board)

    with node_with_intents.NodeWithIntents(make, folder=tmp_path / "node") as reader:
        (intents,) = seen
        assert [dict(intent) for intent in intents()] == [{"slots": (0,)}, {"slots": (1,)}]
        assert [dict(intent) for intent in intents(reader.entries[1].claim.uid)] == [{"slots": (1,)}]


def test_a_roll_back_releases_its_own_claims_and_offers_nothing_beside_a_newer_one(
    site: Site, board: versioned_driver.Board, tmp_path: pathlib.Path
) -> None:
    class Discovering(versioned_driver.Release1):
        def __init__(self, given: versioned_driver.Board, intents: drakit.Intents) -> None:
            super().__init__(given)
            self._intents = intents

        def discover(self) -> drakit.Inventory:
            tuple(self._intents())
            return super().discover()

    with site.run(versioned_driver.Release1) as node:
        old, _ = site.prepare(node)
    with site.run(versioned_driver.Release2) as node:
        new, _ = site.prepare(node)
    identity = engine.NodeIdentity(pool=nodes.POOL, boot_id="boot-1")
    spec = local_node.DriverSpec(driver_name="board.example.com", build=lambda intents: Discovering(board, intents), identity=identity)
    folders = local_node.Folders(home=tmp_path / "node" / "home", cdi=tmp_path / "node" / "cdi")
    with local_node.LocalNode.open(spec, folders, claim_source.FakeClaimSource()) as back:
        with pytest.raises(drakit.JournalError, match=f"^claim {new}: .* version 2, .* install the release that wrote it, or a newer one$"):
            back.offered.refresh()
        assert back.offered.current.flat.devices == ()
        answers = back.unprepare([old, new], recovery.Deadline())
        assert answers[old.uid] == ""
        assert "version 2" in answers[new.uid]
        assert board.used() == {1: new.uid}


class Monitoring(versioned_driver.Release1):
    """Reads its claims in the middle of its start, and offers a second board."""

    seen: tuple[str, ...] = ()

    def discover(self) -> drakit.Inventory:
        boards = (drakit.Device(name=name, allow_multiple_allocations=True) for name in ("board", "other"))
        return drakit.Inventory.of(boards)

    def start(self, context: drakit.DriverContext) -> None:
        self.seen = (*self.seen, "starting")
        self.seen = (*self.seen, *(str(grant.claim) for grant in context.grants()), "started")

    def watch(self, context: drakit.DriverContext) -> None:
        self.seen = (*self.seen, "watched")

    def stop(self) -> None:
        self.seen = (*self.seen, "stopped")


def test_a_roll_back_serves_other_claims_and_starts_nothing_of_the_driver(
    site: Site, board: versioned_driver.Board, tmp_path: pathlib.Path
) -> None:
    with site.run(versioned_driver.Release1) as release:
        old, _ = site.prepare(release)
    with site.run(versioned_driver.Release2) as release:
        new, _ = site.prepare(release)
    author, source, registry = Monitoring(board), claim_source.FakeClaimSource(), tmp_path / "r"
    registry.mkdir()
    spec = local_node.DriverSpec(
        driver_name=author.name, build=lambda _: author, identity=engine.NodeIdentity(pool=nodes.POOL, boot_id="boot-1")
    )
    folders = local_node.Folders(home=tmp_path / "node" / "home", cdi=tmp_path / "node" / "cdi")
    outside = node.NodeDependencies(
        claim_source=source, slice_store=slice_store.FakeSliceStore(), registry=registry, clock=timing.SystemClock()
    )
    served = node.Node(spec, folders, outside, node_name="n")
    served.start()
    try:
        note = served.note()
        assert note.startswith(f"driver not started: claim {new}: the journal's intent has version 2")
        answers = served.local.engine.unprepare([old, new], recovery.Deadline())
        assert (answers[old.uid], "version 2" in answers[new.uid]) == ("", True)
        assert waits.eventually(lambda: "other" in served.local.offered.current.flat.by_name())
        share = drakit.ShareId("1b4e28ba-2fa1-41d2-883f-0016d3cca427")
        result = claims.AllocationResult(request="r", driver=author.name, pool=nodes.POOL, device="other", share_id=share)
        fresh = drakit.ClaimRef(uid=drakit.ClaimUid("7d0f3a52-5d0e-4f0e-9a5f-0a3a9b1c2d3e"), namespace="default", name="fresh")
        source.put(claims.Claim(ref=fresh, results=(result,)))
        assert served.local.engine.prepare([fresh], recovery.Deadline())[fresh.uid].error == ""
        assert board.used() == {0: fresh.uid, 1: new.uid}
    finally:
        served.stop()
    assert author.seen == ()


def test_an_error_of_start_that_no_newer_claim_explains_ends_the_node(tmp_path: pathlib.Path, board: versioned_driver.Board) -> None:
    class Broken(versioned_driver.Release1):
        def start(self, context: drakit.DriverContext) -> None:
            raise drakit.JournalError("the disk is full")

    (tmp_path / "r").mkdir()
    identity = engine.NodeIdentity(pool="n", boot_id="boot-1")
    spec = local_node.DriverSpec(driver_name=Broken.name, build=lambda _: Broken(board), identity=identity)
    outside = node.NodeDependencies(
        claim_source=claim_source.FakeClaimSource(),
        slice_store=slice_store.FakeSliceStore(),
        registry=tmp_path / "r",
        clock=timing.SystemClock(),
    )
    with pytest.raises(drakit.JournalError, match="the disk is full"):
        node.Node(spec, local_node.Folders(home=tmp_path / "h", cdi=tmp_path / "c"), outside, node_name="n").start()


def test_a_driver_that_reads_intents_before_it_is_made_is_told_when_it_can(board: versioned_driver.Board, tmp_path: pathlib.Path) -> None:
    def build(intents: drakit.Intents) -> versioned_driver.Release2:
        intents()
        return versioned_driver.Release2(board)

    identity = engine.NodeIdentity(pool="node", boot_id="boot")
    spec = local_node.DriverSpec(driver_name="board.example.com", build=build, identity=identity)
    folders = local_node.Folders(home=tmp_path / "home", cdi=tmp_path / "cdi")
    with pytest.raises(RuntimeError, match="reads them in discover, start or a verb, not in __init__"):
        local_node.LocalNode.open(spec, folders, claim_source.FakeClaimSource())


def test_both_releases_of_a_rolling_update_read_one_journal(site: Site, board: versioned_driver.Board) -> None:
    with site.run(versioned_driver.Release1) as before:
        first, _ = site.prepare(before)
        second, _ = site.prepare(before)
        with site.run(versioned_driver.Release2) as after:
            third, _ = site.prepare(after)
            assert board.used() == {0: first.uid, 1: second.uid, 2: third.uid}
            before.unprepare(first)
            after.unprepare(second)
            with pytest.raises(testing.RefusedError, match="install the release that wrote it, or a newer one"):
                before.unprepare(third)
            after.unprepare(third)
            assert (board.used(), after.is_clean) == ({}, True)


def test_every_reader_of_intents_gets_their_present_form(site: Site, tmp_path: pathlib.Path) -> None:
    author = versioned_driver.Release2(versioned_driver.Board(tmp_path))
    assert record_versions.present(author, {"slot": 3}, "intent") == {"slots": (3,)}
    assert record_versions.present(author, {"slots": (3,), STAMP: 2}, "intent") == {"slots": (3,)}
    assert record_versions.present(author, {}, "intent") == {}
    assert isinstance(record_versions.present(author, {"slot": 3}, "intent"), types.MappingProxyType)


@pytest.mark.parametrize("version", [3, 0, -1, "2", 1.0, None])
def test_a_version_that_no_release_wrote_is_refused(tmp_path: pathlib.Path, version: Any) -> None:
    author = versioned_driver.Release2(versioned_driver.Board(tmp_path))
    with pytest.raises(drakit.JournalError, match=r"the journal's record has version .* reads versions up to 2"):
        record_versions.present(author, {"at": 1, STAMP: version}, "record")


@pytest.mark.parametrize("version, fix", [(2, "inherit drakit.RecordUpgrade"), (0, "write a whole number from 1"), ("2", "whole number")])
def test_a_driver_whose_version_is_wrong_does_not_start(site: Site, version: Any, fix: str) -> None:
    class Wrong(versioned_driver.Release1):
        records_version = version

    with pytest.raises(TypeError, match=f"Wrong.records_version is .*{fix}"):
        site.run(Wrong)


def test_the_reserved_key_is_refused_where_a_driver_returns_it(site: Site, board: versioned_driver.Board) -> None:
    class Planning(versioned_driver.Release1):
        def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
            return {**super().plan(grant), STAMP: 7}

    class Recording(versioned_driver.Release2):
        def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
            return dataclasses.replace(super().prepare(grant), record={STAMP: 2})

    wrong: tuple[type[Planning | Recording], ...] = (Planning, Recording)
    for kind in wrong:
        with site.run(kind) as node:
            assert f"has the key '{STAMP}', which drakit reserves" in node.try_prepare(node.claim("board")).error
            assert (board.used(), node.is_clean) == ({}, True), kind


def test_a_result_that_is_no_record_names_the_method(site: Site) -> None:
    class Wrong(versioned_driver.Release2):
        def upgrade_intent(self, intent: drakit.Record, version: int) -> Any:
            return [1]

    with site.run(versioned_driver.Release1) as node:
        ref, _ = site.prepare(node)
    with site.run(Wrong) as node, pytest.raises(testing.RefusedError, match=r"upgrade_intent\(\) is list; give a mapping"):
        node.unprepare(ref)


def test_a_half_state_of_the_release_before_is_undone(site: Site, board: versioned_driver.Board) -> None:
    class Dying(versioned_driver.Release1):
        def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
            super().prepare(grant)
            raise drakit.DeviceGoneError("the board fell out")

        def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
            raise drakit.HardwareError("freeSlot", "the board fell out")

    with site.run(Dying) as node:
        assert node.try_prepare(node.claim("board")).error
        assert [entry.state for entry in node.entries] == [lifecycle.State.UNPREPARING]
        assert board.used()
    with site.run(versioned_driver.Release2) as node:
        assert (board.used(), node.is_clean) == ({}, True)
