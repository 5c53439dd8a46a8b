"""Automatic factoring: exact, deterministic, never larger; the general laws are in the property tests."""

import dataclasses

from drakit.core import capacity, device, inventory, quantity
from drakit.core.slices import mixin_factoring, paging, resource_slice

Q = quantity.Quantity.of
MODEL: dict[str, device.AttributeValue] = {
    "model": "NVIDIA A100-SXM4-40GB",
    "architecture": "Ampere",
    "driver": device.Version("550.54.15"),
}


def gpus(count: int) -> inventory.Inventory:
    held = {"memory": Q("40Gi")} | {f"memory-slice-{n}": quantity.ONE for n in range(8)}
    return inventory.Inventory(
        devices=tuple(
            device.Device(
                name=f"gpu-{n}",
                attributes={"index": n, **MODEL},
                capacity={"memory": capacity.Capacity.of("40Gi")},
                consumes=(device.CounterConsumption(counter_set=f"gpu-{n}", counters=held),),
            )
            for n in range(count)
        ),
        counter_sets=tuple(device.CounterSet(name=f"gpu-{n}", counters=held) for n in range(count)),
    )


def test_what_all_devices_repeat_moves_into_one_mixin_a_kind() -> None:
    made = mixin_factoring.factor(gpus(8))
    assert (len(made.mixins.device), len(made.mixins.counter_set), len(made.mixins.consumption)) == (1, 1, 1)
    assert made.mixins.device[0].attributes == MODEL
    assert [item.attributes for item in made.devices] == [{"index": n} for n in range(8)]
    assert {item.includes for item in made.devices} == {("m0",)}
    assert made.flat() == gpus(8)


def test_nothing_in_common_stays_as_it_is() -> None:
    source = inventory.Inventory.of(device.Device(name=f"nic-{n}", attributes={"index": n}) for n in range(10))
    assert mixin_factoring.factor(source) is source
    assert mixin_factoring.factor(inventory.Inventory()) == inventory.Inventory()


def test_the_same_inventory_is_always_factored_alike() -> None:
    assert repr(mixin_factoring.factor(gpus(5))) == repr(mixin_factoring.factor(gpus(5)))


def test_an_authors_own_mixins_stay_where_they_are_smaller() -> None:
    one = dataclasses.replace(gpus(2), mixins=inventory.Mixins(device=(inventory.DeviceMixin(name="own", attributes=MODEL),)))
    author = dataclasses.replace(
        one, devices=tuple(dataclasses.replace(item, attributes={"index": n}, includes=("own",)) for n, item in enumerate(one.devices))
    )
    assert mixin_factoring.factor(author, size=lambda form: 0 if form.mixins.device[:1] == author.mixins.device else 1) is author


def test_the_flat_form_wins_where_it_is_the_smallest_by_the_measure_given() -> None:
    assert mixin_factoring.factor(gpus(8), size=lambda form: len(form.mixins)).is_flat


def test_one_is_not_true_and_a_version_is_not_text() -> None:
    values: list[device.AttributeValue] = [1, True, device.Version("1.2.3"), "1.2.3"] * 10
    source = inventory.Inventory.of(
        device.Device(name=f"d{n}", attributes={"a_long_attribute_name": value}) for n, value in enumerate(values)
    )
    made = mixin_factoring.factor(source)
    assert len(made.mixins) > 0
    assert [type(item.attributes["a_long_attribute_name"]) for item in made.flat().devices] == [type(value) for value in values]


def test_mixins_are_counted_in_every_slice_that_carries_them() -> None:
    made = mixin_factoring.factor(gpus(130))
    pages = paging.paginate(made, form=resource_slice.Form.MIXINS, layout=resource_slice.Layout.APART)
    assert sum(len(page.mixins.device) for page in pages) == 3
    assert mixin_factoring.estimate(made) < mixin_factoring.estimate(gpus(130))
