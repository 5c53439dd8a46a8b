"""What the API refuses, field by field, at the limits of resource.k8s.io/v1."""

import pytest

from drakit_cluster.objects import features, json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from unit.cluster import samples
from unit.cluster.judging import problems

TAINT: Json = {"key": "example.com/broken", "effect": "NoSchedule"}
COUNTERS: Json = {"memory": {"value": "1Gi"}}


def devices(count: int, **fields: Json) -> list[Json]:
    return [{"name": f"gpu-{index}", **fields} for index in range(count)]


def device(**fields: Json) -> Object:
    return samples.slice_(devices=devices(1, **fields))


D0 = "spec.devices[0]"


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"devices": devices(128)}, set()),
        ({"devices": devices(129)}, {"TooMany spec.devices"}),
        ({"devices": devices(64, taints=[TAINT])}, set()),
        ({"devices": devices(65, taints=[TAINT])}, {"TooMany spec.devices"}),
        ({"devices": devices(65, consumesCounters=[{"counterSet": "a", "counters": COUNTERS}])}, {"TooMany spec.devices"}),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, {"Duplicate spec.devices[1]"}),
        ({"nodeName": None}, {"Required spec"}),
        ({"nodeName": None, "allNodes": True}, set()),
        ({"nodeName": None, "allNodes": False}, {"Required spec", "Invalid spec.allNodes"}),
        ({"allNodes": True}, {"Invalid spec"}),
        ({"nodeName": ""}, {"Required spec", "Invalid spec.nodeName"}),
        (
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}},
            {"Invalid spec.nodeSelector.nodeSelectorTerms", "Required spec.nodeSelector.nodeSelectorTerms"},
        ),
        ({"driver": "Not A Name"}, {"Invalid spec.driver"}),
        ({"driver": "a" * 64}, {"TooLong spec.driver"}),
        ({"driver": ""}, {"Required spec.driver"}),
        ({"pool": {"name": "a/b", "generation": 0, "resourceSliceCount": 1}}, set()),
        ({"pool": {"name": "a//b", "resourceSliceCount": 1}}, {"Invalid spec.pool.name"}),
        ({"devices": None, "sharedCounters": [{"name": f"s{i}", "counters": COUNTERS} for i in range(8)]}, set()),
        (
            {"devices": None, "sharedCounters": [{"name": f"s{i}", "counters": COUNTERS} for i in range(9)]},
            {"TooMany spec.sharedCounters"},
        ),
        ({"devices": None, "sharedCounters": [{"name": "s"}]}, {"Required spec.sharedCounters[0].counters"}),
        ({"devices": [], "sharedCounters": [{"name": "s", "counters": COUNTERS}]}, {"Invalid spec"}),
        ({"perDeviceNodeSelection": True, "nodeName": None}, {f"Required {D0}"}),
    ],
)
def test_slices_keep_the_limits(fields: Object, wanted: set[str]) -> None:
    assert problems(resources.SLICE, samples.slice_of(fields)) == wanted


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"name": "UPPER"}, {f"Invalid {D0}.name"}),
        ({"attributes": {"a": {}}}, {f"Invalid {D0}.attributes[a]"}),
        ({"attributes": {"a": {"int": 1, "bool": True}}}, {f"Invalid {D0}.attributes[a]"}),
        ({"attributes": {"a": {"ints": []}}}, {f"Invalid {D0}.attributes[a].ints"}),
        ({"attributes": {"a": {"string": "x" * 64}}}, set()),
        ({"attributes": {"a": {"string": "\u00fc" * 33}}}, {f"TooLong {D0}.attributes[a].string"}),
        ({"attributes": {"a": {"version": "550.54.15"}}}, set()),
        ({"attributes": {"a": {"version": "535.104.05"}}}, {f"Invalid {D0}.attributes[a].version"}),
        ({"attributes": {"a-b": {"int": 1}}}, {f"Invalid {D0}.attributes"}),
        ({"attributes": {"d.example/a/b": {"int": 1}}}, set()),
        ({"attributes": {f"a{i}": {"int": 1} for i in range(33)}}, {f"Invalid {D0}"}),
        ({"capacity": {"m": {}}}, set()),
        ({"capacity": {"m": {"value": "1Gi", "requestPolicy": {}}}}, {f"Forbidden {D0}.capacity[m].requestPolicy"}),
        ({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, {f"NotSupported {D0}.taints[0].effect"}),
        ({"consumesCounters": [{"counterSet": "s"}]}, {f"Required {D0}.consumesCounters[0].counters"}),
        ({"nodeName": "n2"}, {f"Invalid {D0}"}),
        ({"bindingConditions": ["a"]}, {f"Invalid {D0}.bindingFailureConditions"}),
        (
            {"bindingConditions": ["a"], "bindingFailureConditions": ["a"]},
            {f"Invalid {D0}.bindingFailureConditions[0]"},
        ),
    ],
)
def test_devices_keep_the_limits(fields: Object, wanted: set[str]) -> None:
    assert problems(resources.SLICE, device(**fields)) == wanted


