"""Kubernetes versions as data: gates, fields, served kinds, rules and limits of 1.34 to 1.38."""

import dataclasses
import json
import pathlib

import kubernetes_validate
import pytest

from drakit_cluster.api import registry
from drakit_cluster.objects import errors, features, json_types, resources, versions
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import ListOf, MapOf, Shape, Struct

SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def test_every_gate_has_a_row_and_every_row_a_gate() -> None:
    assert {gate.value for gate in Gate} == set(versions.GATES)


@pytest.mark.parametrize(
    "gate, states",
    [
        (Gate.DEVICE_TAINTS, [False, False, True, True, True]),
        (Gate.DEVICE_TAINT_RULES, [False, False, False, True, True]),
        (Gate.FRACTIONAL_CAPACITY_RANGE, [False, False, False, True, True]),
        (Gate.COMPATIBILITY_GROUPS, [False] * 5),
        (Gate.PRIORITIZED_LIST, [True] * 5),
        (Gate.PARTITIONABLE_DEVICES, [False, False, True, True, True]),
    ],
)
def test_the_defaults_of_gates_are_those_of_the_version(gate: Gate, states: list[bool]) -> None:
    assert [FeatureGates.of({}, version).on(gate) for version in versions.ALL] == states


def test_a_gate_that_a_version_does_not_have_is_refused_with_the_versions() -> None:
    with pytest.raises(ValueError, match=r"Kubernetes 1\.36 has no feature gate DRADerivedAttributes; 1\.37 and later have it"):
        FeatureGates.of({"DRADerivedAttributes": True}, "1.36")
    assert FeatureGates.of({"DRAMixins": True}, "1.36").on(Gate.MIXINS), "the former name, and a gate of no released version"


def test_every_field_of_the_table_is_in_the_shape_of_its_versions_only() -> None:
    for resource, spans in versions.FIELDS.items():
        for span, paths in spans.items():
            for version in versions.ALL:
                absent = {steps for _, steps in features.absent_fields(resource, FeatureGates.of({}, version))}
                for path in paths.split():
                    steps = tuple(path.replace("[]", ".[]").replace("{}", ".{}").split("."))
                    assert (steps in absent) is not versions.within(span, version)
                    assert has_field(resource, steps, None), f"no shape has {path}"
                    assert has_field(resource, steps, version) is versions.within(span, version), (path, version)


def shape_fields(shape: Shape, path: str = "") -> set[str]:
    """Return the paths of a shape's fields, except those of metadata."""
    if isinstance(shape, ListOf):
        return shape_fields(shape.item, f"{path}[]")
    if isinstance(shape, MapOf):
        return shape_fields(shape.value, f"{path}{{}}")
    if not isinstance(shape, Struct):
        return set()
    within = {f"{path}.{name}": field for name, field in shape.fields.items() if name != "metadata"}
    return set(within).union(*(shape_fields(field, where) for where, field in within.items()))


def published_fields(definitions: dict[str, dict[str, object]], node: dict[str, object], path: str = "") -> set[str]:
    """Return the paths of a published schema's fields, except those of metadata."""
    while isinstance(reference := node.get("$ref"), str):
        node = definitions[reference.rpartition("/")[2]]
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := node.get(key), dict):
            return published_fields(definitions, inner, path + mark)
    properties = node.get("properties")
    within = {f"{path}.{name}": field for name, field in properties.items() if name != "metadata"} if isinstance(properties, dict) else {}
    return set(within).union(*(published_fields(definitions, field, where) for where, field in within.items()))


NOT_FOLLOWED = {".spec.deviceSelector.deviceClassName", ".spec.deviceSelector.selectors"}
"""Fields of DeviceTaintRules in 1.34 only."""


