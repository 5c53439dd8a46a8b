"""StatefulSets: pods with a number and a name that stays. Source: apps/v1 StatefulSet.

A pod that was deleted comes back under its name; a new template replaces pods from the highest number down to the partition.
"""

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import discard, find, key_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.controllers import owned_pods, statuses
from drakit_cluster.controllers.owned_pods import PodMaker
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD, STATEFUL_SET

HASH, NAME, INDEX = "controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets:
    """Creates and deletes the pods of StatefulSets, one after the other unless podManagementPolicy is Parallel."""

    def __init__(self, api: Api, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder
        self._maker = PodMaker(api, recorder)

    def check(self, key: Key) -> float | None:
        """Reconcile a StatefulSet. Return the seconds until the next check; raise the ApiError of a pod that could not be created."""
        owner = find(self._api, STATEFUL_SET, key)
        if owner is None or pod_claims.is_deleting(owner):
            return None
        current = owned_pods.template_hash(owner)
        revision = f"{key.name}-{current}"
        by_number = {_number(pod, key.name): pod for pod in owned_pods.of(self._api, owner)}
        pods = [pod for number, pod in by_number.items() if number >= 0]
        ready = owned_pods.availability(owned_pods.active(pods), json_types.number(owner, "spec", "minReadySeconds"))
        updated = sum(_revision_of(pod) == revision for pod in pods)
        wanted = json_types.number(owner, "spec", "replicas")
        done = updated == len(pods) == wanted
        former = json_types.text(owner, "status", "currentRevision") or revision
        status: Object = {
            "replicas": len(pods),
            "readyReplicas": ready.ready,
            "availableReplicas": ready.available,
            "updatedReplicas": updated,
            "currentReplicas": updated if done or former == revision else len(pods) - updated,
            "updateRevision": revision,
            "currentRevision": revision if done else former,
        }
        statuses.write(self._api, STATEFUL_SET, owner, status)
        self._step(owner, by_number, revision)
        return ready.seconds

    def _step(self, owner: Object, by_number: dict[int, Object], revision: str) -> None:
        first = json_types.number(owner, "spec", "ordinals", "start")
        numbers = range(first, first + json_types.number(owner, "spec", "replicas"))
        parallel = json_types.text(owner, "spec", "podManagementPolicy") == "Parallel"
        for number in numbers:
            pod = by_number.get(number)
            if pod is None:
                self._create(owner, number, revision)
            elif pod_claims.is_terminal(pod) and not pod_claims.is_deleting(pod):
                discard(self._api, POD, pod)
            if not parallel and (pod is None or not _runs(pod)):
                return
        for number in sorted(set(by_number) - set(numbers), reverse=True):
            self._delete(owner, by_number[number])
            if not parallel:
                return
        self._replace(owner, [(number, by_number[number]) for number in reversed(numbers) if number in by_number], revision)

    def _replace(self, owner: Object, pods: list[tuple[int, Object]], revision: str) -> None:
        """Delete the pod with the highest number that has an old template. A pod that is not ready goes before others are waited for."""
        strategy = json_types.mapping(owner, "spec", "updateStrategy")
        if json_types.text(strategy, "type") == "OnDelete":
            return
        partition = json_types.number(strategy, "rollingUpdate", "partition")
        for number, pod in pods:
            if number >= partition and _revision_of(pod) != revision:
                self._delete(owner, pod)
                return
            if not _runs(pod):
                return

    def _create(self, owner: Object, number: int, revision: str) -> None:
        name = f"{key_of(owner).name}-{number}"
        labels: Object = {HASH: revision, NAME: name, INDEX: str(number)}
        fields: Object = {"hostname": name, "subdomain": json_types.text(owner, "spec", "serviceName")}
        self._maker.create(STATEFUL_SET, owner, {"name": name, "labels": labels}, fields)

    def _delete(self, owner: Object, pod: Object) -> None:
        if not pod_claims.is_deleting(pod) and discard(self._api, POD, pod):
            message = f"delete Pod {key_of(pod).name} in StatefulSet {key_of(owner).name} successful"
            self._recorder.normal(STATEFUL_SET, owner, "SuccessfulDelete", message)


def _runs(pod: Object) -> bool:
    return owned_pods.is_ready(pod) and not pod_claims.is_deleting(pod)


def _revision_of(pod: Object) -> str:
    return json_types.text(pod, "metadata", "labels", HASH)


def _number(pod: Object, name: str) -> int:
    """Return the number of a pod in its name, -1 for none."""
    text = json_types.text(pod, "metadata", "name").removeprefix(f"{name}-")
    return int(text) if text.isdecimal() else -1
