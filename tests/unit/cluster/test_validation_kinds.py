"""What the API refuses of metadata, and of the smaller kinds: classes, taint rules, questions about pools, resources of containers."""

import pytest

from drakit_cluster.objects import errors, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from unit.cluster import samples
from unit.cluster.judging import problems

TAINT_RULE = Resource(
    group="resource.k8s.io",
    version="v1beta2",
    kind="DeviceTaintRule",
    plural="devicetaintrules",
    singular="devicetaintrule",
    namespaced=False,
)
POOL_REQUEST = Resource(
    group="resource.k8s.io",
    version="v1alpha3",
    kind="ResourcePoolStatusRequest",
    plural="resourcepoolstatusrequests",
    singular="resourcepoolstatusrequest",
    namespaced=False,
)
OWNER: Object = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
LARGE: Json = [{"opaque": {"driver": "a.dev", "parameters": {"blob": "x" * 10240}}}]


def klass(**metadata: Json) -> Object:
    return {"metadata": metadata, "spec": {}}


@pytest.mark.parametrize(
    "metadata, wanted",
    [
        ({}, set()),
        ({"name": ""}, {"Required name"}),
        ({"name": "A"}, {"Invalid name"}),
        ({"generateName": "abc-"}, set()),
        ({"generateName": "abc."}, {"Invalid generateName"}),
        ({"namespace": "x"}, {"Forbidden namespace"}),
        ({"generation": -1}, {"Invalid generation"}),
        ({"labels": {"a": "b c"}}, {"Invalid labels"}),
        ({"labels": {"a b": ""}}, {"Invalid labels"}),
        ({"annotations": {"Example.com/A": ""}}, set()),
        ({"annotations": {"!": ""}}, {"Invalid annotations"}),
        ({"annotations": {"a": "x" * (256 * 1024)}}, {"TooLong annotations"}),
        ({"ownerReferences": [OWNER]}, set()),
        ({"ownerReferences": [OWNER, OWNER]}, {"Invalid ownerReferences"}),
        ({"ownerReferences": [OWNER | {"kind": "Event"}]}, {"Invalid ownerReferences"}),
        (
            {"ownerReferences": [OWNER | {"apiVersion": "", "uid": ""}]},
            {"Invalid ownerReferences.apiVersion", "Invalid ownerReferences.uid"},
        ),
        ({"finalizers": ["a.dev/b", "orphan"]}, set()),
        ({"finalizers": ["mine"]}, {"Invalid finalizers[0]"}),
        ({"finalizers": ["a b/c"]}, {"Invalid finalizers", "Invalid finalizers[0]"}),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, {"Invalid finalizers"}),
        ({"managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}]}, set()),
        (
            {"managedFields": [{"manager": "m" * 129, "operation": "Go", "fieldsType": "V2"}]},
            {"TooLong managedFields[0].manager", "Invalid managedFields[0].operation", "Invalid managedFields[0].fieldsType"},
        ),
    ],
)
def test_new_metadata_is_checked_completely(metadata: Object, wanted: set[str]) -> None:
    assert problems(resources.CLASS, klass(**metadata)) == {one.replace(" ", " metadata.") for one in wanted}


def test_a_namespaced_object_needs_its_namespace() -> None:
    given = samples.claim(namespace="")
    assert "Required metadata.namespace" in problems(resources.CLAIM, given)
    assert "Invalid metadata.namespace" in problems(resources.CLAIM, samples.claim(namespace="A.b"))


@pytest.mark.parametrize(
    "new, old, wanted",
    [
        ({"uid": "b"}, {"uid": "a"}, {"Invalid uid"}),
        ({"name": "b"}, {"name": "a"}, {"Invalid name"}),
        ({"resourceVersion": ""}, {}, {"Invalid resourceVersion"}),
        ({"generation": 1}, {"generation": 2}, {"Invalid generation"}),
        ({"uid": ""}, {}, set()),
        ({"deletionGracePeriodSeconds": 0}, {}, {"Invalid deletionGracePeriodSeconds"}),
        ({"labels": {"a": "!"}}, {}, {"Invalid labels"}),
        ({"finalizers": ["a.dev/b"]}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"Invalid deletionTimestamp", "Forbidden finalizers"}),
    ],
)
def test_identity_fields_are_immutable(new: Object, old: Object, wanted: set[str]) -> None:
    assert problems(resources.CLASS, klass(**new), klass(**old)) == {one.replace(" ", " metadata.") for one in wanted}


