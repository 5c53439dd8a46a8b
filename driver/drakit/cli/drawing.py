"""Text pictures: which claims hold a GPU's memory slices, how fragmented they are, and how a NIC's bandwidth is shared.

Pure: values in, text out, so the same picture is right on a terminal, in a pipe and in a test.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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

_WAYS_MAX = 20_000
_Places = int  # bits: bit N is memory slice N


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
    """Four lines: slice numbers, a frame with labels, and what is free; below them, by letter, the labels that do not fit into their slices.

    Slices are narrower where ``width`` has no room for all.
    """
    cell = _CELL if width is None else max(1, min(_CELL, (width - 1) // gpu.width - 1))
    numbers = "".join(f"{index:^{cell + 1}}" for index in range(gpu.width))
    top, middle, bottom = "+", "|", "+"
    letters: dict[str, str] = {}
    position = 0
    for span in (*gpu.spans, None):
        end = gpu.width if span is None else span.start
        for _ in range(position, end):
            top, middle, bottom = f"{top}{'-' * cell}+", f"{middle}{'.':^{cell}}|", f"{bottom}{'-' * cell}+"
        if span is not None:
            wide = span.size * (cell + 1) - 1
            label = span.label if len(span.label) <= wide else letters.setdefault(span.label, _letter(len(letters)))
            top, middle, bottom = f"{top}{'=' * wide}+", f"{middle}{label:^{wide}}|", f"{bottom}{'=' * wide}+"
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


def fragmentation(offered: inventory.Inventory, taken: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """For each counter set: how many of its devices still fit beside those taken, and how many there are; a device's shared form is not counted."""
    free = fitting(offered, taken)
    result: dict[str, tuple[int, int]] = {}
    for device in offered.flat().devices:
        for part in () if device.allow_multiple_allocations else device.consumes:
            possible, total = result.get(part.counter_set, (0, 0))
            result[part.counter_set] = (possible + (device.name in free), total + 1)
    return result


def indent(lines: Sequence[str], by: str = "  ") -> str:
    """Lines as one text, each moved to the right."""
    return "\n".join(f"{by}{line}".rstrip() for line in lines)


def _places(counters: Mapping[str, quantity.Quantity]) -> Iterable[int]:
    return (int(match[1]) for name, value in counters.items() if value and (match := _SLICE.fullmatch(name)))


def _numbers(counters: Mapping[str, quantity.Quantity]) -> set[int]:
    return {int(match[1]) for name in counters if (match := _SLICE.fullmatch(name))}


def _letter(index: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26]


def at_best(offered: inventory.Inventory, taken: Collection[str]) -> Mapping[str, int]:
    """For each counter set with devices in use: how many devices would fit beside them at most, wherever those in use lay.

    Devices in use change places only with devices of their own profile. A set with too many ways to place them all is left out.
    """
    flat = offered.flat()
    used = [device for device in flat.devices if device.name in taken]
    alone = [device for device in flat.devices if not device.allow_multiple_allocations]
    counts: dict[str, int] = {}
    for pool in flat.counter_sets:
        mine = [device for device in used if _part(device, pool.name)]
        if mine and (best := _best(pool, mine, [device for device in alone if _part(device, pool.name)])) is not None:
            counts[pool.name] = best
    return counts


def verdict(possible: int, best: int) -> str:
    """Return how many devices would fit after defragmentation, in words; empty where no more would fit."""
    return f"fragmented: {best} would fit after defragmentation" if best > possible else ""


def _best(pool: devices.CounterSet, used: Sequence[devices.Device], offered: Sequence[devices.Device]) -> int | None:
    masks = {device.name: _mask(device, pool.name) for device in (*used, *offered)}
    free = [masks[device.name] for device in offered if _fits_beside(device, used, pool)]
    choices = [sorted({masks[other.name] for other in (device, *offered) if _kind(other) == _kind(device)}) for device in used]
    best = None
    for ways, occupied in enumerate(_arrangements(choices, 0)):
        if ways > _WAYS_MAX:
            return None
        best = max(best or 0, sum(not mask & occupied for mask in free))
    return best


def _arrangements(choices: Sequence[Sequence[_Places]], occupied: _Places) -> Iterator[_Places]:
    """The slices in use, for every way to place all without two on one slice."""
    if not choices:
        yield occupied
        return
    for mask in choices[0]:
        if not mask & occupied:
            yield from _arrangements(choices[1:], occupied | mask)


def _fits_beside(device: devices.Device, used: Sequence[devices.Device], pool: devices.CounterSet) -> bool:
    """Whether all that is counted beside memory slices suffices."""
    for name, amount in _drawn(device, pool.name).items():
        drawn = sum(other[name].nanos for user in used if name in (other := _drawn(user, pool.name)))
        if _SLICE.fullmatch(name) is None and amount.nanos + drawn > pool.counters[name].nanos:
            return False
    return True


def _part(device: devices.Device, pool: str) -> bool:
    return any(part.counter_set == pool for part in device.consumes)


def _drawn(device: devices.Device, pool: str) -> Mapping[str, quantity.Quantity]:
    return {name: amount for part in device.consumes if part.counter_set == pool for name, amount in part.counters.items()}


def _mask(device: devices.Device, pool: str) -> _Places:
    matches = (_SLICE.fullmatch(name) for name, amount in _drawn(device, pool).items() if amount)
    return sum(1 << int(match[1]) for match in matches if match)


def _kind(device: devices.Device) -> object:
    """What may change places: partitions of one profile, in either form; anything else stays."""
    return device.attributes.get("profileID", device.name)
