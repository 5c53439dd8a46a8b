"""How well a GPU's partitions lie: what would still fit if those in use lay where they are least in the way.

Pure. Only where a partition lies makes a difference, so places are tried and what else is counted is taken as it is.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import inventory, quantity

_SLICE = re.compile(r"memory-slice-([0-9]+)")
_WAYS_MAX = 20_000
_Places = int  # bits: bit N is memory slice N


def at_best(offered: inventory.Inventory, taken: Collection[str]) -> Mapping[str, int]:
    """For each counter set with devices in use: how many devices would fit beside them at most, wherever those in use lay.

    Devices in use change places only with devices of their own profile. A set with too many ways to place them all is left out.
    """
    flat = offered.flat()
    used = [item for item in flat.devices if item.name in taken]
    alone = [item for item in flat.devices if not item.allow_multiple_allocations]
    found: dict[str, int] = {}
    for pool in flat.counter_sets:
        mine = [item for item in used if _part(item, pool.name)]
        if mine and (best := _best(pool, mine, [item for item in alone if _part(item, pool.name)])) is not None:
            found[pool.name] = best
    return found


def verdict(possible: int, best: int) -> str:
    """What is to be said where more devices would fit if those in use lay better; empty where they lie as well as they can."""
    return f"fragmented: {best} would fit if what is in use lay better" if best > possible else ""


def _best(pool: devices.CounterSet, used: Sequence[devices.Device], offered: Sequence[devices.Device]) -> int | None:
    masks = {item.name: _mask(item, pool.name) for item in (*used, *offered)}
    free = [masks[item.name] for item in offered if _fits_beside(item, used, pool)]
    choices = [sorted({masks[other.name] for other in (item, *offered) if _kind(other) == _kind(item)}) for item in used]
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


def _fits_beside(item: devices.Device, used: Sequence[devices.Device], pool: devices.CounterSet) -> bool:
    """Whether all that is counted beside memory slices suffices."""
    for name, amount in _drawn(item, pool.name).items():
        drawn = sum(other[name].nanos for one in used if name in (other := _drawn(one, pool.name)))
        if _SLICE.fullmatch(name) is None and amount.nanos + drawn > pool.counters[name].nanos:
            return False
    return True


def _part(item: devices.Device, pool: str) -> bool:
    return any(part.counter_set == pool for part in item.consumes)


def _drawn(item: devices.Device, pool: str) -> Mapping[str, quantity.Quantity]:
    return {name: amount for part in item.consumes if part.counter_set == pool for name, amount in part.counters.items()}


def _mask(item: devices.Device, pool: str) -> _Places:
    found = (_SLICE.fullmatch(name) for name, amount in _drawn(item, pool).items() if amount)
    return sum(1 << int(match[1]) for match in found if match)


def _kind(item: devices.Device) -> object:
    """What may change places: partitions of one profile, in either form; anything else stays."""
    return item.attributes.get("profileID", item.name)
