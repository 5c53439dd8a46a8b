"""A TPU node pool as KEP-4815 draws it: 16 nodes with 2x2 chips each, in a grid of 4 by 4, and every slice of chips that the wiring allows."""

from collections.abc import Iterator
from typing import NamedTuple

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from fakes import kep_4815_samples

DRIVER = "tpu.dra.example.com"
NODES = tuple(f"node-{number}" for number in range(1, 17))
CHIPS = 4
_SIDE = 4


class Shape(NamedTuple):
    """How many nodes wide and high the slices of one name are."""

    name: str
    width: int
    height: int


SHAPES = (Shape("2x2", 1, 1), Shape("2x4", 2, 1), Shape("4x4", 2, 2), Shape("4x8", 4, 2), Shape("8x8", 4, 4))


def members(shape: Shape) -> Iterator[tuple[str, ...]]:
    """Yield the nodes of every slice of a shape."""
    for top in range(0, _SIDE, shape.height):
        for left in range(0, _SIDE, shape.width):
            rows, columns = range(top, top + shape.height), range(left, left + shape.width)
            yield tuple(NODES[row * _SIDE + column] for row in rows for column in columns)


def node_pool() -> list[Object]:
    """Return the two slices of the pool, as a controller of the whole cluster publishes them."""
    counters: Json = {f"tpus-{node}": {"value": str(CHIPS)} for node in NODES}
    devices = [_device(shape, number, nodes) for shape in SHAPES for number, nodes in enumerate(members(shape), 1)]
    parts: tuple[Object, ...] = ({"sharedCounters": [{"name": "tpu-pool", "counters": counters}]}, {"devices": list(devices)})
    slices = [kep_4815_samples.slice_of(f"tpus-{place}", part, pool="tpus", count=2) for place, part in enumerate(parts)]
    for one in slices:
        spec = json_types.mapping(one, "spec")
        del spec["nodeName"]
        spec.update({"driver": DRIVER, "perDeviceNodeSelection": True})
    return slices


def _device(shape: Shape, number: int, nodes: tuple[str, ...]) -> Json:
    requirement: Json = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    place: Object = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    drawn: Json = {f"tpus-{node}": {"value": str(CHIPS)} for node in nodes}
    return {
        "name": f"tpu-{shape.name}-{number}",
        "capacity": {"tpus": {"value": str(CHIPS * len(nodes))}},
        "consumesCounters": [{"counterSet": "tpu-pool", "counters": drawn}],
        **(place if len(nodes) > 1 else {"nodeName": nodes[0]}),
    }
