"""The lifecycle of claims: created from templates, reserved for pods that are bound without the scheduler, released when unused.

- The pod's status.resourceClaimStatuses names the claim of each entry of its spec. A claim from before a crash of the controller is found by
  its owner and its annotation, so the controller never creates a second one.
- Reservations are removed with their pods, the allocation with the last reservation. The kubelet makes a pod terminal only after its driver
  has unprepared, so devices in use are never allocated again. Pods that were deleted by force are the exception.
- A claim for a workload is released when the workload's owner removes its reservation. The reservation of a deleted workload of a
  known kind ends with the last pod on a node. Workloads are not watched.
- A PodGroup's claims are created once, from the group's own templates and with the group as owner. A pod whose entry is the same as one of the
  group's gets the group's claim. The group's reservation ends with the group, which stays until its last pod has ended.
- A pod with a node gets a reservation only in an allocated claim, because only the scheduler allocates.

Source: Kubernetes' resource claim controller (KEP-4381), its PodGroup protection controller, KEP-5194, KEP-5729.
"""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import amend, discard, find, find_named, key_of
from drakit_cluster.client.pod_claims import MAX_RESERVATIONS, Reference
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.client.sharing import Sharing, group_of, is_of_group, reserving_groups
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import ALL, CLAIM, CLAIM_TEMPLATE, GROUP_FINALIZER, POD, POD_GROUP, Resource
from drakit_cluster.scheduling import reservation


class ClaimReleaser:
    """The controller that releases claims of pods that have finished or were deleted."""

    def __init__(self, api: Api, recorder: Recorder, sharing: Sharing) -> None:
        self._api = api
        self._recorder = recorder
        self._sharing = sharing
        self.waiting: set[Key] = set()
        """Claims that a workload reserves. The workload is polled, because workloads are not watched."""

    def check(self, key: Key) -> None:
        """Remove ended reservations of the claim, and deallocate it if unused. Raises ApiError if a write must be retried."""
        self.waiting.discard(key)
        if (claim := find(self._api, CLAIM, key)) is None:
            return
        ended = [pod for pod in pod_claims.reserving_pods(claim) if self._has_ended(pod, key.namespace)]
        groups = reserving_groups(claim) if self._sharing.groups else []
        ended += [group for group in groups if find_named(self._api, POD_GROUP, group, key.namespace) is None]
        ended += self._deleted_workloads(claim, key, groups)
        if ended:
            claim = self._release(claim, {json_types.text(entry, "uid") for entry in ended})
        elif not pod_claims.reservations(claim) and self._is_abandoned(claim):
            claim = reservation.deallocate(self._api, claim)
            self._recorder.normal(CLAIM, claim, "Deallocated", "no pod uses it")
        if not pod_claims.reservations(claim):
            self._delete_generated(claim)

    def _release(self, claim: Object, ended: set[str]) -> Object:
        had_devices = pod_claims.is_allocated(claim)
        released = reservation.release(self._api, claim, ended)
        if had_devices and not pod_claims.is_allocated(released):
            self._recorder.normal(CLAIM, released, "Deallocated", "its last pod is done")
        return released

    def _is_abandoned(self, claim: Object) -> bool:
        """Return whether a claim without reservations must be deallocated; others may stay allocated until a pod uses them."""
        if pod_claims.is_deleting(claim):
            finalizers = json_types.strings(claim, "metadata", "finalizers")
            return pod_claims.is_allocated(claim) or reservation.FINALIZER in finalizers
        return self._sharing.serves_any_pod(claim)

    def _deleted_workloads(self, claim: Object, key: Key, groups: list[Object]) -> list[Object]:
        """Return the deleted workloads that reserve the claim, or none while a pod on a node refers to it. ``groups`` are no workloads."""
        if not self._sharing.workloads:
            return []
        named = [workload for workload in pod_claims.reserving_workloads(claim) if workload not in groups]
        workloads = [workload for workload in named if _kind_of(workload) is not None]
        if workloads:
            self.waiting.add(key)
        deleted = [workload for workload in workloads if not self._exists(workload, key.namespace)]
        return [] if deleted and self._is_in_use(key) else deleted

    def _exists(self, entry: Object, namespace: str) -> bool:
        resource = _kind_of(entry)
        return resource is None or find_named(self._api, resource, entry, namespace) is not None

    def _is_in_use(self, key: Key) -> bool:
        pods = self._api.list(POD, namespace=key.namespace).items
        return any(
            key in pod_claims.claim_keys(pod) and json_types.text(pod, "spec", "nodeName") and not pod_claims.is_terminal(pod)
            for pod in pods
        )

    def _has_ended(self, entry: Object, namespace: str) -> bool:
        pod = find_named(self._api, POD, entry, namespace)
        return pod is None or pod_claims.will_not_run(pod)

    def _delete_generated(self, claim: Object) -> None:
        owner = pod_claims.owner(claim)
        if json_types.text(owner, "kind") != "Pod" or pod_claims.is_deleting(claim):
            return
        if self._has_ended(owner, key_of(claim).namespace):
            discard(self._api, CLAIM, claim)


