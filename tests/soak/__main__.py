"""Run a driver for hours while pods come and go and everything fails now and then: ``make soak ARGS="nic --minutes 60"``.

A round starts and deletes pods, with faults between: SIGKILL, rolling updates, an API server that is away or answers wrongly, a kubelet that
restarts, a lost write-ahead log, deleted CDI files, and the faults of the family's hardware. Then the faults end, and every pod that should run must
run on hardware of its own. After that all pods are deleted, and nothing may be left: no CDI file, no journal entry, no hardware state. Each round
prints the driver's memory, threads and descriptors. The first violation ends the run with status 1, the seed and the end of the driver's log.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

from drakit.core import lifecycle
from drakit.telemetry import logs
from drakit_cluster.faults import FaultKind
from fakes import netns
from soak import families
from soak import node as nodes

CALM_SECONDS = 120.0
STEPS = 40
PODS_MAX = 6
PAUSE_SECONDS = (0.02, 0.1, 0.4)
LOG_LINES = 60


class SoakError(AssertionError):
    """What was not true when the faults had ended."""


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(
        prog="python -m soak", description="Run a driver under load and faults, and check that nothing is lost or left."
    )
    parser.add_argument("family", choices=("gpu", "nic"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="append", default=[], metavar="FAULT", help="leave out a fault; may be repeated")
    arguments = parser.parse_args()
    logs.setup(level=logs.Level.NOTHING)
    if arguments.family == "nic" and not subprocess.check_output(["ip", "netns", "identify"], text=True).strip():
        return in_a_namespace()
    with tempfile.TemporaryDirectory(prefix="dk") as folder, families.family(arguments.family, pathlib.Path(folder)) as family:
        soak = Soak(pathlib.Path(folder), family, random.Random(arguments.seed), frozenset(arguments.without))
        return soak.run(arguments.minutes * 60, arguments.seed)


def in_a_namespace() -> int:
    """Run the same command in a new network namespace that has a NIC."""
    with netns.namespace() as space:
        space.ip("link", "set", "lo", "up")
        space.make_nic("nic0", mac=families.NIC_MAC)
        command = ["ip", "netns", "exec", space.name, sys.executable, "-m", "soak", *sys.argv[1:]]
        return subprocess.run(command, check=False).returncode


class Soak:
    """Rounds on one node. ``counts`` are pods, checks and faults by kind."""

    def __init__(self, folder: pathlib.Path, family: families.Family, chance: random.Random, without: frozenset[str]) -> None:
        self._family, self._chance = family, chance
        self._node = nodes.SoakNode(folder, driver=family.name, mode=family.mode, words=family.words)
        self.counts: collections.Counter[str] = collections.Counter()
        self._faults = {name: fault for name, fault in {**COMMON, **family.faults}.items() if name not in without}

    def run(self, seconds: float, seed: int) -> int:
        """Run rounds for so long; return the exit status."""
        end, usage = time.monotonic() + seconds, list[dict[str, int]]()
        with self._node.cluster:
            self._family.prepare(self._node)
            try:
                self._node.start()
                while time.monotonic() < end:
                    self._round()
                    usage.append(self._node.usage())
                    self.counts["rounds"] += 1
                    print(json.dumps({**self.counts, "starts": self._node.starts, **usage[-1]}), flush=True)  # noqa: T201 - the progress
            except AssertionError as error:
                log = "\n".join(self._node.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
                print(f"seed {seed}, round {self.counts['rounds']}: {error}\n{self._family.hardware()}\n{log}", file=sys.stderr)  # noqa: T201 - the result
                return 1
            finally:
                self._node.kill()
        return 0

    def _round(self) -> None:
        for _ in range(STEPS):
            self._step()
            time.sleep(self._chance.choice(PAUSE_SECONDS))
        self._node.calm()
        self._family.calm()
        self._until(self._what_is_wrong, "after the faults")
        self.counts["pods that ran"] += len(self._node.pods)
        for name in [*self._node.pods]:
            self._node.delete(name)
        self._until(self._what_is_left, "after the pods")
        self.counts["checks"] += 2

    def _step(self) -> None:
        drawn = self._chance.random()
        if drawn < 0.35 and len(self._node.pods) < PODS_MAX:
            self.counts["pods"] += 1
            name = f"pod-{self.counts['pods']}"
            self._node.run(name, self._family.claim(name, self._chance))
        elif drawn < 0.55 and self._node.pods:
            self._node.delete(self._chance.choice(sorted(self._node.pods)))
        elif drawn < 0.85:
            kind = self._chance.choice(sorted(self._faults))
            self.counts[kind] += 1
            self._faults[kind](self._node, self._chance)
        else:
            self._node.start()

    def _until(self, wrong: Callable[[], Iterator[str]], when: str) -> None:
        deadline = time.monotonic() + CALM_SECONDS
        while problems := list(wrong()):
            if time.monotonic() > deadline:
                raise SoakError(f"{when}: " + "; ".join(problems))
            self._node.start()
            time.sleep(0.1)

    def _what_is_wrong(self) -> Iterator[str]:
        """Yield what is not as it must be while pods should run. A pod may wait only because another one has the hardware."""
        phases = self._node.phases()
        yield from (f"pod {name} is not gone" for name in phases.keys() - self._node.pods)
        running = {name for name in self._node.pods if phases.get(name) == "Running"}
        yield from (f"pod {name} is {phases.get(name)}" for name in self._node.pods - running if self._node.is_allocated(name))
        if self._node.pods and not running:
            yield "no pod runs"
        entries = self._node.entries()
        prepared = {entry.claim.name for entry in entries if entry.state is lifecycle.State.PREPARED}
        if prepared != running or len(entries) != len(running):
            yield f"the journal has {[(entry.claim.name, entry.state.value) for entry in entries]}, running are {sorted(running)}"
        elif len(self._node.cdi_files()) != len(running):
            yield f"{len(self._node.cdi_files())} CDI files of {len(running)} claims"
        elif problem := self._family.unclaimed(len(running)):
            yield problem

    def _what_is_left(self) -> Iterator[str]:
        yield from (f"pod {name} is there" for name in self._node.phases())
        yield from (f"claim {name} is there" for name in self._node.claims())
        yield from (f"journal entry {entry.claim.name} is there" for entry in self._node.entries())
        yield from (f"CDI file {name} is there" for name in self._node.cdi_files())
        if problem := self._family.unclaimed(0):
            yield problem


def _kill(node: nodes.SoakNode, _chance: random.Random) -> None:
    node.kill()


def _replace(node: nodes.SoakNode, _chance: random.Random) -> None:
    node.update()


def _lose_log(node: nodes.SoakNode, _chance: random.Random) -> None:
    node.kill()
    (node.home / "journal.db-wal").unlink(missing_ok=True)
    node.start()


def _lose_journal(node: nodes.SoakNode, _chance: random.Random) -> None:
    node.kill()
    for path in node.home.glob("journal.db*"):
        path.unlink()
    node.start()


def _lose_cdi(node: nodes.SoakNode, chance: random.Random) -> None:
    if names := sorted(node.cdi_files()):
        (node.folder.cdi / chance.choice(names)).unlink(missing_ok=True)
        node.kill()
        node.start()


def _api_away(node: nodes.SoakNode, _chance: random.Random) -> None:
    node.cluster.server.stop()
    time.sleep(0.3)
    node.cluster.server.start()


def _api_wrong(node: nodes.SoakNode, chance: random.Random) -> None:
    node.disturb_api(chance.choice([FaultKind.REFUSE, FaultKind.DELAY, FaultKind.CUT, FaultKind.NONSENSE]), 0.3)


COMMON: Mapping[str, families.Fault] = {
    "SIGKILL": _kill,
    "rolling update": _replace,
    "lost write-ahead log": _lose_log,
    "lost journal": _lose_journal,
    "lost CDI file": _lose_cdi,
    "API server away": _api_away,
    "API server wrong": _api_wrong,
    "kubelet restart": lambda node, _chance: node.restart_kubelet(),
}

if __name__ == "__main__":
    sys.exit(main())
