"""Slices on the wire: golden files, laws, and what is done with slices that are not ours."""

import json
import pathlib
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from drakit.core import capacity, device, errors, inventory, quantity, records
from drakit.core.slices import resource_slice
from drakit.kube import slice_codec
from fakes import examples
from fakes import slice_samples as samples

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "kube"

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
keys = st.from_regex(r"([a-z][a-z0-9]{0,5}\.example\.com/)?[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=16)
whole = st.integers(min_value=-(2**63), max_value=2**63 - 1)
versions = st.builds("{}.{}.{}".format, *[st.integers(0, 999)] * 3).map(device.Version)
amounts = st.builds(quantity.Quantity, st.integers(min_value=0, max_value=2**62), st.sampled_from(list(quantity.Format)))
binary = st.integers(min_value=0, max_value=2**50).map(quantity.Quantity.binary)
lists = st.one_of(*(st.lists(kind, min_size=1, max_size=3).map(tuple) for kind in (texts.filter(bool), whole, st.booleans(), versions)))
attributes = st.dictionaries(keys, st.one_of(texts, whole, st.booleans(), versions, lists), max_size=4)
capacities = st.dictionaries(keys, st.one_of(amounts, binary).map(capacity.Capacity.of), max_size=3)
counter_values = st.dictionaries(names, st.one_of(amounts, binary), max_size=3)
includes = st.lists(names, max_size=3, unique=True).map(tuple)
consumptions = st.builds(device.CounterConsumption, counter_set=names, counters=counter_values, includes=includes)
devices = st.builds(
    device.Device,
    name=names,
    attributes=attributes,
    capacity=capacities,
    consumes=st.lists(consumptions, max_size=2, unique_by=lambda part: part.counter_set).map(tuple),
    allow_multiple_allocations=st.booleans(),
    includes=includes,
)
counter_sets = st.builds(device.CounterSet, name=names, counters=counter_values, includes=includes)


def named(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Up to two mixins of one kind, with names of their own."""
    return st.lists(kind, max_size=2, unique_by=lambda mixin: mixin.name).map(tuple)


all_mixins = st.builds(
    inventory.Mixins,
    device=named(st.builds(inventory.DeviceMixin, name=names, attributes=attributes, capacity=capacities)),
    counter_set=named(st.builds(inventory.CounterSetMixin, name=names, counters=counter_values)),
    consumption=named(st.builds(inventory.ConsumptionMixin, name=names, counters=counter_values)),
)
pages = st.builds(
    resource_slice.Page,
    devices=st.lists(devices, max_size=3).map(tuple),
    counter_sets=st.lists(counter_sets, max_size=2).map(tuple),
    mixins=all_mixins,
)


def stored(spec: records.Json) -> dict[str, Any]:
    """A slice as an API server would send it, after a journey as JSON."""
    found: dict[str, Any] = json.loads(json.dumps({"metadata": {"name": "s", "uid": "u", "resourceVersion": "7"}, "spec": spec}))
    return found


def golden(name: str, page: resource_slice.Page) -> tuple[str, str]:
    text = json.dumps(slice_codec.encode(samples.spec_of(page)), indent=2, ensure_ascii=False) + "\n"
    return text, (GOLDEN / f"{name}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name, page", [(name.replace(" ", "-"), page) for name, page in samples.PAGES.items()])
def test_a_slice_on_the_wire_is_as_it_was(name: str, page: resource_slice.Page) -> None:
    now, before = golden(name, page)
    assert now == before


@pytest.mark.parametrize("page", samples.PAGES.values(), ids=samples.PAGES.keys())
def test_every_sample_comes_back_as_it_went(page: resource_slice.Page) -> None:
    spec = samples.spec_of(page, generation=3, count=2)
    found = slice_codec.decode(stored(slice_codec.encode(spec)))
    assert found == resource_slice.Published(name="s", uid="u", version="7", spec=spec)


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(pages)
def test_any_page_comes_back_as_it_went(page: resource_slice.Page) -> None:
    assert slice_codec.decode(stored(slice_codec.encode(samples.spec_of(page)))).spec == samples.spec_of(page)


@hypothesis.settings(deadline=None, max_examples=examples.count(30))
@hypothesis.given(pages)
def test_nothing_empty_is_sent(page: resource_slice.Page) -> None:
    def check(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert item not in ([], None), f"{path}.{key}"
                check(item, f"{path}.{key}")
        if isinstance(value, list):
            assert value, path
            for item in value:
                check(item, path)

    check(slice_codec.encode(samples.spec_of(page)), "spec")


def test_equal_devices_give_equal_bytes_whatever_the_order_of_their_attributes() -> None:
    one = device.Device(name="a", attributes={"x": 1, "y": 2}, capacity={"c": capacity.Capacity.of(1), "b": capacity.Capacity.of(2)})
    two = device.Device(name="a", attributes={"y": 2, "x": 1}, capacity={"b": capacity.Capacity.of(2), "c": capacity.Capacity.of(1)})
    texts = {json.dumps(slice_codec.encode(samples.spec_of(resource_slice.Page(devices=(item,))))) for item in (one, two)}
    assert len(texts) == 1


def test_amounts_rewritten_by_the_server_are_equal_to_ours() -> None:
    spec = stored(
        slice_codec.encode(
            samples.spec_of(resource_slice.Page(devices=(device.Device(name="a", capacity={"m": capacity.Capacity.of("1024Mi")}),)))
        )
    )
    spec["spec"]["devices"][0]["capacity"]["m"]["value"] = "1Gi"
    assert slice_codec.decode(spec).spec.page.devices[0].capacity["m"].value == quantity.Quantity.parse("1024Mi")


@pytest.mark.parametrize(
    "devices",
    [
        "text",
        [{"name": "Not A Label"}],
        [{"name": "a", "attributes": {"x": {}}}],
        [{"name": "a", "attributes": {"x": {"int": 1, "bool": True}}}],
        [{"name": "a", "attributes": {"x": {"complex": "1+i"}}}],
        [{"name": "a", "attributes": {"x": {"int": "1"}}}],
        [{"name": "a", "capacity": {"m": {"value": "lots"}}}],
        [{"name": "a", "taints": [{"key": "k", "effect": "Explode"}]}],
        [{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "yesterday"}]}],
    ],
)
def test_a_stored_slice_that_cannot_be_read_equals_no_slice_anybody_wants(devices: records.Json) -> None:
    found = stored({**slice_codec.encode(samples.spec_of(resource_slice.Page(), generation=4)), "devices": devices})
    assert slice_codec.decode(found).spec == samples.spec_of(resource_slice.Page(), generation=4, count=0)


@pytest.mark.parametrize("gone", ["metadata", "spec"])
def test_a_slice_without_identity_is_an_error_that_names_the_field(gone: str) -> None:
    found = stored(slice_codec.encode(samples.spec_of(samples.plain_page("a"))))
    del found[gone]
    with pytest.raises(errors.ConfigError, match=rf"^{gone}\..* is required"):
        slice_codec.decode(found)


def test_fields_of_later_versions_are_ignored() -> None:
    found = stored(slice_codec.encode(samples.spec_of(samples.plain_page("a"))))
    found["spec"]["devices"][0]["compatibilityGroups"] = ["x"]
    assert slice_codec.decode(found).spec.page == samples.plain_page("a")
