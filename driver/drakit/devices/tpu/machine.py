"""A TPU node pool as data: the ``tpus`` part of a machine file, and where one node stands in it."""

import dataclasses
from collections.abc import Sequence

from drakit.core import errors, names, node_selection
from drakit.devices import machines, tables
from drakit.devices.tpu import topology

KEY = "tpus"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePool:
    """``nodes`` are the names of the nodes, row by row; ``label`` is the node label that holds a node's name."""

    pool: str
    generation: str
    grid: topology.Grid
    nodes: tuple[str, ...]
    label: str = node_selection.HOSTNAME

    def __post_init__(self) -> None:
        wanted = self.grid.hosts.area
        if len(self.nodes) != wanted:
            raise errors.SettingsError(f"{len(self.nodes)} node names for {wanted} nodes ({self.grid.hosts} of them)", key="tpu.nodes")
        for name in self.nodes:
            if not names.is_subdomain(name):
                raise errors.SettingsError(f"{name!r} is not a node name", key="tpu.nodes")
            if self.nodes.count(name) > 1:
                raise errors.SettingsError(f"{name!r} is named twice", key="tpu.nodes")

    def place_of(self, node: str) -> int | None:
        """The number of a node, or None for one that is not of this pool."""
        return self.nodes.index(node) if node in self.nodes else None


def load(name: str, *, nodes: Sequence[str] = (), label: str = node_selection.HOSTNAME) -> NodePool:
    """The node pool of a machine; ``nodes`` and ``label`` are the admin's. Raises SettingsError for a machine without one, or a malformed one."""
    return read(machines.load(name), nodes=nodes, label=label)


def read(machine: machines.Machine, *, nodes: Sequence[str] = (), label: str = node_selection.HOSTNAME) -> NodePool:
    """The node pool that a machine's file describes; without ``nodes`` they are its prefix and a number from 1."""
    if KEY not in machine.families:
        raise errors.SettingsError(f"{machine.name} has no TPUs; machines with some: {', '.join(machines.names(KEY))}", key="mock.machine")
    top = machine.family(KEY).table(KEY)
    pool, generation, prefix = top.text("pool"), top.text("generation"), top.text("nodePrefix")
    grid = _grid(top)
    top.close()
    chosen = tuple(nodes) or tuple(f"{prefix}{number}" for number in range(1, grid.hosts.area + 1))
    return NodePool(pool=pool, generation=generation, grid=grid, nodes=chosen, label=label)


def _grid(top: tables.Table) -> topology.Grid:
    size, host = (topology.Size.parse(top.text(field), top.at(field)) for field in ("topology", "host"))
    shapes = top.anything("slices")
    if not isinstance(shapes, list):
        raise errors.SettingsError("expected a list of sizes", key=top.at("slices"))
    return topology.Grid(size=size, host=host, shapes=tuple(topology.Size.parse(str(one), top.at("slices")) for one in shapes))
