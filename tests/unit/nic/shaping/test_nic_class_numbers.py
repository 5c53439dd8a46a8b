"""Class numbers of shares that are planned before anybody else hears of them."""

from collections.abc import Iterable, Sequence

import pytest

from drakit.core import errors, records
from drakit_nic import port
from drakit_nic.shaping import htb


def share(name: str, minor: int) -> port.Share:
    return port.Share(id=name, interface="nic0", ifindex=2, mac="02:00:00:00:00:01", bandwidth=10**6, minor=minor)


class Node:
    """What is installed and promised on a node, and how often each was read; ``numbers`` is one driver's memory."""

    def __init__(self, installed: Iterable[port.Share] = (), intents: Iterable[records.Record] = ()) -> None:
        self.installed, self.intents = list(installed), list(intents)
        self.numbers = htb.ShareNumbers()
        self.snapshots = self.probes = 0

    def choose(self, name: str) -> int:
        return self.numbers.choose(name, snapshot=self.snapshot, at=self.at)

    def prepare(self, name: str) -> int:
        """Chosen, promised and installed."""
        minor = self.choose(name)
        self.intents.append({"id": name, "minor": minor})
        self.installed.append(share(name, minor))
        return minor

    def snapshot(self) -> htb.Snapshot:
        self.snapshots += 1
        return tuple(self.installed), tuple(self.intents)

    def at(self, minor: int) -> port.Share | None:
        self.probes += 1
        return next((share for share in self.installed if share.minor == minor), None)


def test_shares_planned_in_sequence_get_distinct_numbers_before_any_is_journaled() -> None:
    node = Node()
    assert [node.choose(name) for name in ("a", "b", "c")] == list(htb.SHARES[:3])


def test_what_is_installed_or_promised_is_passed_over() -> None:
    first, second, third = htb.SHARES[:3]
    assert Node([share("a", first)], [{"id": "b", "minor": second}, {"id": "x"}]).choose("c") == third


def test_a_share_that_is_installed_keeps_its_number_after_the_journal_was_lost() -> None:
    third = htb.SHARES[2]
    assert Node([share("a", third)]).choose("a") == third


def test_a_plan_that_came_to_nothing_blocks_no_number() -> None:
    node = Node()
    first, second = htb.SHARES[:2]
    assert node.choose("a") == first
    assert node.choose("a") == first, "planned again"
    node.numbers.load([], [{"id": "a", "minor": first}])
    assert node.choose("b") == second
    node.numbers.load([], [])
    assert node.choose("c") == first, "the journal had it and has it no more"


def test_a_share_that_ended_leaves_its_number_to_the_next() -> None:
    node = Node()
    first, second = node.choose("a"), node.choose("b")
    node.numbers.release("a")
    assert (node.choose("c"), second) == (first, htb.SHARES[1])


def test_a_number_that_another_process_gave_meanwhile_is_passed_over() -> None:
    node, (first, second, third) = Node(), htb.SHARES[:3]
    assert node.prepare("a") == first
    node.installed.append(share("by another process", second))
    assert node.choose("b") == third


def test_a_number_reserved_by_another_process_for_a_lost_share_is_skipped_once_read() -> None:
    node, (first, second) = Node(), htb.SHARES[:2]
    node.numbers.load([], [{"id": "promised elsewhere", "minor": first}])
    assert node.choose("a") == second


def test_a_number_costs_the_same_with_one_share_and_with_a_thousand() -> None:
    node = Node()
    costs: list[int] = []
    for number in range(1000):
        before = node.probes
        node.prepare(f"share-{number}")
        costs.append(node.probes - before)
    assert (set(costs), node.snapshots) == ({1}, 1)


def test_numbers_that_only_seem_to_be_taken_are_found_when_all_others_are() -> None:
    node = Node()
    node.numbers.load([share(str(minor), minor) for minor in htb.SHARES], [])
    assert node.choose("x") == htb.SHARES[0], "another process took them away"


def test_when_all_numbers_are_given_the_claim_has_to_wait() -> None:
    with pytest.raises(errors.DeviceBusyError):
        Node([share(str(minor), minor) for minor in htb.SHARES]).choose("x")


@pytest.mark.parametrize("taken", [(), (0x100,), (0x100, 0x101, 0x103)])
def test_the_lowest_number_that_is_free_is_given(taken: Sequence[int]) -> None:
    numbers = htb.NumberPool(range(0x100, 0x105), taken)
    free = sorted(set(range(0x100, 0x105)) - set(taken))
    assert numbers.lowest() == free[0]
    for number in free:
        numbers.take(number)
    assert numbers.lowest() is None
    numbers.release(0x101)
    assert numbers.lowest() == 0x101
