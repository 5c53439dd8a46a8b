"""A NIC driver that is told on standard input when to begin, so that two of them race; a program of its own.

Arguments: the NIC's namespace, the driver's folder and its name. A command is one line: ``prepare AT`` prepares this driver's claim at a moment of
the monotonic clock, in nanoseconds; ``look`` lets its keeper look once; ``unprepare`` gives the claim back. The answer is one line of JSON: the error
of a verb, or what the look found damaged.
"""

import json
import pathlib
import sys
import time

from drakit.core import claim as claims
from drakit_nic import driver as nic_driver
from fakes import netns, nic_attach


def claim_of(name: str) -> claims.Claim:
    """The claim of the driver of this name."""
    return nic_attach.claim(1 if name == nic_driver.NAME else 2, driver=name)


def answer(running: nic_attach.Running, words: list[str]) -> object:
    """What one command comes to."""
    ref = claim_of(running.world.name).ref
    match words:
        case ["prepare", at]:
            while time.monotonic_ns() < int(at):
                pass
            return running.local.engine.prepare([ref], nic_attach.Waiting())[ref.uid].error
        case ["unprepare"]:
            return running.local.engine.unprepare([ref], nic_attach.Waiting())[ref.uid]
        case _:
            return nic_attach.look(running)


def serve(node: str, folder: str, name: str) -> None:
    """Answer until the input ends."""
    world = nic_attach.World(netns.Namespace(node), pathlib.Path(folder), name=name)
    world.source.put(claim_of(name))
    with world.driver(start=False) as running:
        for line in sys.stdin:
            print(json.dumps(answer(running, line.split())), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve(*sys.argv[1:])