@pytest.mark.parametrize(
    "spec, wanted",
    [
        ({"extendedResourceName": "gpu.dev/gpu"}, set()),
        ({"extendedResourceName": "gpu"}, {"Invalid spec.extendedResourceName"}),
        ({"extendedResourceName": "requests.dev/gpu"}, {"Invalid spec.extendedResourceName"}),
        ({"extendedResourceName": "a.kubernetes.io/gpu"}, {"Invalid spec.extendedResourceName"}),
        ({"selectors": [{"cel": {"expression": "1"}}]}, {"Invalid spec.selectors[0].cel.expression"}),
        ({"config": [{"opaque": {"driver": "A_", "parameters": {}}}]}, {"Invalid spec.config[0].opaque.driver"}),
        ({"config": LARGE}, {"TooLong spec.config[0].opaque.parameters"}),
    ],
)
def test_classes_keep_the_rules(spec: Object, wanted: set[str]) -> None:
    assert problems(resources.CLASS, {"spec": spec}) == wanted
    assert problems(resources.CLASS, {"spec": spec}, {"spec": {}}) == wanted


def test_a_class_keeps_large_parameters_that_are_stored() -> None:
    stored: Object = {"spec": {"config": LARGE}}
    assert problems(resources.CLASS, {"spec": {"config": LARGE, "extendedResourceName": "a.dev/b"}}, stored) == set()


def rule(chosen: Json = None, **taint: Json) -> Object:
    return {"spec": {"deviceSelector": chosen, "taint": {"key": "a.dev/b", "effect": "NoSchedule", **taint}}}


def test_taint_rules_choose_devices_by_well_formed_names() -> None:
    assert problems(TAINT_RULE, rule()) == set()
    assert problems(TAINT_RULE, rule({})) == set()
    found = problems(TAINT_RULE, rule({"driver": "", "pool": "a//b", "device": "A"}, effect="Never"))
    chosen = {"Required spec.deviceSelector.driver", "Invalid spec.deviceSelector.pool", "Invalid spec.deviceSelector.device"}
    assert found == chosen | {"NotSupported spec.taint.effect"}


def test_an_effect_that_is_stored_stays() -> None:
    assert problems(TAINT_RULE, rule(effect="Newer", value="x"), rule(effect="Newer")) == set()
    assert problems(TAINT_RULE, rule(effect="Newer"), rule()) == {"NotSupported spec.taint.effect"}


def test_a_taint_rules_status_is_a_list_of_conditions() -> None:
    given = rule() | {"status": {"conditions": samples.ready("Perhaps")}}
    assert problems(TAINT_RULE, given, rule(), subresource="status") == {"NotSupported status.conditions[0].status"}


def question(**spec: Json) -> Object:
    return {"spec": {"driver": "a.dev", **spec}}


@pytest.mark.parametrize(
    "spec, wanted",
    [
        ({"limit": 1000, "poolName": "n1/a"}, set()),
        ({"driver": ""}, {"Required spec.driver"}),
        ({"limit": 0}, {"Invalid spec.limit"}),
        ({"limit": 1001}, {"Invalid spec.limit"}),
        ({"poolName": ""}, {"Required spec.poolName"}),
    ],
)
def test_pool_status_requests_keep_the_rules(spec: Object, wanted: set[str]) -> None:
    assert problems(POOL_REQUEST, question(**spec)) == wanted


