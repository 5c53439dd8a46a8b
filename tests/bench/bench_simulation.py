"""What ``drakit simulate`` costs by the number of nodes: claims in and out on nodes of eight A100 with all MIG placements and two NICs.

Every line runs in a fresh process, with claims that arrive over a simulated day. Under load *busy* there are 20 a node, held for 5.6 hours in the
mean, and all find room at once. Under load *full* there are 40 a node, held for 42 hours: the nodes fill, and pods wait. The time is that of the
run alone; *cpu* is the processor's own time (where it is far below, other processes kept the machine busy). Run some sizes as
``PYTHONPATH=tests python -m bench.bench_simulation N...``.
"""

import itertools
import json
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from drakit_cluster.objects import json_types
from drakit_cluster.simulation.engine import policies, simulator
from drakit_cluster.simulation.engine.nodes import Nodes
from drakit_cluster.simulation.report.measures import Recorder
from drakit_cluster.simulation.workload import reading, synthetic
from fakes import simulated_fleets as fleets

NODES = (10, 100, 1000, 5000)
LOADS = {"busy": (20, 20_000.0), "full": (40, 150_000.0)}
"""Claims a node, and the seconds that one is held in the mean, by the load's name."""
MACHINE = "dgx-a100-40gb"
ASKS = {
    "mig=1g.5gb": 5.0,
    "mig=2g.10gb": 3.0,
    "mig=3g.20gb": 2.0,
    "mig=7g.40gb": 1.0,
    "gpu=1": 1.0,
    "gpu=4": 0.2,
    "nic=10G": 2.0,
    "mig=1g.5gb+nic=1G": 1.0,
}


def _line(count: int, policy: str, load: str) -> dict[str, float]:
    """Run one line in this process."""
    fleet = fleets.fleet_of({MACHINE: count})
    claims, mean_duration = LOADS[load]
    mix = synthetic.Mix(tasks=count * claims, mean_duration=mean_duration, templates=ASKS)
    workload = synthetic.make(mix, 1, reading.Catalogue([]))
    start, busy = time.perf_counter(), time.process_time()
    recorder = Recorder(workload)
    outcomes = simulator.Simulator(Nodes(fleet), workload, policies.parse(policy), recorder).run()
    used = max(max(model.used) for model in recorder.series().models)
    devices = sum(len(json_types.objects(one, "spec", "devices")) for group in fleet.groups for one in group.slices)
    return {
        "devices": devices * count,
        "claims": len(outcomes),
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - busy,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "used": used,
        "waited": sum(one.started is None or one.started > one.task.arrival for one in outcomes),
    }


def main(folder: pathlib.Path, numbers: Sequence[int] = NODES) -> None:
    """Print a line for each policy, load and number of nodes."""
    del folder
    columns = ("nodes", "devices", "claims", "waited", "peak use", "seconds", "cpu s", "ms/claim", "MiB")
    sys.stdout.write(f"{'policy':20} {'load':5} {' '.join(f'{column:>9}' for column in columns)}\n")
    for policy, load in itertools.product(("first-fit", "least-fragmentation"), LOADS):
        for count in numbers:
            command = [sys.executable, "-m", "bench.bench_simulation", "--nodes", str(count), policy, load]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3600)
            line = json.loads(done.stdout)
            cells = (
                f"{count:>9} {line['devices']:>9.0f} {line['claims']:>9.0f} {line['waited']:>9.0f} {line['used']:>9.0%} {line['seconds']:>9.1f} "
                f"{line['cpu']:>9.1f} {1e3 * line['cpu'] / line['claims']:>9.2f} {line['mib']:>9.0f}"
            )
            sys.stdout.write(f"{policy:20} {load:5} {cells}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--nodes"]:
        sys.stdout.write(json.dumps(_line(int(sys.argv[2]), sys.argv[3], sys.argv[4])))
    else:
        main(pathlib.Path(), [int(text) for text in sys.argv[1:]] or NODES)
