"""The lifecycle of claims: created from templates, reserved for pods that are bound without the scheduler, released when unused.

- The pod's status.resourceClaimStatuses names the claim of each entry of its spec. A claim from before a crash of the controller is found by
  its owner and its annotation, so the controller never creates a second one.
- Reservations are removed with their pods, the allocation with the last reservation. The kubelet makes a pod terminal only after its driver
  has unprepared, so devices in use are never allocated again. Pods that were deleted by force are the exception.
- A claim for a workload is released when the workload's owner removes its reservation. The reservation of a deleted workload of a
  known kind ends with the last pod on a node. Workloads are not watched.
- A pod with a node gets a reservation only in an allocated claim, because only the scheduler allocates.

Source: Kubernetes' resource claim controller (KEP-4381), KEP-5194.
"""

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import discard, find, find_named, key_of, uid_of
from drakit_cluster.client.pod_claims import MAX_RESERVATIONS, Reference
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import ALL, CLAIM, CLAIM_TEMPLATE, POD, Resource
from drakit_cluster.scheduling import reservation


class ClaimReleaser:
    """The controller that releases claims of pods that have finished or were deleted."""

    def __init__(self, api: Api, recorder: Recorder, *, for_workloads: bool) -> None:
        self._api = api
        self._recorder = recorder
        self._for_workloads = for_workloads
        self.waiting: set[Key] = set()
        """Claims that a workload reserves. The workload is polled, because workloads are not watched."""

    def check(self, key: Key) -> None:
        """Remove ended reservations of the claim, and deallocate it if unused. Raises ApiError if a write must be retried."""
        self.waiting.discard(key)
        if (claim := find(self._api, CLAIM, key)) is None:
            return
        ended = [pod for pod in pod_claims.reserving_pods(claim) if self._has_ended(pod, key.namespace)]
        ended += self._deleted_workloads(claim, key)
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
        return self._for_workloads and pod_claims.serves_any_pod(claim)

    def _deleted_workloads(self, claim: Object, key: Key) -> list[Object]:
        """Return the deleted workloads that reserve the claim, or none while a pod on a node refers to it."""
        if not self._for_workloads:
            return []
        workloads = [workload for workload in pod_claims.reserving_workloads(claim) if _kind_of(workload) is not None]
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

    def __init__(self, api: Api, recorder: Recorder, *, for_workloads: bool) -> None:
        self._api = api
        self._recorder = recorder
        self._for_workloads = for_workloads

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
        if reference.owned and not pod_claims.generated_for(claim, pod):
            return
        if not reservation.is_missing(claim, pod, for_workloads=self._for_workloads):
            return
        if len(pod_claims.reservations(claim)) >= MAX_RESERVATIONS:
            message = f"claim {key.namespace}/{key.name} is in use by {MAX_RESERVATIONS} consumers, the most there can be"
            self._recorder.warning(POD, pod, "FailedReservation", message)
            return
        reservation.reserve(self._api, claim, pod, for_workloads=self._for_workloads)


POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_MAX_BASE = 57
"""The server appends five characters to at most 58; one of these is the dash at the end."""


class ClaimGenerator:
    """Creates the claims that pods request by templates."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._waiting: dict[Key, set[Key]] = {}

    def waiting_for(self, template: Key) -> set[Key]:
        """Remove and return the pods whose claims wait for a template."""
        return self._waiting.pop(template, set())

    def remove(self, pod: Key) -> None:
        """Remove a pod from the pods that wait for a template."""
        for pods in self._waiting.values():
            pods.discard(pod)

    def check(self, key: Key) -> None:
        """Create missing claims for the pod under ``key``. Raises ApiError if a write must be retried."""
        if (pod := find(self._api, POD, key)) is None:
            return
        if pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
            return
        missing = [reference for reference in pod_claims.references(pod) if reference.claim == "" and reference.template]
        generated = {reference.name: claim for reference in missing if (claim := self._generate(pod, reference))}
        if generated:
            self._record(pod, generated)

    def _generate(self, pod: Object, reference: pod_claims.Reference) -> str:
        """Return the name of the entry's claim, created now or earlier; empty if the template is missing."""
        namespace = json_types.text(pod, "metadata", "namespace")
        for claim in self._api.list(CLAIM, namespace=namespace).items:
            if pod_claims.generated_for(claim, pod) and json_types.text(claim, "metadata", "annotations", POD_CLAIM_NAME) == reference.name:
                return json_types.text(claim, "metadata", "name")
        template = find(self._api, CLAIM_TEMPLATE, Key(namespace, reference.template))
        if template is None:
            self._waiting.setdefault(Key(namespace, reference.template), set()).add(key_of(pod))
            message = f"ResourceClaimTemplate {namespace}/{reference.template} of claim {reference.name} not found"
            self._recorder.warning(POD, pod, "FailedResourceClaimCreation", message)
            return ""
        created = self._api.create(CLAIM, _claim(pod, reference.name, template), namespace=namespace)
        return json_types.text(created, "metadata", "name")

    def _record(self, pod: Object, generated: dict[str, str]) -> None:
        statuses: list[Object] = [{"name": entry, "resourceClaimName": claim} for entry, claim in generated.items()]
        existing = json_types.objects(pod, "status", "resourceClaimStatuses")
        patch: Object = {
            "metadata": {"uid": uid_of(pod)},
            "status": {"resourceClaimStatuses": json_types.from_objects([*existing, *statuses])},
        }
        key = key_of(pod)
        self._api.patch(POD, key.name, patch, namespace=key.namespace, kind=PatchKind.MERGE, subresource="status")


def _claim(pod: Object, entry: str, template: Object) -> Object:
    name = json_types.text(pod, "metadata", "name")
    template_metadata = json_types.mapping(template, "spec", "metadata")
    annotations = json_types.mapping(template_metadata, "annotations") | {POD_CLAIM_NAME: entry}
    metadata: Object = {
        "generateName": generate_name(name, entry),
        "annotations": annotations,
        "ownerReferences": [pod_claims.owned_by(POD, pod)],
    }
    if labels := json_types.mapping(template_metadata, "labels"):
        metadata["labels"] = json_types.copy(labels)
    return {"metadata": metadata, "spec": json_types.copy(json_types.mapping(template, "spec", "spec"))}


def generate_name(pod: str, entry: str) -> str:
    """Return ``<pod>-<entry>-``, with both shortened in proportion if the server would cut off the end."""
    available = _MAX_BASE - 1
    if len(pod) + len(entry) > available:
        pod_length = max(1, len(pod) * available // (len(pod) + len(entry)))
        pod, entry = pod[:pod_length], entry[: available - pod_length]
    return f"{pod}-{entry}-"
