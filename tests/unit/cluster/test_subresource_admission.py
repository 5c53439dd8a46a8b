"""Sub-resources that are posted, and the scale: rights, policies and webhooks see the sub-resource itself, and the kind of its body."""

import pytest

from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import DEPLOYMENT, POD, SERVICEACCOUNT
from unit.cluster import samples
from unit.cluster.test_admission_policies import install, simple
from unit.cluster.test_pod_posts import deployment, eviction, post
from unit.cluster.test_roles import grant, rule

BINDING: Object = {"metadata": {"name": "p1"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
TOKEN: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}}
POSTS: dict[str, tuple[str, Json, str]] = {
    "pods/eviction": (POD.path("default", "p1", "eviction"), eviction(), "Eviction"),
    "pods/binding": (POD.path("default", "p1", "binding"), BINDING, "Binding"),
    "serviceaccounts/token": (SERVICEACCOUNT.path("default", "default", "token"), TOKEN, "TokenRequest"),
}
PATTERNS = [(name, pattern) for name in POSTS for pattern in (name, f"{name.partition('/')[0]}/*", f"*/{name.partition('/')[2]}", "*/*")]


def policy(expression: str, resource: str, *operations: str) -> Object:
    matched: Json = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": list(operations), "resources": [resource]}
    return simple(expression) | {"matchConstraints": {"resourceRules": [matched]}}


def create_objects(memory: registry.Registry) -> None:
    memory.create(POD, samples.pod())
    memory.create(DEPLOYMENT, deployment())


@pytest.mark.parametrize("name, pattern", PATTERNS)
def test_a_policy_on_a_posted_subresource_is_evaluated(https: client.ApiClient, memory: registry.Registry, name: str, pattern: str) -> None:
    create_objects(memory)
    install(memory, policy("false", pattern, "CREATE"), "Deny")
    path, body, _ = POSTS[name]
    with pytest.raises(errors.InvalidError, match="denied request"):
        post(https, path, body)
    pod = memory.get(POD, "p1", "default")
    assert "deletionTimestamp" not in json_types.mapping(pod, "metadata")
    assert not json_types.text(pod, "spec", "nodeName")


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize("pattern, operation", [("pods", "CREATE"), ("*", "CREATE"), ("*/*", "UPDATE"), ("pods/status", "CREATE")])
def test_a_policy_on_another_resource_is_not_evaluated_for_a_post(
    https: client.ApiClient, memory: registry.Registry, name: str, pattern: str, operation: str
) -> None:
    create_objects(memory)
    path, body, _ = POSTS[name]
    install(memory, policy("false", pattern, operation), "Deny")
    assert post(https, path, body)


@pytest.mark.parametrize("name", POSTS)
def test_a_policy_sees_the_posted_object_and_its_kind(https: client.ApiClient, memory: registry.Registry, name: str) -> None:
    create_objects(memory)
    path, body, kind = POSTS[name]
    resource, _, subresource = name.partition("/")
    sees = " && ".join(
        (
            f"object.kind == '{kind}'",
            "oldObject == null",
            "request.operation == 'CREATE'",
            f"request.kind.kind == '{kind}'",
            f"request.resource.resource == '{resource}'",
            f"request.subResource == '{subresource}'",
            f"request.name == '{'p1' if resource == 'pods' else 'default'}'",
            "request.namespace == 'default'",
            "namespaceObject.metadata.name == 'default'",
        )
    )
    install(memory, policy(sees, name, "CREATE"), "Deny")
    assert post(https, path, body)


@pytest.mark.parametrize("name", ["pods/eviction", "pods/binding"])
def test_the_change_of_the_pod_behind_a_post_is_not_reviewed_by_itself(
    https: client.ApiClient, memory: registry.Registry, name: str
) -> None:
    create_objects(memory)
    install(memory, policy("false", "pods", "DELETE", "UPDATE"), "Deny")
    assert post(https, *POSTS[name][:2])


def test_a_policy_that_refuses_evictions_refuses_them_as_a_dry_run_too(https: client.ApiClient, memory: registry.Registry) -> None:
    create_objects(memory)
    install(memory, policy("!request.dryRun", "pods/eviction", "CREATE"), "Deny")
    with pytest.raises(errors.InvalidError, match="denied request"):
        post(https, *POSTS["pods/eviction"][:2], dryRun="All")
    assert post(https, *POSTS["pods/eviction"][:2])


@pytest.mark.parametrize("verb", ["update", "patch"])
def test_a_policy_on_the_scale_of_a_deployment_sees_the_scale(https: client.ApiClient, memory: registry.Registry, verb: str) -> None:
    create_objects(memory)
    path = DEPLOYMENT.path("default", "d", "scale")
    sees = "object.kind == 'Scale' && oldObject.spec.replicas == 1 && request.subResource == 'scale' && object.spec.replicas < 3"
    install(memory, policy(sees, "deployments/scale", "UPDATE"), "Deny")
    scale = https._object("GET", path)

    def write(replicas: int) -> Object:
        if verb == "update":
            return https._object("PUT", path, body=scale | {"spec": {"replicas": replicas}})
        return https._object("PATCH", path, body={"spec": {"replicas": replicas}}, media_type=PatchKind.MERGE.value)

    with pytest.raises(errors.InvalidError, match="denied request"):
        write(3)
    assert json_types.number(memory.get(DEPLOYMENT, "d", "default"), "spec", "replicas") == 1
    assert write(2)["spec"] == {"replicas": 2}


@pytest.mark.parametrize("name", [*POSTS, "deployments/scale", "pods/status"])
def test_a_right_to_a_resource_is_none_to_its_subresources(memory: registry.Registry, guarded: apiserver.ApiServer, name: str) -> None:
    create_objects(memory)
    resource, _, subresource = name.partition("/")
    for user, resources in {"whole": f"{resource} {resource}/other", "exact": name, "wild": f"*/{subresource}"}.items():
        grant(memory, user, rule("create update patch get", resources, group="*"))
    for user, is_allowed in (("whole", False), ("exact", True), ("wild", True)):
        with client.ApiClient(server=guarded.url, ca_pem=guarded.ca_pem, token=guarded.issue_token(user)) as api:
            try:
                if name in POSTS:
                    post(api, *POSTS[name][:2], dryRun="All")
                else:
                    kind, obj = (DEPLOYMENT, "d") if subresource == "scale" else (POD, "p1")
                    api._object("GET", kind.path("default", obj, subresource))
                assert is_allowed, user
            except errors.ForbiddenError:
                assert not is_allowed, user
