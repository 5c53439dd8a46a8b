"""What still fits on the boards of one inventory beside the devices in use, and what would fit if those lay elsewhere.

The counts are those of the scheduler: devices of one board share counters, so placements that fit each alone do not add up. A device with a taint
that keeps pods away does not count as free.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from drakit.core import device as devices
from drakit.core import inventory, packing
from drakit.core.packing import Kind

KINDS = ("profile", "type", "kind")
"""The attributes that name the kind of a device; the first that it has counts."""
OTHER = "device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fits:
    """What still fits on one board, by kind, the largest kind first.

    ``alone`` has how many devices of each kind fit at the same time if no other kind is allocated, ``orders`` the maximal sets of kinds that fit at
    the same time, as ``packing.together`` orders them. ``after_moves`` has the kinds of which more would fit alone if partitions in use changed
    places within their profiles.
    """

    alone: Mapping[Kind, int]
    orders: Sequence[packing.Fill]
    after_moves: Mapping[Kind, int]

    @property
    def together(self) -> Sequence[packing.Fill]:
        """Return the different sets of kinds that fit at the same time."""
        return packing.distinct(self.orders)

    @property
    def text(self) -> str:
        """Return what fits together in words."""
        return f"still fits {'; or '.join(map(str, self.together))}" if self.together else "nothing more fits"

    @property
    def verdict(self) -> str:
        """Return what would fit after defragmentation in words: the largest kind that gains. Empty if nothing would."""
        gains = [f"{count} x {kind}" for kind, count in self.after_moves.items()]
        return f"fragmented: {gains[0]} would fit after defragmentation" if gains else ""

    def document(self) -> dict[str, object]:
        """Return the values for JSON and YAML."""
        return {
            "alone": named(self.alone),
            "together": [named(filled.counts) for filled in self.together],
            "afterDefragmentation": named(self.after_moves),
        }


def kind_of(device: devices.Device, partition_type: str = "") -> Kind:
    """Return the kind of a device: the value of the attribute ``partition_type``, its profile, or its type."""
    names = (partition_type, partition_type.rpartition("/")[2], *KINDS)
    name = next((str(device.attributes[key]) for key in names if key in device.attributes), OTHER)
    return kind(name, shared=device.allow_multiple_allocations)


def kind(name: str, *, shared: bool) -> Kind:
    """Return the kind of a profile or type; a shared device of type ``shared-gpu`` is a ``gpu`` that is shared."""
    return Kind(name=name.removeprefix("shared-") if shared else name, shared=shared)


def by_counter_set(offered: inventory.Inventory, taken: Collection[str]) -> Mapping[str, Fits]:
    """Return what still fits on the board of each counter set; ``taken`` names the devices in use, alone or by shares."""
    flat = offered.flat()
    boards: dict[str, list[devices.Device]] = {counter_set.name: [] for counter_set in flat.counter_sets}
    for device in flat.devices:
        for name in dict.fromkeys(part.counter_set for part in device.consumes):
            boards[name].append(device)
    used = [device for device in flat.devices if device.name in taken and device.consumes]
    return {name: of_board(board, used, flat) for name, board in boards.items()}


def of_board(board: Sequence[devices.Device], in_use: Sequence[devices.Device], flat: inventory.Inventory) -> Fits:
    """Return what still fits on a board beside the devices ``in_use`` of its inventory. A device without counters leaves room for all others."""
    rates = _Rates.of(board, flat)
    names = {name for name, _ in rates.positions}
    own = {device.name for device in board}
    in_use = [device for device in in_use if device.name in own or any(part.counter_set in names for part in device.consumes)]
    items = {device.name: rates.item(device) for device in board}
    empty = packing.Board(items=(), room=rates.room, common=(packing.ANY_GROUPS,) * len(rates.sets))
    taken = {device.name for device in in_use}
    free = packing.Board(
        items=tuple(items[device.name] for device in board if device.name not in taken and not _is_tainted(device)),
        room=rates.left(in_use),
        common=rates.common(in_use),
    )
    alone = {kind: filled.counts.get(kind, 0) for kind, filled in packing.alone(free).items()}
    places = [[items[other.name] for other in board if _profile(other) == _profile(device)] for device in board if device.name in taken]
    moved = packing.alone_after_moves(free, empty, places)
    return Fits(
        alone=alone,
        orders=packing.together(free),
        after_moves={kind: moved[kind] for kind, count in alone.items() if moved.get(kind, 0) > count},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rates:
    """The counters and compatibility groups of one board as numbers, so that equal boards are equal."""

    positions: Mapping[tuple[str, str], int]
    room: packing.Room
    sets: Mapping[str, int]
    bits: Mapping[str, int]
    partition_type: str

    @classmethod
    def of(cls, board: Sequence[devices.Device], flat: inventory.Inventory) -> Self:
        """Return the numbers for the devices of a board."""
        parts = [part for device in board for part in device.consumes]
        drawn = dict.fromkeys((part.counter_set, counter) for part in parts for counter in part.counters)
        totals = {counter_set.name: counter_set.counters for counter_set in flat.counter_sets}
        groups = dict.fromkeys(name for part in parts for name in part.compatibility_groups)
        return cls(
            positions={counter: number for number, counter in enumerate(drawn)},
            room=tuple(totals[name][counter].nanos for name, counter in drawn),
            sets={
                name: number for number, name in enumerate(dict.fromkeys(part.counter_set for part in parts if part.compatibility_groups))
            },
            bits={name: 2 << number for number, name in enumerate(groups)},
            partition_type=flat.partition_type,
        )

    def item(self, device: devices.Device) -> packing.Item:
        """Return the device as the packing sees it. Devices without groups have the first bit in common."""
        draws = sorted(
            (self.positions[part.counter_set, counter], amount.nanos)
            for part in device.consumes
            for counter, amount in part.counters.items()
            if amount and (part.counter_set, counter) in self.positions
        )
        groups = tuple(
            (self.sets[part.counter_set], sum(self.bits.get(name, 0) for name in part.compatibility_groups) or 1)
            for part in device.consumes
            if part.counter_set in self.sets
        )
        return packing.Item(kind=kind_of(device, self.partition_type), draws=tuple(draws), groups=groups)

    def left(self, in_use: Iterable[devices.Device]) -> packing.Room:
        """Return what the devices in use leave in the counters."""
        left = list(self.room)
        for device in in_use:
            for position, amount in self.item(device).draws:
                left[position] -= amount
        return tuple(left)

    def common(self, in_use: Iterable[devices.Device]) -> tuple[int, ...]:
        """Return the groups that the devices in use have in common."""
        common = [packing.ANY_GROUPS] * len(self.sets)
        for device in in_use:
            for number, bits in self.item(device).groups:
                common[number] &= bits
        return tuple(common)


def _is_tainted(device: devices.Device) -> bool:
    return any(taint.effect is not devices.TaintEffect.NONE for taint in device.taints)


def _profile(device: devices.Device) -> object:
    """Return what may change places: partitions of one profile, in either form; anything else stays."""
    return device.attributes.get("profileID", device.name)


def named(counts: Mapping[Kind, int]) -> dict[str, int]:
    """Return counts by the text of their kinds."""
    return {str(kind): count for kind, count in counts.items()}
