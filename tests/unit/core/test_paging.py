"""Pages keep the API's limits; the general laws are in the property tests."""

import datetime

import pytest

from drakit.core import device, errors, inventory, quantity
from drakit.core.slices import paging, resource_slice
from drakit.core.slices.resource_slice import Form, Layout, Page

TAINT = device.Taint(key="example.com/bad", time_added=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))


def plain(count: int) -> list[device.Device]:
    return [device.Device(name=f"d{n}") for n in range(count)]


def sets(*names: str) -> tuple[device.CounterSet, ...]:
    return tuple(device.CounterSet(name=name, counters={"units": quantity.Quantity.of(8)}) for name in names)


def part(name: str, *from_sets: str) -> device.Device:
    one = {"units": quantity.ONE}
    return device.Device(name=name, consumes=tuple(device.CounterConsumption(counter_set=name, counters=one) for name in from_sets))


def shape(source: inventory.Inventory, layout: Layout = Layout.APART, form: Form = Form.FLAT) -> list[tuple[int, int, int]]:
    return [(len(page.devices), len(page.counter_sets), len(page.mixins)) for page in paging.paginate(source, form=form, layout=layout)]


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("layout", list(Layout))
def test_nothing_to_offer_is_one_empty_page(form: Form, layout: Layout) -> None:
    assert paging.paginate(inventory.Inventory(), form=form, layout=layout) == (Page(),)


@pytest.mark.parametrize("count, pages", [(1, [1]), (128, [128]), (129, [128, 1]), (300, [128, 128, 44])])
def test_plain_devices_fill_slices_of_128(count: int, pages: list[int]) -> None:
    assert [devices for devices, *_ in shape(inventory.Inventory.of(plain(count)))] == pages


@pytest.mark.parametrize(
    "detailed", [device.Device(name="x", taints=(TAINT,)), device.Device(name="x", attributes={"list": ("a", "b")}), part("x", "gpu")]
)
def test_one_detailed_device_halves_the_limit_of_its_slice(detailed: device.Device) -> None:
    source = inventory.Inventory(
        devices=(*plain(63), detailed, *[device.Device(name=f"e{n}") for n in range(100)]), counter_sets=sets("gpu")
    )
    assert [devices for devices, *_ in shape(source) if devices] == [64, 100]


def test_a_detailed_device_never_joins_a_slice_that_is_over_its_limit() -> None:
    source = inventory.Inventory.of([*plain(100), device.Device(name="x", taints=(TAINT,))])
    assert shape(source) == [(100, 0, 0), (1, 0, 0)]


def test_counter_sets_come_first_in_slices_of_eight() -> None:
    names = [f"gpu-{n}" for n in range(17)]
    source = inventory.Inventory(devices=(part("a", "gpu-0"),), counter_sets=sets(*names))
    assert shape(source) == [(0, 8, 0), (0, 8, 0), (0, 1, 0), (1, 0, 0)]


def test_together_splits_by_counter_set_and_keeps_order_within() -> None:
    devices = (part("a0", "a"), part("b0", "b"), part("a1", "a"), *(part(f"b{n}", "b") for n in range(1, 64)))
    first, second = paging.paginate(
        inventory.Inventory(devices=devices, counter_sets=sets("b", "a", "unused")), form=Form.FLAT, layout=Layout.TOGETHER
    )
    assert [item.name for item in first.devices] == ["a0", "a1"]
    assert [item.name for item in first.counter_sets] == ["a"]
    assert [item.name for item in second.devices] == [f"b{n}" for n in range(64)]
    assert [item.name for item in second.counter_sets] == ["b", "unused"]


def test_together_keeps_inventory_order_on_a_shared_page() -> None:
    devices = (part("a0", "a"), part("b0", "b"), device.Device(name="free"), part("a1", "a"))
    (page,) = paging.paginate(inventory.Inventory(devices=devices, counter_sets=sets("a", "b")), form=Form.FLAT, layout=Layout.TOGETHER)
    assert page.devices == devices


def test_together_keeps_sets_that_one_device_joins() -> None:
    devices = (part("a0", "a"), part("c0", "c"), part("bc", "b", "c"), part("ab", "a", "b"), *(part(f"c{n}", "c") for n in range(1, 61)))
    (page,) = paging.paginate(
        inventory.Inventory(devices=devices, counter_sets=sets("a", "b", "c")), form=Form.FLAT, layout=Layout.TOGETHER
    )
    assert len(page.devices) == 64


def test_together_refuses_a_set_with_too_many_devices() -> None:
    source = inventory.Inventory(devices=tuple(part(f"a{n}", "a") for n in range(65)), counter_sets=sets("a"))
    with pytest.raises(errors.InventoryError, match="65 devices, 1 counter sets") as caught:
        paging.paginate(source, form=Form.FLAT, layout=Layout.TOGETHER)
    assert caught.value.field == "sharedCounters[a]"
    assert shape(source) == [(0, 1, 0), (64, 0, 0), (1, 0, 0)]


def test_a_page_carries_just_the_mixins_it_uses_in_the_order_of_their_definition() -> None:
    shared = tuple(inventory.DeviceMixin(name=name, attributes={"x": n}) for n, name in enumerate(["c", "a", "b"]))
    devices = (*[device.Device(name=f"d{n}", includes=("b", "c")) for n in range(130)], device.Device(name="last", includes=("a",)))
    pages = paging.paginate(
        inventory.Inventory(devices=devices, mixins=inventory.Mixins(device=shared)), form=Form.MIXINS, layout=Layout.APART
    )
    assert [[mixin.name for mixin in page.mixins.device] for page in pages] == [["c", "b"], ["c", "a", "b"]]
    assert [len(page.devices) for page in pages] == [125, 6]


def test_the_flat_form_has_no_mixins() -> None:
    shared = inventory.DeviceMixin(name="m", attributes={"x": 1})
    source = inventory.Inventory(devices=(device.Device(name="a", includes=("m",)),), mixins=inventory.Mixins(device=(shared,)))
    (page,) = paging.paginate(source, form=Form.FLAT, layout=Layout.APART)
    assert page == Page(devices=(device.Device(name="a", attributes={"x": 1}),))


def test_the_limits_are_those_of_the_api() -> None:
    limits = (resource_slice.DEVICES_MAX, resource_slice.DEVICES_MAX_DETAILED, resource_slice.COUNTER_SETS_MAX)
    assert limits == (128, 64, 8)
