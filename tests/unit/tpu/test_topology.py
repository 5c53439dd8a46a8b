"""Slices lie as the wiring allows, and counters exclude exactly those that share a node."""

import itertools

import pytest

from drakit import machines
from drakit.core import device, errors, inventory
from drakit.core.slices import node_selection
from tpu_driver import machine, offer

KEP = (("2x2", 16), ("2x4", 8), ("4x4", 4), ("4x8", 2), ("8x8", 1))


def pool(size: str, *shapes: str, host: str = "2x2", generation: str = "v5e") -> machine.NodePool:
    text = f"""
name: lab
description: a grid
tpus: {{generation: {generation}, pool: tpus, topology: {size}, host: {host}, slices: [{", ".join(shapes)}], nodePrefix: n-}}
"""
    return machine.read(machines.parse(text, "lab"))


def fits(chosen: tuple[device.Device, ...], held: inventory.Inventory) -> bool:
    """Whether the devices can be allocated together, by counters alone, as a scheduler counts."""
    left = {(one.name, name): amount.nanos for one in held.counter_sets for name, amount in one.counters.items()}
    for part in (part for item in chosen for part in item.consumes):
        for name, amount in part.counters.items():
            left[part.counter_set, name] -= amount.nanos
    return min(left.values()) >= 0


def nodes_of(item: device.Device) -> set[str]:
    assert isinstance(item.reach, node_selection.NodeSelector)
    return set(item.reach.expressions[0].values)


def test_the_shipped_pool_has_the_slices_that_the_text_draws() -> None:
    found = machine.load("tpu-v5e-8x8")
    names = [one.name for one in found.grid.placements()]
    assert names == [f"tpu-{shape}-{number}" for shape, count in KEP for number in range(1, count + 1)]
    quads = {one.number: tuple(found.nodes[node] for node in one.nodes) for one in found.grid.placements() if str(one.shape) == "4x4"}
    assert quads[1] == ("node-1", "node-2", "node-5", "node-6")
    assert quads[4] == ("node-11", "node-12", "node-15", "node-16")


@pytest.mark.parametrize(
    "found",
    [
        pool("8x8", "2x2", "2x4", "4x4", "4x8", "8x8"),
        pool("4x8", "4x2", "2x4", "2x2", "4x8"),
        pool("4x4", "1x2", "2x2", "4x4", host="1x2"),
        pool("16x16", "8x8", "8x16", "16x8", "16x16"),
    ],
    ids=["kep", "crossing", "flat-hosts", "two-counter-sets"],
)
def test_two_slices_are_allocatable_together_just_when_they_share_no_node(found: machine.NodePool) -> None:
    [only] = offer.of(found)
    pairs = list(itertools.combinations(only.inventory.devices, 2))
    assert pairs
    for one, other in pairs:
        assert fits((one, other), only.inventory) is not bool(nodes_of(one) & nodes_of(other)), (one.name, other.name)
    assert all(fits((item,), only.inventory) for item in only.inventory.devices)


def test_every_set_of_disjoint_slices_of_a_small_pool_is_allocatable_and_no_other() -> None:
    [only] = offer.of(pool("4x4", "2x2", "2x4", "4x2", "4x4"))
    for count in range(1, 5):
        for chosen in itertools.combinations(only.inventory.devices, count):
            disjoint = sum(len(nodes_of(item)) for item in chosen) == len(set().union(*map(nodes_of, chosen)))
            assert fits(chosen, only.inventory) is disjoint


def test_a_grid_larger_than_its_largest_slice_becomes_a_pool_for_each_part() -> None:
    offered = offer.of(pool("16x16", "2x2", "4x4", "8x8"))
    assert [one.name for one in offered] == ["tpus-1", "tpus-2", "tpus-3", "tpus-4"]
    assert all(len(one.inventory.counter_sets) == 1 and len(one.inventory.counter_sets[0].counters) == 16 for one in offered)
    nodes = [set().union(*map(nodes_of, one.inventory.devices)) for one in offered]
    assert sum(map(len, nodes)) == len(set().union(*nodes)) == 64
    names = [item.name for one in offered for item in one.inventory.devices]
    assert len(names) == len(set(names))


def test_a_slice_of_64_nodes_draws_from_two_counter_sets() -> None:
    [only] = offer.of(machine.load("tpu-v5e-16x16"))
    whole = only.inventory.devices[-1]
    assert whole.name == "tpu-16x16-1"
    assert [len(part.counters) for part in whole.consumes] == [32, 32]


def test_a_slice_of_more_nodes_than_counters_reach_is_refused_by_field() -> None:
    with pytest.raises(errors.InventoryError, match=r"devices\[tpu-16x32-1\]\.consumesCounters: has 128 nodes.*64 nodes are the most"):
        offer.of(pool("16x32", "2x2", "16x32"))


@pytest.mark.parametrize(
    "size, shapes, message",
    [
        ("8x8", ("3x2",), "3x2 must consist of whole nodes"),
        ("8x8", ("4x16",), "4x16 must consist of whole nodes"),
        ("7x8", ("2x2",), "2x2 chips of a node do not divide 7x8"),
        ("8x8", ("2x2", "2x2"), "each once"),
        ("8by8", ("2x2",), "write rows and columns"),
    ],
)
def test_shapes_that_do_not_divide_the_grid_are_refused(size: str, shapes: tuple[str, ...], message: str) -> None:
    with pytest.raises(errors.SettingsError, match=message):
        pool(size, *shapes)


def test_nodes_are_named_by_the_admin_and_selected_by_any_label() -> None:
    found = machine.load("tpu-v5e-8x8", nodes=[f"gke-{number}" for number in range(16)], label="example.com/host")
    [only] = offer.of(found)
    assert nodes_of(only.inventory.devices[0]) == {"gke-0"}
    assert only.inventory.devices[0].reach == node_selection.NodeSelector.by_label("example.com/host", ["gke-0"])
    for wrong, message in (
        (["a"], "1 node names for 16 nodes"),
        (["a"] * 16, "'a' is named twice"),
        (["A"] * 16, "'A' is not a node name"),
    ):
        with pytest.raises(errors.SettingsError, match=message):
            machine.load("tpu-v5e-8x8", nodes=wrong)


def test_a_machine_without_tpus_says_which_have_some() -> None:
    with pytest.raises(errors.SettingsError, match="dgx-h100 has no TPUs; machines with some: tpu-v5e-16x16, tpu-v5e-8x8"):
        machine.load("dgx-h100")


def test_parts_are_what_no_placement_crosses() -> None:
    crossing = [
        machine.Placement(shape=machine.Size(1, 2), number=1, nodes=(0, 1)),
        machine.Placement(shape=machine.Size(1, 2), number=2, nodes=(1, 3)),
    ]
    assert machine.parts(4, crossing) == ((0, 1, 3), (2,))
