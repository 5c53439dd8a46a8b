"""Offer a node pool as pools of devices: one device for each slice, and a counter for each node, so that overlapping slices exclude each other.

A slice takes whole nodes, so the counter of a node is its number of chips. A counter set has at most 32 counters and a device draws from at most two
sets, so a slice has at most 64 nodes. Nodes that no slice connects are in separate pools, which keeps the pools small.
"""

import drakit
from collections.abc import Mapping, Sequence

from tpu_driver import machine

CHIPS = "tpus"
TOPOLOGY = "topology"
NODES_MAX = drakit.COUNTERS_MAX * drakit.CONSUMPTIONS_MAX


def of(pool: machine.NodePool) -> tuple[drakit.ClusterPool, ...]:
    """Return one pool for each part of the grid that no slice crosses. Raises InventoryError for a slice of more than ``NODES_MAX`` nodes."""
    placements = pool.grid.placements()
    for placement in placements:
        if len(placement.nodes) > NODES_MAX:
            raise drakit.InventoryError(
                f"has {len(placement.nodes)} nodes, and a counter for each; a device consumes counters of at most {drakit.CONSUMPTIONS_MAX} "
                f"counter sets, each of at most {drakit.COUNTERS_MAX}, so {NODES_MAX} nodes are the most: leave out {placement.shape} under slices",
                field=f"devices[{placement.name}].consumesCounters",
            )
    groups = machine.parts(len(pool.nodes), placements)
    return tuple(
        drakit.ClusterPool(
            name=pool.pool if len(groups) == 1 else f"{pool.pool}-{number}",
            reach=drakit.PerDevice(),
            inventory=_inventory(pool, group, [placement for placement in placements if placement.nodes[0] in group]),
        )
        for number, group in enumerate(groups, 1)
    )


def _inventory(pool: machine.NodePool, group: Sequence[int], placements: Sequence[machine.Placement]) -> drakit.Inventory:
    sets = {f"nodes-{number}": nodes for number, nodes in enumerate(machine.chunks(group, drakit.COUNTERS_MAX), 1)}
    return drakit.Inventory(
        devices=tuple(_device(pool, placement, sets) for placement in placements),
        counter_sets=tuple(drakit.CounterSet(name=name, counters=_chips(pool, nodes)) for name, nodes in sets.items()),
    )


def _device(pool: machine.NodePool, placement: machine.Placement, sets: Mapping[str, Sequence[int]]) -> drakit.Device:
    attributes: dict[str, drakit.AttributeValue] = {
        TOPOLOGY: str(placement.shape),
        "generation": pool.generation,
        "nodes": len(placement.nodes),
    }
    drawn = {name: [node for node in nodes if node in placement.nodes] for name, nodes in sets.items()}
    return drakit.Device(
        name=placement.name,
        attributes=attributes,
        capacity={CHIPS: drakit.Capacity.of(placement.shape.area)},
        consumes=tuple(drakit.CounterConsumption(counter_set=name, counters=_chips(pool, nodes)) for name, nodes in drawn.items() if nodes),
        reach=drakit.NodeSelector.by_label(pool.label, (pool.nodes[node] for node in placement.nodes)),
    )


def _chips(pool: machine.NodePool, nodes: Sequence[int]) -> Mapping[str, drakit.Quantity]:
    """Return the counter of each node: all its chips."""
    return {f"node-{node + 1}": drakit.Quantity.of(pool.grid.host.area) for node in nodes}
