"""Which pods may use a claim, and for whom it is reserved: a pod, the pod's PodGroup, or a workload.

A claim of a PodGroup (KEP-5729, gate DRAWorkloadResourceClaims) is reserved once for the group. A pod uses it by an entry of its
spec.resourceClaims that is the same as one of the group's. A pod knows its group's name and not its UID, so the users of a claim look at the
name.

A claim for a workload (KEP-5194, gate DRAReservedForWorkloads) serves every pod that refers to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import key_of, uid_of
from drakit_cluster.client.pod_claims import Reference
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD, POD_GROUP, SCHEDULING_GROUP


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """The rules of one component: ``groups`` is whether KEP-5729 applies, ``workloads`` whether KEP-5194 does."""

    groups: bool
    workloads: bool

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        return cls(groups=gates.on(Gate.WORKLOAD_CLAIMS), workloads=gates.on(Gate.RESERVED_FOR_WORKLOADS))

    def group_key(self, pod: Object) -> Key | None:
        """Return where the pod's PodGroup is if this component knows PodGroups, else None."""
        return group_of(pod) if self.groups else None

    def is_generated_for(self, claim: Object, pod: Object) -> bool:
        """Return whether ``claim`` was generated from a template for ``pod`` or its PodGroup."""
        owner, group = pod_claims.owner(claim), self.group_key(pod)
        if group is not None and json_types.text(owner, "kind") == POD_GROUP.kind and json_types.text(owner, "name") == group.name:
            return json_types.text(owner, "apiVersion").startswith(f"{SCHEDULING_GROUP}/")
        return pod_claims.is_owned_by(claim, POD, pod)

    def is_reserved_for(self, claim: Object, pod: Object) -> bool:
        """Return whether ``claim`` is reserved for ``pod`` or its PodGroup."""
        group = self.group_key(pod)
        if group is not None and any(json_types.text(entry, "name") == group.name for entry in reserving_groups(claim)):
            return True
        return any(json_types.text(entry, "uid") == uid_of(pod) for entry in pod_claims.reserving_pods(claim))

    def may_use(self, claim: Object, pod: Object) -> bool:
        """Return whether ``pod``, which refers to ``claim``, may use it."""
        return self.serves_any_pod(claim) or self.is_reserved_for(claim, pod)

    def serves_any_pod(self, claim: Object) -> bool:
        """Return whether the claim is allocated for a workload, so that every pod that refers to it may use it."""
        return self.workloads and pod_claims.serves_any_pod(claim)

    def is_missing(self, claim: Object, pod: Object) -> bool:
        """Return whether an allocated claim must be reserved before ``pod`` can use it.

        A reservation for a workload is enough only if the claim was allocated for a workload. For other claims the kubelet looks for the pod.
        """
        if self.serves_any_pod(claim) and pod_claims.reserving_workloads(claim):
            return False
        return not self.is_reserved_for(claim, pod)

    def consumer(self, claim: Object, pod: Object, groups: Mapping[Key, Object]) -> Object:
        """Return the entry of status.reservedFor by which ``pod`` uses ``claim``: that of its PodGroup if the claim is the group's."""
        group = groups.get(key) if (key := self.group_key(pod)) is not None else None
        own = [reference for reference in pod_claims.references(pod) if reference.claim == key_of(claim).name]
        if group is not None and any(is_of_group(reference, group) for reference in own):
            return {"apiGroup": SCHEDULING_GROUP, "resource": POD_GROUP.plural, "name": key_of(group).name, "uid": uid_of(group)}
        return {"resource": POD.plural, "name": key_of(pod).name, "uid": uid_of(pod)}


def group_of(pod: Object) -> Key | None:
    """Return where the PodGroup is that a pod names, None if it names none."""
    name = json_types.text(pod, "spec", "schedulingGroup", "podGroupName")
    return Key(key_of(pod).namespace, name) if name else None


def is_of_group(reference: Reference, group: Object) -> bool:
    """Return whether a pod's reference is the same as an entry of its PodGroup's spec.resourceClaims."""
    return any(
        (entry.name, entry.template) == (reference.name, reference.template) and (entry.template or entry.claim == reference.claim)
        for entry in pod_claims.references(group)
    )


def reserving_groups(claim: Object) -> list[Object]:
    """Return the entries of status.reservedFor that name PodGroups."""
    named = SCHEDULING_GROUP, POD_GROUP.plural
    return [
        entry
        for entry in pod_claims.reservations(claim)
        if (json_types.text(entry, "apiGroup"), json_types.text(entry, "resource")) == named
    ]
