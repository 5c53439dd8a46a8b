"""Laws of paging: nothing is lost, nothing is doubled, order and limits hold."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drakit.core import device, errors, inventory, quantity
from drakit.core.slices import paging, resource_slice
from fakes.core_strategies import inventories

FORMS, LAYOUTS = st.sampled_from(resource_slice.Form), st.sampled_from(resource_slice.Layout)


def paged(source: inventory.Inventory, form: resource_slice.Form, layout: resource_slice.Layout) -> tuple[resource_slice.Page, ...]:
    """The pages; none where devices and counter sets that must share a slice are too many for one, which is refused."""
    written = source.flat() if form is resource_slice.Form.FLAT else source
    if layout is resource_slice.Layout.TOGETHER and any(is_too_large(written, group) for group in groups(written)):
        with pytest.raises(errors.InventoryError, match="must share one slice"):
            paging.paginate(source, form=form, layout=layout)
        return ()
    return paging.paginate(source, form=form, layout=layout)


def groups(source: inventory.Inventory) -> list[set[str]]:
    """Counter sets that devices join."""
    found: list[set[str]] = [{item.name} for item in source.counter_sets]
    for item in source.devices:
        drawn = {part.counter_set for part in item.consumes}
        joined = [group for group in found if group & drawn]
        found = [group for group in found if not group & drawn] + ([set().union(*joined)] if joined else [])
    return found


def is_too_large(source: inventory.Inventory, group: set[str]) -> bool:
    members = [item for item in source.devices if any(part.counter_set in group for part in item.consumes)]
    used = {("device", name) for item in members for name in item.includes}
    used |= {("drawn", name) for item in members for part in item.consumes for name in part.includes}
    used |= {("held", name) for item in source.counter_sets if item.name in group for name in item.includes}
    return len(members) > 64 or len(group) > 8 or len(members) + len(used) > 127


def detailed(item: device.Device) -> bool:
    return bool(item.taints or item.consumes or [value for value in item.attributes.values() if isinstance(value, tuple)])


@given(inventories(), FORMS, LAYOUTS)
def test_every_device_and_counter_set_is_on_exactly_one_page(
    source: inventory.Inventory, form: resource_slice.Form, layout: resource_slice.Layout
) -> None:
    pages = paged(source, form, layout)
    written = source.flat() if form is resource_slice.Form.FLAT else source
    if pages:
        by_name = {item.name: item for page in pages for item in page.devices}
        assert sum(len(page.devices) for page in pages) == len(written.devices)
        assert by_name == dict(written.by_name())
        assert sorted(item.name for page in pages for item in page.counter_sets) == sorted(item.name for item in written.counter_sets)


def several_pages() -> inventory.Inventory:
    """Devices and counter sets for more than two pages of each, which are seldom drawn."""
    sets = tuple(device.CounterSet(name=f"set-{number}", counters={"slots": quantity.ONE}) for number in range(20))
    return inventory.Inventory(devices=tuple(device.Device(name=f"d-{number}") for number in range(300)), counter_sets=sets)


@given(inventories(), FORMS)
@example(several_pages(), resource_slice.Form.FLAT)
def test_order_is_kept_over_all_pages(source: inventory.Inventory, form: resource_slice.Form) -> None:
    pages = paged(source, form, resource_slice.Layout.APART)
    assert [item.name for page in pages for item in page.devices] == [item.name for item in source.devices]
    assert [item.name for page in pages for item in page.counter_sets] == [item.name for item in source.counter_sets]


@given(inventories(), FORMS)
def test_order_is_kept_on_each_page_where_counters_stand_beside_devices(source: inventory.Inventory, form: resource_slice.Form) -> None:
    position = {item.name: index for index, item in enumerate(source.devices)}
    for page in paged(source, form, resource_slice.Layout.TOGETHER):
        places = [position[item.name] for item in page.devices]
        assert places == sorted(places)


@given(inventories(), FORMS, LAYOUTS)
def test_the_limits_of_the_api_hold(source: inventory.Inventory, form: resource_slice.Form, layout: resource_slice.Layout) -> None:
    for page in paged(source, form, layout):
        assert len(page.devices) <= (64 if any(map(detailed, page.devices)) else 128)
        assert len(page.counter_sets) <= 8
        assert not page.mixins or len(page.devices) + len(page.mixins) < 128
        assert layout is resource_slice.Layout.TOGETHER or not (page.devices and page.counter_sets)


@given(inventories(), LAYOUTS)
def test_a_page_has_all_mixins_it_names_and_no_other(source: inventory.Inventory, layout: resource_slice.Layout) -> None:
    for page in paged(source, resource_slice.Form.MIXINS, layout):
        parts = [part for item in page.devices for part in item.consumes]
        assert {mixin.name for mixin in page.mixins.device} == {name for item in page.devices for name in item.includes}
        assert {mixin.name for mixin in page.mixins.consumption} == {name for part in parts for name in part.includes}
        assert {mixin.name for mixin in page.mixins.counter_set} == {name for item in page.counter_sets for name in item.includes}


@given(inventories(), FORMS)
def test_together_a_page_has_the_counter_sets_of_its_devices(source: inventory.Inventory, form: resource_slice.Form) -> None:
    for page in paged(source, form, resource_slice.Layout.TOGETHER):
        drawn = {part.counter_set for item in page.devices for part in item.consumes}
        assert drawn <= {item.name for item in page.counter_sets}


@given(inventories(), LAYOUTS)
def test_both_forms_mean_the_same(source: inventory.Inventory, layout: resource_slice.Layout) -> None:
    flat, compact = (paged(source, form, layout) for form in (resource_slice.Form.FLAT, resource_slice.Form.MIXINS))
    if flat and compact:
        assert whole(compact).flat() == whole(flat).flat()


def whole(pages: tuple[resource_slice.Page, ...]) -> inventory.Inventory:
    """The inventory that a reader of all slices sees, in the order of names; mixins of one name are the same on every page."""
    kinds = [
        {mixin.name: mixin for page in pages for mixin in getattr(page.mixins, kind)} for kind in ("device", "counter_set", "consumption")
    ]
    return inventory.Inventory(
        devices=tuple(sorted((item for page in pages for item in page.devices), key=lambda item: item.name)),
        counter_sets=tuple(sorted((item for page in pages for item in page.counter_sets), key=lambda item: item.name)),
        mixins=inventory.Mixins(
            device=tuple(kinds[0].values()), counter_set=tuple(kinds[1].values()), consumption=tuple(kinds[2].values())
        ),
    )


@pytest.mark.parametrize("layout", list(resource_slice.Layout))
def test_the_same_inventory_gives_the_same_bytes(layout: resource_slice.Layout) -> None:
    items = [device.Device(name=f"d{n}", attributes={"index": n}) for n in range(200)]
    first, second = (paging.paginate(inventory.Inventory.of(items), form=resource_slice.Form.FLAT, layout=layout) for _ in range(2))
    assert repr(first) == repr(second)
