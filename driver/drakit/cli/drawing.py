"""Text pictures: which claims hold a GPU's memory slices, and how a NIC's bandwidth is shared.

Pure: values in, text out, so the same picture is right on a terminal, in a pipe and in a test.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from drakit.cli import terminal
from drakit.core import device as devices
from drakit.core import inventory, quantity
from drakit.node import resolution

_SLICE = re.compile(r"memory-slice-([0-9]+)")
_CELL = 7
_BAR = 50
_BAR_MIN = 10
OTHERS = "admin"
"""The label of memory slices that an instance has which drakit did not make."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Neighbouring memory slices of one GPU under one label."""

    start: int
    size: int
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuMap:
    """One GPU's memory slices: ``width`` of them, and who has which."""

    counter_set: str
    width: int
    spans: tuple[Span, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One device with bandwidth: its capacity, and the shares taken from it by label.

    ``holder`` is the claim that holds it alone. ``is_blocked``: nobody holds it, but its counters do not suffice beside the devices in use;
    ``blockers`` are those that draw from the same counters.
    """

    device: str
    capacity: quantity.Quantity
    shares: tuple[tuple[str, quantity.Quantity], ...] = ()
    holder: str = ""
    is_blocked: bool = False
    blockers: tuple[str, ...] = ()


def gpu_maps(offered: inventory.Inventory, taken: Mapping[str, str]) -> tuple[GpuMap, ...]:
    """The map of every counter set that counts memory slices; ``taken`` gives a label for each device in use, alone or by shares.

    Slices of which the set has none to give belong to instances of others.
    """
    flat = offered.flat()
    spans: dict[str, list[Span]] = {}
    for device in flat.devices:
        if device.name not in taken:
            continue
        for part in device.consumes:
            places = sorted(_places(part.counters))
            if places:
                spans.setdefault(part.counter_set, []).append(Span(start=places[0], size=len(places), label=taken[device.name]))
    for counter_set in flat.counter_sets:
        gone = sorted(_numbers(counter_set.counters) - set(_places(counter_set.counters)))
        starts = [place for place in gone if place - 1 not in gone]
        ends = [place + 1 for place in gone if place + 1 not in gone]
        spans.setdefault(counter_set.name, []).extend(
            Span(start=start, size=end - start, label=OTHERS) for start, end in zip(starts, ends, strict=True)
        )
    widths = {counter_set.name: len(_numbers(counter_set.counters)) for counter_set in flat.counter_sets}
    return tuple(
        GpuMap(counter_set=name, width=width, spans=tuple(sorted(spans.get(name, []), key=lambda span: span.start)))
        for name, width in widths.items()
        if width
    )


def draw_gpu(gpu: GpuMap, width: int | None = None) -> list[str]:
    """Four lines: slice numbers, a frame with labels, and what is free; below them, by letter, the labels that do not fit into all their slices.

    Slices are narrower where ``width`` has no room for all.
    """
    cell = _CELL if width is None else max(1, min(_CELL, (width - 1) // gpu.width - 1))
    numbers = "".join(f"{index:^{cell + 1}}" for index in range(gpu.width))
    top, middle, bottom = "+", "|", "+"
    long = dict.fromkeys(span.label for span in gpu.spans if len(span.label) > span.size * (cell + 1) - 1)
    letters = {label: _letter(index) for index, label in enumerate(long)}
    position = 0
    for span in (*gpu.spans, None):
        end = gpu.width if span is None else span.start
        for _ in range(position, end):
            top, middle, bottom = f"{top}{'-' * cell}+", f"{middle}{'.':^{cell}}|", f"{bottom}{'-' * cell}+"
        if span is not None:
            wide = span.size * (cell + 1) - 1
            top, middle, bottom = f"{top}{'=' * wide}+", f"{middle}{letters.get(span.label, span.label):^{wide}}|", f"{bottom}{'=' * wide}+"
            position = span.start + span.size
    return [f" {numbers}".rstrip(), top, middle, bottom, *(f"  {letter}  {label}" for label, letter in letters.items())]


def draw_bar(bar: Bar, width: int | None = None) -> list[str]:
    """A bar of the whole capacity, then each share with its letter, amount and label. The bar is shorter where ``width`` has no room for it.

    A device that one claim holds alone is one share of all; a blocked one is crossed out.
    """
    shares = ((bar.holder, bar.capacity),) if bar.holder else bar.shares
    total = bar.capacity.nanos or 1
    free = quantity.Quantity(max(total - sum(amount.nanos for _, amount in shares), 0), bar.capacity.format)
    state = "held" if bar.holder else "blocked" if bar.is_blocked else f"{free} free"
    figures = f" {bar.capacity} in all, {state}"
    length = _BAR if width is None else max(_BAR_MIN, min(_BAR, width - len(figures) - len("[]")))
    used, cells = 0, "x" * length if bar.is_blocked else ""
    for index, (_, amount) in enumerate(shares):
        used += amount.nanos
        cells += _letter(index) * max(round(used * length / total) - len(cells), 1)
    lines = [f"[{cells[:length]:.<{length}}]{figures}"]
    if bar.is_blocked and bar.blockers:
        lines += terminal.wrapped(f"counters in use by {', '.join(bar.blockers)}", width, indent=2, hang=0)
    for index, (label, amount) in enumerate(shares):
        head = f"{_letter(index)} {amount!s:>6}  "
        lines += terminal.wrapped(f"{head}{label}", width, indent=2, hang=len(head))
    return lines


def fitting(offered: inventory.Inventory, taken: Iterable[str]) -> frozenset[str]:
    """Return the devices whose counters still suffice beside those taken."""
    flat = offered.flat()
    by_name = flat.by_name()
    in_use = resolution.counters_consumed(by_name[name] for name in taken if name in by_name)
    left = {
        (counter_set.name, counter): total.nanos - in_use[counter_set.name, counter]
        for counter_set in flat.counter_sets
        for counter, total in counter_set.counters.items()
    }

    def fits(device: devices.Device) -> bool:
        return all(amount <= left[counter] for counter, amount in resolution.counters_consumed([device]).items())

    return frozenset(device.name for device in flat.devices if fits(device))


def rivals(offered: inventory.Inventory, taken: Collection[str], device: devices.Device) -> tuple[str, ...]:
    """Return the devices in use that consume a counter which a device consumes too."""
    consumed = resolution.counters_consumed([device])
    return tuple(other.name for other in offered.flat().devices if other.name in taken and consumed & resolution.counters_consumed([other]))


def indent(lines: Sequence[str], by: str = "  ") -> str:
    """Lines as one text, each moved to the right."""
    return "\n".join(f"{by}{line}".rstrip() for line in lines)


def _places(counters: Mapping[str, quantity.Quantity]) -> Iterable[int]:
    return (int(match[1]) for name, value in counters.items() if value and (match := _SLICE.fullmatch(name)))


def _numbers(counters: Mapping[str, quantity.Quantity]) -> set[int]:
    return {int(match[1]) for name in counters if (match := _SLICE.fullmatch(name))}


def _letter(index: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26]
