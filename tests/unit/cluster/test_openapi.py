"""Every group describes its kinds in an OpenAPI document, with the texts of Kubernetes, as kubectl explain reads them."""

import functools

import pytest

from drakit_cluster.api.http import openapi
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object


@functools.cache
def schemas(prefix: str) -> Object:
    return json_types.mapping(openapi.document(FeatureGates(), f"{openapi.PREFIX}{prefix}"), "components", "schemas")


def parts(field: str) -> tuple[Object, Object]:
    """The schema of a field, such as ``pod.spec``, and that of its type or of its elements' type."""
    kind, *steps = field.split(".")
    resource = next(served for served in resources.SERVED if served.singular == kind)
    served = schemas(resource.prefix)
    gvk: Object = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    node = next(schema for schema in served.values() if gvk in json_types.items(schema, "x-kubernetes-group-version-kind"))
    for step in steps:
        node = json_types.mapping(type_of(json_types.mapping(node), served), "properties", step)
    return json_types.mapping(node), type_of(json_types.mapping(node), served)


def type_of(node: Object, served: Object) -> Object:
    """Follow references, and lists and maps to their elements."""
    for path in (("allOf", 0), ("items",), ("additionalProperties",)):
        if inner := json_types.mapping(node, *path):
            return type_of(inner, served)
    reference = json_types.text(node, "$ref").rpartition("/")[2]
    return json_types.mapping(served, reference) if reference else node


@pytest.mark.parametrize(
    "field, word",
    [
        ("resourceclaim.spec.devices.requests.exactly", "adminAccess"),
        ("resourceslice.spec.devices.consumesCounters", "counterSet"),
        ("daemonset.spec.template.spec", "containers"),
        ("deployment.spec", "replicas"),
        ("lease.spec", "holderIdentity"),
        ("clusterrole.rules", "resourceNames"),
        ("validatingadmissionpolicy.spec.validations", "messageExpression"),
        ("validatingwebhookconfiguration.webhooks.clientConfig", "caBundle"),
        ("devicetaintrule.spec", "deviceSelector"),
        ("resourcepoolstatusrequest.spec", "limit"),
        ("secret", "stringData"),
    ],
)
def test_every_group_describes_its_fields(field: str, word: str) -> None:
    _, kind = parts(field)
    assert word in json_types.mapping(kind, "properties")


@pytest.mark.parametrize(
    "field, text",
    [
        ("pod", "Pod is a collection of containers that can run on a host"),
        ("pod.spec.resourceClaims", "ResourceClaims defines which ResourceClaims must be allocated and reserved"),
        ("pod.spec.containers.livenessProbe.httpGet", "HTTPGetAction describes an action based on HTTP Get requests"),
        ("deployment.spec.strategy.rollingUpdate", "Spec to control the desired behavior of rolling update"),
        ("resourceclaim.spec.devices.requests.exactly", "ExactDeviceRequest is a request for one or more identical devices"),
        ("resourceslice.spec.devices.capacity", "Capacity defines the set of capacities for this device"),
        ("deviceclass.spec", "DeviceClassSpec is used in a"),
        ("job.spec.podFailurePolicy.rules", "A list of pod failure policy rules"),
        ("devicetaintrule.spec.taint", "The device this taint is attached to"),
        ("clusterrole.rules.verbs", "verbs is a list of Verbs that apply"),
        ("podgroup.spec.schedulingPolicy", "PodGroupSchedulingPolicy defines"),
    ],
)
def test_fields_have_the_texts_of_kubernetes(field: str, text: str) -> None:
    assert text in " ".join(" ".join(json_types.text(part, "description") for part in parts(field)).split())
