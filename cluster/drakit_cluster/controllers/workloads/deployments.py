"""Deployments: a ReplicaSet for each template, whose numbers move from the old ones to the new one.

Source: apps/v1 Deployment and the annotations ``deployment.kubernetes.io/*``, which ``kubectl rollout history`` and ``undo`` read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import amend, discard, key_of
from drakit_cluster.controllers.workloads import owned_pods, replicas, statuses
from drakit_cluster.controllers.workloads.controller import Controller
from drakit_cluster.controllers.workloads.replicas import Count, Limits
from drakit_cluster.controllers.workloads.statuses import Condition
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import DEPLOYMENT, REPLICA_SET

HASH = "pod-template-hash"
_PREFIX = "deployment.kubernetes.io/"
REVISION, HISTORY = f"{_PREFIX}revision", f"{_PREFIX}revision-history"
_DESIRED, _MAXIMUM = f"{_PREFIX}desired-replicas", f"{_PREFIX}max-replicas"
_NOT_COPIED = (REVISION, HISTORY, _DESIRED, _MAXIMUM, "kubectl.kubernetes.io/last-applied-configuration")
_SETTLE_SECONDS = 0.2
"""The interval in which Recreate looks whether the last old pod has ended."""


@dataclass(frozen=True, kw_only=True)
class _Rollout:
    """A Deployment and its ReplicaSets. ``new`` is the one of its template, None before it is made; ``old`` is in order of age."""

    owner: Object
    new: Object | None
    old: Sequence[Object]
    limits: Limits

    @property
    def sets(self) -> list[Object]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    @property
    def paused(self) -> bool:
        return json_types.at(self.owner, "spec", "paused") is True

    @property
    def recreates(self) -> bool:
        return json_types.text(self.owner, "spec", "strategy", "type") == "Recreate"

    def is_scaled(self) -> bool:
        """Return whether spec.replicas changed since the numbers of the ReplicaSets were decided."""
        desired = {json_types.text(one, "metadata", "annotations", _DESIRED) for one in self.sets if _wanted(one)}
        return any(text not in ("", str(self.limits.replicas)) for text in desired)


class Deployments(Controller):
    """Creates, scales and deletes the ReplicaSets of Deployments."""

    resource = DEPLOYMENT

    def _reconcile(self, owner: Object) -> float | None:
        rollout = self._read(owner)
        waits, made = None, ""
        if rollout.paused or rollout.is_scaled():
            self._scale(rollout, replicas.scaled(rollout.limits, _counts(rollout.sets), _count(rollout.new)))
        elif rollout.recreates and (waits := self._ends_old(rollout)) is not None:
            pass
        else:
            made = self._ensure_new(rollout)
            rollout = self._read(owner)
            self._roll(rollout)
        self._remove_history(rollout)
        return self._report(self._read(owner), made, waits)

    def _read(self, owner: Object) -> _Rollout:
        found = [one for one in self._api.list(REPLICA_SET, namespace=key_of(owner).namespace).items if owned_pods.owns(owner, one)]
        found = [one for one in found if not pod_claims.is_deleting(one)]
        found.sort(key=lambda one: (json_types.text(one, "metadata", "creationTimestamp"), _revision(one)))
        current = owned_pods.template_hash(owner)
        new = next((one for one in found if json_types.text(one, "metadata", "labels", HASH) == current), None)
        wanted = json_types.number(owner, "spec", "replicas")
        limits = replicas.limits(json_types.mapping(owner, "spec", "strategy"), wanted)
        return _Rollout(owner=owner, new=new, old=[one for one in found if one is not new], limits=limits)

    def _ends_old(self, rollout: _Rollout) -> float | None:
        """Return the seconds to wait while pods of old templates run, None once they have ended."""
        self._scale(rollout, {json_types.text(one, "metadata", "name"): 0 for one in rollout.old if _wanted(one)})
        running = [pod for one in rollout.old for pod in owned_pods.of(self._api, one) if not pod_claims.is_terminal(pod)]
        return _SETTLE_SECONDS if running else None

    def _ensure_new(self, rollout: _Rollout) -> str:
        """Create the ReplicaSet of the template, or make it the newest revision. Return the reason for the condition, empty for none."""
        revision = 1 + max((_revision(one) for one in rollout.old), default=0)
        if rollout.new is None:
            self._create(rollout, revision)
            return "NewReplicaSetCreated"
        self._copy(rollout.owner, rollout.new)
        before = _revision(rollout.new)
        if before >= revision:
            self._annotate(rollout.owner, before)
            return ""
        earlier = json_types.text(rollout.new, "metadata", "annotations", HISTORY)
        history = f"{earlier},{before}" if earlier else str(before)
        annotations: Object = {REVISION: str(revision), HISTORY: history}
        amend(self._api, REPLICA_SET, rollout.new, {"metadata": {"annotations": annotations}})
        self._annotate(rollout.owner, revision)
        return "FoundNewReplicaSet"

    def _copy(self, owner: Object, new: Object) -> None:
        """Give the ReplicaSet the annotations and minReadySeconds that the Deployment has by now."""
        own, minimum = json_types.mapping(new, "metadata", "annotations"), json_types.number(owner, "spec", "minReadySeconds")
        missing: Object = {name: value for name, value in _copied(owner).items() if own.get(name) != value}
        if missing or json_types.number(new, "spec", "minReadySeconds") != minimum:
            amend(self._api, REPLICA_SET, new, {"metadata": {"annotations": missing}, "spec": {"minReadySeconds": minimum}})

    def _create(self, rollout: _Rollout, revision: int) -> None:
        owner = rollout.owner
        hashed: Object = {HASH: owned_pods.template_hash(owner)}
        template = json_types.copy_object(json_types.mapping(owner, "spec", "template"))
        metadata = json_types.child(template, "metadata")
        metadata["labels"] = json_types.mapping(metadata, "labels") | hashed
        selector = json_types.copy_object(json_types.mapping(owner, "spec", "selector"))
        selector["matchLabels"] = json_types.mapping(selector, "matchLabels") | hashed
        first = replicas.rolled(rollout.limits, Count(name="new", wanted=0), _counts(rollout.old)).get("new", 0)
        body: Object = {
            "metadata": {
                "name": f"{json_types.text(owner, 'metadata', 'name')}-{hashed[HASH]}",
                "labels": metadata["labels"],
                "annotations": _copied(owner) | {REVISION: str(revision)} | _sizes(rollout.limits),
                "ownerReferences": [pod_claims.owned_by(DEPLOYMENT, owner)],
            },
            "spec": {
                "replicas": first,
                "selector": selector,
                "template": template,
                "minReadySeconds": json_types.number(owner, "spec", "minReadySeconds"),
            },
        }
        try:
            made = self._api.create(REPLICA_SET, body, namespace=key_of(owner).namespace)
        except errors.ApiError as error:
            self._refused(owner, error)
            raise
        self._record_scaling(rollout, json_types.text(made, "metadata", "name"), 0, first)
        self._annotate(owner, revision)

    def _refused(self, owner: Object, error: errors.ApiError) -> None:
        fix = "; delete that ReplicaSet, or rename the Deployment" if isinstance(error, errors.AlreadyExistsError) else ""
        message = f"Failed to create new replica set: {error}{fix}"
        self._recorder.warning(DEPLOYMENT, owner, "ReplicaSetCreateError", message)
        condition = Condition(type="Progressing", status="False", reason="ReplicaSetCreateError", message=message)
        kept = [one for one in json_types.objects(owner, "status", "conditions") if one.get("type") != condition.type]
        merged = json_types.objects({"conditions": statuses.merged(owner, [condition])}, "conditions")
        statuses.write(self._api, DEPLOYMENT, owner, {"conditions": [*kept, *merged]})

    def _annotate(self, owner: Object, revision: int) -> None:
        if json_types.text(owner, "metadata", "annotations", REVISION) != str(revision):
            amend(self._api, DEPLOYMENT, owner, {"metadata": {"annotations": {REVISION: str(revision)}}})

    def _roll(self, rollout: _Rollout) -> None:
        new = _count(rollout.new)
        if new is None:
            return
        limits = rollout.limits
        if rollout.recreates:
            self._scale(rollout, {new.name: limits.replicas} if new.wanted != limits.replicas else {})
        else:
            self._scale(rollout, replicas.rolled(limits, new, _counts(rollout.old)))

    def _scale(self, rollout: _Rollout, wanted: Mapping[str, int]) -> None:
        sizes = _sizes(rollout.limits)
        for one in rollout.sets:
            name, before = json_types.text(one, "metadata", "name"), _wanted(one)
            number = wanted.get(name, before)
            annotations = json_types.mapping(one, "metadata", "annotations")
            is_sized = all(annotations.get(key) == value for key, value in sizes.items()) or not (before or number)
            if number == before and is_sized:
                continue
            amend(self._api, REPLICA_SET, one, {"metadata": {"annotations": sizes}, "spec": {"replicas": number}})
            self._record_scaling(rollout, name, before, number)

    def _record_scaling(self, rollout: _Rollout, name: str, before: int, after: int) -> None:
        if before != after:
            direction = "up" if after > before else "down"
            message = f"Scaled {direction} replica set {name} from {before} to {after}"
            self._recorder.normal(DEPLOYMENT, rollout.owner, "ScalingReplicaSet", message)

    def _remove_history(self, rollout: _Rollout) -> None:
        """Delete the oldest ReplicaSets beyond spec.revisionHistoryLimit, once none of their pods is left."""
        new = _count(rollout.new)
        if new is None or new.available < rollout.limits.replicas or any(_wanted(one) for one in rollout.old):
            return
        idle = sorted((one for one in rollout.old if not json_types.number(one, "status", "replicas")), key=_revision)
        surplus = len(idle) - json_types.number(rollout.owner, "spec", "revisionHistoryLimit")
        for one in idle[: max(0, surplus)]:
            discard(self._api, REPLICA_SET, one)

    def _report(self, rollout: _Rollout, made: str, waits: float | None) -> float | None:
        owner, sets = rollout.owner, rollout.sets
        total, updated = _sum(sets, "replicas"), _sum([rollout.new] if rollout.new else [], "replicas")
        ready, available = _sum(sets, "readyReplicas"), _sum(sets, "availableReplicas")
        numbers = {"replicas": total, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available}
        progress, seconds = _progress(rollout, numbers, made)
        enough = available >= rollout.limits.minimum_available
        reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
        conditions = [Condition(type="Available", status=str(enough), reason=reason), progress]
        failure = next((one for new in sets if (one := statuses.found(new, "ReplicaFailure"))), None)
        if failure is not None:
            message = json_types.text(failure, "message")
            conditions.append(Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message=message))
        status: Object = {**numbers, "unavailableReplicas": max(0, rollout.limits.replicas - available)}
        statuses.write(self._api, DEPLOYMENT, owner, status | {"conditions": statuses.merged(owner, conditions)})
        return min((one for one in (seconds, waits) if one is not None), default=None)


def _progress(rollout: _Rollout, numbers: Mapping[str, int], made: str) -> tuple[Condition, float | None]:
    """Return the condition Progressing, and the seconds until its deadline passes; None for no deadline."""
    owner, wanted = rollout.owner, rollout.limits.replicas
    reason = json_types.text(statuses.found(owner, "Progressing"), "reason")
    name = json_types.text(rollout.new, "metadata", "name") if rollout.new else ""
    is_new = numbers["updatedReplicas"] == numbers["replicas"]
    if rollout.paused:
        return Condition(type="Progressing", status="Unknown", reason="DeploymentPaused"), None
    if made:
        return Condition(type="Progressing", status="True", reason=made, touched=True), float(_deadline(owner))
    if is_new and (reason == "NewReplicaSetAvailable" or numbers["replicas"] == numbers["availableReplicas"] == wanted):
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return Condition(type="Progressing", status="True", reason="NewReplicaSetAvailable", message=message), None
    if _went_on(owner, numbers) or reason in ("", "DeploymentPaused", "NewReplicaSetAvailable"):
        message = f'ReplicaSet "{name}" is progressing.'
        return Condition(type="Progressing", status="True", reason="ReplicaSetUpdated", message=message, touched=True), float(
            _deadline(owner)
        )
    return _waited(owner, name)


def _waited(owner: Object, name: str) -> tuple[Condition, float | None]:
    """Return the condition of an update that did not go on, and the seconds until its deadline."""
    before = statuses.found(owner, "Progressing")
    elapsed = owned_pods.seconds_since(json_types.text(before, "lastUpdateTime"))
    if json_types.text(before, "status") == "False" or elapsed > _deadline(owner):
        message = f'ReplicaSet "{name}" has timed out progressing.'
        return Condition(type="Progressing", status="False", reason="ProgressDeadlineExceeded", message=message), None
    status, reason = (json_types.text(before, field) for field in ("status", "reason"))
    return Condition(type="Progressing", status=status, reason=reason), _deadline(owner) - elapsed + 1


def _went_on(owner: Object, numbers: Mapping[str, int]) -> bool:
    """Return whether an update came nearer to its end since the last status."""
    before = {name: json_types.number(owner, "status", name) for name in numbers}
    old, old_before = numbers["replicas"] - numbers["updatedReplicas"], before["replicas"] - before["updatedReplicas"]
    grew = any(numbers[name] > before[name] for name in ("updatedReplicas", "readyReplicas", "availableReplicas"))
    return grew or old < old_before


def _deadline(owner: Object) -> int:
    return json_types.number(owner, "spec", "progressDeadlineSeconds")


def _wanted(one: Object) -> int:
    return json_types.number(one, "spec", "replicas")


def _count(one: Object | None) -> Count | None:
    if one is None:
        return None
    available = json_types.number(one, "status", "availableReplicas")
    return Count(name=json_types.text(one, "metadata", "name"), wanted=_wanted(one), available=available)


def _counts(sets: Iterable[Object]) -> list[Count]:
    return [count for one in sets if (count := _count(one)) is not None]


def _sum(sets: Iterable[Object], field: str) -> int:
    return sum(json_types.number(one, "status", field) for one in sets)


def _revision(one: Object) -> int:
    text = json_types.text(one, "metadata", "annotations", REVISION)
    return int(text) if text.isdecimal() else 0


def _copied(owner: Object) -> Object:
    """Return the annotations of a Deployment that its ReplicaSets have too, such as kubernetes.io/change-cause."""
    return {name: value for name, value in json_types.mapping(owner, "metadata", "annotations").items() if name not in _NOT_COPIED}


def _sizes(limits: Limits) -> Object:
    return {_DESIRED: str(limits.replicas), _MAXIMUM: str(limits.maximum)}
