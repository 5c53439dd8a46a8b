"""The roles that every cluster begins with, and their bindings; named and meant as Kubernetes' own."""

from drakit_cluster.access import users
from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Resource

RBAC_GROUP = "rbac.authorization.k8s.io"
_DRA = resources.RESOURCE_GROUP
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")


def _rule(group: str, names: tuple[str, ...], verbs: tuple[str, ...]) -> Json:
    return {"apiGroups": [group], "resources": list(names), "verbs": list(verbs)}


def _urls(*paths: str) -> Json:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


_EVERYTHING: list[Json] = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]
_SELF: list[Json] = [
    _rule("authorization.k8s.io", ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)),
    _rule("authentication.k8s.io", ("selfsubjectreviews",), ("create",)),
]
_NODE: list[Json] = [
    _rule("", ("nodes", "nodes/status"), (*_READ, "create", "update", "patch")),
    _rule("", ("pods",), (*_READ, "delete")),
    _rule("", ("pods/status",), ("get", "update", "patch")),
    _rule("", ("pods/eviction",), ("create",)),
    _rule("", ("events",), ("create", "update", "patch")),
    _rule("", ("secrets", "configmaps", "serviceaccounts"), _READ),
    _rule("", ("serviceaccounts/token",), ("create",)),
    _rule("coordination.k8s.io", ("leases",), ("get", *_WRITE)),
    _rule(_DRA, ("resourceclaims",), ("get",)),
    _rule(_DRA, ("resourceslices",), (*_READ, *_WRITE, "deletecollection")),
]
"""What kubelets do at all. Bound to nobody: the node authorizer grants it object by object."""
_SCHEDULER: list[Json] = [
    _rule("", ("nodes", "pods", "namespaces"), _READ),
    _rule("", ("pods", "pods/status"), ("update", "patch")),
    _rule("", ("pods/binding",), ("create",)),
    _rule("", ("events",), ("create", "update", "patch")),
    _rule(_DRA, ("resourceclaims", "deviceclasses", "resourceslices", "devicetaintrules"), _READ),
    _rule(_DRA, ("resourceclaims", "resourceclaims/status", "resourceclaims/binding"), ("update", "patch")),
]
_VIEW: list[Json] = [
    _rule("", ("configmaps", "pods", "events", "namespaces", "serviceaccounts"), _READ),
    _rule("apps", ("daemonsets", "deployments"), _READ),
    _rule(_DRA, ("resourceclaims", "resourceclaimtemplates"), _READ),
]
_EDIT: list[Json] = [
    *_VIEW,
    _rule("", ("secrets",), _READ),
    _rule("", ("configmaps", "pods", "events", "secrets", "serviceaccounts"), (*_WRITE, "deletecollection")),
    _rule("", ("pods/eviction",), ("create",)),
    _rule("", ("serviceaccounts/token",), ("create",)),
    _rule("apps", ("daemonsets", "deployments", "deployments/scale"), (*_WRITE, "deletecollection")),
    _rule(_DRA, ("resourceclaims", "resourceclaimtemplates"), (*_WRITE, "deletecollection")),
]
_DELEGATOR: list[Json] = [
    _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
    _rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
]
"""What servers need that ask this one about tokens and rights, such as those that protect metrics."""
_ADMIN: list[Json] = [*_EDIT, _rule(RBAC_GROUP, ("roles", "rolebindings"), (*_READ, *_WRITE, "deletecollection"))]

_ROLES: dict[str, tuple[list[Json], tuple[str, ...]]] = {
    "cluster-admin": (_EVERYTHING, (users.MASTERS,)),
    "admin": (_ADMIN, ()),
    "edit": (_EDIT, ()),
    "view": (_VIEW, ()),
    "system:auth-delegator": (_DELEGATOR, ()),
    "system:basic-user": (_SELF, (users.AUTHENTICATED,)),
    "system:discovery": ([_urls(*_DISCOVERY, *_HEALTH)], (users.AUTHENTICATED,)),
    "system:public-info-viewer": ([_urls(*_HEALTH)], (users.AUTHENTICATED, users.UNAUTHENTICATED)),
    "system:node": (_NODE, ()),
    "system:kube-scheduler": (_SCHEDULER, ()),
}
"""By name: the rules, and the groups that have them from the beginning."""

_LABELS: Object = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def bootstrap() -> list[tuple[Resource, Object]]:
    """Return the objects to create in an empty cluster."""
    found: list[tuple[Resource, Object]] = []
    for name, (rules, groups) in _ROLES.items():
        metadata: Object = {"name": name, "labels": dict(_LABELS)}
        found.append((CLUSTER_ROLE, {"metadata": metadata, "rules": rules}))
        if groups:
            found.append((CLUSTER_ROLE_BINDING, binding("ClusterRole", name, groups) | {"metadata": metadata}))
    return found


def binding(kind: str, role: str, groups: tuple[str, ...]) -> Object:
    """Return roleRef and subjects that give a role to groups."""
    subjects: list[Json] = [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups]
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}, "subjects": subjects}
