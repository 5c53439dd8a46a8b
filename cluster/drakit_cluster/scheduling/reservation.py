"""Writes of claims: allocation with its first reservation, further reservations, and release.

Every change starts from the given object. The API server refuses it with ConflictError if that object is stale, so a decision never
overwrites changes that it did not know. The claim's delete-protection finalizer is added before its allocation and removed after its deallocation.

``for_workloads`` is whether KEP-5194 applies: a claim for a workload is reserved once for the workload, whatever the number of its pods.
"""

from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM

FINALIZER = "resource.kubernetes.io/delete-protection"


def is_missing(claim: Object, pod: Object, *, for_workloads: bool) -> bool:
    """Return whether an allocated claim must be reserved before ``pod`` can use it.

    A reservation for a workload is enough only if the claim was allocated for a workload. For other claims the kubelet looks for the pod.
    """
    if for_workloads and pod_claims.serves_any_pod(claim) and pod_claims.reserving_workloads(claim):
        return False
    return not pod_claims.is_reserved_for(claim, pod)


def granted(claim: Object, allocation: Object, *, for_workloads: bool) -> Object:
    """Return the allocation to write for ``claim``. The allocation of a workload's claim says that any pod may use it."""
    return allocation | ({"reservedForAnyPod": True} if for_workloads and pod_claims.workload_of(claim) else {})


def allocate(api: Api, claim: Object, allocation: Object, pod: Object, *, for_workloads: bool) -> Object:
    """Allocate ``claim`` and reserve it for its workload, else for ``pod``, in one status update."""
    updated = _with_finalizer(api, claim)
    status = json_types.child(updated, "status")
    workload = pod_claims.workload_of(claim) if for_workloads else {}
    status["allocation"] = granted(claim, allocation, for_workloads=for_workloads) | {"allocationTimestamp": naming.now()}
    status["reservedFor"] = [workload or pod_claims.reservation(pod)]
    return api.update(CLAIM, updated, subresource="status")


def reserve(api: Api, claim: Object, pod: Object, *, for_workloads: bool) -> Object:
    """Reserve an allocated claim for ``pod``, or for its workload if the claim serves any pod and has no reservation left."""
    changed = json_types.copy_object(claim)
    status = json_types.child(changed, "status")
    existing = pod_claims.reservations(claim)
    workload = pod_claims.workload_of(claim) if for_workloads and pod_claims.serves_any_pod(claim) and not existing else {}
    status["reservedFor"] = [*existing, workload or pod_claims.reservation(pod)]
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
