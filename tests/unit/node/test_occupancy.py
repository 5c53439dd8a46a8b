"""Who may stand in the way of a grant is found by counter set, and is whom a look at every device finds."""

from hypothesis import given
from hypothesis import strategies as st

from drakit.core import device as devices
from drakit.core import inventory, lifecycle
from drakit.node import inventory_cache, resolution
from fakes import core_strategies


def granted(item: devices.Device) -> lifecycle.GrantEntry:
    return lifecycle.GrantEntry(request="one", pool="node-1", device=item)


def counter_sets(item: devices.Device) -> frozenset[str]:
    return frozenset(part.counter_set for part in item.consumes)


@given(core_strategies.inventories(with_mixins=False), st.data())
def test_conflicting_devices_are_those_that_consume_the_same_counter_sets(offered: inventory.Inventory, data: st.DataObject) -> None:
    taken = data.draw(st.lists(st.sampled_from(offered.devices), max_size=3)) if offered.devices else []
    touched = frozenset[str]().union(*map(counter_sets, taken))
    expected = {item.name for item in offered.devices if item in taken or counter_sets(item) & touched}
    assert resolution.conflicting([granted(item) for item in taken], inventory_cache.counter_set_consumers(offered.devices)) == expected


def test_of_a_pool_whose_devices_are_not_known_only_the_granted_ones_are_looked_at() -> None:
    assert resolution.conflicting([granted(devices.Device(name="far"))], {}) == {"far"}
