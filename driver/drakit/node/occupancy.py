"""Whether the devices that a claim was granted are free on this node: the last check before hardware is touched.

The scheduler has decided already, but it may race, a force-deleted pod may not be unprepared yet, and a claim may lie. Checked are double use of a
device or a share, and the counters of a set that overlapping devices draw from. The sum of what shares take is the scheduler's to count: adding it
up here would make every prepare cost as much as there are shares. Admin access neither blocks nor is blocked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, inventory, lifecycle, ports
from drakit.node import inventory_cache

Grants = Sequence["drivers.Grant[object]"]


def neighbours(grants: Grants, drawn: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The devices whose use may stand in the way: those granted, and those that draw from the same counter sets, as ``drawing`` has them."""
    touched = {part.counter_set for grant in grants for part in grant.device.consumes}
    own = frozenset(grant.device.name for grant in grants)
    return own.union(*(drawn.get(name, ()) for name in touched))


def check(grants: Grants, holdings: Sequence[lifecycle.Holding], offered: inventory.Inventory) -> None:
    """Raise DeviceBusyError, naming who holds what, unless all grants fit beside what other claims hold."""
    own = [grant for grant in grants if not grant.admin_access]
    others = [item for item in holdings if not item.admin_access and all(item.claim.uid != grant.claim.uid for grant in grants)]
    for grant in own:
        for item in others:
            _check_device(grant, item)
    _check_counters(own, others, offered)


def _check_device(grant: "drivers.Grant[object]", item: lifecycle.Holding) -> None:
    same = item.device.name == grant.device.name
    if same and (item.share_id is None or grant.share_id is None or item.share_id == grant.share_id):
        raise errors.DeviceBusyError(f"{grant.device.name} is still held by {_whose(item)}")


def _check_counters(own: Grants, others: Sequence[lifecycle.Holding], offered: inventory.Inventory) -> None:
    if not any(grant.device.consumes for grant in own):
        return
    sets = {item.name: item.counters for item in offered.counter_sets}
    drawing = {item.device.name: item.device for item in others}
    before, after = _drawn(drawing.values()), _drawn({**drawing, **{grant.device.name: grant.device for grant in own}}.values())
    for (name, counter), amount in after.items():
        limit = sets.get(name, {}).get(counter)
        if limit is not None and amount > limit.nanos and amount > before[name, counter]:
            holders = ", ".join(sorted({_whose(item) for item in others if _draws(item.device, name, counter)})) or "the claim itself"
            raise errors.DeviceBusyError(f"counter {counter} of {name} is used up by {holders}")


def _drawn(drawing: Iterable[devices.Device]) -> Mapping[tuple[str, str], int]:
    """Nanos drawn from each counter; a shared device draws once."""
    total: Counter[tuple[str, str]] = Counter()
    for item in drawing:
        for part in item.consumes:
            for counter, amount in part.counters.items():
                total[part.counter_set, counter] += amount.nanos
    return total


def _draws(item: devices.Device, name: str, counter: str) -> bool:
    return any(part.counter_set == name and part.counters.get(counter) for part in item.consumes)


def _whose(item: lifecycle.Holding) -> str:
    return f"claim {item.claim}, UID {item.claim.uid}, which is {item.state.value} (if it is gone: drakit unprepare {item.claim.uid})"


class Occupancy:
    """What is in use of one driver's devices on one node; ``pool`` is the node's own."""

    def __init__(self, journal: ports.Journal, offered: inventory_cache.InventoryCache, pool: str) -> None:
        self._journal = journal
        self._offered = offered
        self._pool = pool

    def check(self, grants: Grants) -> None:
        """Raise DeviceBusyError unless the devices of all grants are free by the journal. Counters are checked in the node's own pool only."""
        shares = [grant.share_id for grant in grants if grant.share_id]
        for pool in sorted({grant.pool for grant in grants}):
            offered, drawn = (self._offered.flat, self._offered.drawing) if pool == self._pool else (inventory.Inventory(), {})
            wanted = [grant for grant in grants if grant.pool == pool]
            check(wanted, self._journal.holdings(pool, neighbours(wanted, drawn), shares), offered)
