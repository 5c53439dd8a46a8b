"""A damaged journal loses no claim in silence, whatever was done to its files while no driver ran.

After each mutation of database, write-ahead log and shared memory (changed bits, cut, removed, older, swapped, overwritten), the next start has every
committed claim, or it detects the loss and restores all claims from the API server and the CDI files, or it refuses with a clear error. It never
removes a CDI file or hardware of a claim in use, and no claim that ended comes back. The normal run takes a seeded sample of the mutations.
"""

import collections
import pathlib
import random
import shutil
from collections.abc import Iterator

import pytest

from crash import journal_mutations
from drakit.core import errors
from fakes import crash_node


@pytest.fixture
def node(tmp_path: pathlib.Path) -> journal_mutations.Node:
    """A node whose driver was killed with claims prepared."""
    made = journal_mutations.Node(folder=tmp_path)
    made.story(random.Random(27))
    assert len(made.entries) == len(made.in_use) > 5
    return made


class Damages:
    """Damages the journal again and again, each time from the same state of the node."""

    def __init__(self, node: journal_mutations.Node) -> None:
        self.node = node
        self.last, self.made = node.copies[-1], dict(node.hardware.made)
        self.cdi = {path.name: path.read_bytes() for path in node.cdi.iterdir()}
        self.files = node.cdi_files()

    def start_over(self, images: journal_mutations.Images) -> None:
        """The node as it was when the driver was killed, but for the journal's files."""
        self.node.put(images)
        shutil.rmtree(self.node.cdi)
        self.node.cdi.mkdir()
        for name, content in self.cdi.items():
            (self.node.cdi / name).write_bytes(content)
        self.node.hardware.made.clear()
        self.node.hardware.made.update(self.made)

    def outcome(self) -> str:
        """Start the driver on the damaged files, check that nothing is lost, and return what it did."""
        try:
            opened = self.node.open()
        except errors.JournalError as error:
            self.check_untouched()
            return "refused" if "; " in str(error) else "refused without a fix"
        with opened as local:
            was_lost = local.is_lost
            self.check_untouched()
            if was_lost:
                assert local.restorer.restore(self.node.listing) == {}
                local.recover()
            assert {entry.claim.uid: entry for entry in local.journal.entries()} == self.node.entries
            self.check_untouched()
            answers = local.engine.unprepare([claim.ref for claim in self.node.in_use.values()], crash_node.Waiting())
            assert set(answers.values()) == {""}
        assert (self.node.cdi_files(), self.node.hardware.made) == ({}, {})
        return "restored" if was_lost else "intact"

    def check_untouched(self) -> None:
        assert (self.node.cdi_files(), self.node.hardware.made) == (self.files, self.made)


def mutations(node: journal_mutations.Node, numbers: range) -> Iterator[tuple[str, journal_mutations.Images]]:
    kinds = list(journal_mutations.MUTATIONS.items())
    for number in numbers:
        kind, mutate = kinds[number % len(kinds)]
        chance = random.Random(number)
        yield f"{number} {kind}", mutate(chance, node.copies[-1], chance.choice(node.copies[:-1]))


def no_mutation_loses_a_claim(node: journal_mutations.Node, numbers: range) -> None:
    damages, outcomes = Damages(node), collections.Counter[str]()
    for name, images in mutations(node, numbers):
        damages.start_over(images)
        try:
            outcomes[damages.outcome()] += 1
        except BaseException as error:
            error.add_note(f"mutation {name}")
            raise
    assert outcomes.keys() <= {"restored", "intact", "refused"}
    assert outcomes["restored"] > len(numbers) / 4
    assert outcomes["refused"] <= len(numbers) / 50


def test_a_sample_of_mutations_of_the_journals_files_loses_no_claim(node: journal_mutations.Node) -> None:
    no_mutation_loses_a_claim(node, range(60))


@pytest.mark.full
@pytest.mark.parametrize("first", range(60, 1560, 150))
def test_no_mutation_of_the_journals_files_loses_a_claim(node: journal_mutations.Node, first: int) -> None:
    no_mutation_loses_a_claim(node, range(first, first + 150))


def test_a_killed_driver_restarts_with_an_intact_journal(node: journal_mutations.Node) -> None:
    damages = Damages(node)
    damages.start_over(damages.last)
    assert damages.outcome() == "intact"
