"""What still fits on the boards of one inventory beside the devices in use, and what would fit if those lay elsewhere.

The counts are those of the scheduler: devices of one board share counters, so placements that fit each alone do not add up. A device with a taint
that keeps pods away does not count as free.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import inventory, packing
from drakit.core.packing import Kind

KINDS = ("profile", "type", "kind")
"""The attributes that name the kind of a device; the first that it has counts."""
OTHER = "device"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fits:
    """What still fits on one board, by kind, the largest kind first.

    ``alone`` has how many devices of each kind fit at the same time if no other kind is allocated, ``together`` a few maximal sets of kinds that
    fit at the same time. ``after_moves`` has the kinds of which more would fit alone if partitions in use changed places within their profiles.
    """

    alone: Mapping[Kind, int]
    together: Sequence[packing.Fill]
    after_moves: Mapping[Kind, int]

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


def kind_of(device: devices.Device) -> Kind:
    """Return the kind of a device: its profile, or its type."""
    name = next((str(device.attributes[key]) for key in KINDS if key in device.attributes), OTHER)
    return Kind(name=name, shared=device.allow_multiple_allocations)


def by_counter_set(offered: inventory.Inventory, taken: Collection[str]) -> Mapping[str, Fits]:
    """Return what still fits on the board of each counter set; ``taken`` names the devices in use, alone or by shares."""
    flat = offered.flat()
    positions = {
        key: number
        for number, key in enumerate((counter_set.name, counter) for counter_set in flat.counter_sets for counter in counter_set.counters)
    }
    boards: dict[str, list[devices.Device]] = {}
    for device in flat.devices:
        for part in device.consumes:
            boards.setdefault(part.counter_set, []).append(device)
    room = tuple(counters.nanos for counter_set in flat.counter_sets for counters in counter_set.counters.values())
    return {counter_set.name: _fits(boards.get(counter_set.name, ()), taken, positions, room) for counter_set in flat.counter_sets}


def _fits(board: Sequence[devices.Device], taken: Collection[str], positions: Mapping[tuple[str, str], int], room: packing.Room) -> Fits:
    used = [device for device in board if device.name in taken]
    places = sorted({position for device in board for position, _ in _draws(device, positions)})
    short = {position: number for number, position in enumerate(places)}
    items = {
        device.name: packing.Item(
            kind=kind_of(device), draws=tuple((short[position], amount) for position, amount in _draws(device, positions))
        )
        for device in board
    }
    left = [room[position] for position in places]
    for device in used:
        for position, amount in items[device.name].draws:
            left[position] -= amount
    free = packing.Board(
        items=tuple(items[device.name] for device in board if device.name not in taken and not _is_tainted(device)), room=tuple(left)
    )
    alone = {kind: filled.counts.get(kind, 0) for kind, filled in packing.alone(free).items()}
    moved = packing.alone_after_moves(
        free,
        packing.Board(items=(), room=tuple(room[position] for position in places)),
        [[items[other.name] for other in board if _profile(other) == _profile(device)] for device in used],
    )
    return Fits(
        alone=alone,
        together=packing.distinct(packing.together(free)),
        after_moves={kind: moved[kind] for kind, count in alone.items() if moved.get(kind, 0) > count},
    )


def _draws(device: devices.Device, positions: Mapping[tuple[str, str], int]) -> packing.Draws:
    return tuple(
        sorted(
            (positions[part.counter_set, counter], amount.nanos)
            for part in device.consumes
            for counter, amount in part.counters.items()
            if amount
        )
    )


def _is_tainted(device: devices.Device) -> bool:
    return any(taint.effect is not devices.TaintEffect.NONE for taint in device.taints)


def _profile(device: devices.Device) -> object:
    """Return what may change places: partitions of one profile, in either form; anything else stays."""
    return device.attributes.get("profileID", device.name)


def named(counts: Mapping[Kind, int]) -> dict[str, int]:
    """Return counts by the text of their kinds."""
    return {str(kind): count for kind, count in counts.items()}
