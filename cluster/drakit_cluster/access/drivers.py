"""What a node driver is given: a service account and the rights that its manifests ask for, and no more."""

from collections.abc import Sequence

from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, SERVICEACCOUNT, Resource

_DRA = resources.RESOURCE_GROUP
OURS = ("gpu.drakit.dev", "nic.drakit.dev", "tpu.drakit.dev")


def _rule(group: str, names: str, verbs: str) -> Object:
    return {"apiGroups": [group], "resources": [names], "verbs": [*verbs.split()]}


def rules(writes_status_of: Sequence[str] = OURS, *, follows_claims: bool = False) -> list[Json]:
    """Return the rules of a driver; ``writes_status_of`` names the drivers whose device statuses it writes on its own node, none means any.

    ``follows_claims`` is for one with binding conditions, which has to see claims before their pods are bound.
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


def objects(
    namespace: str, account: str, *, writes_status_of: Sequence[str] = OURS, follows_claims: bool = False
) -> list[tuple[Resource, Object]]:
    """Return the namespace, the service account, the role and its binding, in the order to create them; all but the first are named alike."""
    named: Object = {"name": account}
    subject: Json = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference: Json = {"apiGroup": resources.RBAC_GROUP, "kind": "ClusterRole", "name": account}
    return [
        (NAMESPACE, {"metadata": {"name": namespace}}),
        (SERVICEACCOUNT, {"metadata": {"name": account, "namespace": namespace}}),
        (CLUSTER_ROLE, {"metadata": named, "rules": rules(writes_status_of, follows_claims=follows_claims)}),
        (CLUSTER_ROLE_BINDING, {"metadata": named, "roleRef": reference, "subjects": [subject]}),
    ]