def _kind_of(entry: Object) -> Resource | None:
    """Return the kind that an entry of status.reservedFor names, or None for a kind that this cluster does not have."""
    named = json_types.text(entry, "apiGroup"), json_types.text(entry, "resource")
    return next((resource for resource in ALL if resource.namespaced and (resource.group, resource.plural) == named), None)


class ClaimReserver:
    """Reserves allocated claims for pods on nodes."""

    def __init__(self, api: Api, recorder: Recorder, sharing: Sharing) -> None:
        self._api = api
        self._recorder = recorder
        self._sharing = sharing

    def check(self, key: Key) -> None:
        """Add missing reservations for the pod under ``key``. Raises ApiError if a write must be retried."""
        if (pod := find(self._api, POD, key)) is None:
            return
        if not json_types.text(pod, "spec", "nodeName") or pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
            return
        for reference in pod_claims.references(pod):
            if reference.claim:
                self._reserve(pod, reference, Key(key.namespace, reference.claim))

    def _reserve(self, pod: Object, reference: Reference, key: Key) -> None:
        if (claim := find(self._api, CLAIM, key)) is None:
            return
        if not pod_claims.is_allocated(claim) or pod_claims.is_deleting(claim):
            return
        if reference.owned and not self._sharing.is_generated_for(claim, pod):
            return
        if not self._sharing.is_missing(claim, pod):
            return
        if len(pod_claims.reservations(claim)) >= MAX_RESERVATIONS:
            message = f"claim {key.namespace}/{key.name} is in use by {MAX_RESERVATIONS} consumers, the most there can be"
            self._recorder.warning(POD, pod, "FailedReservation", message)
            return
        group = self._sharing.group_key(pod)
        stored = find(self._api, POD_GROUP, group) if group is not None else None
        consumer = self._sharing.consumer(claim, pod, {group: stored} if group is not None and stored is not None else {})
        reservation.reserve(self._api, claim, consumer, self._sharing)


POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_MAX_BASE = 57
"""The server appends five characters to at most 58; one of these is the dash at the end."""


