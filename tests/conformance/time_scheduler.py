"""Measure what a claim costs a real kube-scheduler: ``PYTHONPATH=tests python -m conformance.time_scheduler NODES --pid PID --kubeconfig FILE``.

The fleet and the claims are those of ``bench.bench_simulation``: nodes of eight A100 with all MIG placements and two NICs. ``--variant`` publishes
the same GPUs in another way. Pods arrive one after another and stay. *cpu* is the processor time of the scheduler's process between the first pod and
the last binding, so that it says something on a busy machine too; *wall* is from a pod's creation to its binding, in the median. The cluster is as
``conformance.record_scheduler`` needs it.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench import bench_simulation
from conformance import scheduler_scenarios as scenarios
from conformance.record_scheduler import Recorder
from conformance.scheduler_recording import PROTOTYPE, Machine, Placed
from conformance.scheduler_scenarios import Ask, Scenario, State
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e.api import Api
from fakes import simulated_fleets as fleets

LAYOUTS: Sequence[Mapping[str, object]] = (
    {"match": "gpu-[012]", "partitions": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}},
    {"match": "gpu-3", "partitions": {"7g.40gb": 1}},
    {"match": "gpu-*", "partitions": {}},
)
"""Fixed layouts that serve every claim of the benchmark."""
_DEVICES_MAX = 64
_REQUESTED = re.compile(r"gpu-\d+(-mig-(1g5gb-19|2g10gb-14|3g20gb-9|7g40gb-0)-\d)?")
_EIGHT = re.compile(r"gpu-\d+(-mig-(1g5gb-19-[0123]|2g10gb-14-4|3g20gb-9-4|7g40gb-0-0))?")


def _published() -> list[Object]:
    return fleets.slices_of(bench_simulation.MACHINE, PROTOTYPE)


def _paged(keep: re.Pattern[str], pool_of: Callable[[str], str] = lambda _: "") -> list[Object]:
    """Return the GPUs of the node with only the devices that ``keep`` matches. ``pool_of`` returns the ending of a device's pool."""
    published = _published()
    specs = [json_types.mapping(entry, "spec") for entry in published if json_types.text(entry, "spec", "driver") == fleets.GPU]
    made = [entry for entry in published if json_types.text(entry, "spec", "driver") != fleets.GPU]
    sets = [one for spec in specs for one in json_types.objects(spec, "sharedCounters")]
    kept = [one for spec in specs for one in json_types.objects(spec, "devices") if keep.fullmatch(json_types.text(one, "name"))]
    for ending in dict.fromkeys(pool_of(json_types.text(one, "name")) for one in kept):
        own_sets = [one for one in sets if pool_of(json_types.text(one, "name")) == ending]
        own = [one for one in kept if pool_of(json_types.text(one, "name")) == ending]
        parts = [{"sharedCounters": own_sets}, *({"devices": own[at : at + _DEVICES_MAX]} for at in range(0, len(own), _DEVICES_MAX))]
        pool = {"name": f"{PROTOTYPE}{ending}", "generation": 1, "resourceSliceCount": len(parts)}
        common = {"driver": fleets.GPU, "nodeName": PROTOTYPE, "pool": pool}
        texts = [
            json.dumps({"metadata": {"name": f"{at:05}-{fleets.GPU}-{PROTOTYPE}{ending.replace('/', '-')}"}, "spec": common | part})
            for at, part in enumerate(parts)
        ]
        made += [json.loads(text) for text in texts]
    return made


def _gpu_of(name: str) -> str:
    """Return ``/gpu-0`` for a device or a counter set of GPU 0."""
    return "/" + "-".join(name.split("-")[:2])


VARIANTS: Mapping[str, Callable[[], list[Object]]] = {
    "counters": _published,
    "requested-profiles": lambda: _paged(_REQUESTED),
    "eight-a-gpu": lambda: _paged(_EIGHT),
    "pool-for-each-gpu": lambda: _paged(re.compile(".*"), _gpu_of),
    "layout": lambda: fleets.slices_of(bench_simulation.MACHINE, PROTOTYPE, LAYOUTS),
}
"""What a node publishes: all placements; those of the requested profiles; eight devices a GPU; a pool for each GPU; a fixed layout."""


def scenario(nodes: int, pods: int, variant: str) -> Scenario:
    """Return pods that ask for what the simulator's benchmark asks for, on the same nodes."""

    def steps(_: State) -> Iterator[Ask]:
        chance = random.Random(1)
        texts, weights = list(bench_simulation.ASKS), list(bench_simulation.ASKS.values())
        return (Ask(template=text) for text in chance.choices(texts, weights, k=pods))

    machine = Machine(nodes=[f"{bench_simulation.MACHINE}-{number:03}" for number in range(nodes)], slices=VARIANTS[variant]())
    return Scenario(setting=scenarios.plain_setting([machine], bench_simulation.ASKS), steps=steps)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process used so far, of all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one line for each variant and number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="+", type=int)
    parser.add_argument("--variant", nargs="+", choices=list(VARIANTS), default=["counters"])
    parser.add_argument("--pods", type=int, default=40)
    parser.add_argument("--start", type=float, default=3.0, help="seconds in which the scheduler reads nodes and slices")
    parser.add_argument("--pid", type=int, required=True, help="the scheduler's process")
    parser.add_argument("--kubeconfig", type=pathlib.Path, required=True)
    given = parser.parse_args()
    api = Api.of(given.kubeconfig.absolute(), seconds=300, pause=0.01)
    sys.stdout.write("variant             nodes  slices   pods  placed  cpu s/claim  wall s/claim\n")
    for nodes, variant in itertools.product(given.nodes, given.variant):
        played = scenario(nodes, given.pods, variant)
        recorder = Recorder(api, played, None, settle=0.0, start=given.start)
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
        slices = len(played.setting.slices())
        sys.stdout.write(f"{variant:<18} {nodes:>6} {slices:>7} {given.pods:>6} {placed:>7} {busy / given.pods:>12.4f} {wall:>13.3f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
