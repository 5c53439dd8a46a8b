"""A process that makes random legal moves until it is killed, and tells each one before and after it.

Arguments: data directory, seed, first claim, number of claims. Lines on standard output: ``s|d NUMBER MOVE SERIAL`` (started, done). The serial
is what ``complete`` stores in the record.
"""

import dataclasses
import itertools
import os
import pathlib
import random
import sys
import threading

from drakit.core import lifecycle
from drakit.journal import journal
from fakes import journal_samples as samples

THREADS = 4


def tell(mark: str, number: int, move: lifecycle.Move, serial: int) -> None:
    os.write(1, f"{mark} {number} {move.value} {serial}\n".encode())


def make(memory: journal.Journal, number: int, move: lifecycle.Move, serial: int) -> None:
    entry = samples.entry(number, samples.grant(), dataclasses.replace(samples.rich_grant(), record={}, edits=None))
    match move:
        case lifecycle.Move.BEGIN:
            memory.begin(entry)
        case lifecycle.Move.COMPLETE:
            done = [dataclasses.replace(one, record={"serial": serial}, edits=samples.rich_edits()) for one in entry.grants]
            memory.complete(samples.uid(number), done, samples.BOOT)
        case lifecycle.Move.BEGIN_UNPREPARE:
            memory.begin_unprepare(samples.uid(number))
        case lifecycle.Move.FINISH_UNPREPARE:
            memory.finish_unprepare(samples.uid(number))


def live(memory: journal.Journal, numbers: list[int], seed: int) -> None:
    chance = random.Random(seed)
    for serial in itertools.count(seed * 1_000_000):
        number = chance.choice(numbers)
        found = memory.entry(samples.uid(number))
        state = lifecycle.State.ABSENT if found is None else found.state
        move = chance.choice([move for known, move in lifecycle.TABLE if known is state])
        tell("s", number, move, serial)
        make(memory, number, move, serial)
        tell("d", number, move, serial)


def main() -> None:
    directory, seed, first, count = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:5])
    memory = journal.Journal.open(directory, driver="gpu.example.com", boot_id=samples.BOOT)
    numbers = list(range(first, first + count))
    for part in range(THREADS):
        threading.Thread(target=live, args=(memory, numbers[part::THREADS], seed * THREADS + part)).start()


if __name__ == "__main__":
    main()
