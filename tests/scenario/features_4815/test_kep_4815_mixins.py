"""KEP-4815: mixins for devices, counter sets and consumption. Only the local cluster has them (gate DRAResourceSliceMixins)."""

import itertools

import pytest

from drakit_cluster.objects import errors, json_types, mixins
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE
from fakes import kep_4815_samples
from fakes.single_threaded_cluster import DRIVER, SingleThreadedCluster, device_request

OFF = FeatureGates()


def includes(*names: str) -> Json:
    return [{"name": name} for name in names]


def amounts(**values: str) -> Json:
    return {name: {"value": value} for name, value in values.items()}


def published(*, sets: Json = None, devices: Json = None, of_sets: Json = None, of_devices: Json = None) -> list[Object]:
    """The two slices of a pool: counters and devices, each with its mixins."""
    default: Json = [{"name": "s", "counters": amounts(memory="40Gi", engines="7")}]
    counters: Object = {"sharedCounters": sets or default, **({"mixins": of_sets} if of_sets else {})}
    offered: Object = {"devices": devices or [{"name": "d"}], **({"mixins": of_devices} if of_devices else {})}
    return [kep_4815_samples.slice_of("p-0", counters, pool="p", count=2), kep_4815_samples.slice_of("p-1", offered, pool="p", count=2)]


def cell_of(slices: list[Object], gates: FeatureGates | None = None) -> SingleThreadedCluster:
    cluster = SingleThreadedCluster(gates=gates)
    cluster.apply(*slices)
    cluster.device_class("gpu", f"device.driver == '{DRIVER}'")
    return cluster


def flattened(slices: list[Object]) -> list[Object]:
    return [one | {"spec": mixins.flatten(json_types.mapping(one, "spec"))} for one in slices]


@pytest.mark.parametrize(
    "expression",
    ["attributes['{}'].type == 'last'", "attributes['{}'].index == 7", "capacity['{}'].memory == quantity('3Gi')", "attributes['{}'].kept"],
)
def test_the_last_device_mixin_wins_and_the_device_wins_over_all(expression: str) -> None:
    kinds: Json = {
        "device": [
            {"name": "a", "attributes": {"type": {"string": "first"}, "kept": {"bool": True}}, "capacity": amounts(memory="1Gi")},
            {"name": "b", "attributes": {"type": {"string": "last"}, "index": {"int": 1}}, "capacity": amounts(memory="2Gi")},
        ]
    }
    own: Object = {"name": "d", "attributes": {"index": {"int": 7}}, "capacity": amounts(memory="3Gi")}
    cluster = cell_of(published(devices=[own | {"includes": includes("a", "b")}], of_devices=kinds))
    assert cluster.take("c", device_request("gpu", f"device.{expression.format(DRIVER)}")) == ["d"]


@pytest.mark.parametrize("engines, fits", [("5", True), ("6", False)])
def test_the_last_counter_set_mixin_wins_and_the_set_wins_over_all(engines: str, *, fits: bool) -> None:
    kinds: Json = {
        "counterSet": [
            {"name": "a", "counters": amounts(memory="1Gi", engines="9")},
            {"name": "b", "counters": amounts(memory="40Gi", engines="8")},
        ]
    }
    sets: Json = [{"name": "s", "includes": includes("a", "b"), "counters": amounts(engines="5")}]
    device: Object = {"name": "d", "consumesCounters": [{"counterSet": "s", "counters": amounts(memory="40Gi", engines=engines)}]}
    cluster = cell_of(published(sets=sets, devices=[device], of_sets=kinds))
    assert (cluster.take("c", device_request("gpu")) == ["d"]) is fits


@pytest.mark.parametrize("order, own, fits", [("ab", {}, True), ("ba", {}, False), ("ba", amounts(memory="40Gi"), True)])
def test_the_last_consumption_mixin_wins_and_listed_counters_win_over_all(order: str, own: Json, *, fits: bool) -> None:
    kinds: Json = {
        "deviceCounterConsumption": [
            {"name": "a", "counters": amounts(memory="41Gi", engines="1")},
            {"name": "b", "counters": amounts(memory="40Gi")},
        ]
    }
    consumed: Object = {"counterSet": "s", "includes": includes(*order), **({"counters": own} if own else {})}
    cluster = cell_of(published(devices=[{"name": "d", "consumesCounters": [consumed]}], of_devices=kinds))
    assert (cluster.take("c", device_request("gpu")) == ["d"]) is fits


def test_the_four_gpus_of_the_text_get_everything_from_their_mixins() -> None:
    cluster = cell_of(kep_4815_samples.mended("mixins-of-four-gpus"))
    expression = (
        f"device.attributes['{DRIVER}'].productName == 'NVIDIA A100-SXM4-40GB' && "
        f"device.attributes['{DRIVER}'].driverVersion.isGreaterThan(semver('560.0.0')) && "
        f"device.capacity['{DRIVER}'].memory == quantity('40Gi')"
    )
    assert [cluster.take(f"c{n}", device_request("gpu", expression)) for n in range(5)] == [["gpu-0"], ["gpu-1"], ["gpu-2"], ["gpu-3"], []]


def test_a_mixin_is_no_device() -> None:
    kinds: Json = {"device": [{"name": "alone", "attributes": {"type": {"string": "gpu"}}}]}
    cluster = cell_of(published(of_devices=kinds))
    assert cluster.take("c", device_request("gpu", f"'type' in device.attributes['{DRIVER}']")) == []


@pytest.mark.parametrize("name", ["mixins-of-four-gpus", "partitions-of-one-gpu", "three-mig-devices", "two-gpus"])
def test_compact_and_flat_slices_lead_to_the_same_decisions(name: str) -> None:
    compact = kep_4815_samples.mended(name)
    cells = [cell_of(compact), cell_of(flattened(compact), OFF)]
    for number in itertools.count():
        got, same = (cluster.take(f"c{number}", device_request("gpu")) for cluster in cells)
        assert got == same
        if not got:
            break
    assert number >= 1


