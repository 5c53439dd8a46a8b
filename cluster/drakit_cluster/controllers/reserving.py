"""Reservations for pods that came to their node without the scheduler: their claims must be allocated already.

The scheduler reserves for the pods that it binds, before it binds them; so nothing is left to do for these. A claim that has no devices
yet gets none here: only the scheduler chooses devices. Source: Kubernetes' resource claim controller.
"""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.pod_claims import MAX_RESERVATIONS, Reference
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD
from drakit_cluster.scheduling import reservation


class ClaimReserver:
    """Reserves allocated claims for pods on nodes."""

    def __init__(self, api: Api, recorder: Recorder, *, for_workloads: bool) -> None:
        self._api = api
        self._recorder = recorder
        self._for_workloads = for_workloads

    def check(self, key: Key) -> None:
        """Reserve what is missing for the pod under ``key``. Raise ApiError where a write must be tried again."""
        try:
            pod = self._api.get(POD, key.name, key.namespace)
        except errors.NotFoundError:
            return
        if not json_types.text(pod, "spec", "nodeName") or pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod):
            return
        for reference in pod_claims.references(pod):
            if reference.claim:
                self._reserve(pod, reference, Key(key.namespace, reference.claim))

    def _reserve(self, pod: Object, reference: Reference, key: Key) -> None:
        try:
            claim = self._api.get(CLAIM, key.name, key.namespace)
        except errors.NotFoundError:
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
