"""Devices of one inventory in several pools of a node: what is refused, and what each pool holds."""

import pytest

from drakit.core import device, errors, inventory, names, quantity
from drakit.core.slices import node_selection, resource_slice
from drakit.kube import slice_codec

DRAWN = device.CounterConsumption(counter_set="card", counters={"units": quantity.ONE})
CARD = device.CounterSet(name="card", counters={"units": quantity.ONE})


def inventory_of(**pools: str | None) -> inventory.Inventory:
    return inventory.Inventory.of(device.Device(name=name, pool=pool) for name, pool in pools.items())


@pytest.mark.parametrize("pool", ["", "Fast", "a/b", "a.b", "-a", "x" * 64])
def test_a_pool_name_that_is_not_a_dns_label_is_refused(pool: str) -> None:
    with pytest.raises(errors.InventoryError, match=r"^devices\[a\]\.pool: .* is not a DNS label"):
        device.Device(name="a", pool=pool)


def test_the_reserved_name_of_probe_slices_is_refused_as_pool() -> None:
    with pytest.raises(
        errors.InventoryError, match=r"^devices\[a\]\.pool: 'probe' is reserved for the slices that test which fields the API server"
    ):
        device.Device(name="a", pool="probe")


def test_one_name_in_two_pools_is_an_error_that_names_both() -> None:
    with pytest.raises(errors.InventoryError, match=r"^devices\[a\]: the name is used in the pools NODE/slow and NODE;"):
        inventory.Inventory.of([device.Device(name="a", pool="slow"), device.Device(name="a")])


def test_devices_of_two_pools_that_draw_from_one_counter_set_are_refused() -> None:
    devices = (device.Device(name="a", consumes=(DRAWN,)), device.Device(name="b", consumes=(DRAWN,), pool="fast"))
    message = (
        r"^devices\[b\]\.consumesCounters\[card\]: device a of pool NODE consumes counters of this counter set too, .* in pool NODE/fast"
    )
    with pytest.raises(errors.InventoryError, match=message):
        inventory.Inventory(devices=devices, counter_sets=(CARD,))


def test_devices_without_a_pool_are_in_the_pool_of_the_node() -> None:
    offered = inventory_of(a=None, b=None)
    assert inventory.by_pool(offered, "node-1") == {"node-1": offered}
    assert inventory.by_pool(inventory.Inventory(), "node-1") == {"node-1": inventory.Inventory()}


def test_pools_come_in_the_order_of_their_first_devices_with_their_counter_sets() -> None:
    mixins = inventory.Mixins(device=(inventory.DeviceMixin(name="common", attributes={"kind": "disk"}),))
    idle = device.CounterSet(name="idle", counters={"units": quantity.ONE})
    devices = (
        device.Device(name="a", pool="fast", consumes=(DRAWN,), includes=("common",)),
        device.Device(name="b"),
        device.Device(name="c", pool="fast"),
    )
    pools = inventory.by_pool(inventory.Inventory(devices=devices, counter_sets=(CARD, idle), mixins=mixins), "node-1")
    assert [(name, [item.name for item in part.devices]) for name, part in pools.items()] == [
        ("node-1/fast", ["a", "c"]),
        ("node-1", ["b"]),
    ]
    assert [part.counter_sets for part in pools.values()] == [(CARD,), (idle,)]
    assert pools["node-1/fast"].flat().devices[0].attributes == {"kind": "disk"}


def test_a_pool_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(errors.InventoryError, match="is not a pool name"):
        inventory.by_pool(inventory_of(a="fast"), "n" * names.LABEL_MAX + f".{'n' * names.LABEL_MAX}" * 3)


def test_a_device_of_a_cluster_pool_names_no_pool() -> None:
    with pytest.raises(errors.InventoryError, match=r"devices\[a\]\.pool: may be given only on a node"):
        inventory.ClusterPool(name="rack", reach=node_selection.AllNodes(), inventory=inventory_of(a="fast"))


def test_a_slice_names_the_pool_once_and_its_devices_do_not() -> None:
    (name, part), *_ = inventory.by_pool(inventory_of(a="fast"), "node-1").items()
    pool = resource_slice.Pool(name=name, generation=1, count=1)
    spec = resource_slice.SliceSpec(driver="d.example.com", node="node-1", pool=pool, page=resource_slice.Page(devices=part.devices))
    made = slice_codec.encode(spec)
    assert made["pool"] == {"name": "node-1/fast", "generation": 1, "resourceSliceCount": 1}
    assert made["devices"] == [{"name": "a"}]
