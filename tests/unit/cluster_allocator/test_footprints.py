"""Verdicts that are shared by what an expression reads are those that evaluation gives for every single device."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from drakit_cluster.cel import Selectors
from drakit_cluster.objects.devices import AttributeValue, SelectorError
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.footprints import Footprint, is_plain
from drakit_cluster.scheduling.allocator.inventory import Device, Inventory
from drakit_cluster.scheduling.allocator.pools import SliceIndex
from drakit_cluster.scheduling.allocator.suitability import Verdicts
from fakes import examples
from fakes.allocation_objects import ALL_FEATURES, NODE, resource_slice

READS_PATHS = [
    'device.driver == "drv"',
    'device.attributes["drv"].model == "a"',
    'device.attributes["drv"]["model"] != "b" && device.driver == "drv"',
    'device.attributes["drv"].?model.orValue("none") == "none"',
    'has(device.attributes["drv"].model)',
    'device.attributes["drv"].size > 1',
    'device.attributes["other.example.com"].model == "a"',
    'device.attributes["drv"].version.isGreaterThan(semver("1.5.0"))',
    'device.capacity["drv"].memory.compareTo(quantity("2Gi")) >= 0',
    "device.allowMultipleAllocations == false",
]
READS_MORE = [
    'device.attributes["drv"].exists(k, k == "model")',
    'device.attributes["drv"].exists // (\n (k, k == "model")',
    '"model" in device.attributes["drv"]',
    'device.attributes["d" + "rv"].model == "a"',
    'device.attributes["drv"]["mo" + "del"] == "a"',
    "device.attributes.size() > 0",
    'cel.bind(d, device, d.attributes["drv"].model == "a")',
    'device.attributes["drv"] == {"model": "a"}',
    '"device.attributes[" + string(device.attributes.size()) + "].name" == "x"',
]
VALUES: list[Object] = [
    {"string": "a"},
    {"string": "b"},
    {"int": 1},
    {"int": 2},
    {"bool": True},
    {"version": "1.0.0"},
    {"version": "2.0.0"},
    {"version": "not a version"},
    {"strings": ["a"]},
    {"string": "a", "int": 1},
    {"int": True},
    {},
]
NAMES = ["model", "drv/model", "other.example.com/model", "size", "version", "uuid"]


@st.composite
def device(draw: st.DrawFn) -> Object:
    made: Object = {"attributes": {name: draw(st.sampled_from(VALUES)) for name in draw(st.sets(st.sampled_from(NAMES), max_size=3))}}
    if draw(st.booleans()):
        name = draw(st.sampled_from(["memory", "drv/memory"]))
        made["capacity"] = {name: {"value": draw(st.sampled_from(["1Gi", "2Gi", "2048Mi", "much", 3]))}}
    if draw(st.booleans()):
        made["allowMultipleAllocations"] = True
    return made


def compiled(devices: list[Object]) -> list[Device]:
    named: list[Object] = [{"name": f"d{number}", **one} for number, one in enumerate(devices)]
    return Inventory(SliceIndex([resource_slice(named)], ALL_FEATURES).pools(NODE), ALL_FEATURES).devices


def outcome(verdict: object) -> object:
    try:
        return verdict() if callable(verdict) else verdict
    except SelectorError as error:
        return str(error)


@settings(max_examples=examples.count(150), deadline=None)
@given(st.lists(device(), min_size=1, max_size=8), st.sampled_from(READS_PATHS + READS_MORE))
def test_shared_verdicts_are_those_of_evaluation(devices: list[Object], expression: str) -> None:
    selectors = Selectors(ALL_FEATURES)
    shared = Verdicts(selectors)
    for one in (*compiled(devices), *compiled(devices)):
        result = outcome(lambda one=one: shared.matches(expression, one))
        event(type(result).__name__)
        assert result == outcome(lambda one=one: selectors.matches(expression, one.view))


class Counting:
    """Selectors that count how often they are asked."""

    def __init__(self) -> None:
        self.asked = 0
        self._selectors = Selectors(ALL_FEATURES)

    def matches(self, expression: str, view: object) -> bool:
        self.asked += 1
        return self._selectors.matches(expression, view)  # type: ignore[arg-type]  # The port's own type.

    def derive(self, expression: str, view: object) -> AttributeValue:
        self.asked += 1
        return self._selectors.derive(expression, view)  # type: ignore[arg-type]  # The port's own type.


@pytest.mark.parametrize("expression", READS_PATHS)
def test_devices_that_agree_on_what_is_read_are_evaluated_once(expression: str) -> None:
    common: Object = {
        "model": {"string": "a"},
        "size": {"int": 2},
        "version": {"version": "1.6.0"},
        "other.example.com/model": {"string": "x"},
    }
    devices: list[Object] = [
        {"attributes": {**common, "uuid": {"string": f"u{number}"}}, "capacity": {"memory": {"value": "4Gi"}}} for number in range(10)
    ]
    counting = Counting()
    shared = Verdicts(counting)
    assert len({shared.matches(expression, one) for one in compiled(devices)}) == 1
    assert counting.asked == 1


@pytest.mark.parametrize("expression", READS_MORE)
def test_an_expression_that_may_read_more_has_no_footprint(expression: str) -> None:
    assert Footprint.of(expression) is None


def test_a_name_published_twice_is_left_to_evaluation() -> None:
    footprint = Footprint.of('device.attributes["drv"].model == "a"')
    assert footprint is not None
    twice: Object = {"attributes": {"model": {"string": "a"}, "drv/model": {"string": "b"}}}
    assert footprint.on("drv", twice) is None
    assert footprint.on("other", twice) is not None


@pytest.mark.parametrize("value", VALUES[7:])
def test_what_may_be_unreadable_is_not_plain(value: Object) -> None:
    assert not is_plain({"attributes": {"any": value}})
