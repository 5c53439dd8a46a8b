"""Replays Alibaba's public trace of a GPU cluster (cluster-trace-gpu-v2023; Weng et al., USENIX ATC 2023) on MIG partitions and on shares.

``PYTHONPATH=tests python -m bench.trace_replay PODS.csv NODES.csv [mig|shares]`` with openb_pod_list_default.csv and
openb_node_list_gpu_node.csv. Every GPU of the trace stands for an A100 with MIG on; a fraction of a GPU becomes the smallest profile with as many
sevenths of the multiprocessors, or a share of that many thousandths. Tasks without GPUs are left out, and so are processors and memory.

*replay* is the trace as it was, by creation and deletion times. *full* is the paper's experiment: tasks are drawn from the trace, with a seed,
and never end, until they ask for as many GPUs as there are; printed is what then is not allocated. Use and fragmentation are those when use is
highest in *replay*, and those at the end in *full*.
"""

import csv
import pathlib
import random
import sys
import time
from collections.abc import Mapping, Sequence

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.engine import policies
from drakit_cluster.simulation.fleet import groups, variants
from drakit_cluster.simulation.fleet.groups import Fleet
from drakit_cluster.simulation.report import measures, results
from drakit_cluster.simulation.workload import tasks, templates
from drakit_cluster.simulation.workload.templates import PodTemplate
from fakes import simulated_fleets as fleets

POLICIES = ("first-fit", "most-allocated", "least-fragmentation")
SEED = 1
_WHOLE = 1000
_PROFILES = {143: "1g.5gb", 286: "2g.10gb", 429: "3g.20gb", 572: "4g.20gb", _WHOLE: "7g.40gb"}
"""The smallest profile by the thousandths of a GPU that it has at most."""
_SHARED = "share.example.com"
_CLASSES: Mapping[str, Object] = {
    **fleets.CLASSES,
    _SHARED: {"spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_SHARED}"'}}]}},
}
Row = Mapping[str, str]


def main(pods: str, nodes: str, *forms: str) -> None:
    """Print a line for each form, experiment and policy."""
    rows = [row for row in _rows(pods) if int(row["num_gpu"])]
    machines = _rows(nodes)
    capacity = sum(int(row["gpu"]) for row in machines)
    sys.stdout.write(f"{len(machines)} nodes, {capacity} GPUs, {len(rows)} tasks with GPUs\n")
    columns = ("started", "waited", "in use", "fragmented", "not allocated", "cpu s")
    sys.stdout.write(f"{'form':7} {'run':7} {'policy':20} {' '.join(f'{column:>13}' for column in columns)}\n")
    for form in forms or ("mig", "shares"):
        fleet = _fleet(machines, form)
        known: dict[tuple[int, int], PodTemplate] = {}
        replay = tasks.ordered([_task(row, known, form) for row in rows])
        full = tasks.ordered(_until_full(rows, known, form, capacity))
        for title, workload in (("replay", replay), ("full", full)):
            for name in POLICIES:
                start = time.process_time()
                found = results.run(fleet, workload, policies.parse(name))
                sys.stdout.write(_line(form, title, found, rows, capacity, time.process_time() - start))
                sys.stdout.flush()


def _line(form: str, title: str, found: results.Result, rows: Sequence[Row], capacity: int, spent: float) -> str:
    asked = {row["name"]: int(row["num_gpu"]) * int(row["gpu_milli"]) for row in rows}
    held = sum(asked[one.task.name.partition("#")[0]] for one in found.outcomes if one.started is not None and one.task.duration is None)
    unallocated = f"{1 - held / _WHOLE / capacity:.1%}" if title == "full" else ""
    used = [sum(one.used[place] * one.count for one in found.series.models) / capacity for place in range(measures.BINS)]
    broken = [sum(one.fragmented[place] * one.count for one in found.series.models) / capacity for place in range(measures.BINS)]
    place = measures.BINS - 1 if title == "full" else used.index(max(used))
    shown = (used[place], broken[place])
    cells = (found.started, found.delayed, *(f"{share:.1%}" for share in shown), unallocated, round(spent))
    return f"{form:7} {title:7} {found.policy.name:20} {' '.join(f'{cell:>13}' for cell in cells)}\n"


def _rows(file: str) -> list[Row]:
    with pathlib.Path(file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def _task(row: Row, known: dict[tuple[int, int], PodTemplate], form: str) -> tasks.Task:
    arrival = float(row["creation_time"])
    return tasks.Task(
        name=row["name"],
        template=_template(row, known, form),
        arrival=arrival,
        duration=max(1.0, float(row["deletion_time"]) - arrival),
    )


def _until_full(rows: Sequence[Row], known: dict[tuple[int, int], PodTemplate], form: str, capacity: int) -> list[tasks.Task]:
    source = random.Random(SEED)
    made: list[tasks.Task] = []
    asked = 0
    while asked < capacity * _WHOLE:
        row = source.choice(rows)
        asked += int(row["num_gpu"]) * int(row["gpu_milli"])
        made.append(tasks.Task(name=f"{row['name']}#{len(made)}", template=_template(row, known, form), arrival=float(len(made))))
    return made


def _template(row: Row, known: dict[tuple[int, int], PodTemplate], form: str) -> PodTemplate:
    key = (int(row["num_gpu"]), int(row["gpu_milli"]))
    if key not in known:
        known[key] = _mig(*key) if form == "mig" else _share(*key)
    return known[key]


def _mig(count: int, milli: int) -> PodTemplate:
    if milli >= _WHOLE:
        return templates.from_shorthand(f"gpu={count}")
    return templates.from_shorthand(f"mig={next(profile for most, profile in _PROFILES.items() if milli <= most)}")


def _share(count: int, milli: int) -> PodTemplate:
    exact: Object = {
        "deviceClassName": _SHARED,
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"milli": str(milli)}},
    }
    return templates.from_claim_spec(f"{count} x {milli}", {"devices": {"requests": [{"name": "r", "exactly": exact}]}})