@pytest.mark.parametrize("version", [version for version in versions.ALL if version not in versions.PLANNED])
def test_the_fields_of_every_kind_are_those_of_the_published_schema(version: str) -> None:
    definitions = json.loads((SCHEMAS / f"v{version}.0-local" / "_definitions.json").read_text())["$defs"]
    kinds = [one for one in resources.SERVED if one.group == resources.RESOURCE_GROUP]
    compared = set()
    for resource in kinds:
        published = definitions.get(f"io.k8s.api.resource.{resource.version}.{resource.kind}")
        assert (published is not None) is versions.within(versions.SERVED[resource.kind][resource.version], version), resource.api_version
        if published is not None:
            theirs = {path for path in published_fields(definitions, published) if not any(path.startswith(old) for old in NOT_FOLLOWED)}
            assert shape_fields(table.shape_of(resource, FeatureGates.of({}, version))) == theirs, resource.api_version
            compared.add(resource.kind)
    assert compared >= {"ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "DeviceTaintRule"}


def has_field(resource: resources.Resource, steps: tuple[str, ...], version: str | None) -> bool:
    """Return whether a shape has a field."""
    shape = table.shape_of(resource, FeatureGates.of({}, version) if version else None)
    for step in steps:
        if step == "[]":
            shape = shape.item  # type: ignore[attr-defined]
        elif step == "{}":
            shape = shape.value  # type: ignore[attr-defined]
        elif step in shape.fields:
            shape = shape.fields[step]  # type: ignore[assignment]
        else:
            return False
    return True


@pytest.mark.parametrize(
    "version, rules, pool_statuses",
    [
        ("1.34", [], []),
        ("1.35", [], []),
        ("1.36", [], []),
        ("1.37", ["v1", "v1beta2", "v1alpha3"], []),
        ("1.38", ["v1", "v1beta2", "v1alpha3"], []),
    ],
)
def test_a_version_serves_kinds_at_its_api_versions(version: str, rules: list[str], pool_statuses: list[str]) -> None:
    gates = FeatureGates.of({}, version)

    def served(kind: str) -> list[str]:
        return [one.version for one in resources.SERVED if one.kind == kind and gates.serves(one)]

    assert (served("DeviceTaintRule"), served("ResourcePoolStatusRequest")) == (rules, pool_statuses)
    assert served("ResourceClaim") == ["v1", "v1beta2"]


def test_a_beta_api_is_served_with_its_gate() -> None:
    gates = FeatureGates.of({"DRADeviceTaintRules": True}, "1.36")
    served = [one.version for one in resources.SERVED if one.kind == "DeviceTaintRule" and gates.serves(one)]
    assert served == ["v1beta2", "v1alpha3"]
    text = features.not_served(resources.TAINT_RULE, gates)
    assert text == (
        "resource.k8s.io/v1 is not served by Kubernetes 1.36, but by 1.37 and later: "
        "write resource.k8s.io/v1beta2 or resource.k8s.io/v1alpha3"
    )


def test_an_api_that_is_off_by_default_and_not_served_is_said_to_be_so() -> None:
    old = dataclasses.replace(resources.CLAIM, version="v1beta1")
    assert features.not_served(old, FeatureGates.of({}, "1.37")) == (
        "resource.k8s.io/v1beta1 is not served here, as it is off by default in Kubernetes 1.37: "
        "write resource.k8s.io/v1 or resource.k8s.io/v1beta2"
    )


def a_slice(**spec: object) -> Object:
    """Return a slice of one driver on every node."""
    fields = json_types.parse(
        json.dumps({"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1}, "allNodes": True} | spec)
    )
    return {"metadata": {"name": "s"}, "spec": fields}


def refusal(version: str, obj: Object, *, on: tuple[str, ...] = ()) -> set[str]:
    """Return the fields that a server of a version refuses."""
    try:
        registry.Registry(gates=FeatureGates.of(dict.fromkeys(on, True), version)).create(resources.SLICE, obj)
    except errors.InvalidError as error:
        return {cause.field for cause in error.details.causes}
    return set()


def test_names_with_two_slashes_are_refused_from_1_38() -> None:
    named = a_slice(devices=[{"name": "d", "attributes": {"a/b/c": {"string": "x"}}, "capacity": {"a/b/c": {"value": "1"}}}])
    assert refusal("1.37", named) == set()
    assert refusal("1.38", named) == {"spec.devices[0].attributes", "spec.devices[0].capacity"}


def test_a_devices_node_selector_with_two_terms_is_refused_from_1_38() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    device = {"name": "d", "nodeSelector": {"nodeSelectorTerms": [term, term]}}
    both = a_slice(allNodes=None, perDeviceNodeSelection=True, devices=[device])
    assert refusal("1.37", both) == set()
    assert refusal("1.38", both) == {"spec.devices[0].nodeSelector.nodeSelectorTerms"}


def test_1_34_has_other_limits_of_taints_and_counters() -> None:
    taints = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(5)]
    tainted = a_slice(devices=[{"name": f"d{number}", "taints": taints} for number in range(64)])
    on = ("DRADeviceTaints", "DRAPartitionableDevices")
    assert refusal("1.34", tainted, on=on) == {f"spec.devices[{number}].taints" for number in range(64)}
    assert refusal("1.35", tainted, on=on) == set()
    one = a_slice(devices=[{"name": "d", "taints": [{"key": "k", "effect": "None"}]}])
    assert refusal("1.34", one, on=on) == {"spec.devices[0].taints[0].effect"}
    together = a_slice(
        sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}],
        devices=[{"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]}],
    )
    assert (refusal("1.34", together, on=on), refusal("1.35", together, on=on)) == (set(), {"spec"})
    apart = a_slice(devices=[{"name": "d", "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]}])
    assert refusal("1.34", apart, on=on) == {"spec.devices[0].consumesCounters[0].counterSet"}
    assert refusal("1.35", apart, on=on) == set()


NEW = ("DRADeviceCompatibilityGroups", "DRAPartitionableDevicesType", "DRAOptionalNodeOperations", "DRANodeAllocatableResources")


def test_fields_of_1_37_are_stored_with_their_gates_and_dropped_without() -> None:
    counters = {"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["mig"]}
    device = {
        "name": "d",
        "attributes": {"profile": {"string": "1g"}},
        "nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi"}}},
        "consumesCounters": [counters],
    }
    obj = a_slice(devices=[device], partitionTypeAttribute="d.example.com/profile", skipNodeOperations=["*"])

    def stored(version: str, *on: str) -> Object:
        gates = FeatureGates.of(dict.fromkeys(on, True), version)
        return json_types.mapping(registry.Registry(gates=gates).create(resources.SLICE, obj), "spec")

    full = stored("1.37", *NEW)
    assert full["devices"] == json_types.mapping(obj, "spec")["devices"]
    assert (full["partitionTypeAttribute"], full["skipNodeOperations"]) == ("d.example.com/profile", ["*"])
    for version in ("1.36", "1.37"):
        bare = stored(version)
        text = json.dumps(bare)
        assert not any(name in text for name in ("compatibilityGroups", "partitionType", "skipNode", "nodeAllocatable")), version


@pytest.mark.parametrize(
    "change, field",
    [
        ({"skipNodeOperations": ["NodePrepareResources"]}, "spec.skipNodeOperations"),
        ({"skipNodeOperations": ["Sleep"]}, "spec.skipNodeOperations[0]"),
        ({"partitionTypeAttribute": "d.example.com/profile"}, "spec.partitionTypeAttribute"),
        (
            {"devices": [{"name": "d", "nodeAllocatableResources": {"memory": {}}}]},
            "spec.devices[0].nodeAllocatableResources[memory]",
        ),
        (
            {
                "devices": [
                    {"name": "d", "nodeAllocatableResources": {"memory": {"mapping": {"capacityKey": "x", "capacityMultiplier": "1"}}}}
                ]
            },
            "spec.devices[0].nodeAllocatableResources[memory].mapping.capacityKey",
        ),
        (
            {
                "devices": [
                    {
                        "name": "d",
                        "consumesCounters": [
                            {"counterSet": "c", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["a", "b", "c"]}
                        ],
                    }
                ]
            },
            "spec.devices[0].consumesCounters[0].compatibilityGroups",
        ),
    ],
)
def test_wrong_values_of_1_37s_fields_are_refused(change: dict[str, object], field: str) -> None:
    assert refusal("1.37", a_slice(**change), on=NEW) == {field}


@pytest.mark.parametrize(
    "git, nearest",
    [("v1.36.2+k3s1", "1.36"), ("v1.37.0", "1.37"), ("v1.30.1", "1.34"), ("v1.41.0", "1.38"), ("strange", "1.37"), ("v1.36+", "1.36")],
)
def test_a_servers_version_is_taken_as_the_nearest_known_one(git: str, nearest: str) -> None:
    assert versions.nearest(git) == nearest