RANGE = f"{D0}.capacity[m].requestPolicy"


@pytest.mark.parametrize(
    "policy, wanted",
    [
        ({"default": "1Gi"}, set()),
        ({"validRange": {"min": "1Gi"}}, {f"Required {RANGE}.default"}),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}, set()),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "9Gi"}}, {f"Invalid {RANGE}.validRange.max"}),
        ({"default": "1Gi", "validRange": {"min": "9Gi"}}, {f"Invalid {RANGE}.validRange.min"}),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}}, {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "1536Mi", "validRange": {"min": "1Gi", "step": "1Gi"}}, {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, set()),
        ({"default": "1Gi", "validValues": ["2Gi", "1Gi"]}, {f"Invalid {RANGE}.validValues[1]"}),
        ({"default": "1Gi", "validValues": ["1Gi", "1024Mi"]}, {f"Duplicate {RANGE}.validValues[1]"}),
        ({"default": "3Gi", "validValues": ["1Gi"]}, {f"Invalid {RANGE}.validValues"}),
        ({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi"}}, {f"Forbidden {RANGE}"}),
        ({}, set()),
        ({"default": "-1Gi"}, set()),
        ({"default": "1Gi", "validRange": {"min": "-5Gi"}}, set()),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "-1Gi"}}, set()),
        ({"default": "-1", "validValues": ["-1", "1Gi"]}, set()),
    ],
)
def test_inconsistent_request_policies_are_refused(policy: Json, wanted: set[str]) -> None:
    shared = device(allowMultipleAllocations=True, capacity={"m": {"value": "8Gi", "requestPolicy": policy}})
    assert problems(resources.SLICE, shared) == wanted


