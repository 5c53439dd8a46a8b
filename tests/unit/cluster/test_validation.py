"""What the API refuses, field by field, at the limits of resource.k8s.io/v1."""

import pytest

from drakit.cluster import features, json_types, resources
from drakit.cluster.features import FeatureGates
from drakit.cluster.json_types import Json, Object
from drakit.cluster.resources import Resource
from drakit.cluster.schema import table as shapes
from drakit.cluster.validation import table
from unit.cluster import samples

GATES = FeatureGates()
TAINT: Json = {"key": "example.com/broken", "effect": "NoSchedule"}
COUNTERS: Json = {"memory": {"value": "1Gi"}}
BIG: Json = {"blob": "x" * (10 * 1024)}


def problems(resource: Resource, new: Object, old: Object | None = None, gates: FeatureGates = GATES) -> set[str]:
    """Return "type field" for each failure, the type without its prefix."""
    decoded = shapes.decode(resource, new)[0]
    before = None if old is None else shapes.decode(resource, old)[0]
    found = table.check(resource, decoded, before, gates)
    return {f"{one.type.removeprefix('FieldValue')} {one.field}" for one in found}


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
        ({"devices": [{"name": "a"}, {"name": "a"}]}, {"Duplicate spec.devices[1].name"}),
        ({"nodeName": None}, {"Required spec"}),
        ({"nodeName": None, "allNodes": True}, set()),
        ({"nodeName": None, "allNodes": False}, {"Required spec", "Invalid spec.allNodes"}),
        ({"allNodes": True}, {"Invalid spec"}),
        ({"nodeName": ""}, {"Required spec", "Invalid spec.nodeName"}),
        (
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}},
            {"Invalid spec.nodeSelector.nodeSelectorTerms"},
        ),
        ({"driver": "Not A Name"}, {"Invalid spec.driver"}),
        ({"driver": "a" * 64}, {"Invalid spec.driver"}),
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
        ({"attributes": {"a": {}}}, {f"Required {D0}.attributes[a]"}),
        ({"attributes": {"a": {"int": 1, "bool": True}}}, {f"Invalid {D0}.attributes[a]"}),
        ({"attributes": {"a": {"ints": []}}}, {f"Required {D0}.attributes[a]"}),
        ({"attributes": {"a": {"string": "x" * 64}}}, set()),
        ({"attributes": {"a": {"string": "\u00fc" * 33}}}, {f"Invalid {D0}.attributes[a].string"}),
        ({"attributes": {"a": {"version": "550.54.15"}}}, set()),
        ({"attributes": {"a": {"version": "535.104.05"}}}, {f"Invalid {D0}.attributes[a].version"}),
        ({"attributes": {"a-b": {"int": 1}}}, {f"Invalid {D0}.attributes[a-b]"}),
        ({"attributes": {"d.example/a/b": {"int": 1}}}, {f"Invalid {D0}.attributes[d.example/a/b]"}),
        ({"attributes": {f"a{i}": {"int": 1} for i in range(33)}}, {f"TooMany {D0}"}),
        ({"capacity": {"m": {}}}, {f"Required {D0}.capacity[m].value"}),
        ({"capacity": {"m": {"value": "1Gi", "requestPolicy": {}}}}, {f"Forbidden {D0}.capacity[m].requestPolicy"}),
        ({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, {f"NotSupported {D0}.taints[0].effect"}),
        ({"consumesCounters": [{"counterSet": "s"}]}, {f"Required {D0}.consumesCounters[0].counters"}),
        ({"nodeName": "n2"}, {f"Forbidden {D0}.nodeName"}),
        ({"bindingConditions": ["a"]}, {f"Required {D0}.bindingFailureConditions"}),
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
        ({"default": "1Gi", "validRange": {"min": "9Gi"}}, {f"Invalid {RANGE}.validRange", f"Invalid {RANGE}.validRange.min"}),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}}, {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "1536Mi", "validRange": {"min": "1Gi", "step": "1Gi"}}, {f"Invalid {RANGE}.validRange.step"}),
        ({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, set()),
        ({"default": "1Gi", "validValues": ["2Gi", "1Gi"]}, {f"Invalid {RANGE}.validValues[1]"}),
        ({"default": "1Gi", "validValues": ["1Gi", "1024Mi"]}, {f"Duplicate {RANGE}.validValues[1]"}),
        ({"default": "3Gi", "validValues": ["1Gi"]}, {f"Invalid {RANGE}.default"}),
        ({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1Gi"}}, {f"Forbidden {RANGE}.validRange"}),
    ],
)
def test_request_policies_make_sense(policy: Json, wanted: set[str]) -> None:
    shared = device(allowMultipleAllocations=True, capacity={"m": {"value": "8Gi", "requestPolicy": policy}})
    assert problems(resources.SLICE, shared) == wanted


def test_driver_pool_and_node_are_immutable() -> None:
    moved = samples.slice_(driver="other.dev", nodeName="n2", pool={"name": "n2", "resourceSliceCount": 1})
    wanted = {"Invalid spec.driver", "Invalid spec.pool.name", "Invalid spec.nodeName"}
    assert problems(resources.SLICE, moved, samples.slice_()) == wanted


def test_an_older_rule_lets_counters_and_devices_share_a_slice() -> None:
    both = samples.slice_(sharedCounters=[{"name": "s", "counters": COUNTERS}])
    older = FeatureGates.of({"DRACountersBesideDevices": True})
    assert problems(resources.SLICE, both) == {"Invalid spec"}
    assert problems(resources.SLICE, both, gates=older) == set()


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


def claim(**spec: Json) -> Object:
    wanted: Object = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}
    return {"metadata": {"name": "c"}, "spec": {"devices": wanted | spec}}