def test_a_pool_status_request_is_answered_once() -> None:
    assert problems(POOL_REQUEST, question(limit=2), question()) == {"Invalid spec"}
    answered = question() | {"status": {"poolCount": 1}}
    assert problems(POOL_REQUEST, answered, question(), subresource="status") == set()
    again = question() | {"status": {"poolCount": 2}}
    assert problems(POOL_REQUEST, again, answered, subresource="status") == {"Invalid status"}


def test_an_answer_names_pools_and_has_no_negative_count() -> None:
    pool: Json = {"driver": "a.dev", "poolName": "", "generation": -1, "resourceSliceCount": 0, "validationError": "x" * 257}
    found = problems(POOL_REQUEST, question() | {"status": {"poolCount": -1, "pools": [pool]}}, question(), subresource="status")
    wanted = {f"{kind} status.pools[0].{field}" for kind, field in (("Required", "poolName"), ("Invalid", "generation"))}
    wanted |= {"Invalid status.pools[0].resourceSliceCount", "TooLong status.pools[0].validationError"}
    assert found == wanted | {"Invalid status.poolCount"}


@pytest.mark.parametrize(
    "container_resources, wanted",
    [
        (
            {
                "limits": {"cpu": 2, "memory": "4Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": 1},
                "requests": {"cpu": 1, "nvidia.com/gpu": "1"},
            },
            set(),
        ),
        ({"limits": {"deviceclass.resource.kubernetes.io/mig.drakit.dev": 1}}, set()),
        ({"limits": {"mig.drakit.dev": 1}}, {"Invalid limits[mig.drakit.dev]"}),
        ({"requests": {"gpu": 1}}, {"Invalid requests[gpu]"}),
        ({"limits": {"A_/b": 1, "requests.a/b": 1}}, {"Invalid limits[A_/b]", "Invalid limits[requests.a/b]"}),
        ({"limits": {"cpu": -1, "a.dev/b": "500m"}}, {"Invalid limits[cpu]", "Invalid limits[a.dev/b]"}),
        ({"requests": {"a.dev/b": 1}}, {"Required limits"}),
        ({"limits": {"a.dev/b": 2, "cpu": 1}, "requests": {"a.dev/b": 1, "cpu": 1}}, {"Invalid requests"}),
        ({"limits": {"memory": "1Gi"}, "requests": {"memory": "1025Mi"}}, {"Invalid requests"}),
        ({"claims": [{"name": "g", "request": "a"}, {"name": "g", "request": "b"}]}, set()),
        ({"claims": [{"name": "g", "request": "a"}, {"name": "g", "request": "a"}]}, {"Duplicate claims[1]"}),
        ({"claims": [{"name": "g"}, {"name": "g", "request": "b"}]}, {"Duplicate claims[1]"}),
        ({"claims": [{"name": "g", "request": "b"}, {"name": "g"}]}, {"Duplicate claims[1]"}),
        ({"claims": [{"name": "g", "request": "a/b"}]}, {"Invalid claims[0].request"}),
    ],
)
@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_resources_of_containers_keep_the_rules(group: str, container_resources: Json, wanted: set[str]) -> None:
    container: Json = {"name": "c", "image": "i", "resources": container_resources}
    spec: Object = {
        "containers": [{"name": "d", "image": "i"}],
        "resourceClaims": [{"name": "g", "resourceClaimName": "g"}],
        group: [container],
    }
    found = problems(resources.POD, {"spec": spec})
    assert {one.replace(f"spec.{group}[0].resources.", "") for one in found} == wanted


def test_an_amount_of_a_container_is_a_quantity() -> None:
    amounts: list[Json] = ["lots", "4GB", [{"name": "g"}]]
    for amount in amounts:
        container: Json = {"name": "c", "resources": {"limits": {"memory": amount}}}
        with pytest.raises(errors.BadRequestError, match=r"spec.containers\[0\].resources.limits\[memory\]: want a quantity"):
            problems(resources.POD, {"spec": {"containers": [container]}})
