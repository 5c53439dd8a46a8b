"""Class numbers of shares that are planned before anybody else hears of them."""

import pytest

from drakit.core import errors
from drakit.devices.nic import numbering, port, shaping


def share(name: str, minor: int) -> port.Share:
    return port.Share(id=name, interface="nic0", ifindex=2, mac="02:00:00:00:00:01", bandwidth=10**6, minor=minor)


def test_shares_planned_one_after_the_other_get_numbers_of_their_own_before_the_journal_knows_any() -> None:
    numbers = numbering.Numbering()
    assert [numbers.choose(name, [], []) for name in ("a", "b", "c")] == list(shaping.SHARES[:3])


def test_what_is_installed_or_promised_is_passed_over() -> None:
    first, second, third = shaping.SHARES[:3]
    assert numbering.Numbering().choose("c", [share("a", first)], [{"id": "b", "minor": second}, {"id": "x"}]) == third


def test_a_plan_that_came_to_nothing_blocks_no_number() -> None:
    numbers = numbering.Numbering()
    first, second = shaping.SHARES[:2]
    assert numbers.choose("a", [], []) == first
    assert numbers.choose("a", [], []) == first, "planned again"
    assert numbers.choose("b", [], [{"id": "a", "minor": first}]) == second
    assert numbers.choose("c", [], []) == first, "the journal had it and has it no more"


def test_when_all_numbers_are_given_the_claim_has_to_wait() -> None:
    with pytest.raises(errors.DeviceBusyError):
        numbering.Numbering().choose("x", [share(str(minor), minor) for minor in shaping.SHARES], [])