class ClaimGenerator:
    """Creates the claims that the objects of one kind, pods or PodGroups, request by templates."""

    def __init__(self, api: Api, recorder: Recorder, resource: Resource, sharing: Sharing) -> None:
        self._api = api
        self._recorder = recorder
        self._resource = resource
        self._sharing = sharing
        self._waiting: dict[Key, set[Key]] = {}

    def waiting_for(self, template: Key) -> set[Key]:
        """Remove and return the objects whose claims wait for a template."""
        return self._waiting.pop(template, set())

    def remove(self, owner: Key) -> None:
        """Remove an object from those that wait for a template."""
        for owners in self._waiting.values():
            owners.discard(owner)

    def check(self, key: Key) -> None:
        """Create missing claims for the object under ``key``. Raises ApiError if a write must be retried."""
        if (owner := find(self._api, self._resource, key)) is None:
            return
        if pod_claims.is_deleting(owner) or pod_claims.is_terminal(owner):
            return
        group: Object | None = None
        if (group_key := self._sharing.group_key(owner)) is not None:
            group = find(self._api, POD_GROUP, group_key)
            if group is None:
                return  # Only the PodGroup says which of the claims are its own.
        missing = [reference for reference in pod_claims.references(owner) if reference.claim == "" and reference.template]
        generated = {reference.name: claim for reference in missing if (claim := self._claim_of(owner, group, reference))}
        if generated:
            self._record(owner, generated)

    def _claim_of(self, owner: Object, group: Object | None, reference: Reference) -> str:
        """Return the name of the entry's claim, created now or earlier; empty if the PodGroup's does not exist or the template is missing."""
        if group is not None and is_of_group(reference, group):
            return self._existing(POD_GROUP, group, reference)
        return self._existing(self._resource, owner, reference) or self._generate(owner, reference)

    def _existing(self, resource: Resource, owner: Object, reference: Reference) -> str:
        claims = self._api.list(CLAIM, namespace=key_of(owner).namespace).items
        mine = [claim for claim in claims if pod_claims.is_owned_by(claim, resource, owner)]
        entry = ("metadata", "annotations", POD_CLAIM_NAME)
        return next((key_of(claim).name for claim in mine if json_types.text(claim, *entry) == reference.name), "")

    def _generate(self, owner: Object, reference: Reference) -> str:
        """Create the entry's claim and return its name; empty if the template is missing."""
        namespace = key_of(owner).namespace
        template = find(self._api, CLAIM_TEMPLATE, Key(namespace, reference.template))
        if template is None:
            self._waiting.setdefault(Key(namespace, reference.template), set()).add(key_of(owner))
            message = f"ResourceClaimTemplate {namespace}/{reference.template} of claim {reference.name} not found"
            self._recorder.warning(self._resource, owner, "FailedResourceClaimCreation", message)
            return ""
        created = self._api.create(CLAIM, self._claim(owner, reference.name, template), namespace=namespace)
        return key_of(created).name

    def _record(self, owner: Object, generated: dict[str, str]) -> None:
        statuses: list[Object] = [{"name": entry, "resourceClaimName": claim} for entry, claim in generated.items()]
        existing = json_types.objects(owner, "status", "resourceClaimStatuses")
        patch: Object = {"status": {"resourceClaimStatuses": json_types.from_objects([*existing, *statuses])}}
        amend(self._api, self._resource, owner, patch, subresource="status")

    def _claim(self, owner: Object, entry: str, template: Object) -> Object:
        template_metadata = json_types.mapping(template, "spec", "metadata")
        annotations = json_types.mapping(template_metadata, "annotations") | {POD_CLAIM_NAME: entry}
        metadata: Object = {
            "generateName": generate_name(key_of(owner).name, entry),
            "annotations": annotations,
            "ownerReferences": [pod_claims.owned_by(self._resource, owner)],
        }
        if labels := json_types.mapping(template_metadata, "labels"):
            metadata["labels"] = json_types.copy(labels)
        return {"metadata": metadata, "spec": json_types.copy(json_types.mapping(template, "spec", "spec"))}


class GroupProtector:
    """Ends deleted PodGroups when their last pod has ended."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def check(self, key: Key) -> None:
        """Remove the finalizer of the PodGroup under ``key`` if nothing needs it. Raises ApiError if the write must be retried."""
        group = find(self._api, POD_GROUP, key)
        if group is None or not pod_claims.is_deleting(group) or any(not pod_claims.is_terminal(pod) for pod in pods_of(self._api, key)):
            return
        finalizers = [finalizer for finalizer in json_types.strings(group, "metadata", "finalizers") if finalizer != GROUP_FINALIZER]
        json_types.child(group, "metadata")["finalizers"] = json_types.from_strings(finalizers)
        self._api.update(POD_GROUP, group)


def pods_of(api: Api, group: Key) -> list[Object]:
    """Return the pods that name a PodGroup."""
    return [pod for pod in api.list(POD, namespace=group.namespace).items if group_of(pod) == group]


def generate_name(pod: str, entry: str) -> str:
    """Return ``<pod>-<entry>-``, with both shortened in proportion if the server would cut off the end."""
    available = _MAX_BASE - 1
    if len(pod) + len(entry) > available:
        pod_length = max(1, len(pod) * available // (len(pod) + len(entry)))
        pod, entry = pod[:pod_length], entry[: available - pod_length]
    return f"{pod}-{entry}-"
