"""RBAC: who may do what, by roles and bindings, at the real server."""

from collections.abc import Callable

import httpx
import pytest

from drakit_cluster.access import authorizer, users
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.users import Attributes, User
from drakit_cluster.api import apiserver, registry, tls
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import (
    CLAIM,
    CLASS,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIGMAP,
    LEASE,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SELF_ACCESS_REVIEW,
    SELF_REVIEW,
    SELF_RULES_REVIEW,
    SLICE,
)
from unit.cluster import samples

Connect = Callable[[str], client.ApiClient]


def rule(verbs: str, resources: str, *, group: str = "resource.k8s.io", names: str = "") -> Json:
    found: Object = {"apiGroups": [group], "verbs": list(verbs.split()), "resources": list(resources.split())}
    return found | ({"resourceNames": list(names.split())} if names else {})


def grant(memory: registry.Registry, user: str, *given: Json, namespace: str = "") -> None:
    """Let ``user`` do what the rules say, in the cluster or in one namespace."""
    role, binding = (ROLE, ROLE_BINDING) if namespace else (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
    metadata: Object = {"name": f"for-{user}"}
    memory.create(role, {"metadata": metadata, "rules": list(given)}, namespace=namespace)
    reference: Json = {"kind": role.kind, "name": f"for-{user}"}
    subjects: list[Json] = [{"kind": "User", "name": user}]
    memory.create(binding, {"metadata": metadata, "roleRef": reference, "subjects": subjects}, namespace=namespace)


@pytest.mark.parametrize(
    "given, wanted, allowed",
    [
        (rule("get", "resourceclaims"), Attributes(verb="get", group="resource.k8s.io", resource="resourceclaims"), True),
        (rule("*", "*", group="*"), Attributes(verb="associated-node:patch", resource="x", subresource="y"), True),
        (rule("get", "resourceclaims"), Attributes(verb="list", group="resource.k8s.io", resource="resourceclaims"), False),
        (rule("get", "resourceclaims"), Attributes(verb="get", resource="resourceclaims"), False),
        (rule("get", "pods", group=""), Attributes(verb="get", resource="pods", subresource="status"), False),
        (rule("get", "pods/status", group=""), Attributes(verb="get", resource="pods"), False),
        (rule("get", "*/status", group=""), Attributes(verb="get", resource="pods", subresource="status"), True),
        (rule("get", "pods", group="", names="a b"), Attributes(verb="get", resource="pods", name="b"), True),
        (rule("get", "pods", group="", names="a"), Attributes(verb="get", resource="pods", name="b"), False),
        (rule("list", "pods", group="", names="a"), Attributes(verb="list", resource="pods"), False),
        (rule("associated-node:*", "pods", group=""), Attributes(verb="associated-node:patch", resource="pods"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes(verb="get", path="/api/v1"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/api/*"]}, Attributes(verb="get", path="/api"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, Attributes(verb="post", path="/healthz"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, Attributes(verb="get", resource="pods"), False),
    ],
)
def test_a_rule_allows_what_it_names_and_nothing_else(given: Object, wanted: Attributes, allowed: bool) -> None:  # noqa: FBT001
    assert authorizer.allows(given, wanted) is allowed


@pytest.mark.parametrize(
    "subject, bound",
    [
        ({"kind": "User", "name": "system:serviceaccount:a:x"}, True),
        ({"kind": "User", "name": "x"}, False),
        ({"kind": "Group", "name": "system:serviceaccounts:a"}, True),
        ({"kind": "Group", "name": "system:nodes"}, False),
        ({"kind": "ServiceAccount", "name": "x", "namespace": "a"}, True),
        ({"kind": "ServiceAccount", "name": "x"}, True),
        ({"kind": "ServiceAccount", "name": "x", "namespace": "b"}, False),
    ],
)
def test_a_binding_names_users_groups_and_service_accounts(subject: Object, bound: bool) -> None:  # noqa: FBT001
    name, groups = users.account_name("a", "x"), users.account_groups("a")
    assert authorizer.is_subject(subject, name, groups, ("a", "x"), "a") is bound


def test_a_user_without_roles_may_only_read_discovery(guarded: apiserver.ApiServer, connect: Connect) -> None:
    nobody = connect(guarded.issue_token("nobody"))
    with pytest.raises(errors.ForbiddenError) as refused:
        nobody.list(SLICE)
    message = 'resourceslices.resource.k8s.io is forbidden: User "nobody" cannot list resource "resourceslices" in API group'
    assert refused.value.message == f'{message} "resource.k8s.io" at the cluster scope'
    with pytest.raises(errors.ForbiddenError, match=r'pods "p1" is forbidden: .* in the namespace "default"'):
        nobody.get(POD, "p1", "default")
    token = guarded.issue_token("nobody")
    with httpx.Client(base_url=guarded.url, verify=tls.client_context(guarded.ca_pem), trust_env=False) as raw:
        raw.headers["authorization"] = f"Bearer {token}"
        for path in ("/api", "/apis", "/apis/resource.k8s.io/v1", "/openapi/v3", "/version", "/readyz"):
            assert raw.get(path).status_code == 200, path
        for path in ("/metrics", "/nothing", "/logs"):
            assert raw.get(path).status_code == 403, path
            assert raw.get(path).json()["reason"] == "Forbidden"


def test_the_administrator_may_do_everything(guarded: apiserver.ApiServer, connect: Connect) -> None:
    admin = connect(guarded.issue_token("root", (users.MASTERS,)))
    admin.create(CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    assert admin.list(SLICE).items == []


def test_a_role_works_in_its_namespace_only(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    grant(memory, "ann", rule("create get", "resourceclaims"), namespace="default")
    ann = connect(guarded.issue_token("ann"))
    assert ann.create(CLAIM, samples.claim())["kind"] == "ResourceClaim"
    with pytest.raises(errors.ForbiddenError):
        ann.create(CLAIM, samples.claim(namespace="kube-system"))
    with pytest.raises(errors.ForbiddenError):
        ann.list(CLAIM, namespace="default")


def test_a_cluster_role_can_be_bound_in_one_namespace(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    subjects: list[Json] = [{"kind": "User", "name": "bob"}]
    binding: Object = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects}
    stored = memory.create(ROLE_BINDING, binding, namespace="default")
    assert json_types.text(stored, "roleRef", "apiGroup") == "rbac.authorization.k8s.io"
    bob = connect(guarded.issue_token("bob"))
    assert bob.list(CLAIM, namespace="default").items == []
    with pytest.raises(errors.ForbiddenError):
        bob.list(CLAIM, namespace="kube-system")
    memory.delete(ROLE_BINDING, "b", namespace="default")
    with pytest.raises(errors.ForbiddenError):
        bob.list(CLAIM, namespace="default")


def test_resource_names_limit_a_rule_and_a_list_of_one_name_is_allowed(
    memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect
) -> None:
    grant(memory, "cy", rule("get list watch", "configmaps", group="", names="one"))
    cy = connect(guarded.issue_token("cy"))
    for name in ("one", "two"):
        memory.create(CONFIGMAP, {"metadata": {"name": name}, "data": {"a": "b"}}, namespace="default")
    assert cy.get(CONFIGMAP, "one", "default")["data"] == {"a": "b"}
    assert len(cy.list(CONFIGMAP, namespace="default", field_selector="metadata.name=one").items) == 1
    for namespace, selector in (("default", ""), ("default", "metadata.name=two")):
        with pytest.raises(errors.ForbiddenError):
            cy.list(CONFIGMAP, namespace=namespace, field_selector=selector)


def test_an_aggregated_role_has_the_rules_of_those_it_selects(memory: registry.Registry) -> None:
    selectors: list[Json] = [{"matchLabels": {"part": "yes"}}]
    memory.create(CLUSTER_ROLE, {"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": selectors}})
    reference: Json = {"kind": "ClusterRole", "name": "sum"}
    subjects: list[Json] = [{"kind": "Group", "name": "g"}]
    memory.create(CLUSTER_ROLE_BINDING, {"metadata": {"name": "sum"}, "roleRef": reference, "subjects": subjects})
    authorizer = Authorizer(store=memory.store)
    user, wanted = User(name="u", groups=("g",)), Attributes(verb="get", group="resource.k8s.io", resource="deviceclasses")
    assert not authorizer.allows(user, wanted)
    memory.create(CLUSTER_ROLE, {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": [rule("get", "deviceclasses")]})
    assert authorizer.allows(user, wanted)


def test_an_apply_that_creates_needs_the_right_to_create(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    grant(memory, "dan", rule("patch", "deviceclasses"))
    dan = connect(guarded.issue_token("dan"))
    body: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    with pytest.raises(errors.ForbiddenError, match='cannot create resource "deviceclasses"'):
        dan.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="dan")
    memory.create(CLASS, {"metadata": {"name": "gpu"}, "spec": {}})
    assert dan.patch(CLASS, "gpu", body, kind=PatchKind.APPLY, manager="dan")["kind"] == "DeviceClass"


def test_access_reviews_report_the_rights_of_a_user(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> None:
    grant(memory, "eve", rule("get", "resourceclaims"), namespace="default")
    eve = connect(guarded.issue_token("eve", extra={"shoe": ("42",)}))

    def may(verb: str, namespace: str) -> Json:
        wanted: Object = {"verb": verb, "group": "resource.k8s.io", "resource": "resourceclaims", "namespace": namespace}
        answer = eve.create(SELF_ACCESS_REVIEW, {"spec": {"resourceAttributes": wanted}})
        return json_types.at(answer, "status", "allowed")

    assert [may("get", "default"), may("list", "default"), may("get", "kube-system")] == [True, False, False]
    url = eve.create(SELF_ACCESS_REVIEW, {"spec": {"nonResourceAttributes": {"path": "/apis", "verb": "get"}}})
    assert json_types.at(url, "status", "allowed") is True
    with pytest.raises(errors.InvalidError):
        eve.create(SELF_ACCESS_REVIEW, {"spec": {}})
    found = eve.create(SELF_RULES_REVIEW, {"spec": {"namespace": "default"}})
    assert rule("get", "resourceclaims") in json_types.items(found, "status", "resourceRules")
    me = json_types.mapping(eve.create(SELF_REVIEW, {}), "status", "userInfo")
    assert me == {"username": "eve", "groups": ["system:authenticated"], "extra": {"shoe": ["42"]}}


@pytest.mark.parametrize(
    "resource, body, field",
    [
        (CLUSTER_ROLE, {"rules": [{"verbs": ["get"]}]}, "rules[0].apiGroups"),
        (CLUSTER_ROLE, {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs"),
        (CLUSTER_ROLE_BINDING, {"roleRef": {"kind": "Role", "name": "x"}}, "roleRef.kind"),
        (
            CLUSTER_ROLE_BINDING,
            {"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [{"kind": "Dog", "name": "x"}]},
            "subjects[0]",
        ),
    ],
)
def test_invalid_roles_and_bindings_are_refused(memory: registry.Registry, resource: object, body: Object, field: str) -> None:
    assert resource in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
    target = CLUSTER_ROLE if resource is CLUSTER_ROLE else CLUSTER_ROLE_BINDING
    with pytest.raises(errors.InvalidError) as refused:
        memory.create(target, body | {"metadata": {"name": "x"}})
    assert any(cause.field.startswith(field) for cause in refused.value.details.causes)


def test_the_role_of_a_binding_is_immutable(memory: registry.Registry) -> None:
    reference: Object = {"kind": "ClusterRole", "name": "view"}
    made = memory.create(CLUSTER_ROLE_BINDING, {"metadata": {"name": "x"}, "roleRef": reference})
    with pytest.raises(errors.InvalidError, match="cannot change roleRef"):
        memory.update(CLUSTER_ROLE_BINDING, made | {"roleRef": reference | {"name": "edit"}})


@pytest.fixture
def kubelet(memory: registry.Registry, guarded: apiserver.ApiServer, connect: Connect) -> client.ApiClient:
    for name in ("n1", "n2"):
        memory.create(NODE, {"metadata": {"name": name}})
        memory.create(SLICE, samples.slice_(f"s-{name}", nodeName=name))
        memory.create(POD, samples.pod(f"p-{name}", node=name))
    return connect(guarded.issue_node_token("n1"))


def test_a_kubelet_may_write_its_own_node_pods_and_slices(kubelet: client.ApiClient, memory: registry.Registry) -> None:
    assert len(kubelet.list(POD, field_selector="spec.nodeName=n1").items) == 1
    kubelet.patch(NODE, "n1", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE)
    kubelet.patch(NODE, "n1", {"status": {"phase": "x"}}, kind=PatchKind.MERGE, subresource="status")
    status: Object = {"status": {"phase": "Running"}}
    kubelet.patch(POD, "p-n1", status, namespace="default", kind=PatchKind.STRATEGIC, subresource="status")
    kubelet.create(SLICE, samples.slice_("mine"))
    kubelet.create(LEASE, {"metadata": {"name": "n1"}}, namespace="kube-node-lease")
    kubelet.patch(LEASE, "n1", {"spec": {"holderIdentity": "n1"}}, namespace="kube-node-lease", kind=PatchKind.MERGE)
    assert len(kubelet.delete_collection(SLICE, field_selector="spec.nodeName=n1").items) == 2
    kubelet.delete(POD, "p-n1", namespace="default", grace_seconds=0)
    assert [json_types.text(one, "metadata", "name") for one in memory.list(SLICE).items] == ["s-n2"]


def test_a_kubelet_has_no_rights_on_other_nodes(kubelet: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(CLAIM, samples.claim())
    status: Object = {"status": {"phase": "Running"}}
    refused: list[Callable[[], object]] = [
        lambda: kubelet.list(POD),
        lambda: kubelet.list(POD, field_selector="spec.nodeName=n2"),
        lambda: kubelet.list(SLICE),
        lambda: kubelet.get(SLICE, "s-n2"),
        lambda: kubelet.delete(SLICE, "s-n2"),
        lambda: kubelet.delete_collection(SLICE),
        lambda: kubelet.create(SLICE, samples.slice_("other", nodeName="n2")),
        lambda: kubelet.create(NODE, {"metadata": {"name": "n3"}}),
        lambda: kubelet.create(LEASE, {"metadata": {"name": "n2"}}, namespace="kube-node-lease"),
        lambda: kubelet.create(LEASE, {"metadata": {"name": "n1"}}, namespace="default"),
        lambda: kubelet.get(NODE, "n2"),
        lambda: kubelet.patch(NODE, "n2", {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE),
        lambda: kubelet.patch(POD, "p-n2", status, namespace="default", kind=PatchKind.STRATEGIC, subresource="status"),
        lambda: kubelet.delete(POD, "p-n2", namespace="default", grace_seconds=0),
        lambda: kubelet.get(CLAIM, "c1", "default"),
        lambda: kubelet.list(CLAIM, namespace="default"),
    ]
    for attempt in refused:
        with pytest.raises(errors.ForbiddenError):
            attempt()
    assert len(memory.list(SLICE).items) == 2


def test_a_kubelet_reads_the_claims_of_its_pods(kubelet: client.ApiClient, memory: registry.Registry) -> None:
    memory.create(CLAIM, samples.claim())
    pod = samples.pod("user", node="n1")
    json_types.mapping(pod, "spec")["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c1"}]
    memory.create(POD, pod)
    assert json_types.text(kubelet.get(CLAIM, "c1", "default"), "metadata", "name") == "c1"
    with pytest.raises(errors.ForbiddenError):
        kubelet.update(CLAIM, samples.allocated(samples.claim(), samples.result()), subresource="status")
