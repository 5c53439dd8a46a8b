"""A release that changed the form of intents loses no claim of the release before, wherever SIGKILL ends it (``drakit.RecordUpgrade``).

CI takes a sample of the lines, ``make crash`` all.
"""

import pathlib
from collections.abc import Callable

import pytest

import drakit
from drakit import testing
from fakes import examples, versioned_driver

SAMPLED_AND_FULL = pytest.mark.parametrize("is_full", [False, pytest.param(True, marks=pytest.mark.full)], ids=["sampled", "full"])


def crash(
    folder: pathlib.Path, work: Callable[[testing.Node, drakit.ClaimRef], object], *, is_full: bool
) -> list[tuple[dict[int, str], drakit.ClaimRef, drakit.ClaimRef]]:
    """Prepare one claim with the first release and do ``work`` with the second one, which dies at each line; return each board with its claims."""
    folder.mkdir()
    every = 1 if is_full else examples.draw("lines of a new release").randrange(17, 24)
    board = versioned_driver.Board(folder)
    seen = []
    with testing.Node(lambda: versioned_driver.Release1(board)) as first:
        old, new = first.claim("board"), first.claim("board")
        claims = [first.claims.fetch(ref) for ref in (old, new)]

    def node(release: Callable[[versioned_driver.Board], drakit.Driver[drakit.NoConfig]], place: pathlib.Path) -> testing.Node:
        made = testing.Node(lambda: release(board), folder=place)
        for claim in claims:
            made.claims.put(claim)
        return made

    def upgrade(place: pathlib.Path) -> None:
        with node(versioned_driver.Release2, place) as second:
            work(second, new)

    number = 0

    def place() -> pathlib.Path:
        return folder.parent / f"node-{number}"

    def begin() -> None:
        with node(versioned_driver.Release1, place()) as release:
            release.prepare(old)

    begin()
    for _ in testing.crash_points(
        lambda: versioned_driver.Release2(board), lambda: upgrade(place()), death=testing.Death.KILL, every=every
    ):
        with node(versioned_driver.Release2, place()) as second:
            assert board.used().get(0) == old.uid, "the prepared claim keeps its slot"
            second.prepare(old)
            second.prepare(new)
            seen.append((board.used(), old, new))
            second.unprepare(old)
            second.unprepare(new)
            assert (board.used(), second.is_clean) == ({}, True)
        number += 1
        begin()
    return seen


@SAMPLED_AND_FULL
def test_sigkill_while_the_new_release_prepares_loses_no_older_claim(tmp_path: pathlib.Path, *, is_full: bool) -> None:
    seen = crash(tmp_path / "board", lambda node, new: node.prepare(new), is_full=is_full)
    assert len(seen) > 10
    assert all(used == {0: old.uid, 1: new.uid} for used, old, new in seen)


@SAMPLED_AND_FULL
def test_sigkill_while_the_new_release_verifies_loses_no_older_claim(tmp_path: pathlib.Path, *, is_full: bool) -> None:
    seen = crash(tmp_path / "board", lambda node, _: node.prepare(next(entry.claim for entry in node.entries)), is_full=is_full)
    assert len(seen) > 10
    assert all(used == {0: old.uid, 1: new.uid} for used, old, new in seen)
