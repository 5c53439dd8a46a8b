"""StatefulSets: pods with a number and a name that stays. Source: apps/v1 StatefulSet and ControllerRevision.

A pod that was deleted comes back under its name. A new template replaces pods from the highest number down to the partition, one after
the other; until it has replaced all, pods below the partition are made from the former template.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import discard, find, key_of
from drakit_cluster.controllers.workloads import owned_pods, statuses
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CONTROLLER_REVISION, POD, STATEFUL_SET

HASH, NAME, INDEX = "controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, kw_only=True)
class _Revisions:
    """The names of the revision that all pods had last, and of the one that they should have."""

    former: str
    update: str


class StatefulSets(Controller):
    """Creates and deletes the pods of StatefulSets, one after the other unless podManagementPolicy is Parallel."""

    resource = STATEFUL_SET

    def _reconcile(self, owner: Object) -> float | None:
        update = self._revision(owner)
        by_number = {_number(pod, key_of(owner).name): pod for pod in owned_pods.of(self._api, owner)}
        pods = [pod for number, pod in by_number.items() if number >= 0]
        ready = owned_pods.availability(owned_pods.active(pods), json_types.number(owner, "spec", "minReadySeconds"))
        updated = sum(_revision_of(pod) == update for pod in pods)
        is_done = updated == len(pods) == json_types.number(owner, "spec", "replicas")
        former = update if is_done else json_types.text(owner, "status", "currentRevision") or update
        status: Object = {
            "replicas": len(pods),
            "readyReplicas": ready.ready,
            "availableReplicas": ready.available,
            "updatedReplicas": updated,
            "currentReplicas": sum(_revision_of(pod) == former for pod in pods),
            "updateRevision": update,
            "currentRevision": former,
        }
        statuses.write(self._api, STATEFUL_SET, owner, status)
        self._remove_history(owner, {former, update})
        self._step(owner, by_number, _Revisions(former=former, update=update))
        return ready.seconds

    def _revision(self, owner: Object) -> str:
        """Return the name of the template's ControllerRevision; create it, or make it the newest."""
        key = key_of(owner)
        hashed = owned_pods.template_hash(owner)
        name, known = f"{key.name}-{hashed}", self._revisions(owner)
        newest = max((json_types.number(one, "revision") for one in known), default=0)
        existing = next((one for one in known if json_types.text(one, "metadata", "name") == name), None)
        if existing is not None and json_types.number(existing, "revision") == newest:
            return name
        if existing is not None:
            self._api.update(CONTROLLER_REVISION, existing | {"revision": newest + 1})
            return name
        template = json_types.mapping(owner, "spec", "template") | {"$patch": "replace"}
        labels: Object = json_types.mapping(owner, "spec", "template", "metadata", "labels") | {HASH: hashed}
        metadata: Object = {"name": name, "labels": labels, "ownerReferences": [pod_claims.owned_by(STATEFUL_SET, owner)]}
        body: Object = {"metadata": metadata, "data": {"spec": {"template": template}}, "revision": newest + 1}
        self._api.create(CONTROLLER_REVISION, body, namespace=key.namespace)
        return name

    def _revisions(self, owner: Object) -> list[Object]:
        listed = self._api.list(CONTROLLER_REVISION, namespace=key_of(owner).namespace).items
        return sorted((one for one in listed if owned_pods.owns(owner, one)), key=lambda one: json_types.number(one, "revision"))

    def _remove_history(self, owner: Object, used: set[str]) -> None:
        unused = [one for one in self._revisions(owner) if json_types.text(one, "metadata", "name") not in used]
        surplus = len(unused) - json_types.number(owner, "spec", "revisionHistoryLimit")
        for one in unused[: max(0, surplus)]:
            discard(self._api, CONTROLLER_REVISION, one)

    def _step(self, owner: Object, by_number: Mapping[int, Object], revisions: _Revisions) -> None:
        first = json_types.number(owner, "spec", "ordinals", "start")
        numbers = range(first, first + json_types.number(owner, "spec", "replicas"))
        is_parallel = json_types.text(owner, "spec", "podManagementPolicy") == "Parallel"
        for number in numbers:
            pod = by_number.get(number)
            if pod is None:
                self._create(owner, number, revisions)
            elif pod_claims.is_terminal(pod) and not pod_claims.is_deleting(pod):
                discard(self._api, POD, pod)
            if not is_parallel and (pod is None or not _serves(owner, pod)):
                return
        for number in sorted(set(by_number) - set(numbers), reverse=True):
            self._delete(owner, by_number[number])
            if not is_parallel:
                return
        if json_types.text(owner, "spec", "updateStrategy", "type") != "OnDelete":
            self._replace(owner, [(number, by_number.get(number)) for number in reversed(numbers)], revisions.update)

    def _replace(self, owner: Object, pods: list[tuple[int, Object | None]], update: str) -> None:
        """Delete the pod with the highest number that has a former template, unless one with a higher number does not serve."""
        for number, pod in pods:
            if pod is None:
                return
            if number >= _partition(owner) and _revision_of(pod) != update:
                self._delete(owner, pod)
                return
            if not _serves(owner, pod):
                return

    def _create(self, owner: Object, number: int, revisions: _Revisions) -> None:
        key = key_of(owner)
        revision = revisions.former if number < _partition(owner) else revisions.update
        kept = find(self._api, CONTROLLER_REVISION, Key(key.namespace, revision))
        if kept is not None:
            template = {name: value for name, value in json_types.mapping(kept, "data", "spec", "template").items() if name != "$patch"}
            owner = owner | {"spec": json_types.mapping(owner, "spec") | {"template": template}}
        name = f"{key.name}-{number}"
        labels: Object = {HASH: revision, NAME: name, INDEX: str(number)}
        fields: Object = {"hostname": name, "subdomain": json_types.text(owner, "spec", "serviceName")}
        self._create_pod(owner, {"name": name, "labels": labels}, fields)

    def _delete(self, owner: Object, pod: Object) -> None:
        if not pod_claims.is_deleting(pod) and discard(self._api, POD, pod):
            message = f"delete Pod {key_of(pod).name} in StatefulSet {key_of(owner).name} successful"
            self._recorder.normal(STATEFUL_SET, owner, "SuccessfulDelete", message)


def _partition(owner: Object) -> int:
    return json_types.number(owner, "spec", "updateStrategy", "rollingUpdate", "partition")


def _serves(owner: Object, pod: Object) -> bool:
    """Return whether the pod has been ready for spec.minReadySeconds and stays."""
    minimum = json_types.number(owner, "spec", "minReadySeconds")
    return owned_pods.availability([pod], minimum).available > 0 and not pod_claims.is_deleting(pod)


def _revision_of(pod: Object) -> str:
    return json_types.text(pod, "metadata", "labels", HASH)


def _number(pod: Object, name: str) -> int:
    """Return the number of a pod in its name, -1 for none."""
    text = json_types.text(pod, "metadata", "name").removeprefix(f"{name}-")
    return int(text) if text.isdecimal() else -1