@pytest.mark.parametrize(
    "slices, field",
    [
        (
            published(devices=[{"name": "d", "includes": includes("m")}], of_sets={"device": [{"name": "m", "attributes": {}}]}),
            r"spec\.devices\[0\]\.includes\[0\]\.name",
        ),
        (published(sets=[{"name": "s", "includes": includes("m")}]), r"spec\.sharedCounters\[0\]\.includes\[0\]\.name"),
        (
            published(devices=[{"name": "d", "consumesCounters": [{"counterSet": "s", "includes": includes("m")}]}]),
            r"spec\.devices\[0\]\.consumesCounters\[0\]\.includes\[0\]\.name",
        ),
    ],
    ids=["device", "counter-set", "consumption"],
)
def test_an_include_names_a_mixin_of_its_own_slice(slices: list[Object], field: str) -> None:
    with pytest.raises(errors.InvalidError, match=f"{field}.*must name a mixin of this slice"):
        cell_of(slices)


@pytest.mark.parametrize("kind", ["device", "counterSet", "deviceCounterConsumption"])
def test_eight_includes_are_taken_and_nine_refused(kind: str) -> None:
    for number in (8, 9):
        names = [f"m{n}" for n in range(number)]
        held: Json = {"attributes": {"a": {"bool": True}}} if kind == "device" else {"counters": amounts(memory="1Gi")}
        assert isinstance(held, dict)
        kinds: Json = {kind: [{"name": name, **held} for name in names]}
        consumed: Json = [{"counterSet": "s", "includes": includes(*names)}]
        slices = {
            "device": published(devices=[{"name": "d", "includes": includes(*names)}], of_devices=kinds),
            "counterSet": published(sets=[{"name": "s", "includes": includes(*names)}], of_sets=kinds),
            "deviceCounterConsumption": published(devices=[{"name": "d", "consumesCounters": consumed}], of_devices=kinds),
        }[kind]
        if number == 8:
            assert cell_of(slices).take("c", device_request("gpu")) == ["d"]
        else:
            with pytest.raises(errors.InvalidError, match=r"includes.*8"):
                cell_of(slices)


@pytest.mark.parametrize("number, taken", [(127, True), (128, False)])
def test_mixins_and_devices_of_a_slice_are_less_than_128_together(number: int, *, taken: bool) -> None:
    kinds: Json = {"device": [{"name": f"m{n}", "attributes": {"a": {"bool": True}}} for n in range(number - 1)]}
    if taken:
        assert cell_of(published(of_devices=kinds)).take("c", device_request("gpu")) == ["d"]
    else:
        with pytest.raises(errors.InvalidError, match=r"spec\.mixins"):
            cell_of(published(of_devices=kinds))


@pytest.mark.parametrize(
    "listed, field",
    [
        ([{"name": "m.1", "counters": amounts(memory="1Gi")}], r"spec\.mixins\.counterSet\[0\]\.name"),
        ([{"name": "m", "counters": amounts(memory="1Gi")}] * 2, r"spec\.mixins\.counterSet\[1\]"),
        ([{"name": "m", "counters": amounts(**{f"c{n}": "1" for n in range(33)})}], r"spec\.mixins\.counterSet\[0\]\.counters"),
        ([{"name": "m", "counters": amounts(copyEngines="1")}], r"spec\.mixins\.counterSet\[0\]\.counters"),
    ],
    ids=["label", "unique", "counters", "counter-names"],
)
def test_mixins_have_the_names_and_limits_of_the_text(listed: Json, field: str) -> None:
    with pytest.raises(errors.InvalidError, match=field):
        cell_of(published(of_sets={"counterSet": listed}))


def described(attributes: int, capacities: int) -> Object:
    """So many attributes and capacities, with names of both kinds that are the same."""
    values: Object = {f"n{place}": {"int": place} for place in range(attributes)}
    amounts: Object = {f"n{place}": {"value": "1"} for place in range(capacities)}
    return {"attributes": values, "capacity": amounts}


def test_mixins_and_devices_have_at_most_32_attributes_and_capacities() -> None:
    def one(mixin: Object, device: Object) -> list[Object]:
        return published(devices=[{"name": "d", "includes": includes("m"), **device}], of_devices={"device": [{"name": "m", **mixin}]})

    cell_of(one(described(16, 16), {}))
    with pytest.raises(errors.InvalidError, match=r"spec\.mixins\.device\[0\]: Invalid value: 33: attributes and capacities together"):
        cell_of(one(described(17, 16), {}))
    with pytest.raises(errors.InvalidError, match=r"spec\.devices\[0\]\.includes: Invalid value: 33: with what is included"):
        cell_of(one(described(16, 16), {"attributes": {"more": {"bool": True}}}))


def test_a_server_without_mixins_drops_them_and_their_includes() -> None:
    with pytest.raises(errors.InvalidError, match=r"spec\.sharedCounters\[0\]\.counters: Required value"):
        cell_of(kep_4815_samples.mended("mixins-of-four-gpus"), OFF)
    kinds: Json = {"device": [{"name": "m", "attributes": {"type": {"string": "gpu"}}}]}
    cluster = cell_of(published(devices=[{"name": "d", "includes": includes("m")}], of_devices=kinds), OFF)
    [stored] = [one for one in cluster.api.list(SLICE).items if json_types.text(one, "metadata", "name") == "p-1"]
    assert "mixins" not in json_types.mapping(stored, "spec")
    assert json_types.objects(stored, "spec", "devices") == [{"name": "d"}]
