"""A simulation keeps devices apart that have no compatibility group in common, and starts a pod when the last of the other group ends."""

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.simulation.engine import nodes, policies, simulator
from drakit_cluster.simulation.fleet import groups
from drakit_cluster.simulation.workload import tasks, templates

GATES = FeatureGates.of({"DRADeviceCompatibilityGroups": True})
KINDS = ("mig", "vgpu")
CLASSES: dict[str, Object] = {
    kind: {"spec": {"selectors": [{"cel": {"expression": f'device.attributes["gpu.example.com"].kind == "{kind}"'}}]}} for kind in KINDS
}


def gpu(node: str) -> list[Object]:
    def device(kind: str, number: int) -> Json:
        drawn: Json = [{"counterSet": "gpu-0", "counters": {"mem": {"value": "1"}}, "compatibilityGroups": [kind]}]
        return {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}}, "consumesCounters": drawn}

    spec: Object = {"driver": "gpu.example.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 2}}
    counters: Json = [{"name": "gpu-0", "counters": {"mem": {"value": "4"}}}]
    devices = [device(kind, number) for kind in KINDS for number in range(4)]
    return [
        {"metadata": {"name": f"{node}-c"}, "spec": spec | {"sharedCounters": counters}},
        {
            "metadata": {"name": f"{node}-d"},
            "spec": spec | {"devices": json_types.from_objects([dict(one) for one in devices if isinstance(one, dict)])},
        },
    ]


def task(name: str, kind: str, arrival: float, duration: float | None = None, pods: int = 1) -> tasks.Task:
    request: Object = {"name": "r", "exactly": {"deviceClassName": kind, "allocationMode": "ExactCount", "count": 1}}
    template = templates.from_claim_spec(kind, {"devices": {"requests": [request]}})
    return tasks.Task(name=name, template=template, arrival=arrival, duration=duration, pods=pods)


def test_groups_are_followed_on_every_node_of_a_simulated_fleet() -> None:
    fleet = groups.of_objects([*gpu("a"), *gpu("b")], (), CLASSES, groups.Reads())
    assert len(fleet.groups) == 1, "the two nodes are equal"
    work = tasks.ordered(
        [
            task("m1", "mig", 0, 10),
            task("v1", "vgpu", 1, 100),
            task("m2", "mig", 2, 5),
            task("v2", "vgpu", 3, 100, pods=4),
            task("m3", "mig", 4, 1),
        ]
    )
    outcomes = simulator.Simulator(nodes.Nodes(fleet, gates=GATES), work, policies.Policy()).run()
    placed = {one.task.name: (one.started, [grant.node.name for grant in one.grants]) for one in outcomes}
    assert placed == {
        "m1": (0, ["a"]),
        "v1": (1, ["b"]),
        "m2": (2, ["a"]),
        "m3": (4, ["a"]),
        "v2": (10, ["a", "a", "a", "a"]),
    }
