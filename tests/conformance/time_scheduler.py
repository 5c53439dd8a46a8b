"""Measure what a claim costs a real kube-scheduler: ``PYTHONPATH=tests python -m conformance.time_scheduler NODES --pid PID --kubeconfig FILE``.

The fleet and the claims are those of ``bench.bench_simulation``: nodes of eight A100 with all MIG placements and two NICs. Pods arrive one after
another and stay. *cpu* is the processor time of the scheduler's process between the first pod and the last binding, so that it says something on
a busy machine too; *wall* is from a pod's creation to its binding, in the median. The cluster is as ``conformance.record_scheduler`` needs it.
"""

import argparse
import itertools
import os
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Iterator

from bench import bench_simulation
from conformance import scheduler_scenarios as scenarios
from conformance.record_scheduler import Recorder
from conformance.scheduler_recording import Placed
from conformance.scheduler_scenarios import Ask, Scenario, State
from e2e.api import Api


def scenario(nodes: int, pods: int) -> Scenario:
    """Return pods that ask for what the simulator's benchmark asks for, on the same nodes."""

    def steps(_: State) -> Iterator[Ask]:
        chance = random.Random(1)
        texts, weights = list(bench_simulation.ASKS), list(bench_simulation.ASKS.values())
        return (Ask(template=text) for text in chance.choices(texts, weights, k=pods))

    setting = scenarios.plain_setting({bench_simulation.MACHINE: nodes}, bench_simulation.ASKS)
    return Scenario(setting=setting, steps=steps)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process used so far, of all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="+", type=int)
    parser.add_argument("--pods", type=int, default=40)
    parser.add_argument("--pid", type=int, required=True, help="the scheduler's process")
    parser.add_argument("--kubeconfig", type=pathlib.Path, required=True)
    given = parser.parse_args()
    api = Api.of(given.kubeconfig.absolute(), seconds=120, pause=0.01)
    sys.stdout.write("  nodes   pods  placed  cpu s/claim  wall s/claim\n")
    for nodes in given.nodes:
        recorder = Recorder(api, scenario(nodes, given.pods), None, settle=0.0)
        recorder.prepare()
        try:
            before, marks, placed = processor_seconds(given.pid), [time.monotonic()], 0
            for event in recorder.play():
                marks.append(time.monotonic())
                placed += isinstance(event, Placed)
            busy = processor_seconds(given.pid) - before
        finally:
            recorder.clean()
        wall = statistics.median(after - earlier for earlier, after in itertools.pairwise(marks))
        sys.stdout.write(f"{nodes:>7} {given.pods:>6} {placed:>7} {busy / given.pods:>12.3f} {wall:>13.3f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
