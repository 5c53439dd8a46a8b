"""The pods that a workload owns: which of them count, how ready they are, which goes first, and how one is created."""

import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import key_of, uid_of
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD

_HASH_LENGTH = 10
_PHASES = {"Running": 2, "Unknown": 1}
_NUMBER = re.compile(r"-?[0-9]{1,10}")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True, kw_only=True)
class Availability:
    """How many pods are ready, and how many have been ready long enough. ``seconds`` is the time until one more is, None for none."""

    ready: int
    available: int
    seconds: float | None


def owns(owner: Object, obj: Object) -> bool:
    """Return whether ``owner`` is the controller of ``obj``."""
    return json_types.text(pod_claims.owner(obj), "uid") == uid_of(owner)


def of(api: Api, owner: Object) -> list[Object]:
    """Return all pods that ``owner`` controls, also those that end."""
    return [pod for pod in api.list(POD, namespace=key_of(owner).namespace).items if owns(owner, pod)]


def active(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that have not finished and are not being deleted."""
    return [pod for pod in pods if not pod_claims.is_terminal(pod) and not pod_claims.is_deleting(pod)]


def template_hash(owner: Object) -> str:
    """Return a hash of spec.template."""
    template = json.dumps(json_types.at(owner, "spec", "template"), sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:_HASH_LENGTH]


def is_ready(pod: Object) -> bool:
    """Return whether the pod has the condition Ready."""
    return bool(_ready_since(pod))


def _ready_since(pod: Object) -> str:
    for condition in json_types.objects(pod, "status", "conditions"):
        if (condition.get("type"), condition.get("status")) == ("Ready", "True"):
            return json_types.text(condition, "lastTransitionTime") or naming.now()
    return ""


def availability(pods: Iterable[Object], min_ready_seconds: int) -> Availability:
    """Return how many pods are ready, and available: ready for ``min_ready_seconds``."""
    times = [since for pod in pods if (since := _ready_since(pod))]
    waits = [max(0.0, min_ready_seconds - seconds_since(time)) if min_ready_seconds else 0.0 for time in times]
    remaining = [wait for wait in waits if wait]
    return Availability(ready=len(times), available=len(times) - len(remaining), seconds=min(remaining, default=None))


def seconds_since(time: str) -> float:
    """Return the seconds since an API time."""
    return (naming.present() - datetime.datetime.fromisoformat(time)).total_seconds()


def first_to_delete(pods: Sequence[Object]) -> list[Object]:
    """Return the pods in the order in which a smaller number of replicas deletes them.

    Source: the ranking of Kubernetes' ReplicaSet controller: without a node, then pending, then not ready, then by deletion cost, then
    the newest.
    """
    newest = sorted(pods, key=lambda pod: json_types.text(pod, "metadata", "creationTimestamp"), reverse=True)
    return sorted(newest, key=_rank)


def _rank(pod: Object) -> tuple[bool, int, bool, int]:
    cost = json_types.text(pod, "metadata", "annotations", DELETION_COST)
    is_number = _NUMBER.fullmatch(cost) is not None
    return (
        bool(json_types.text(pod, "spec", "nodeName")),
        _PHASES.get(json_types.text(pod, "status", "phase"), 0),
        is_ready(pod),
        int(cost) if is_number else 0,
    )
