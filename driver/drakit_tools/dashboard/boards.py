"""The GPUs of an inventory that have memory slices, each with a map of the slices in use and with its devices. Pure."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from drakit.cli import drawing
from drakit.core import advanced, inventory
from drakit.core import device as devices

UUIDS = ("uuid", "parentUUID")
_SLICES = "gpu_memory_slices"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """A GPU with its map and its devices. ``parent`` is its UUID if all devices are partitions, None if the devices have the facts of the GPU."""

    name: str
    map: drawing.GpuMap
    devices: Sequence[devices.Device]
    parent: str | None = None


def of(flat: inventory.Inventory, held: Collection[str], metrics: Iterable[advanced.Metric]) -> tuple[Board, ...]:
    """Return the GPUs of a flat inventory; ``held`` names the devices in use, and ``metrics`` are those of the driver."""
    return (*_counted(flat, held), *_fixed(flat, held, metrics))


def attributes_of(device: devices.Device) -> Mapping[str, devices.AttributeValue]:
    """Return the attributes by name without a domain."""
    return {name.rpartition("/")[2]: value for name, value in device.attributes.items()}


def _counted(flat: inventory.Inventory, held: Iterable[str]) -> Iterator[Board]:
    """Yield the GPUs whose partitions draw from counters of memory slices."""
    by_set: dict[str, list[devices.Device]] = {}
    for device in flat.devices:
        for name in dict.fromkeys(part.counter_set for part in device.consumes):
            by_set.setdefault(name, []).append(device)
    for gpu in drawing.gpu_maps(flat, {name: name for name in held}):
        yield Board(name=gpu.counter_set.removesuffix("-counter-set"), map=gpu, devices=by_set.get(gpu.counter_set, ()))


def _fixed(flat: inventory.Inventory, held: Collection[str], metrics: Iterable[advanced.Metric]) -> Iterator[Board]:
    """Yield the GPUs with a fixed layout. They are only partitions with a place and a parent, without counters of slices and a whole device.

    Such a GPU has the slices that the driver's metric says, or without the metric those up to the end of its last partition.
    """
    widths = {metric.labels.get("gpu", ""): int(metric.value) for metric in metrics if metric.name == _SLICES}
    for parent, board in _partitions(flat).items():
        name = board[0][0].name.partition("-mig-")[0]
        spans = sorted((span for device, span in board if device.name in held), key=lambda span: span.start)
        width = max(widths.get(name, 0), *(span.start + span.size for _, span in board))
        gpu = drawing.GpuMap(counter_set="", width=width, spans=tuple(spans))
        yield Board(name=name, map=gpu, devices=[device for device, _ in board], parent=parent)


def _partitions(flat: inventory.Inventory) -> Mapping[str, Sequence[tuple[devices.Device, drawing.Span]]]:
    """Return the partitions of GPUs with a fixed layout with their places, by the UUID of the GPU."""
    counted = {gpu.counter_set for gpu in drawing.gpu_maps(flat, {})}
    found: dict[str, list[tuple[devices.Device, drawing.Span]]] = {}
    others: set[str] = set()
    for device in flat.devices:
        attributes = attributes_of(device)
        parent, start, size = (attributes.get(name) for name in ("parentUUID", "placementStart", "placementSize"))
        if parent is None or any(part.counter_set in counted for part in device.consumes):
            others |= {str(attributes[name]) for name in UUIDS if name in attributes}
        elif isinstance(start, int) and isinstance(size, int):
            found.setdefault(str(parent), []).append((device, drawing.Span(start=start, size=size, label=device.name)))
    return {parent: board for parent, board in found.items() if parent not in others}
