"""SIGKILL at any moment of a stream of moves: what returned is there, what did not is there whole or not at all, nothing is illegal.

Two processes work on one journal at the same time, four threads each, and are killed at moments of their own.
"""

import collections
import contextlib
import pathlib
import random
from collections.abc import Iterator

import pytest

from drakit.core import lifecycle
from drakit.journal import journal
from fakes import forked_cli
from fakes import journal_samples as samples

CLAIMS = 12
LINES_MAX = 250


class Expected:
    """What the journal must say of each claim, from what the victims told."""

    def __init__(self) -> None:
        self.states = collections.defaultdict[int, lifecycle.State](lambda: lifecycle.State.ABSENT)
        self.serials: dict[int, int] = {}
        self.pending: dict[int, tuple[lifecycle.Move, int]] = {}
        self.moves = 0

    def hear(self, line: str) -> None:
        mark, number, move, serial = line.split()
        if mark == "s":
            self.pending[int(number)] = (lifecycle.Move(move), int(serial))
        else:
            self.moves += 1
            del self.pending[int(number)]
            self._apply(int(number), lifecycle.Move(move), int(serial))

    def settle(self, found: dict[int, lifecycle.Entry]) -> None:
        """Compare with the journal; a move that was started and not told done may have happened or not."""
        for number, (move, serial) in self.pending.items():
            if self._state(found.get(number)) is not self.states[number]:
                self._apply(number, move, serial)
        self.pending.clear()
        assert {number: self._state(entry) for number, entry in found.items()} == {
            number: state for number, state in self.states.items() if state is not lifecycle.State.ABSENT
        }
        for number, entry in found.items():
            self._check_content(number, entry)

    def _check_content(self, number: int, entry: lifecycle.Entry) -> None:
        assert entry.claim == samples.ref(number)
        assert [grant.intent for grant in entry.grants] == [samples.grant().intent, samples.frozen(samples.rich_grant()).intent]
        result = {"serial": self.serials[number]} if number in self.serials else {}
        assert [grant.record for grant in entry.grants] == [result, result]
        assert all((grant.edits == samples.rich_edits()) is (number in self.serials) for grant in entry.grants)

    def _apply(self, number: int, move: lifecycle.Move, serial: int) -> None:
        self.states[number] = lifecycle.after(self.states[number], move)
        if move is lifecycle.Move.BEGIN:
            self.serials.pop(number, None)
        elif move is lifecycle.Move.COMPLETE:
            self.serials[number] = serial

    @staticmethod
    def _state(entry: lifecycle.Entry | None) -> lifecycle.State:
        return lifecycle.State.ABSENT if entry is None else entry.state


@contextlib.contextmanager
def victim(commands: forked_cli.Commands, directory: pathlib.Path, seed: int, first: int) -> Iterator[forked_cli.Talk]:
    script = pathlib.Path(__file__).with_name("killable_journal_writer.py")
    with commands.talk(str(script), str(directory), str(seed), str(first), str(CLAIMS)) as child:
        try:
            yield child
        finally:
            child.kill()


def hear(child: forked_cli.Talk, expected: Expected, lines: int) -> None:
    """Listen to so many lines, kill, and hear out what it told until then."""
    for _ in range(lines):
        expected.hear(child.stdout.readline())
    child.kill()
    for line in child.stdout:
        expected.hear(line)


def run_rounds(commands: forked_cli.Commands, directory: pathlib.Path, seed: int, rounds: int) -> int:
    chance, expected = random.Random(seed), Expected()
    for number in range(rounds):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(victim(commands, directory, seed + 2 * number, 0))
            second = stack.enter_context(victim(commands, directory, seed + 2 * number + 1, CLAIMS))
            hear(first, expected, chance.randint(1, LINES_MAX))
            hear(second, expected, chance.randint(1, LINES_MAX))
        with journal.Journal.open(directory, driver="gpu.example.com", boot_id=samples.BOOT) as memory:
            assert memory.quarantine is None
            by_claim = {entry.claim: entry for entry in memory.entries()}
            expected.settle({claim: by_claim[samples.ref(claim)] for claim in range(2 * CLAIMS) if samples.ref(claim) in by_claim})
            assert len(by_claim) == len([state for state in expected.states.values() if state is not lifecycle.State.ABSENT])
    return expected.moves


def test_what_returned_survives_sigkill_and_nothing_illegal_appears(commands: forked_cli.Commands, tmp_path: pathlib.Path) -> None:
    assert run_rounds(commands, tmp_path, seed=1, rounds=6) > 100


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 1100, 100))
def test_what_returned_survives_sigkill_for_every_seed(commands: forked_cli.Commands, tmp_path: pathlib.Path, seed: int) -> None:
    assert run_rounds(commands, tmp_path, seed=seed, rounds=20) > 500
