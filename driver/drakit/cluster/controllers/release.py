"""Claims that are no longer used: reservations go with their pods, devices with the last reservation.

The kubelet makes a pod terminal only after its driver has unprepared, so devices are not given to others while they are in use; pods
that were deleted by force are the exception. Source: Kubernetes' resource claim controller.
"""

from drakit.cluster import errors, json_types, pod_claims, reservation
from drakit.cluster.api import Api
from drakit.cluster.informer import uid_of
from drakit.cluster.json_types import Object
from drakit.cluster.recorder import Recorder
from drakit.cluster.resources import CLAIM, POD
from drakit.cluster.store import Key


class ClaimReleaser:
    """Takes claims back from pods that are done or gone."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder

    def check(self, key: Key) -> None:
        """Release what can be released of the claim under ``key``. Raise ApiError where a write must be tried again."""
        try:
            claim = self._api.get(CLAIM, key.name, key.namespace)
        except errors.NotFoundError:
            return
        ended = {json_types.text(one, "uid") for one in pod_claims.reserving_pods(claim) if self._has_ended(one, key.namespace)}
        if ended:
            claim = self._release(claim, ended)
        elif pod_claims.is_deleting(claim) and not pod_claims.reservations(claim):
            claim = reservation.deallocate(self._api, claim)
        if not pod_claims.reservations(claim):
            self._delete_generated(claim)

    def _release(self, claim: Object, ended: set[str]) -> Object:
        had_devices = pod_claims.is_allocated(claim)
        released = reservation.release(self._api, claim, ended)
        if had_devices and not pod_claims.is_allocated(released):
            self._recorder.normal(CLAIM, released, "Deallocated", "its last pod is done")
        return released

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
