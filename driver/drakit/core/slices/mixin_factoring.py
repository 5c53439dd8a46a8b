"""Move facts that many devices repeat into a few mixins.

Law: ``factor(x).flat() == x.flat()``, and the result is never larger than the flat form by the measure used. The choice is deterministic.

The algorithm is greedy. Of the fact sets that two devices have in common, it takes the one that saves most, makes a mixin of it, and removes its
facts from every device that has all of them; it repeats this until no set saves bytes. So no device includes two mixins with the same fact, and the
order of includes does not matter. A mixin belongs to one slice, so its cost counts once for every slice that probably needs it.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from drakit.core import capacity, quantity
from drakit.core import device as devices
from drakit.core import inventory as inventories
from drakit.core.slices import paging, resource_slice

MIXINS_MAX = 30
_CANDIDATES_MAX = 128

# Bytes of compact JSON around names and values: the slice's own fields, a mixin or a device, a fact, a request policy, an include.
_SLICE = 400
_OBJECT = 40
_FACT = 16
_POLICY = 100
_INCLUDES = 14
_INCLUDE = 16

_Fact = tuple[str, str, str]
_Value = TypeVar("_Value")


def factor(inventory: inventories.Inventory, *, size: "Callable[[inventories.Inventory], int] | None" = None) -> inventories.Inventory:
    """Return the smallest of the flat form, the unchanged inventory, and the automatic factoring; the first of equals.

    ``size`` measures an inventory, for example by its encoded slices; the default is ``estimate``.
    """
    flat = inventory.flat()
    return min((flat, inventory, _factored(flat)), key=size or estimate)


def estimate(inventory: inventories.Inventory) -> int:
    """Return the approximate size of the inventory's JSON in slices of 1.35 and later in bytes, with the mixins of every slice."""
    pages = paging.paginate(inventory, form=resource_slice.Form.MIXINS, layout=resource_slice.Layout.APART)
    return sum(_SLICE + _page_size(page) for page in pages)


def _page_size(page: resource_slice.Page) -> int:
    parts = [part for device in page.devices for part in device.consumes]
    rows = [_device_facts(device) for device in page.devices]
    rows += [_device_facts(mixin) for mixin in page.mixins.device]
    rows += [_counter_facts(counter_set.counters) for counter_set in page.counter_sets] + [_counter_facts(part.counters) for part in parts]
    rows += [_counter_facts(mixin.counters) for mixin in page.mixins.counter_set]
    rows += [_counter_facts(mixin.counters) for mixin in page.mixins.consumption]
    includes = (
        [device.includes for device in page.devices]
        + [counter_set.includes for counter_set in page.counter_sets]
        + [part.includes for part in parts]
    )
    return sum(_OBJECT + sum(map(_fact_size, row)) for row in rows) + sum(
        _INCLUDES + sum(_INCLUDE + len(name) for name in names) for names in includes if names
    )


def _device_facts(device: devices.Device | inventories.DeviceMixin) -> list[_Fact]:
    return _facts("attributes", device.attributes) + _facts("capacity", device.capacity)


def _counter_facts(values: Mapping[str, quantity.Quantity]) -> list[_Fact]:
    return _facts("counters", values)


def _facts(section: str, values: Mapping[str, object]) -> list[_Fact]:
    return [_fact(section, name, value) for name, value in values.items()]


def _fact(section: str, name: str, value: object) -> _Fact:
    """Return a name with its value as canonical text, which distinguishes True from 1 and a version from text."""
    if isinstance(value, capacity.Capacity) and value.policy is None:
        return section, name, str(value.value)
    return section, name, repr(value)


def _fact_size(fact: _Fact) -> int:
    section, name, text = fact
    bulky = section == "capacity" and text.startswith("Capacity(")
    return _FACT + len(name) + (_POLICY if bulky else len(text))


@dataclasses.dataclass(frozen=True)
class _Factored:
    """The factoring of rows of facts. A mixin has its facts and the index of a row with all of them; a row keeps some facts and includes mixins."""

    mixins: Sequence[tuple[Collection[_Fact], int]]
    own: Sequence[Collection[_Fact]]
    includes: Sequence[tuple[str, ...]]


