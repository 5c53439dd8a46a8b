"""A TPU node pool: the grid of its chips, the slices that the wiring allows, and the ``tpus`` part of a machine file that describes it.

The grid has chips in rows and columns, and each node has a rectangle of them. Each shape divides the grid into slices of that shape, as in KEP-4815's
example of a node pool of 64 chips. So slices of one shape never overlap, and slices of different shapes do. Nodes are numbered from 0, row by row.

All functions but ``load`` are pure.
"""

import drakit
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from drakit import machines, tables

_SIZE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


@dataclasses.dataclass(frozen=True, order=True)
class Size:
    """Rows and columns; of chips unless stated otherwise."""

    rows: int
    columns: int

    @classmethod
    def parse(cls, text: str, key: str) -> Self:
        """Return the size of a text such as ``4x8``: 4 rows of 8. Raises SettingsError with ``key``."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise drakit.SettingsError(f"{text!r} is not a size; write rows and columns such as 4x8", key=key)
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def area(self) -> int:
        """The number of chips."""
        return self.rows * self.columns

    def divides(self, other: "Size") -> bool:
        """Return whether ``other`` can be divided into rectangles of this size."""
        return other.rows % self.rows == 0 and other.columns % self.columns == 0

    def over(self, other: "Size") -> "Size":
        """Return the size counted in rectangles of another that divides it."""
        return Size(self.rows // other.rows, self.columns // other.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """One slice: the ``number``-th of its shape, from 1. The index of a node in ``nodes`` is its worker number."""

    shape: Size
    number: int
    nodes: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the device."""
        return f"tpu-{self.shape}-{self.number}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """Chips of the whole grid, chips of one node, and the shapes of slices; raises SettingsError where these do not divide each other."""

    size: Size
    host: Size
    shapes: tuple[Size, ...]

    def __post_init__(self) -> None:
        if not self.host.divides(self.size):
            raise drakit.SettingsError(f"{self.host} chips of a node do not divide {self.size}", key="tpus.host")
        for shape in self.shapes:
            if not (self.host.divides(shape) and shape.divides(self.size)):
                raise drakit.SettingsError(f"{shape} must consist of whole nodes of {self.host} and divide {self.size}", key="tpus.slices")
        if not self.shapes or len(set(self.shapes)) != len(self.shapes):
            raise drakit.SettingsError("name at least one shape, and each once", key="tpus.slices")

    @property
    def hosts(self) -> Size:
        """The size of the grid, counted in nodes."""
        return self.size.over(self.host)

    def placements(self) -> tuple[Placement, ...]:
        """Return every slice, the smallest first, because the scheduler takes the first that fits."""
        return tuple(
            placement
            for shape in sorted(self.shapes, key=lambda placement: (placement.area, placement))
            for placement in self._of_shape(shape)
        )

    def _of_shape(self, shape: Size) -> Iterator[Placement]:
        slice_size, whole = shape.over(self.host), self.hosts
        starts = ((top, left) for top in range(0, whole.rows, slice_size.rows) for left in range(0, whole.columns, slice_size.columns))
        for number, (top, left) in enumerate(starts, 1):
            rows, columns = range(top, top + slice_size.rows), range(left, left + slice_size.columns)
            yield Placement(shape=shape, number=number, nodes=tuple(row * whole.columns + column for row in rows for column in columns))


def parts(nodes: int, placements: Iterable[Placement]) -> tuple[tuple[int, ...], ...]:
    """Return the nodes, 0 to ``nodes`` - 1, in groups that no placement crosses; each group ascending, groups by their first node."""
    root = list(range(nodes))
    for placement in placements:
        joined = {root[node] for node in placement.nodes}
        if len(joined) > 1:
            lowest = min(joined)
            root = [lowest if old in joined else old for old in root]
    groups: dict[int, list[int]] = {}
    for node, head in enumerate(root):
        groups.setdefault(head, []).append(node)
    return tuple(tuple(group) for group in groups.values())


def chunks(nodes: Sequence[int], size: int) -> tuple[tuple[int, ...], ...]:
    """Return the nodes in runs of at most ``size``."""
    return tuple(tuple(nodes[start : start + size]) for start in range(0, len(nodes), size))


KEY = "tpus"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePool:
    """``nodes`` are the names of the nodes, row by row; ``label`` is the node label that holds a node's name."""

    pool: str
    generation: str
    grid: Grid
    nodes: tuple[str, ...]
    label: str = drakit.HOSTNAME

    def __post_init__(self) -> None:
        wanted = self.grid.hosts.area
        if len(self.nodes) != wanted:
            raise drakit.SettingsError(f"{len(self.nodes)} node names for {wanted} nodes ({self.grid.hosts} of them)", key="tpu.nodes")
        for name in self.nodes:
            if not drakit.is_subdomain(name):
                raise drakit.SettingsError(f"{name!r} is not a node name", key="tpu.nodes")
            if self.nodes.count(name) > 1:
                raise drakit.SettingsError(f"{name!r} is named twice", key="tpu.nodes")

    def place_of(self, node: str) -> int | None:
        """Return the number of a node, or None for one that is not of this pool."""
        return self.nodes.index(node) if node in self.nodes else None


def load(name: str, *, nodes: Sequence[str] = (), label: str = drakit.HOSTNAME) -> NodePool:
    """Return the node pool of a machine; ``nodes`` and ``label`` are the admin's. Raises SettingsError for a missing or malformed one."""
    return read(machines.load(name), nodes=nodes, label=label)


def read(machine: machines.Machine, *, nodes: Sequence[str] = (), label: str = drakit.HOSTNAME) -> NodePool:
    """Return the node pool that a machine's file describes; without ``nodes`` they are its prefix and a number from 1."""
    if KEY not in machine.families:
        raise drakit.SettingsError(f"{machine.name} has no TPUs; machines with some: {', '.join(machines.names(KEY))}", key="mock.machine")
    top = machine.family(KEY).table(KEY)
    pool, generation, prefix = top.text("pool"), top.text("generation"), top.text("nodePrefix")
    grid = _grid(top)
    top.close()
    chosen = tuple(nodes) or tuple(f"{prefix}{number}" for number in range(1, grid.hosts.area + 1))
    return NodePool(pool=pool, generation=generation, grid=grid, nodes=chosen, label=label)


def _grid(top: tables.Table) -> Grid:
    size, host = (Size.parse(top.text(field), top.at(field)) for field in ("topology", "host"))
    shapes = top.anything("slices")
    if not isinstance(shapes, list):
        raise drakit.SettingsError("expected a list of sizes", key=top.at("slices"))
    return Grid(size=size, host=host, shapes=tuple(Size.parse(str(shape), top.at("slices")) for shape in shapes))
