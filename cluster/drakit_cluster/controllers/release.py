"""Claims that are no longer used: reservations go with their pods, devices with the last reservation.

A claim for a workload is given back when the owner of the workload takes its reservation away. A workload that is gone cannot do that:
its reservation goes with the last pod on a node, where the kind is known here. Workloads are not watched. Source: KEP-5194.

The kubelet makes a pod terminal only after its driver has unprepared, so devices are not given to others while they are in use; pods
that were deleted by force are the exception. Source: Kubernetes' resource claim controller.
"""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import ALL, CLAIM, POD, Resource
from drakit_cluster.scheduling import reservation


class ClaimReleaser:
    """Takes claims back from pods that are done or gone."""

    def __init__(self, api: Api, recorder: Recorder, *, for_workloads: bool) -> None:
        self._api = api
        self._recorder = recorder
        self._for_workloads = for_workloads
        self.waiting: set[Key] = set()
        """Claims that end with a workload; it has to be looked for now and then."""

    def check(self, key: Key) -> None:
        """Release what can be released of the claim under ``key``. Raise ApiError where a write must be tried again."""
        self.waiting.discard(key)
        try:
            claim = self._api.get(CLAIM, key.name, key.namespace)
        except errors.NotFoundError:
            return
        ended = [one for one in pod_claims.reserving_pods(claim) if self._has_ended(one, key.namespace)]
        ended += self._gone_workloads(claim, key)
        if ended:
            claim = self._release(claim, {json_types.text(one, "uid") for one in ended})
        elif not pod_claims.reservations(claim) and self._is_abandoned(claim):
            claim = reservation.deallocate(self._api, claim)
            self._recorder.normal(CLAIM, claim, "Deallocated", "nobody has a use for it")
        if not pod_claims.reservations(claim):
            self._delete_generated(claim)

    def _release(self, claim: Object, ended: set[str]) -> Object:
        had_devices = pod_claims.is_allocated(claim)
        released = reservation.release(self._api, claim, ended)
        if had_devices and not pod_claims.is_allocated(released):
            self._recorder.normal(CLAIM, released, "Deallocated", "its last pod is done")
        return released

    def _is_abandoned(self, claim: Object) -> bool:
        """Say whether a claim without reservations has to lose its devices; others may keep them until a pod comes."""
        if pod_claims.is_deleting(claim):
            finalizers = json_types.strings(claim, "metadata", "finalizers")
            return pod_claims.is_allocated(claim) or reservation.FINALIZER in finalizers
        return self._for_workloads and pod_claims.serves_any_pod(claim)

    def _gone_workloads(self, claim: Object, key: Key) -> list[Object]:
        """Return the workloads that have the claim and are gone, once no pod on a node refers to it."""
        if not self._for_workloads:
            return []
        known = [one for one in pod_claims.reserving_workloads(claim) if _kind_of(one) is not None]
        if known:
            self.waiting.add(key)
        gone = [one for one in known if not self._exists(one, key.namespace)]
        return [] if gone and self._is_in_use(key) else gone

    def _exists(self, entry: Object, namespace: str) -> bool:
        resource = _kind_of(entry)
        if resource is None:
            return True
        try:
            found = self._api.get(resource, json_types.text(entry, "name"), namespace)
        except errors.NotFoundError:
            return False
        return uid_of(found) == json_types.text(entry, "uid")

    def _is_in_use(self, key: Key) -> bool:
        pods = self._api.list(POD, namespace=key.namespace).items
        return any(
            key in pod_claims.claim_keys(pod) and json_types.text(pod, "spec", "nodeName") and not pod_claims.is_terminal(pod)
            for pod in pods
        )

    def _has_ended(self, entry: Object, namespace: str) -> bool:
        pod = self._pod(json_types.text(entry, "name"), namespace)
        return pod is None or uid_of(pod) != json_types.text(entry, "uid") or pod_claims.will_not_run(pod)

    def _delete_generated(self, claim: Object) -> None:
        """Delete a claim that was made for a pod which will not run any more."""
        owner = pod_claims.owner(claim)
        if json_types.text(owner, "kind") != "Pod" or pod_claims.is_deleting(claim):
            return
        metadata = json_types.mapping(claim, "metadata")
        name, namespace = json_types.text(metadata, "name"), json_types.text(metadata, "namespace")
        if not self._has_ended(owner, namespace):
            return
        try:
            self._api.delete(CLAIM, name, namespace=namespace, uid=uid_of(claim))
        except errors.NotFoundError:
            return

    def _pod(self, name: str, namespace: str) -> Object | None:
        try:
            return self._api.get(POD, name, namespace)
        except errors.NotFoundError:
            return None


def _kind_of(entry: Object) -> Resource | None:
    """Return the kind that an entry of status.reservedFor names, None for one that this cluster does not have."""
    named = json_types.text(entry, "apiGroup"), json_types.text(entry, "resource")
    return next((one for one in ALL if one.namespaced and (one.group, one.plural) == named), None)
