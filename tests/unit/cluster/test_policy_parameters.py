"""Policies with parameters: which objects they are, and what happens without them."""

import httpx
import pytest

from drakit_cluster.api import registry
from drakit_cluster.client import client
from drakit_cluster.objects import errors
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import ADMISSION_BINDING, ADMISSION_POLICY, CLAIM, CLASS, CONFIGMAP, NAMESPACE
from unit.cluster import samples

CONFIG: Json = {"apiVersion": "v1", "kind": "ConfigMap"}
RULES: list[Json] = [
    {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deviceclasses", "resourceclaims"]}
]
SHORT: Json = {
    "expression": "size(object.metadata.name) <= int(params.data.longest)",
    "messageExpression": "'at most ' + params.data.longest + ' letters, says ' + params.kind + ' ' + params.metadata.name",
}


def install(
    memory: registry.Registry,
    reference: Json,
    *,
    kind: Json = CONFIG,
    validation: Json = SHORT,
    failure: str = "Fail",
    action: str = "Deny",
) -> None:
    spec: Object = {
        "paramKind": kind,
        "matchConstraints": {"resourceRules": RULES},
        "validations": [validation],
        "failurePolicy": failure,
    }
    memory.create(ADMISSION_POLICY, {"metadata": {"name": "short"}, "spec": spec})
    binding: Object = {"policyName": "short", "validationActions": [action]}
    memory.create(ADMISSION_BINDING, {"metadata": {"name": "b"}, "spec": binding | ({"paramRef": reference} if reference else {})})


def limit(memory: registry.Registry, name: str, longest: int, namespace: str = "default", **labels: str) -> None:
    metadata: Object = {"name": name, "namespace": namespace, "labels": {**labels}}
    memory.create(CONFIGMAP, {"metadata": metadata, "data": {"longest": str(longest)}})


def named(name: str, *, namespace: str = "", missing: str = "Deny") -> Object:
    reference: Object = {"name": name, "parameterNotFoundAction": missing}
    return reference | ({"namespace": namespace} if namespace else {})


def test_a_parameter_is_read_by_name_from_the_namespace_that_is_named(https: client.ApiClient, memory: registry.Registry) -> None:
    limit(memory, "limits", 3)
    install(memory, named("limits", namespace="default"))
    assert https.create(CLASS, {"metadata": {"name": "abc"}, "spec": {}})
    with pytest.raises(errors.InvalidError, match="denied request: at most 3 letters, says ConfigMap limits"):
        https.create(CLASS, {"metadata": {"name": "abcd"}, "spec": {}})


def test_without_a_namespace_the_parameter_is_in_that_of_the_object(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(NAMESPACE, {"metadata": {"name": "other"}})
    limit(memory, "limits", 1)
    limit(memory, "limits", 5, "other")
    install(memory, named("limits"))
    with pytest.raises(errors.InvalidError, match="at most 1 letters"):
        https.create(CLAIM, samples.claim("abc"))
    assert https.create(CLAIM, samples.claim("abc", "other"), namespace="other")
    with pytest.raises(errors.InvalidError, match="cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"):
        https.create(CLASS, {"metadata": {"name": "a"}, "spec": {}})


def test_every_selected_parameter_must_agree(https: client.ApiClient, memory: registry.Registry) -> None:
    limit(memory, "loose", 9, team="red")
    limit(memory, "tight", 2, team="red")
    limit(memory, "foreign", 0, team="blue")
    install(memory, {"selector": {"matchLabels": {"team": "red"}}, "parameterNotFoundAction": "Deny"})
    assert https.create(CLAIM, samples.claim("ab"))
    with pytest.raises(errors.InvalidError, match="at most 2 letters, says ConfigMap tight"):
        https.create(CLAIM, samples.claim("abc"))


@pytest.mark.parametrize("missing, failure, taken", [("Allow", "Fail", True), ("Deny", "Fail", False), ("Deny", "Ignore", True)])
def test_a_parameter_that_is_missing_allows_or_denies_as_the_binding_says(
    https: client.ApiClient, memory: registry.Registry, missing: str, failure: str, *, taken: bool
) -> None:
    install(memory, named("nothing", missing=missing), failure=failure, action="Warn")
    if taken:
        assert https.create(CLAIM, samples.claim())
        return
    text = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    with pytest.raises(errors.InvalidError, match=text):
        https.create(CLAIM, samples.claim())


def test_a_binding_without_reference_has_null_parameters(https: client.ApiClient, memory: registry.Registry) -> None:
    install(memory, None, validation={"expression": "params == null", "message": "there is one"})
    assert https.create(CLAIM, samples.claim())


def test_objects_of_the_cluster_can_be_parameters_and_unknown_kinds_cannot(https: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(CLASS, {"metadata": {"name": "rules", "labels": {"longest": "2"}}, "spec": {}})
    validation: Json = {"expression": "size(object.metadata.name) <= int(params.metadata.labels.longest)", "message": "too long"}
    install(memory, named("rules"), kind={"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}, validation=validation)
    assert https.create(CLAIM, samples.claim("ab"))
    with pytest.raises(errors.InvalidError, match="too long"):
        https.create(CLAIM, samples.claim("abc"))
    memory.update(ADMISSION_BINDING, _with_namespace(memory))
    with pytest.raises(errors.InvalidError, match="must not be provided for a cluster-scoped `paramKind`"):
        https.create(CLAIM, samples.claim("a"))
    policy = memory.get(ADMISSION_POLICY, "short")
    policy["spec"] = {**_spec(policy), "paramKind": {"apiVersion": "rules.example.com/v1", "kind": "Limit"}}
    memory.update(ADMISSION_POLICY, policy)
    with pytest.raises(
        errors.InvalidError, match=r"paramKind kind `&ParamKind\{APIVersion:rules\.example\.com/v1,Kind:Limit,\}` not known"
    ):
        https.create(CLAIM, samples.claim("a"))


def _spec(obj: Object) -> Object:
    spec = obj["spec"]
    assert isinstance(spec, dict)
    return spec


def _with_namespace(memory: registry.Registry) -> Object:
    binding = memory.get(ADMISSION_BINDING, "b")
    return binding | {"spec": {**_spec(binding), "paramRef": named("rules", namespace="default")}}


def test_a_warning_has_kubernetes_words(raw: httpx.Client, memory: registry.Registry) -> None:
    limit(memory, "limits", 1)
    install(memory, named("limits", namespace="default"), action="Warn")
    answer = raw.post(CLASS.path(), json={"metadata": {"name": "ab"}, "spec": {}})
    text = "Validation failed for ValidatingAdmissionPolicy 'short' with binding 'b': at most 1 letters, says ConfigMap limits"
    assert answer.headers["warning"] == f'299 - "{text}"'
