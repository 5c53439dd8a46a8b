"""ReplicaSets: a number of pods of one template. Source: apps/v1 ReplicaSet.

Pods without an owner are never adopted, and pods of other labels are never released.
"""

from drakit_cluster.client.informer import discard, key_of
from drakit_cluster.controllers.workloads import owned_pods, statuses
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.controllers.workloads.statuses import Condition
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD, REPLICA_SET


class ReplicaSets(Controller):
    """Creates and deletes the pods of ReplicaSets."""

    resource = REPLICA_SET

    def _reconcile(self, owner: Object) -> float | None:
        pods = owned_pods.active(owned_pods.of(self._api, owner))
        surplus = len(pods) - json_types.number(owner, "spec", "replicas")
        for pod in owned_pods.first_to_delete(pods)[: max(0, surplus)]:
            if discard(self._api, POD, pod):
                self._recorder.normal(REPLICA_SET, owner, "SuccessfulDelete", f"Deleted pod: {key_of(pod).name}")
        refusal = self._create(owner, -surplus)
        pods = owned_pods.active(owned_pods.of(self._api, owner))
        ready = owned_pods.availability(pods, json_types.number(owner, "spec", "minReadySeconds"))
        failure = [Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message=str(refusal))] if refusal else []
        status: Object = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready.ready,
            "availableReplicas": ready.available,
            "conditions": statuses.merged(owner, failure) or None,
        }
        statuses.write(self._api, REPLICA_SET, owner, status)
        if refusal is not None:
            raise refusal
        return ready.seconds

    def _create(self, owner: Object, number: int) -> errors.ApiError | None:
        metadata: Object = {"generateName": f"{json_types.text(owner, 'metadata', 'name')}-"}
        for _ in range(number):
            try:
                self._create_pod(owner, metadata)
            except errors.ApiError as error:
                return error
        return None
