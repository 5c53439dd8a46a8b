"""The rights of a kubelet: its own node, the pods bound to it and what they use, the slices and the lease of its node.

This follows Kubernetes' node authorizer and NodeRestriction. A kubelet may not write claims, and may not use another node's objects.
What a new object says about its node is looked at on creation: see ``refusal``.
"""

from collections.abc import Iterator

from drakit_cluster.access.users import Attributes
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Object

LEASE_NAMESPACE = "kube-node-lease"
_READ = ("get", "list", "watch")
_SELECTED = ("list", "watch", "deletecollection")
_WRITE = ("create", "update", "patch", "delete")


def allows(store: Store, node: str, wanted: Attributes) -> bool:
    """Return whether the kubelet of ``node`` may do this."""
    rule = _RULES.get((wanted.group, wanted.resource))
    return rule is not None and rule(store, node, wanted)


def _nodes(_store: Store, node: str, wanted: Attributes) -> bool:
    if wanted.verb == "create":
        return True
    return wanted.name == node and wanted.verb in (*_READ, "update", "patch") and wanted.subresource in ("", "status")


def _pods(store: Store, node: str, wanted: Attributes) -> bool:
    if wanted.verb in ("list", "watch"):
        return _selects(wanted, node)
    found = store.get(resources.POD, Key(wanted.namespace, wanted.name))
    own = found is not None and json_types.text(found.view, "spec", "nodeName") == node
    if wanted.subresource == "eviction":
        return own and wanted.verb == "create"
    if wanted.subresource:
        return own and wanted.subresource == "status" and wanted.verb in ("get", "update", "patch")
    return wanted.verb in ("get", "delete") and (own or found is None)


def _slices(store: Store, node: str, wanted: Attributes) -> bool:
    if wanted.verb in _SELECTED:
        return _selects(wanted, node)
    if wanted.verb == "create":
        return True
    found = store.get(resources.SLICE, Key("", wanted.name))
    own = found is None or json_types.text(found.view, "spec", "nodeName") == node
    return wanted.verb in ("get", *_WRITE) and own


def _claims(store: Store, node: str, wanted: Attributes) -> bool:
    if wanted.verb != "get" or wanted.subresource:
        return False
    pods = _pods_of(store, node, wanted.namespace)
    return any(wanted.name in _claim_names(pod) for pod in pods)


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


def _mounted(store: Store, node: str, wanted: Attributes) -> bool:
    """Secrets and config maps may be read once a pod of the node names them anywhere in its spec."""
    if wanted.verb not in _READ or not wanted.name:
        return False
    return any(_mentions(pod.get("spec"), wanted.name) for pod in _pods_of(store, node, wanted.namespace))


def _mentions(value: json_types.Json, name: str) -> bool:
    if isinstance(value, dict):
        return any(_mentions(item, name) for item in value.values())
    if isinstance(value, list):
        return any(_mentions(item, name) for item in value)
    return value == name


def _accounts(store: Store, node: str, wanted: Attributes) -> bool:
    """The service accounts of the node's pods: to read, and to ask tokens for."""
    if (wanted.verb, wanted.subresource) not in (("get", ""), ("create", "token")):
        return False
    return any(_account(pod) == wanted.name for pod in _pods_of(store, node, wanted.namespace))


def _account(pod: Object) -> str:
    return json_types.text(pod, "spec", "serviceAccountName") or "default"


def _leases(_store: Store, node: str, wanted: Attributes) -> bool:
    if wanted.namespace != LEASE_NAMESPACE:
        return False
    return wanted.verb == "create" or (wanted.name == node and wanted.verb in ("get", *_WRITE))


def _events(_store: Store, _node: str, wanted: Attributes) -> bool:
    return wanted.verb in ("create", "update", "patch")


def _namespaces(_store: Store, _node: str, wanted: Attributes) -> bool:
    return wanted.verb == "get" and not wanted.subresource


_RULES = {
    ("", "nodes"): _nodes,
    ("", "pods"): _pods,
    ("", "secrets"): _mounted,
    ("", "configmaps"): _mounted,
    ("", "serviceaccounts"): _accounts,
    ("", "events"): _events,
    ("", "namespaces"): _namespaces,
    ("coordination.k8s.io", "leases"): _leases,
    (resources.RESOURCE_GROUP, "resourceslices"): _slices,
    (resources.RESOURCE_GROUP, "resourceclaims"): _claims,
}


def _selects(wanted: Attributes, node: str) -> bool:
    """Return whether a selection is limited to the node."""
    return f"spec.nodeName={node}" in wanted.field_selector.replace("==", "=").split(",")


def refusal(node: str, resource: resources.Resource, new: Object) -> str:
    """Return why the kubelet of ``node`` may not create or write ``new``, or ``""``."""
    if resource is resources.NODE and json_types.text(new, "metadata", "name") != node:
        return f'node "{node}" is not allowed to create or modify another node'
    if resource is resources.SLICE and json_types.text(new, "spec", "nodeName") != node:
        return "can only create ResourceSlice with the same NodeName as the requesting node"
    if resource is resources.LEASE and json_types.text(new, "metadata", "name") != node:
        return "can only access node lease with the same name as the requesting node"
    return ""
