"""Writes of claims: allocation with its first reservation, further reservations, and release.

Every change starts from the given object. The API server refuses it with ConflictError if that object is stale, so a decision never
overwrites changes that it did not know. The claim's delete-protection finalizer is added before its allocation and removed after its deallocation.

``consumer`` is the entry of status.reservedFor for the pod or its PodGroup, see :class:`~drakit_cluster.client.sharing.Sharing`. A claim for a
workload (KEP-5194) is reserved once for the workload instead, whatever the number of its pods.
"""

from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM

FINALIZER = "resource.kubernetes.io/delete-protection"


def granted(claim: Object, allocation: Object, sharing: Sharing) -> Object:
    """Return the allocation to write for ``claim``. The allocation of a workload's claim says that any pod may use it."""
    return allocation | ({"reservedForAnyPod": True} if sharing.workloads and pod_claims.workload_of(claim) else {})


def allocate(api: Api, claim: Object, allocation: Object, consumer: Object, sharing: Sharing) -> Object:
    """Allocate ``claim`` and reserve it for its workload, else for ``consumer``, in one status update."""
    updated = _with_finalizer(api, claim)
    status = json_types.child(updated, "status")
    workload = pod_claims.workload_of(claim) if sharing.workloads else {}
    status["allocation"] = granted(claim, allocation, sharing) | {"allocationTimestamp": naming.now()}
    status["reservedFor"] = [workload or consumer]
    return api.update(CLAIM, updated, subresource="status")


def reserve(api: Api, claim: Object, consumer: Object, sharing: Sharing) -> Object:
    """Reserve an allocated claim for ``consumer``, or for its workload if the claim serves any pod and has no reservation left."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    existing = pod_claims.reservations(claim)
    workload = pod_claims.workload_of(claim) if sharing.serves_any_pod(claim) and not existing else {}
    status["reservedFor"] = [*existing, workload or consumer]
    return api.update(CLAIM, changed, subresource="status")


def release(api: Api, claim: Object, uids: set[str]) -> Object:
    """Remove the reservations of ``uids``; with the last one, deallocate the claim and remove its finalizer."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    remaining = [reservation for reservation in pod_claims.reservations(claim) if json_types.text(reservation, "uid") not in uids]
    status["reservedFor"] = json_types.from_objects(remaining)
    if remaining:
        return api.update(CLAIM, changed, subresource="status")
    return deallocate(api, changed)


def deallocate(api: Api, claim: Object) -> Object:
    """Deallocate a claim that nobody uses, then remove its finalizer."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    for field in ("allocation", "reservedFor"):
        status.pop(field, None)
    changed = api.update(CLAIM, changed, subresource="status")
    metadata = json_types.child(changed, "metadata")
    finalizers = json_types.strings(metadata, "finalizers")
    if FINALIZER not in finalizers:
        return changed
    metadata["finalizers"] = json_types.from_strings(finalizer for finalizer in finalizers if finalizer != FINALIZER)
    return api.update(CLAIM, changed)


def _with_finalizer(api: Api, claim: Object) -> Object:
    changed = json_types.copy_object(claim)
    metadata = json_types.child(changed, "metadata")
    finalizers = json_types.strings(metadata, "finalizers")
    if FINALIZER in finalizers:
        return changed
    metadata["finalizers"] = json_types.from_strings([*finalizers, FINALIZER])
    return api.update(CLAIM, changed)
