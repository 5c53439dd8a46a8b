"""The roles of a new cluster, with the names and the meaning that Kubernetes gives them, and the rights that a node driver needs."""

from collections.abc import Sequence

from drakit_cluster.access import users
from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, RBAC_GROUP, SERVICEACCOUNT, Resource

_DRA = resources.RESOURCE_GROUP
_READ = "get list watch"
_WRITE = "create update patch delete"
_CHANGE = f"{_WRITE} deletecollection"
DRIVERS = ("gpu.drakit.dev", "nic.drakit.dev")


def _rule(group: str, names: str, verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [*names.split()], "verbs": [*verbs.split()]}


def _urls(paths: str) -> Object:
    return {"nonResourceURLs": [*paths.split()], "verbs": ["get"]}


_HEALTH = "/healthz /livez /readyz /version /version/"
_EVERYTHING = [_rule("*", "*", "*"), _urls("*") | {"verbs": ["*"]}]
_SELF = [
    _rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
    _rule("authentication.k8s.io", "selfsubjectreviews", "create"),
]
_NODE = [
    _rule("", "nodes nodes/status", f"{_READ} create update patch"),
    _rule("", "pods", f"{_READ} delete"),
    _rule("", "pods/status", "get update patch"),
    _rule("", "pods/eviction", "create"),
    _rule("", "events", "create update patch"),
    _rule("", "secrets configmaps serviceaccounts", _READ),
    _rule("", "serviceaccounts/token", "create"),
    _rule("coordination.k8s.io", "leases", f"get {_WRITE}"),
    _rule(_DRA, "resourceclaims", "get"),
    _rule(_DRA, "resourceslices", f"{_READ} {_CHANGE}"),
]
"""All that kubelets may do. No binding refers to this role: the node authorizer grants the rights object by object."""
_SCHEDULER = [
    _rule("", "nodes pods namespaces", _READ),
    _rule("", "pods pods/status", "update patch"),
    _rule("", "pods/binding", "create"),
    _rule("", "events", "create update patch"),
    _rule(_DRA, "resourceclaims deviceclasses resourceslices devicetaintrules", _READ),
    _rule(_DRA, "resourceclaims resourceclaims/status resourceclaims/binding", "update patch"),
    _rule(resources.SCHEDULING_GROUP, "podgroups", _READ),
]
_VIEW = [
    _rule("", "configmaps pods events namespaces serviceaccounts services", _READ),
    _rule("apps", "daemonsets deployments replicasets statefulsets controllerrevisions", _READ),
    _rule("batch", "cronjobs jobs", _READ),
    _rule(_DRA, "resourceclaims resourceclaimtemplates", _READ),
    _rule(resources.SCHEDULING_GROUP, "podgroups podgroups/status", _READ),
]
_EDIT = [
    *_VIEW,
    _rule("", "secrets", _READ),
    _rule("", "configmaps pods events secrets serviceaccounts services", _CHANGE),
    _rule("", "pods/eviction", "create"),
    _rule("", "serviceaccounts/token", "create"),
    _rule("apps", "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale", _CHANGE),
    _rule("batch", "cronjobs jobs", _CHANGE),
    _rule(_DRA, "resourceclaims resourceclaimtemplates", _CHANGE),
    _rule(resources.SCHEDULING_GROUP, "podgroups", _CHANGE),
]
_DELEGATOR = [
    _rule("authentication.k8s.io", "tokenreviews", "create"),
    _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
]
"""The rights of a server that sends token and access reviews to this one, such as a server that protects its metrics."""
_ROLES: dict[str, tuple[list[Object], tuple[str, ...]]] = {
    "cluster-admin": (_EVERYTHING, (users.MASTERS,)),
    "admin": ([*_EDIT, _rule(RBAC_GROUP, "roles rolebindings", f"{_READ} {_CHANGE}")], ()),
    "edit": (_EDIT, ()),
    "view": (_VIEW, ()),
    "system:auth-delegator": (_DELEGATOR, ()),
    "system:basic-user": (_SELF, (users.AUTHENTICATED,)),
    "system:discovery": ([_urls(f"/api /api/* /apis /apis/* /openapi /openapi/* {_HEALTH}")], (users.AUTHENTICATED,)),
    "system:public-info-viewer": ([_urls(_HEALTH)], (users.AUTHENTICATED, users.UNAUTHENTICATED)),
    "system:node": (_NODE, ()),
    "system:kube-scheduler": (_SCHEDULER, ()),
}
"""By name: the rules, and the groups that a new cluster binds to them."""


def bootstrap() -> list[tuple[Resource, Object]]:
    """Return the objects to create in an empty cluster."""
    objects: list[tuple[Resource, Object]] = []
    for name, (rules, groups) in _ROLES.items():
        metadata: Object = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        objects.append((CLUSTER_ROLE, {"metadata": metadata, "rules": [*rules]}))
        subjects: list[Json] = [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups]
        if subjects:
            objects.append((CLUSTER_ROLE_BINDING, {"metadata": metadata, "roleRef": _reference(name), "subjects": subjects}))
    return objects


def _reference(role: str) -> Object:
    return {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}


def driver_rules(writes_status_of: Sequence[str] = DRIVERS, *, follows_claims: bool = False) -> list[Json]:
    """Return the rules of a driver; ``writes_status_of`` names the drivers whose device statuses it writes on its own node, none means any.

    ``follows_claims`` is for a driver with binding conditions, which must watch claims before their pods are bound.
    """
    names: Object = {"resourceNames": [*writes_status_of]} if writes_status_of else {}
    return [
        _rule(_DRA, "resourceclaims", "get list watch" if follows_claims else "get list"),
        _rule(_DRA, "resourceclaims/status", "patch"),
        _rule(_DRA, "resourceclaims/driver", "associated-node:patch") | names,
        _rule(_DRA, "resourceslices", "list watch create update delete"),
        _rule("", "nodes", "get"),
        _rule("", "events", "create patch"),
    ]


def driver_objects(
    namespace: str, account: str, *, writes_status_of: Sequence[str] = DRIVERS, follows_claims: bool = False
) -> list[tuple[Resource, Object]]:
    """Return the namespace, the service account, the role and its binding, to create in this order; the last three are named ``account``."""
    metadata: Object = {"name": account}
    subject: Json = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return [
        (NAMESPACE, {"metadata": {"name": namespace}}),
        (SERVICEACCOUNT, {"metadata": {"name": account, "namespace": namespace}}),
        (CLUSTER_ROLE, {"metadata": metadata, "rules": driver_rules(writes_status_of, follows_claims=follows_claims)}),
        (CLUSTER_ROLE_BINDING, {"metadata": metadata, "roleRef": _reference(account), "subjects": [subject]}),
    ]
