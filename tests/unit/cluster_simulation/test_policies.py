"""Policies choose nodes as their names say, and change slices as an author could publish them."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.engine import nodes, policies, simulator
from drakit_cluster.simulation.fleet.groups import Fleet
from drakit_cluster.simulation.report import results
from drakit_cluster.simulation.workload import reading, tasks
from drakit_cluster.simulation.workload.templates import WorkloadError
from fakes import simulated_fleets as fleets

MACHINE = "dgx-a100-40gb-2gpu"


def workload(*texts: str) -> tasks.Workload:
    catalogue = reading.Catalogue([])
    return tasks.ordered(
        [tasks.Task(name=f"t{number}", template=catalogue.template(text), arrival=number) for number, text in enumerate(texts)]
    )


def placed(fleet: Fleet, work: tasks.Workload, policy: str) -> list[tuple[str, str]]:
    chosen = policies.parse(policy)
    outcomes = simulator.Simulator(nodes.Nodes(fleet, variant=chosen.variant), work, chosen).run()
    return [(grant.node.name[-1], name.partition("/")[2]) for one in outcomes for grant in one.grants for name in grant.names()]


def test_most_allocated_fills_and_least_allocated_spreads() -> None:
    fleet = fleets.fleet_of({MACHINE: 3})
    held_at_first = workload("gpu=1", "mig=1g.5gb", "mig=1g.5gb")
    assert [node for node, _ in placed(fleet, held_at_first, "most-allocated")] == ["0", "0", "0"]
    assert [node for node, _ in placed(fleet, held_at_first, "least-allocated")] == ["0", "1", "2"]


def test_least_fragmentation_takes_the_gpu_that_loses_least() -> None:
    """With a 1g and a 4g on two GPUs, a 3g fits beside the 4g without a loss; first fit breaks the other GPU's 4g."""
    fleet = fleets.fleet_of({MACHINE: 1})
    work = workload("mig=1g.5gb", "mig=4g.20gb", "mig=3g.20gb")
    first, least = (placed(fleet, work, choice) for choice in ("first-fit", "least-fragmentation"))
    assert first[1][1].startswith("gpu-0")
    assert least[2][1].partition("-mig")[0] == least[1][1].partition("-mig")[0]


def test_least_fragmentation_is_never_worse_than_first_fit_on_a_mixed_day() -> None:
    fleet = fleets.fleet_of({MACHINE: 3})
    work = workload(*["mig=1g.5gb", "mig=3g.20gb", "mig=2g.10gb", "mig=1g.5gb"] * 4)
    first, least = (
        results.run(fleet, work, policies.parse(choice)).series.models[0].fragmented[-1] for choice in ("first-fit", "least-fragmentation")
    )
    assert least <= first


def test_a_static_layout_leaves_nothing_but_its_partitions() -> None:
    variant = policies.parse("first-fit,layout=3g.20gb+2g.10gb+1g.5gb*2").variant
    changed = variant.applied(fleets.slices_of(MACHINE, "n"))
    profiles = [
        json_types.text(device, "attributes", "profile", "string")
        for one in changed
        for device in json_types.objects(one, "spec", "devices")
        if json_types.text(one, "spec", "driver") == fleets.GPU
    ]
    assert sorted(profiles) == sorted(["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"] * 2)
    together = workload(*["mig=3g.20gb", "mig=2g.10gb", "mig=1g.5gb", "mig=1g.5gb"] * 2)
    assert len(placed(fleets.fleet_of({MACHINE: 1}), together, "first-fit,layout=3g.20gb+2g.10gb+1g.5gb*2")) == 8


def test_a_layout_that_no_gpu_has_room_for_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="do not fit together on one GPU"):
        policies.parse("first-fit,layout=4g.20gb*2").variant.applied(fleets.slices_of(MACHINE, "n"))


def test_a_bandwidth_step_rounds_shares_up() -> None:
    fleet = fleets.fleet_of({"server-a30": 1})
    assert placed(fleet, workload("nic=1G"), "first-fit")[0][1].endswith("(bandwidth 1G)")
    assert placed(fleet, workload("nic=1G"), "first-fit,step=40G")[0][1].endswith("(bandwidth 40G)")
    assert len(placed(fleet, workload(*["nic=1G"] * 5), "first-fit,step=40G")) == 2


def test_device_orders_move_devices_and_lose_none() -> None:
    slices = fleets.slices_of(MACHINE, "n")

    def names(changed: list[Object]) -> list[str]:
        return [json_types.text(device, "name") for one in changed for device in json_types.objects(one, "spec", "devices")]

    published = names(slices)
    for order in ("largest-first", "round-robin"):
        moved = names(policies.parse(f"first-fit,order={order}").variant.applied(slices))
        assert sorted(moved) == sorted(published)
        assert moved != published
    fleet = fleets.fleet_of({MACHINE: 1})
    spread = placed(fleet, workload("mig=1g.5gb", "mig=1g.5gb"), "first-fit,order=round-robin")
    assert [name.partition("-mig")[0] for _, name in spread] == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize(
    "text, message",
    [("best", "'best' is unknown; known are first-fit"), ("first-fit,order=up", "'up' is unknown"), ("first-fit,steps=1", "write CHOICE")],
)
def test_a_policy_that_is_misspelt_names_those_that_exist(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        policies.parse(text)