@pytest.mark.parametrize(
    "policy, off, on",
    [
        ({"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}, set(), set()),
        ({"default": "250m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}, set(), {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "200m", "validRange": {"min": "200m", "max": "950m", "step": "100m"}}, set(), {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "1500m", "validRange": {"min": "1", "step": "1"}}, set(), {f"Invalid {RANGE}.validRange.step"}),
        (
            {"default": "20u", "validRange": {"min": "10u"}},
            set(),
            {f"Invalid {RANGE}.validRange.default", f"Invalid {RANGE}.validRange.min"},
        ),
        ({"default": "100m", "validValues": ["100m", "200m", "400m"]}, {f"Duplicate {RANGE}.validValues[{n}]" for n in (1, 2)}, set()),
    ],
)
def test_fractional_policies_are_checked_in_thousandths_with_the_gate(policy: Object, off: set[str], on: set[str]) -> None:
    shared = device(allowMultipleAllocations=True, capacity={"m": {"value": "8Gi", "requestPolicy": policy}})
    assert problems(resources.SLICE, shared, gates=FeatureGates.of({"DRAFractionalCapacityRange": True})) == on
    assert problems(resources.SLICE, shared, gates=FeatureGates.of({"DRAFractionalCapacityRange": False})) == off


def test_driver_pool_and_node_are_immutable() -> None:
    moved = samples.slice_(driver="other.dev", nodeName="n2", pool={"name": "n2", "resourceSliceCount": 1})
    wanted = {"Invalid spec.driver", "Invalid spec.pool.name", "Invalid spec.nodeName"}
    assert problems(resources.SLICE, moved, samples.slice_()) == wanted


def test_includes_name_mixins_of_their_slice() -> None:
    mixins: Json = {"device": [{"name": "common", "attributes": {"a": {"int": 1}}}]}
    good = samples.slice_(mixins=mixins, devices=devices(1, includes=[{"name": "common"}]))
    assert problems(resources.SLICE, good) == set()
    bad = samples.slice_(mixins=mixins, devices=devices(1, includes=[{"name": "other"}]))
    assert problems(resources.SLICE, bad) == {f"Invalid {D0}.includes[0].name"}
    nine: list[Json] = [{"name": f"m{index}"} for index in range(9)]
    many = samples.slice_(mixins={"device": nine}, devices=devices(1, includes=nine))
    assert problems(resources.SLICE, many) == {f"TooMany {D0}.includes"}
    full = samples.slice_(mixins=mixins, devices=devices(127))
    assert problems(resources.SLICE, full) == {"TooMany spec.mixins"}


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"attributes": {"/": {"int": 1}}}, {f"Invalid {D0}.attributes"}),
        ({"attributes": {"a" * 33: {"int": 1}}}, {f"TooLong {D0}.attributes"}),
        ({"attributes": {f"{'a' * 64}/b": {"int": 1}}}, {f"TooLong {D0}.attributes"}),
        ({"attributes": {"a" * 97: {}}}, {f"TooLong {D0}.attributes", f"Invalid {D0}.attributes[{'a' * 47}...{'a' * 46}]"}),
        ({"attributes": {"a": {"version": "v" * 65}}}, {f"{kind} {D0}.attributes[a].version" for kind in ("Invalid", "TooLong")}),
        ({"attributes": {"a": {"strings": ["x" * 65]}}}, {f"TooLong {D0}.attributes[a].strings[0]"}),
        ({"attributes": {"a": {"versions": ["1.2"]}}}, {f"Invalid {D0}.attributes[a].versions[0]"}),
        ({"attributes": {"a": {"ints": [1] * 48}}}, set()),
        ({"attributes": {"a": {"ints": [1] * 48}, "b": {"int": 1}}}, {f"Invalid {D0}"}),
        ({"taints": [TAINT] * 17}, {f"TooMany {D0}.taints"}),
        ({"taints": [{"key": "", "effect": ""}]}, {f"Invalid {D0}.taints[0].key", f"Required {D0}.taints[0].effect"}),
        (
            {"consumesCounters": [{"counterSet": f"s{i}", "counters": COUNTERS} for i in range(3)]},
            {f"TooMany {D0}.consumesCounters"},
        ),
        (
            {"consumesCounters": [{"counterSet": "s", "counters": {f"c{i}": {"value": "1"} for i in range(33)}}]},
            {f"TooMany {D0}.consumesCounters[0].counters"},
        ),
        (
            {"consumesCounters": [{"counterSet": "", "counters": {"B": {"value": "1"}}}]},
            {f"Required {D0}.consumesCounters[0].counterSet", f"Invalid {D0}.consumesCounters[0].counters"},
        ),
        (
            {"bindingConditions": ["a"] * 5, "bindingFailureConditions": ["!"]},
            {f"TooMany {D0}.bindingConditions", f"Invalid {D0}.bindingFailureConditions[0]"}
            | {f"Duplicate {D0}.bindingConditions[{index}]" for index in range(1, 5)},
        ),
    ],
)
def test_a_list_that_is_too_long_is_refused_whole_and_names_are_refused_at_their_map(fields: Object, wanted: set[str]) -> None:
    lists = FeatureGates.of({"DRAListTypeAttributes": True})
    assert problems(resources.SLICE, device(**fields), gates=lists) == wanted


@pytest.mark.parametrize(
    "mapping, wanted",
    [
        ({"cpu": {"capacityKey": "m"}}, set()),
        ({"cpu": {}}, {"Invalid [cpu]"}),
        ({"a.dev/cpu": {"capacityKey": "m"}}, {"Invalid [a.dev/cpu]"}),
        ({"cpu": {"capacityKey": ""}}, {"Invalid [cpu].capacityKey"}),
        ({"cpu": {"capacityKey": "other"}}, {"NotFound [cpu].capacityKey"}),
        ({"cpu": {"allocationMultiplier": "0"}}, {"Invalid [cpu].allocationMultiplier"}),
    ],
)
def test_a_devices_share_of_the_nodes_resources_names_a_capacity(mapping: Json, wanted: set[str]) -> None:
    given = device(capacity={"m": {"value": "1"}}, nodeAllocatableResourceMappings=mapping)
    found = problems(resources.SLICE, given)
    assert {one.replace(f"{D0}.nodeAllocatableResourceMappings", "") for one in found} == wanted


