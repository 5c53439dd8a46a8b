"""A simulation decides as the local cluster's scheduler does, device by device, though it keeps one inventory for all equal nodes."""

import hypothesis
import pytest
from hypothesis import strategies

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.simulation.engine import nodes, policies, simulator
from drakit_cluster.simulation.fleet import groups
from drakit_cluster.simulation.workload import reading, synthetic, tasks, templates
from drakit_cluster.simulation.workload.templates import PodTemplate
from fakes import examples
from fakes import simulated_fleets as fleets

SAME_GPU: Object = {"matchAttribute": "gpu.drakit.dev/parentUUID"}


def on_one_gpu(*profiles: str) -> PodTemplate:
    template = templates.from_shorthand("+".join(f"mig={profile}" for profile in profiles))
    spec = json_types.mapping(template.claims[0], "spec", "devices")
    return templates.from_claim_spec("+".join(profiles), {"devices": spec | {"constraints": [SAME_GPU]}})


def either(*names: str) -> PodTemplate:
    parts = [json_types.mapping(templates.from_shorthand(name).claims[0], "spec", "devices", "requests", 0, "exactly") for name in names]
    options: list[Object] = [part | {"name": f"o{number}"} for number, part in enumerate(parts)]
    request: Object = {"name": "r", "firstAvailable": json_types.from_objects(options)}
    return templates.from_claim_spec("either", {"devices": {"requests": [request]}})


ASKS = (
    *map(
        templates.from_shorthand,
        ("mig=1g.5gb", "mig=2g.10gb*2", "mig=3g.20gb", "gpu=1", "gpu=2", "mig=1g.6gb", "nic=30G", "mig=1g.5gb+nic=60G", "mig=9g.9gb"),
    ),
    on_one_gpu("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"),
    on_one_gpu("3g.20gb", "3g.20gb"),
    either("gpu=1", "mig=2g.10gb", "nic=1G"),
)

COUNTS = {"dgx-a100-40gb-2gpu": 2, "server-a30": 2}


@strategies.composite
def workloads(draw: strategies.DrawFn) -> tasks.Workload:
    count = draw(strategies.integers(1, 25))
    made = [
        tasks.Task(
            name=f"t{number}",
            template=draw(strategies.sampled_from(ASKS)),
            arrival=float(draw(strategies.integers(0, 12))),
            duration=draw(strategies.sampled_from((1.0, 3.0, 7.0, None))),
            pods=draw(strategies.sampled_from((1, 1, 1, 3))),
        )
        for number in range(count)
    ]
    return tasks.ordered(made)


def simulated(
    fleet: groups.Fleet, workload: tasks.Workload, errors: KnownErrors
) -> list[tuple[str, float | None, list[tuple[str, list[str]]]]]:
    placed = nodes.Nodes(fleet, errors=errors)
    outcomes = simulator.Simulator(placed, workload, policies.Policy()).run()
    return [
        (one.task.name, one.started, [(grant.node.name, [name.partition(" ")[0] for name in grant.names()]) for grant in one.grants])
        for one in outcomes
    ]


