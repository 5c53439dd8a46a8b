"""Writing who has a claim: allocation with its first reservation, further reservations, and release.

Every change begins from the object given and is refused with ConflictError if that is stale, so a decision is never written over facts
that it did not know. The claim's delete-protection finalizer is there before, and goes after, its allocation.
"""

from drakit.cluster import json_types, moments, pod_claims
from drakit.cluster.api import Api
from drakit.cluster.json_types import Object
from drakit.cluster.resources import CLAIM

FINALIZER = "resource.kubernetes.io/delete-protection"


def allocate(api: Api, claim: Object, allocation: Object, pod: Object) -> Object:
    """Give ``claim`` its devices and reserve it for ``pod``, in one status update."""
    held = _with_finalizer(api, claim)
    status = json_types.child(held, "status")
    status["allocation"] = allocation | {"allocationTimestamp": moments.now()}
    status["reservedFor"] = [pod_claims.reservation(pod)]
    return api.update(CLAIM, held, subresource="status")


def reserve(api: Api, claim: Object, pod: Object) -> Object:
    """Let ``pod`` use a claim that is allocated already."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    status["reservedFor"] = [*pod_claims.reservations(claim), pod_claims.reservation(pod)]
    return api.update(CLAIM, changed, subresource="status")


def release(api: Api, claim: Object, uids: set[str]) -> Object:
    """Take back the reservations of ``uids``; with the last one the claim loses its devices and its finalizer."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    remaining = [one for one in pod_claims.reservations(claim) if json_types.text(one, "uid") not in uids]
    status["reservedFor"] = json_types.from_objects(remaining)
    if remaining:
        return api.update(CLAIM, changed, subresource="status")
    return deallocate(api, changed)


def deallocate(api: Api, claim: Object) -> Object:
    """Take the devices of a claim that nobody uses, then its finalizer."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    for field in ("allocation", "reservedFor"):
        status.pop(field, None)
    changed = api.update(CLAIM, changed, subresource="status")
    metadata = json_types.child(changed, "metadata")
    finalizers = json_types.strings(metadata, "finalizers")
    if FINALIZER not in finalizers:
        return changed
    metadata["finalizers"] = json_types.from_strings(one for one in finalizers if one != FINALIZER)
    return api.update(CLAIM, changed)


def _with_finalizer(api: Api, claim: Object) -> Object:
    changed = json_types.copy_object(claim)
    metadata = json_types.child(changed, "metadata")
    finalizers = json_types.strings(metadata, "finalizers")
    if FINALIZER in finalizers:
        return changed
    metadata["finalizers"] = json_types.from_strings([*finalizers, FINALIZER])
    return api.update(CLAIM, changed)