class _Rows:
    """The rows of facts as bit masks, factored step by step; ``per_slice`` rows share a slice."""

    def __init__(self, rows: Sequence[Sequence[_Fact]], per_slice: int) -> None:
        self._facts = list(dict.fromkeys(fact for row in rows for fact in row))
        self._sizes = list(map(_fact_size, self._facts))
        bits = {fact: 1 << index for index, fact in enumerate(self._facts)}
        self._own = [sum(bits[fact] for fact in row) for row in rows]
        self._included: list[tuple[int, ...]] = [() for _ in rows]
        self._mixins: list[tuple[int, int]] = []
        self._per_slice = per_slice

    def factored(self) -> _Factored:
        while len(self._mixins) < MIXINS_MAX and self._add_best_mixin():
            pass
        return _Factored(
            mixins=[(self._facts_of(mask), row) for mask, row in self._mixins],
            own=[self._facts_of(mask) for mask in self._own],
            includes=[tuple(map(_mixin_name, numbers)) for numbers in self._included],
        )

    def _add_best_mixin(self) -> bool:
        """Make a mixin of the fact set that saves most, and return True; return False when no set saves bytes."""
        best = max(self._candidates(), key=self._gain, default=0)
        if self._gain(best) <= 0:
            return False
        rows = self._rows_with(best)
        for row in rows:
            self._own[row] &= ~best
            self._included[row] += (len(self._mixins),)
        self._mixins.append((best, rows[0]))
        return True

    def _candidates(self) -> list[int]:
        """Return the fact sets that pairs of rows share, limited to those with the largest size times number of pairs."""
        # Rows are grouped by their repeated facts: many devices have only a few kinds that differ in more than their unique facts.
        repeated = self._repeated()
        kinds = Counter(own & repeated for own in self._own)
        shared = Counter({mask: rows * (rows - 1) // 2 for mask, rows in kinds.items() if rows > 1})
        for (first, rows), (second, other_rows) in itertools.combinations(kinds.items(), 2):
            shared[first & second] += rows * other_rows
        del shared[0]
        return sorted(shared, key=lambda mask: (-shared[mask] * self._size(mask), mask))[:_CANDIDATES_MAX]

    def _repeated(self) -> int:
        """Return the mask of the facts that more than one row has."""
        seen = repeated = 0
        for own in self._own:
            repeated |= seen & own
            seen |= own
        return repeated

    def _gain(self, mask: int) -> int:
        """Return the bytes that a mixin of these facts saves."""
        size, rows = self._size(mask), self._rows_with(mask)
        references = sum(_INCLUDE + (0 if self._included[row] else _INCLUDES) for row in rows)
        copies = len({row // self._per_slice for row in rows})
        return size * len(rows) - references - copies * (size + _OBJECT)

    def _rows_with(self, mask: int) -> list[int]:
        full = devices.INCLUDES_MAX
        return [row for row, own in enumerate(self._own) if own & mask == mask and len(self._included[row]) < full]

    def _size(self, mask: int) -> int:
        return sum(self._sizes[index] for index in _bits(mask))

    def _facts_of(self, mask: int) -> frozenset[_Fact]:
        return frozenset(self._facts[index] for index in _bits(mask))


def _bits(mask: int) -> list[int]:
    indexes = []
    while mask:
        lowest = mask & -mask
        indexes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return indexes


def _mixin_name(index: int) -> str:
    return f"m{index}"


def _factored(flat: inventories.Inventory) -> inventories.Inventory:
    parts = [part for device in flat.devices for part in device.consumes]
    held = _Rows([_counter_facts(counter_set.counters) for counter_set in flat.counter_sets], resource_slice.COUNTER_SETS_MAX).factored()
    drawn = _Rows([_counter_facts(part.counters) for part in parts], resource_slice.DEVICES_MAX_DETAILED).factored()
    shared = _Rows([_device_facts(device) for device in flat.devices], resource_slice.DEVICES_MAX_DETAILED).factored()
    thin = iter(_thin_consumptions(parts, drawn))
    thin_devices = [dataclasses.replace(device, consumes=tuple(itertools.islice(thin, len(device.consumes)))) for device in flat.devices]
    held_values = [counter_set.counters for counter_set in flat.counter_sets]
    return dataclasses.replace(
        flat,
        devices=tuple(map(_thin_device, thin_devices, shared.own, shared.includes)),
        counter_sets=tuple(
            dataclasses.replace(counter_set, counters=_pick("counters", counter_set.counters, own), includes=includes)
            for counter_set, own, includes in zip(flat.counter_sets, held.own, held.includes, strict=True)
        ),
        mixins=inventories.Mixins(
            device=tuple(_device_mixin(index, flat.devices[row], facts) for index, (facts, row) in enumerate(shared.mixins)),
            counter_set=tuple(
                inventories.CounterSetMixin(name=name, counters=values) for name, values in _counter_mixins(held_values, held)
            ),
            consumption=tuple(
                inventories.ConsumptionMixin(name=name, counters=values)
                for name, values in _counter_mixins([part.counters for part in parts], drawn)
            ),
        ),
    )


def _thin_device(device: devices.Device, own: Collection[_Fact], includes: tuple[str, ...]) -> devices.Device:
    return dataclasses.replace(
        device,
        attributes=_pick("attributes", device.attributes, own),
        capacity=_pick("capacity", device.capacity, own),
        includes=includes,
    )


def _thin_consumptions(parts: Sequence[devices.CounterConsumption], drawn: _Factored) -> list[devices.CounterConsumption]:
    return [
        dataclasses.replace(part, counters=_pick("counters", part.counters, own), includes=includes)
        for part, own, includes in zip(parts, drawn.own, drawn.includes, strict=True)
    ]


def _device_mixin(index: int, example: devices.Device, facts: Collection[_Fact]) -> inventories.DeviceMixin:
    return inventories.DeviceMixin(
        name=_mixin_name(index),
        attributes=_pick("attributes", example.attributes, facts),
        capacity=_pick("capacity", example.capacity, facts),
    )


def _counter_mixins(
    values: Sequence[Mapping[str, quantity.Quantity]], outcome: _Factored
) -> list[tuple[str, Mapping[str, quantity.Quantity]]]:
    return [(_mixin_name(index), _pick("counters", values[row], facts)) for index, (facts, row) in enumerate(outcome.mixins)]


def _pick(section: str, values: Mapping[str, _Value], facts: Collection[_Fact]) -> Mapping[str, _Value]:
    """Return the entries that are among the facts, in their order."""
    return {name: value for name, value in values.items() if _fact(section, name, value) in facts}
