"""The CPU cores of a node by NUMA node, as the kernel tells them under /sys/devices/system. Only read, never changed."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator

import drakit

SYSTEM = pathlib.Path("/sys/devices/system")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NODE = re.compile(r"node(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumaNode:
    """One NUMA node and its cores that are online and not isolated by the kernel, ascending."""

    number: int
    cores: tuple[int, ...]


class Topology:
    """Reads ``root``, which looks like /sys/devices/system; ``reserved`` cores are never offered (the system's own)."""

    def __init__(self, root: pathlib.Path = SYSTEM, *, reserved: Iterable[int] = ()) -> None:
        self._root = root
        self._reserved = frozenset(reserved)

    def nodes(self) -> list[NumaNode]:
        """Every NUMA node with at least one core to offer, by number; raises HardwareError."""
        usable = set(self._list("cpu/online")) - set(self._list("cpu/isolated", missing="")) - self._reserved
        folders = sorted((int(found[1]), path) for path in self._root.glob("node/node*") if (found := _NODE.fullmatch(path.name)))
        # A kernel without NUMA has no such folder; all its cores are one node.
        listed = [(number, self._list(f"node/{path.name}/cpulist")) for number, path in folders] or [(0, tuple(usable))]
        nodes = [NumaNode(number=number, cores=tuple(sorted(usable.intersection(cores)))) for number, cores in listed]
        return [node for node in nodes if node.cores]

    def _list(self, path: str, *, missing: str | None = None) -> tuple[int, ...]:
        try:
            return tuple(parse(self._text(path, missing)))
        except ValueError as error:
            raise drakit.HardwareError(str(self._root / path), str(error)) from error

    def _text(self, path: str, missing: str | None) -> str:
        try:
            return (self._root / path).read_text("ascii")
        except OSError as error:
            if missing is not None and isinstance(error, FileNotFoundError):
                return missing
            raise drakit.HardwareError(str(self._root / path), error.strerror or str(error)) from error


def parse(text: str) -> Iterator[int]:
    """The numbers of a kernel list such as ``0-3,8``; raises ValueError."""
    for part in filter(None, text.strip().split(",")):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no range of cores")
        yield from range(int(found[1]), int(found[2] or found[1]) + 1)


def written(cores: Iterable[int]) -> str:
    """A kernel list, shortest form: ``0-3,8``."""
    ranges: list[list[int]] = []
    for core in sorted(cores):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