R0 = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    "spec, wanted",
    [
        ({}, set()),
        ({"requests": [{"name": "a"}]}, {f"Required {R0}"}),
        ({"requests": [{"name": "a", "exactly": {}}]}, {f"Required {R0}.exactly.deviceClassName"}),
        ({"requests": [{"exactly": {"deviceClassName": "c"}}]}, {f"Required {R0}.name"}),
        (
            {"requests": [{"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "All", "count": 2}}]},
            {f"Invalid {R0}.exactly.count"},
        ),
        (
            {"requests": [{"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "Some"}}]},
            {f"NotSupported {R0}.exactly.allocationMode"},
        ),
        (
            {"requests": [{"name": f"r{i}", "exactly": {"deviceClassName": "c"}} for i in range(33)]},
            {"TooMany spec.devices.requests"},
        ),
        ({"constraints": [{"matchAttribute": "a.dev/x"}]}, set()),
        ({"constraints": [{"matchAttribute": "x"}]}, {"Invalid spec.devices.constraints[0].matchAttribute"}),
        ({"constraints": [{}]}, {"Required spec.devices.constraints[0]"}),
        (
            {"constraints": [{"requests": ["none"], "distinctAttribute": "a.dev/x"}]},
            {"Invalid spec.devices.constraints[0].requests[0]"},
        ),
        (
            {"config": [{"opaque": {"driver": "a.dev", "parameters": [1]}}]},
            {"Invalid spec.devices.config[0].opaque.parameters"},
        ),
        (
            {"config": [{"opaque": {"driver": "a.dev", "parameters": BIG}}]},
            {"TooLong spec.devices.config[0].opaque.parameters"},
        ),
        ({"config": [{"opaque": {"driver": "a.dev"}}]}, {"Required spec.devices.config[0].opaque.parameters"}),
    ],
)
def test_claims_keep_the_limits(spec: Object, wanted: set[str]) -> None:
    assert problems(resources.CLAIM, claim(**spec)) == wanted
    template: Object = {"metadata": {"name": "t"}, "spec": {"spec": claim(**spec)["spec"]}}
    moved = {one.replace("spec.devices", "spec.spec.devices") for one in wanted}
    assert problems(resources.CLAIM_TEMPLATE, template) == moved


def test_a_claims_spec_and_a_set_allocation_are_immutable() -> None:
    old = samples.allocated(claim(), samples.result())
    assert problems(resources.CLAIM, claim(constraints=[{"matchAttribute": "a.dev/x"}]), claim()) == {"Invalid spec"}
    assert problems(resources.CLAIM, samples.allocated(claim(), samples.result("b")), old) == {"Invalid status.allocation"}
    assert problems(resources.CLAIM, claim(), old) == set()


def test_reservations_need_an_allocation_and_are_limited() -> None:
    people: list[Json] = [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(257)]
    assert problems(resources.CLAIM, claim() | {"status": {"reservedFor": people[:1]}}) == {"Forbidden status.reservedFor"}
    given = samples.allocated(claim(), samples.result())
    json_types.mapping(given, "status")["reservedFor"] = people
    assert problems(resources.CLAIM, given) == {"TooMany status.reservedFor"}


def test_a_claim_that_is_being_deleted_takes_no_new_users() -> None:
    old = samples.allocated(claim(), samples.result())
    json_types.mapping(old, "metadata")["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = samples.allocated(claim(), samples.result())
    json_types.mapping(new, "status")["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    assert problems(resources.CLAIM, new, old) == {"Forbidden status.reservedFor"}


S0 = "status.devices[0]"


@pytest.mark.parametrize(
    "fields, wanted",
    [
        ({"conditions": samples.ready()}, set()),
        ({"device": "gpu-9"}, {f"Invalid {S0}"}),
        (
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {f"Required {S0}.conditions[0].reason", f"Required {S0}.conditions[0].lastTransitionTime"},
        ),
        ({"data": [1]}, {f"Invalid {S0}.data"}),
        ({"networkData": {"ips": ["192.0.2.5/24", "2001:db8::1/64"]}}, set()),
        ({"networkData": {"ips": ["192.0.2.5"]}}, {f"Invalid {S0}.networkData.ips[0]"}),
        ({"networkData": {"ips": ["10.0.0.1/8", "10.0.0.1/8"]}}, {f"Duplicate {S0}.networkData.ips[1]"}),
        ({"networkData": {"interfaceName": "x" * 257}}, {f"TooLong {S0}.networkData.interfaceName"}),
    ],
)
def test_device_statuses_keep_the_rules(fields: Object, wanted: set[str]) -> None:
    given = samples.allocated(claim(), samples.result())
    json_types.mapping(given, "status")["devices"] = [samples.device_status() | fields]
    assert problems(resources.CLAIM, given) == wanted


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
