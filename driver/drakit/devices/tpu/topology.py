"""The grid: chips in rows and columns, nodes that hold a rectangle of them each, and the slices that the wiring allows.

A slice of a shape lies where the grid divides into rectangles of that shape, as KEP-4815 draws a node pool of 64 chips: so slices of one shape never
overlap, and those of different shapes do. Nodes are numbered from 0, row by row. Everything here is pure.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from drakit.core import errors

_SIZE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


@dataclasses.dataclass(frozen=True, order=True)
class Size:
    """Rows and columns; of chips unless said otherwise."""

    rows: int
    columns: int

    @classmethod
    def parse(cls, text: str, key: str) -> Self:
        """``4x8`` is 4 rows of 8; raises SettingsError naming ``key``."""
        found = _SIZE.fullmatch(text)
        if found is None:
            raise errors.SettingsError(f"{text!r} is no size; write rows and columns such as 4x8", key=key)
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def area(self) -> int:
        """How many there are."""
        return self.rows * self.columns

    def divides(self, other: "Size") -> bool:
        """Whether ``other`` is made of rectangles of this size."""
        return other.rows % self.rows == 0 and other.columns % self.columns == 0

    def over(self, other: "Size") -> "Size":
        """The same size counted in rectangles of another that divides it."""
        return Size(self.rows // other.rows, self.columns // other.columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """One slice: the ``number``-th of its shape, from 1, and the nodes it takes whole; a node's place among them is its worker's number."""

    shape: Size
    number: int
    nodes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name of the device."""
        return f"tpu-{self.shape}-{self.number}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """Chips of the whole grid, chips of one node, and the shapes of slices; raises SettingsError where these do not divide each other."""

    size: Size
    host: Size
    shapes: tuple[Size, ...]

    def __post_init__(self) -> None:
        if not self.host.divides(self.size):
            raise errors.SettingsError(f"{self.host} chips of a node do not divide {self.size}", key="tpus.host")
        for shape in self.shapes:
            if not (self.host.divides(shape) and shape.divides(self.size)):
                raise errors.SettingsError(f"{shape} must be made of whole nodes of {self.host} and divide {self.size}", key="tpus.slices")
        if not self.shapes or len(set(self.shapes)) != len(self.shapes):
            raise errors.SettingsError("name at least one shape, and each once", key="tpus.slices")

    @property
    def hosts(self) -> Size:
        """The grid in nodes."""
        return self.size.over(self.host)

    def placements(self) -> tuple[Placement, ...]:
        """Every slice, the smallest first, because the scheduler takes the first that fits."""
        return tuple(one for shape in sorted(self.shapes, key=lambda one: (one.area, one)) for one in self._of_shape(shape))

    def _of_shape(self, shape: Size) -> Iterator[Placement]:
        inside, whole = shape.over(self.host), self.hosts
        starts = ((top, left) for top in range(0, whole.rows, inside.rows) for left in range(0, whole.columns, inside.columns))
        for number, (top, left) in enumerate(starts, 1):
            rows, columns = range(top, top + inside.rows), range(left, left + inside.columns)
            yield Placement(shape=shape, number=number, nodes=tuple(row * whole.columns + column for row in rows for column in columns))


def parts(nodes: int, placements: Iterable[Placement]) -> tuple[tuple[int, ...], ...]:
    """The nodes, 0 to ``nodes`` - 1, in groups that no placement crosses; each group ascending, groups by their first node."""
    root = list(range(nodes))
    for one in placements:
        joined = {root[node] for node in one.nodes}
        if len(joined) > 1:
            least = min(joined)
            root = [least if old in joined else old for old in root]
    groups: dict[int, list[int]] = {}
    for node, head in enumerate(root):
        groups.setdefault(head, []).append(node)
    return tuple(tuple(group) for group in groups.values())


def chunks(nodes: Sequence[int], size: int) -> tuple[tuple[int, ...], ...]:
    """The nodes in runs of at most ``size``."""
    return tuple(tuple(nodes[start : start + size]) for start in range(0, len(nodes), size))