def _fleet(machines: Sequence[Row], form: str) -> Fleet:
    counts: dict[tuple[str, int], int] = {}
    for row in machines:
        key = (row["model"], int(row["gpu"]))
        counts[key] = counts.get(key, 0) + 1
    made = [groups.of_machine(f"{model}-{gpus}", _slices(gpus, model, form), "prototype", count) for (model, gpus), count in counts.items()]
    return Fleet(groups=made, classes=_CLASSES)


def _slices(gpus: int, model: str, form: str) -> list[Object]:
    if form == "shares":
        shared: list[Object] = [
            {
                "name": f"gpu-{number}",
                "allowMultipleAllocations": True,
                "attributes": {"productName": {"string": model}},
                "capacity": {"milli": {"value": str(_WHOLE)}},
            }
            for number in range(gpus)
        ]
        pool: Object = {"name": "prototype", "generation": 1, "resourceSliceCount": 1}
        spec: Object = {"driver": _SHARED, "nodeName": "prototype", "pool": pool, "devices": json_types.from_objects(shared)}
        return [{"metadata": {"name": "shares"}, "spec": spec}]
    kept = {f"gpu-{number}-counter-set" for number in range(gpus)}
    made = []
    for entry in fleets.slices_of("dgx-a100-40gb", "prototype"):
        spec = json_types.mapping(entry, "spec")
        if json_types.text(spec, "driver") != fleets.GPU:
            continue
        devices = [_named(one, model) for one in json_types.objects(spec, "devices") if variants.counter_set(one) in kept]
        made.append(entry | {"spec": spec | ({"devices": json_types.from_objects(devices)} if "devices" in spec else {})})
    return made


def _named(device: Object, model: str) -> Object:
    return device | {"attributes": json_types.mapping(device, "attributes") | {"productName": {"string": model}}}


if __name__ == "__main__":
    main(*sys.argv[1:])
