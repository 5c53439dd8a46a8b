"""The rights of a kubelet: its own node, its lease, the pods bound to it with their claims and service accounts,
and the slices of its node.

This follows Kubernetes' node authorizer and NodeRestriction, as far as the kubelet of this cluster needs it. A kubelet may not write claims,
and may not use another node's objects. The node that an object names is checked when a kubelet writes it: see ``refusal``.
"""

from collections.abc import Iterator

from drakit_cluster.access.users import Attributes
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object

_READ = ("get", "list", "watch")
_SELECTED = ("list", "watch", "deletecollection")
_LEASE_NAMESPACE = "kube-node-lease"
_WRITE = ("create", "update", "patch", "delete")


def allows(store: Store, node: str, attributes: Attributes) -> bool:
    """Return whether the kubelet of ``node`` may do this."""
    rule = _RULES.get((attributes.group, attributes.resource))
    return rule is not None and rule(store, node, attributes)


def _nodes(_store: Store, node: str, attributes: Attributes) -> bool:
    if attributes.verb == "create":
        return True
    return attributes.name == node and attributes.verb in (*_READ, "update", "patch") and attributes.subresource in ("", "status")


def _pods(store: Store, node: str, attributes: Attributes) -> bool:
    if attributes.verb in ("list", "watch"):
        return _selects(attributes, node)
    entry = store.get(resources.POD, Key(attributes.namespace, attributes.name))
    own = entry is not None and json_types.text(entry.view, "spec", "nodeName") == node
    if attributes.subresource == "eviction":
        return own and attributes.verb == "create"
    if attributes.subresource:
        return own and attributes.subresource == "status" and attributes.verb in ("get", "update", "patch")
    return attributes.verb in ("get", "delete") and (own or entry is None)


def _slices(store: Store, node: str, attributes: Attributes) -> bool:
    if attributes.verb in _SELECTED:
        return _selects(attributes, node)
    if attributes.verb == "create":
        return True
    entry = store.get(resources.SLICE, Key("", attributes.name))
    own = entry is None or json_types.text(entry.view, "spec", "nodeName") == node
    return attributes.verb in ("get", *_WRITE) and own


def _claims(store: Store, node: str, attributes: Attributes) -> bool:
    if attributes.verb != "get" or attributes.subresource:
        return False
    pods = _pods_of(store, node, attributes.namespace)
    return any(attributes.name in _claim_names(pod) for pod in pods)


def _claim_names(pod: Object) -> Iterator[str]:
    for entry in json_types.objects(pod, "spec", "resourceClaims"):
        yield json_types.text(entry, "resourceClaimName")
    for entry in json_types.objects(pod, "status", "resourceClaimStatuses"):
        yield json_types.text(entry, "resourceClaimName")
    yield json_types.text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")


def _pods_of(store: Store, node: str, namespace: str) -> Iterator[Object]:
    entries, _ = store.scan(resources.POD)
    for entry in entries:
        if entry.key.namespace == namespace and json_types.text(entry.view, "spec", "nodeName") == node:
            yield entry.view


def _accounts(store: Store, node: str, attributes: Attributes) -> bool:
    """Return whether the kubelet may read a service account or request its token: a pod of its node runs as it."""
    if (attributes.verb, attributes.subresource) not in (("get", ""), ("create", "token")):
        return False
    return any(_account(pod) == attributes.name for pod in _pods_of(store, node, attributes.namespace))


def _account(pod: Object) -> str:
    return json_types.text(pod, "spec", "serviceAccountName") or "default"


def _events(_store: Store, _node: str, attributes: Attributes) -> bool:
    return attributes.verb in ("create", "update", "patch")


def _leases(_store: Store, node: str, attributes: Attributes) -> bool:
    if attributes.namespace != _LEASE_NAMESPACE:
        return False
    return attributes.verb == "create" or (attributes.name == node and attributes.verb in ("get", "update", "patch", "delete"))


_RULES = {
    ("", "nodes"): _nodes,
    ("", "pods"): _pods,
    ("", "serviceaccounts"): _accounts,
    ("", "events"): _events,
    ("coordination.k8s.io", "leases"): _leases,
    (resources.RESOURCE_GROUP, "resourceslices"): _slices,
    (resources.RESOURCE_GROUP, "resourceclaims"): _claims,
}


def _selects(attributes: Attributes, node: str) -> bool:
    """Return whether a selection is limited to the node."""
    return f"spec.nodeName={node}" in attributes.field_selector.replace("==", "=").split(",")


def refusal(node: str, resource: resources.Resource, new: Object) -> str:
    """Return why the kubelet of ``node`` may not create or write ``new``, or ``""``."""
    if resource is resources.NODE and json_types.text(new, "metadata", "name") != node:
        return f'node "{node}" is not allowed to create or modify another node'
    if resource is resources.LEASE and json_types.text(new, "metadata", "name") != node:
        return "can only access node lease with the same name as the requesting node"
    if resource is resources.SLICE and json_types.text(new, "spec", "nodeName") != node:
        return "can only create ResourceSlice with the same NodeName as the requesting node"
    return ""
