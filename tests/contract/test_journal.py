"""What every journal keeps: the suite runs on the fake and on the real one."""

import dataclasses
import pathlib
import threading
from collections.abc import Iterator

import pytest

from drakit.core import claim, device, lifecycle, ports
from drakit.journal import journal as real
from fakes import journal as fake
from fakes import journal_samples as samples


@pytest.fixture(params=["fake", "real"])
def journal(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[ports.Journal]:
    if request.param == "fake":
        yield fake.MemoryJournal()
        return
    with real.Journal.open(tmp_path / "data", driver="gpu.example.com", boot_id=samples.BOOT) as opened:
        yield opened


def prepare(journal: ports.Journal, entry: lifecycle.Entry) -> lifecycle.Entry:
    journal.begin(entry)
    done = tuple(dataclasses.replace(grant, record={"made": True}, edits=samples.rich_edits()) for grant in entry.grants)
    journal.complete(entry.claim.uid, done, "boot-2")
    found = journal.entry(entry.claim.uid)
    assert found is not None
    return found


def bring_to(journal: ports.Journal, state: lifecycle.State) -> None:
    """Claim 1 in a state, by legal moves."""
    uid = samples.uid(1)
    if state is lifecycle.State.ABSENT:
        return
    journal.begin(samples.entry(1))
    if state is lifecycle.State.PREPARED:
        journal.complete(uid, samples.entry(1).grants, samples.BOOT)
    elif state is lifecycle.State.UNPREPARING:
        journal.begin_unprepare(uid)


def make(journal: ports.Journal, move: lifecycle.Move) -> None:
    """One move of claim 1."""
    uid = samples.uid(1)
    match move:
        case lifecycle.Move.BEGIN:
            journal.begin(samples.entry(1))
        case lifecycle.Move.COMPLETE:
            journal.complete(uid, samples.entry(1).grants, samples.BOOT)
        case lifecycle.Move.REFRESH:
            journal.refresh(uid, samples.entry(1).grants)
        case lifecycle.Move.BEGIN_UNPREPARE:
            journal.begin_unprepare(uid)
        case lifecycle.Move.FINISH_UNPREPARE:
            journal.finish_unprepare(uid)


def state_of(journal: ports.Journal) -> lifecycle.State:
    found = journal.entry(samples.uid(1))
    return lifecycle.State.ABSENT if found is None else found.state


@pytest.mark.parametrize("state", lifecycle.State)
@pytest.mark.parametrize("move", lifecycle.Move)
def test_a_move_follows_the_table_or_changes_nothing(journal: ports.Journal, state: lifecycle.State, move: lifecycle.Move) -> None:
    bring_to(journal, state)
    before = journal.entries()
    assert state_of(journal) is state
    if (state, move) in lifecycle.TABLE:
        make(journal, move)
        assert state_of(journal) is lifecycle.TABLE[state, move]
        return
    with pytest.raises(lifecycle.IllegalMoveError, match=f"{state.value} cannot {move.value}"):
        make(journal, move)
    assert journal.entries() == before


def test_begin_keeps_every_intent_before_hardware_is_touched(journal: ports.Journal) -> None:
    begun = dataclasses.replace(samples.rich_grant(), record={}, edits=None)
    journal.begin(samples.entry(1, begun))
    expected = samples.entry(1, samples.frozen(begun))
    assert journal.entry(samples.uid(1)) == dataclasses.replace(expected, state=lifecycle.State.PREPARING)


def test_a_prepared_grant_is_read_back_complete_and_frozen(journal: ports.Journal) -> None:
    journal.begin(samples.entry(1, samples.rich_grant()))
    journal.complete(samples.uid(1), [samples.rich_grant()], samples.BOOT)
    found = journal.entry(samples.uid(1))
    assert found is not None
    assert found.grants == (samples.frozen(samples.rich_grant()),)


def test_complete_keeps_record_edits_and_boot_and_nothing_else(journal: ports.Journal) -> None:
    begun = samples.grant()
    journal.begin(samples.entry(1, begun))
    result = dataclasses.replace(begun, record={"a": 1}, edits=samples.rich_edits(), intent={"want": "something else"}, admin_access=True)
    journal.complete(samples.uid(1), [result], "boot-2")
    found = journal.entry(samples.uid(1))
    assert found is not None
    assert found.grants == (dataclasses.replace(begun, record={"a": 1}, edits=samples.rich_edits()),)
    assert found.boot_id == "boot-2"


def test_complete_pairs_grants_by_identity_not_by_order(journal: ports.Journal) -> None:
    grants = [samples.grant("a", "gpu-0"), samples.grant("b", "gpu-1"), samples.grant("b", "gpu-2", share_id=samples.share(1))]
    journal.begin(samples.entry(1, *grants))
    journal.complete(samples.uid(1), [dataclasses.replace(one, record={"of": one.device.name}) for one in reversed(grants)], samples.BOOT)
    found = journal.entry(samples.uid(1))
    assert found is not None
    assert [(one.request, one.record["of"]) for one in found.grants] == [("a", "gpu-0"), ("b", "gpu-1"), ("b", "gpu-2")]


@pytest.mark.parametrize(
    "wrong",
    [[], [samples.grant("other")], [samples.grant(), samples.grant()], [samples.grant(), samples.grant("more", "gpu-1")]],
    ids=["none", "another", "twice", "one-more"],
)
def test_complete_with_other_grants_is_refused(journal: ports.Journal, wrong: list[lifecycle.GrantEntry]) -> None:
    journal.begin(samples.entry(1))
    with pytest.raises(lifecycle.IllegalMoveError, match="other grants"):
        journal.complete(samples.uid(1), wrong, samples.BOOT)
    assert state_of(journal) is lifecycle.State.PREPARING


def test_beginning_an_unprepare_keeps_all_that_undo_needs(journal: ports.Journal) -> None:
    prepared = prepare(journal, samples.entry(1, samples.grant(), samples.grant("b", "gpu-1")))
    journal.begin_unprepare(samples.uid(1))
    assert journal.entry(samples.uid(1)) == dataclasses.replace(prepared, state=lifecycle.State.UNPREPARING)


def test_a_claim_without_grants_is_stored(journal: ports.Journal) -> None:
    empty = lifecycle.Entry(claim=samples.ref(1), state=lifecycle.State.ABSENT, grants=())
    journal.begin(empty)
    journal.complete(samples.uid(1), [], samples.BOOT)
    found = journal.entry(samples.uid(1))
    assert found is not None
    assert found.grants == ()
    assert journal.entries() == (found,)


@pytest.mark.parametrize("state", list(lifecycle.State))
def test_a_removed_claim_is_absent_whatever_state_it_had(journal: ports.Journal, state: lifecycle.State) -> None:
    bring_to(journal, state)
    before = journal.entries()
    for other in {*lifecycle.State} - {state}:
        journal.forget(samples.uid(1), state=other)
    assert journal.entries() == before
    journal.forget(samples.uid(1), state=state)
    journal.forget(samples.uid(1))
    assert (journal.entry(samples.uid(1)), journal.entries()) == (None, ())
    journal.begin(samples.entry(1))
    assert len(journal.entries()) == 1


def test_entries_are_oldest_first(journal: ports.Journal) -> None:
    for number in (3, 1, 2):
        journal.begin(samples.entry(number))
    journal.begin_unprepare(samples.uid(3))
    journal.finish_unprepare(samples.uid(3))
    journal.complete(samples.uid(1), samples.entry(1).grants, samples.BOOT)
    journal.begin(samples.entry(3))
    assert [entry.claim for entry in journal.entries()] == [samples.ref(1), samples.ref(2), samples.ref(3)]


def test_holdings_name_the_claims_that_hold_a_device_and_how(journal: ports.Journal) -> None:
    journal.begin(
        samples.entry(1, samples.grant("a", "nic-0", share_id=samples.share(1)), samples.grant("b", "nic-0", share_id=samples.share(2)))
    )
    journal.begin(samples.entry(2, samples.grant("a", "nic-0", admin_access=True), samples.grant("b", "nic-1")))
    journal.begin_unprepare(samples.uid(2))
    preparing, unpreparing = lifecycle.State.PREPARING, lifecycle.State.UNPREPARING
    shares = [samples.share(1), samples.share(2)]
    found = [(item.claim, item.state, item.share_id, item.admin_access) for item in journal.holdings("node-1", ["nic-0"], shares)]
    assert found == [
        (samples.ref(1), preparing, samples.share(1), False),
        (samples.ref(1), preparing, samples.share(2), False),
        (samples.ref(2), unpreparing, None, True),
    ]
    assert [item.share_id for item in journal.holdings("node-1", ["nic-0"])] == [min(shares), None], "one share stands for all"
    assert not journal.holdings("node-2", ["nic-0"])
    assert [item.device.name for item in journal.holdings("node-1", {"nic-0", "nic-1"}, shares)] == ["nic-0", "nic-0", "nic-0", "nic-1"]
    assert not journal.holdings("node-1", [])
    journal.finish_unprepare(samples.uid(2))
    assert not journal.holdings("node-1", ["nic-1"])


def test_a_share_with_admin_access_counts_for_no_holder(journal: ports.Journal) -> None:
    first, last = sorted((samples.share(1), samples.share(2)))
    admin, other = samples.grant("a", "nic-0", share_id=first), samples.grant("b", "nic-0", share_id=last)
    journal.begin(samples.entry(1, dataclasses.replace(admin, admin_access=True)))
    assert not journal.holdings("node-1", ["nic-0"])
    journal.begin(samples.entry(2, other))
    assert [item.share_id for item in journal.holdings("node-1", ["nic-0"])] == [other.share_id]


def test_held_devices_are_those_of_a_boot_without_admin_access(journal: ports.Journal) -> None:
    whole = dataclasses.replace(samples.rich_grant(), admin_access=False)
    pooled = dataclasses.replace(samples.grant("fast"), pool="node-1/fast", device=device.Device(name="gpu-1", pool="fast"))
    journal.begin(samples.entry(1, whole, samples.grant("watcher", "gpu-2", admin_access=True)))
    journal.begin(samples.entry(2, pooled))
    journal.begin(dataclasses.replace(samples.entry(3), boot_id="boot-0"))
    journal.begin_unprepare(samples.uid(2))
    assert journal.held_devices(samples.BOOT) == (
        (whole.device, "node-1", samples.ref(1)),
        (pooled.device, "node-1/fast", samples.ref(2)),
    )
    assert [claim for _, _, claim in journal.held_devices("boot-0")] == [samples.ref(3)]
    assert journal.held_devices("boot-9") == ()


def test_the_intents_of_devices_are_those_of_their_grants_alone_oldest_claim_first(journal: ports.Journal) -> None:
    def planned(request: str, device: str, slot: str, share: int = 0, pool: str = "node-1") -> lifecycle.GrantEntry:
        grant = samples.grant(request, device, share_id=samples.share(share) if share else None)
        return dataclasses.replace(grant, pool=pool, intent={"slot": slot})

    journal.begin(
        samples.entry(2, planned("a", "nic-0", "first", 9), planned("b", "nic-1", "elsewhere"), planned("c", "nic-0", "second", 8))
    )
    journal.begin(samples.entry(1, planned("a", "nic-0", "third", 1), planned("b", "nic-0", "of another pool", 2, pool="node-2")))
    journal.begin_unprepare(samples.uid(2))
    assert [intent["slot"] for intent in journal.intents_of("node-1", ["nic-0"])] == ["first", "second", "third"]
    assert [intent["slot"] for intent in journal.intents_of("node-1", ["nic-1", "nic-0"])] == ["first", "elsewhere", "second", "third"]
    assert not journal.intents_of("node-1", ["nic-2"])
    assert (journal.device_names("node-1"), journal.device_names("node-2")) == (["nic-0", "nic-1"], ["nic-0"])
    journal.finish_unprepare(samples.uid(2))
    assert [intent["slot"] for intent in journal.intents_of("node-1", ["nic-0"])] == ["third"]
    assert journal.device_names("node-1") == ["nic-0"]


def test_a_holding_describes_its_device_and_the_amount_taken(journal: ports.Journal) -> None:
    grant = samples.grant("a", "nic-0", share_id=samples.share(1))
    journal.begin(samples.entry(1, grant))
    (holding,) = journal.holdings("node-1", ["nic-0"])
    assert (holding.device, holding.consumed_capacity) == (grant.device, grant.consumed_capacity)


def test_the_uid_alone_is_a_claims_identity(journal: ports.Journal) -> None:
    journal.begin(samples.entry(1))
    renamed = claim.ClaimRef(uid=samples.uid(1), namespace="elsewhere", name="other")
    with pytest.raises(lifecycle.IllegalMoveError):
        journal.begin(dataclasses.replace(samples.entry(1), claim=renamed))
    namesake = dataclasses.replace(samples.ref(1), uid=samples.uid(2))
    journal.begin(dataclasses.replace(samples.entry(2), claim=namesake))
    assert [entry.claim for entry in journal.entries()] == [samples.ref(1), namesake]
    journal.begin_unprepare(samples.uid(2))
    journal.finish_unprepare(samples.uid(2))
    assert [(entry.claim, entry.state) for entry in journal.entries()] == [(samples.ref(1), lifecycle.State.PREPARING)]


def test_exactly_one_of_many_threads_begins_a_claim(journal: ports.Journal) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def attempt(number: int) -> None:
        start.wait()
        try:
            journal.begin(samples.entry(1))
        except lifecycle.IllegalMoveError:
            return
        won.append(number)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(journal.entries()) == 1


def test_refresh_stores_the_new_results_of_a_prepared_claim_and_nothing_else(journal: ports.Journal) -> None:
    before = prepare(journal, samples.entry(1, samples.grant(), samples.grant("b", "gpu-1")))
    result = [
        dataclasses.replace(one, record={"now": one.request}, edits=samples.rich_edits(), intent={"want": 1}) for one in before.grants
    ]
    journal.refresh(samples.uid(1), result)
    wanted = tuple(dataclasses.replace(one, record={"now": one.request}, edits=samples.rich_edits()) for one in before.grants)
    assert journal.entry(samples.uid(1)) == dataclasses.replace(before, grants=wanted)


def test_refresh_with_other_grants_is_refused(journal: ports.Journal) -> None:
    before = prepare(journal, samples.entry(1))
    with pytest.raises(lifecycle.IllegalMoveError, match="other grants"):
        journal.refresh(samples.uid(1), [samples.grant("other")])
    assert journal.entry(samples.uid(1)) == before


def test_entries_read_without_edits_differ_in_nothing_else(journal: ports.Journal) -> None:
    journal.begin(samples.entry(1))
    journal.complete(samples.uid(1), samples.entry(1).grants, samples.BOOT)

    def bare(entry: lifecycle.Entry) -> lifecycle.Entry:
        return dataclasses.replace(entry, grants=tuple(dataclasses.replace(grant, edits=None) for grant in entry.grants))

    assert list(map(bare, journal.entries(edits=False))) == list(map(bare, journal.entries()))
