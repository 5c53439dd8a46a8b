"""Admin access to devices: only in namespaces with the label ``resource.kubernetes.io/admin-access: "true"``.

Looked at when a claim or a template is created, and when an allocation gets its first result with admin access. Source: Kubernetes 1.36.
"""

from collections.abc import Iterator

from drakit_cluster.api.reviewing import Change, Operation
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

LABEL = "resource.kubernetes.io/admin-access"
_DETAIL = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"


def failures(change: Change, store: Store) -> Iterator[Failure]:
    """Yield the failure of a write that asks for admin access, or grants it, where the namespace does not allow it."""
    field = _asked(change)
    if field and not _allowed(store, change.key.namespace):
        yield failure.forbidden(field, _DETAIL)


def _allowed(store: Store, namespace: str) -> bool:
    found = store.get(resources.NAMESPACE, Key("", namespace))
    return found is not None and json_types.text(found.view, "metadata", "labels", LABEL) == "true"


def _asked(change: Change) -> str:
    """Return the field that asks for admin access now, or ``""``."""
    new = change.new or {}
    if change.operation is Operation.CREATE and change.resource is resources.CLAIM:
        return _request(json_types.at(new, "spec", "devices"))
    if change.operation is Operation.CREATE and change.resource is resources.CLAIM_TEMPLATE:
        return _request(json_types.at(new, "spec", "spec", "devices"))
    if change.resource is resources.CLAIM and change.subresource == "status" and not _granted(change.before.view if change.before else {}):
        return _granted(new)
    return ""


def _request(wanted: Json) -> str:
    for index, request in enumerate(json_types.items(wanted, "requests")):
        if json_types.at(request, "exactly", "adminAccess") is True:
            return f"spec.devices.requests[{index}].adminAccess"
    return ""


def _granted(claim: Object) -> str:
    for index, result in enumerate(json_types.items(claim, "status", "allocation", "devices", "results")):
        if json_types.at(result, "adminAccess") is True:
            return f"status.allocation.devices.results[{index}].adminAccess"
    return ""
