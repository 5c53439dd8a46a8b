"""The claims of a pod and the reservations of a claim, for scheduler, controllers and kubelet.

Source: resource.k8s.io/v1 ResourceClaimStatus.reservedFor; core/v1 PodSpec.resourceClaims and PodStatus.resourceClaimStatuses.
"""

from dataclasses import dataclass

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.informer import key_of, uid_of
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

MAX_RESERVATIONS = 256
_DONE = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One entry of spec.resourceClaims. ``claim`` is the claim's name: empty before it is generated, None if it is never generated.

    A ``special`` reference has no entry in the spec: it names the claim for the pod's extended resources.
    """

    name: str
    claim: str | None
    template: str
    special: bool = False

    @property
    def owned(self) -> bool:
        """Whether the claim must have been generated for the pod."""
        return bool(self.template) or self.special


def references(pod: Object) -> list[Reference]:
    """Return the claims of a pod or PodGroup in the order of its spec, then the pod's for extended resources."""
    statuses = {
        json_types.text(claim_status, "name"): claim_status for claim_status in json_types.objects(pod, "status", "resourceClaimStatuses")
    }
    claim_references = []
    for entry in json_types.objects(pod, "spec", "resourceClaims"):
        name, template = json_types.text(entry, "name"), json_types.text(entry, "resourceClaimTemplateName")
        claim: str | None = json_types.text(entry, "resourceClaimName")
        if template:
            status = statuses.get(name)
            claim = "" if status is None else json_types.text(status, "resourceClaimName") or None
        claim_references.append(Reference(name=name, claim=claim, template=template))
    if special := json_types.text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName"):
        claim_references.append(Reference(name="", claim=special, template="", special=True))
    return claim_references


def claim_keys(pod: Object) -> set[Key]:
    """Return the keys of the pod's claims whose names are known."""
    namespace = json_types.text(pod, "metadata", "namespace")
    return {Key(namespace, reference.claim) for reference in references(pod) if reference.claim}


def owner(obj: Object) -> Object:
    """Return the owner reference of the controller of an object, or an empty one."""
    return next(
        (reference for reference in json_types.objects(obj, "metadata", "ownerReferences") if reference.get("controller") is True), {}
    )


def owned_by(resource: Resource, owner: Object) -> Object:
    """Return the owner reference that makes an object the controller of another."""
    head: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "name": key_of(owner).name, "uid": uid_of(owner)}
    return head | {"controller": True, "blockOwnerDeletion": True}


def is_owned_by(claim: Object, resource: Resource, generator: Object) -> bool:
    """Return whether ``generator`` is the controller of ``claim``."""
    reference = owner(claim)
    return json_types.text(reference, "kind") == resource.kind and json_types.text(reference, "uid") == uid_of(generator)


def reservations(claim: Object) -> list[Object]:
    """Return the claim's status.reservedFor."""
    return json_types.objects(claim, "status", "reservedFor")


def serves_any_pod(claim: Object) -> bool:
    """Return whether the claim is allocated for a workload, so that every pod that refers to it may use it (KEP-5194)."""
    return allocation(claim).get("reservedForAnyPod") is True


def workload_of(claim: Object) -> Object:
    """Return a copy of spec.reservedFor, the workload that the claim is for; empty where there is none (KEP-5194)."""
    return json_types.copy_object(json_types.mapping(claim, "spec", "reservedFor"))


def reserving_workloads(claim: Object) -> list[Object]:
    """Return the entries of status.reservedFor that name another object than a pod."""
    return [holder for holder in reservations(claim) if not _is_pod(holder)]


def _is_pod(entry: Object) -> bool:
    return json_types.text(entry, "resource") == "pods" and not json_types.text(entry, "apiGroup")


def reserving_pods(claim: Object) -> list[Object]:
    """Return the entries of status.reservedFor that name pods."""
    return [holder for holder in reservations(claim) if _is_pod(holder)]


def allocation(claim: Object) -> Object:
    """Return status.allocation, or an empty object."""
    return json_types.mapping(claim, "status", "allocation")


def is_allocated(claim: Object) -> bool:
    """Return whether the claim has devices."""
    return json_types.at(claim, "status", "allocation") is not None


def is_deleting(obj: Object) -> bool:
    """Return whether the object is being deleted."""
    return bool(json_types.text(obj, "metadata", "deletionTimestamp"))


def is_terminal(pod: Object) -> bool:
    """Return whether the pod is in a terminal phase."""
    return json_types.text(pod, "status", "phase") in _DONE


def waits_for_node(pod: Object) -> bool:
    """Return whether the pod waits for a scheduler."""
    return not (json_types.text(pod, "spec", "nodeName") or is_terminal(pod) or is_deleting(pod))


def will_not_run(pod: Object) -> bool:
    """Return whether the pod has finished, or was deleted before it got a node."""
    return is_terminal(pod) or (is_deleting(pod) and not json_types.text(pod, "spec", "nodeName"))