@pytest.mark.parametrize(
    "requirement, wanted",
    [
        ({"key": "zone", "operator": "In", "values": ["a"]}, set()),
        ({"key": "zone", "operator": "In"}, {"Required values"}),
        ({"key": "zone", "operator": "Exists", "values": ["a"]}, {"Forbidden values"}),
        ({"key": "zone", "operator": "Gt", "values": ["1", "2"]}, {"Required values"}),
        ({"key": "zone", "operator": "Like"}, {"Invalid operator"}),
        ({"key": "a b", "operator": "In", "values": ["-1"]}, {"Invalid key", "Invalid values[0]"}),
    ],
)
def test_every_term_of_a_node_selector_is_checked(requirement: Json, wanted: set[str]) -> None:
    terms: Json = [{"matchExpressions": [requirement]}]
    given = samples.slice_(nodeName=None, nodeSelector={"nodeSelectorTerms": terms})
    path = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0]."
    assert {one.replace(path, "") for one in problems(resources.SLICE, given)} == wanted


def test_nodes_are_matched_as_fields_by_name_alone() -> None:
    terms: Json = [
        {"matchFields": [{"key": "metadata.uid", "operator": "Exists"}, {"key": "metadata.name", "operator": "In", "values": ["A"]}]}
    ]
    given = samples.slice_(nodeName=None, nodeSelector={"nodeSelectorTerms": terms})
    path = "spec.nodeSelector.nodeSelectorTerms[0].matchFields"
    assert problems(resources.SLICE, given) == {f"Invalid {path}[0].key", f"Invalid {path}[0].operator", f"Invalid {path}[1].values[0]"}


def test_devices_choose_their_nodes_if_the_slice_lets_them() -> None:
    offered: Json = [{"name": "a", "nodeName": "n1"}, {"name": "b", "allNodes": False}, {"name": "c", "nodeName": "", "allNodes": True}]
    given = samples.slice_(nodeName=None, perDeviceNodeSelection=True, devices=offered)
    wanted = {"Required spec.devices[1]", "Invalid spec.devices[1].allNodes", "Invalid spec.devices[2].nodeName"}
    assert problems(resources.SLICE, given) == wanted


def test_unchanged_taints_are_not_checked_again() -> None:
    newer = device(taints=[{"key": "a", "effect": "PreferNoSchedule"}])
    relabelled = device(taints=[{"key": "a", "effect": "PreferNoSchedule"}], attributes={"a": {"int": 1}})
    assert problems(resources.SLICE, relabelled, newer) == set()
    added = device(taints=[{"key": "a", "effect": "PreferNoSchedule"}, TAINT])
    assert problems(resources.SLICE, added, newer) == {f"NotSupported {D0}.taints[0].effect"}


def test_a_pods_claims_have_one_source_and_containers_use_known_ones() -> None:
    given = samples.pod()
    spec = json_types.mapping(given, "spec")
    spec["resourceClaims"] = [{"name": "gpu"}]
    spec["containers"] = [{"name": "c", "resources": {"claims": [{"name": "other"}]}}]
    wanted = {"Invalid spec.resourceClaims[0]", "Invalid spec.containers[0].resources.claims[0].name"}
    assert problems(resources.POD, given) == wanted


def test_unknown_gates_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="DRANothing"):
        features.FeatureGates.of({"DRANothing": True})


def test_limits_hold_for_devices_and_sets_with_their_mixins_applied() -> None:
    def attributes(prefix: str) -> Json:
        return {f"{prefix}{number}": {"int": number} for number in range(20)}

    def counted(prefix: str) -> Json:
        return {f"{prefix}{number}": {"value": "1"} for number in range(20)}

    included: Json = [{"name": "a"}, {"name": "b"}]
    described: Json = {"device": [{"name": "a", "attributes": attributes("x")}, {"name": "b", "attributes": attributes("y")}]}
    wide = samples.slice_(mixins=described, devices=devices(1, includes=included))
    assert problems(resources.SLICE, wide) == {"Invalid spec.devices[0].includes"}
    narrow = samples.slice_(mixins=described, devices=devices(1, includes=[{"name": "a"}]))
    assert problems(resources.SLICE, narrow) == set()
    kinds: Json = {"counterSet": [{"name": "a", "counters": counted("x")}, {"name": "b", "counters": counted("y")}]}
    full = samples.slice_(mixins=kinds, devices=None, sharedCounters=[{"name": "s", "includes": included}])
    assert "Invalid spec.sharedCounters[0].includes" in problems(resources.SLICE, full)


def test_a_counter_mixin_without_counters_is_refused() -> None:
    empty = samples.slice_(mixins={"deviceCounterConsumption": [{"name": "a"}]}, devices=devices(1))
    assert problems(resources.SLICE, empty) == {"Required spec.mixins.deviceCounterConsumption[0].counters"}