@hypothesis.settings(
    deadline=None,
    max_examples=examples.count(60),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    phases=[hypothesis.Phase.generate, hypothesis.Phase.reuse],
)
@hypothesis.given(errors=strategies.sampled_from((known_errors.NONE, known_errors.KUBERNETES_1_36)), workload=workloads())
def test_every_pod_gets_the_devices_that_the_scheduler_would_give(errors: KnownErrors, workload: tasks.Workload) -> None:
    fleet = fleets.fleet_of(COUNTS)
    expected = fleets.Reference(fleets.node_names(fleet), errors).run(workload)
    assert simulated(fleet, workload, errors) == expected


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.full)])
def test_many_nodes_decide_as_the_local_cluster_does(count: int) -> None:
    fleet = fleets.fleet_of({"dgx-a100-40gb-2gpu": count * 3 // 5, "server-a30": count * 2 // 5})
    mix = synthetic.Mix(
        tasks=count * 3 // 2,
        span=3600,
        mean_duration=4000,
        templates={"mig=1g.5gb": 4, "mig=3g.20gb": 3, "gpu=2": 2, "mig=1g.6gb": 2, "mig=2g.10gb+nic=20G": 3},
        gangs={1: 9, 4: 1},
    )
    workload = synthetic.make(mix, 7, reading.Catalogue([]))
    assert simulated(fleet, workload, known_errors.NONE) == fleets.Reference(fleets.node_names(fleet)).run(workload)


def test_captured_nodes_that_differ_in_identities_only_are_one_group() -> None:
    machine_of = {"a": "dgx-a100-40gb-2gpu", "b": "dgx-a100-40gb-2gpu", "c": "server-a30"}
    slices = [one for node, machine in machine_of.items() for one in fleets.slices_of(machine, node)]
    fleet = groups.of_objects(slices, (), fleets.CLASSES, groups.Reads())
    assert sorted(list(group.names) for group in fleet.groups) == [["a", "b"], ["c"]]
    workload = tasks.ordered([tasks.Task(name=f"t{number}", template=ASKS[number % 12], arrival=0) for number in range(24)])
    assert simulated(fleet, workload, known_errors.NONE) == fleets.Reference(machine_of).run(workload)


def test_a_selector_on_an_identity_keeps_nodes_apart() -> None:
    slices = [one for node in ("a", "b") for one in fleets.slices_of("dgx-a100-40gb-2gpu", node)]
    device = json_types.objects(fleets.slices_of("dgx-a100-40gb-2gpu", "b")[1], "spec", "devices")[0]
    uuid = json_types.text(device, "attributes", "parentUUID", "string")
    expression = f'device.attributes["gpu.drakit.dev"].parentUUID == "{uuid}"'
    request: Object = {
        "name": "r",
        "exactly": {
            "deviceClassName": "mig.drakit.dev",
            "allocationMode": "ExactCount",
            "count": 1,
            "selectors": [{"cel": {"expression": expression}}],
        },
    }
    template = templates.from_claim_spec("pinned", {"devices": {"requests": [request]}})
    fleet = groups.of_objects(slices, (), fleets.CLASSES, groups.Reads.of([template]))
    assert len(fleet.groups) == 2
    workload = tasks.ordered([tasks.Task(name="t", template=template, arrival=0)])
    expected = fleets.Reference(dict.fromkeys(("a", "b"), "dgx-a100-40gb-2gpu")).run(workload)
    assert simulated(fleet, workload, known_errors.NONE) == expected
    assert expected[0][2][0][0] == "b"


def test_pools_that_span_nodes_are_decided_over_all_nodes_together() -> None:
    nic = fleets.slices_of("server-a30", "shared")[-1]
    spec = {name: value for name, value in json_types.mapping(nic, "spec").items() if name != "nodeName"}
    shared: Object = {"metadata": {"name": "shared"}, "spec": spec | {"allNodes": True, "driver": "fabric.example.com"}}
    classes = dict(fleets.CLASSES) | {"fabric": {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "fabric.example.com"'}}]}}}
    slices = [*fleets.slices_of("server-a30", "a"), *fleets.slices_of("server-a30", "b"), shared]
    fleet = groups.of_objects(slices, [{"metadata": {"name": name}} for name in ("a", "b")], classes, groups.Reads())
    assert fleet.shared
    total = sum(1 for _ in json_types.objects(shared, "spec", "devices"))
    request: Object = {"name": "r", "exactly": {"deviceClassName": "fabric", "allocationMode": "ExactCount", "count": 1}}
    request["exactly"] = json_types.mapping(request, "exactly") | {"capacity": {"requests": {"bandwidth": "20G"}}}
    template = templates.from_claim_spec("fabric", {"devices": {"requests": [request]}})
    workload = tasks.ordered([tasks.Task(name=f"t{number}", template=template, arrival=0, duration=5) for number in range(total * 8)])
    outcomes = simulator.Simulator(nodes.Nodes(fleet), workload, policies.Policy()).run()
    at_once = sum(one.started == 0 for one in outcomes)
    assert 0 < at_once < len(outcomes)
    assert all(one.started is not None for one in outcomes)
