"""The status of a pod, computed from its containers without side effects, and the health of devices in it.

Sources: core/v1 PodStatus; for containerStatuses[].allocatedResourcesStatus, which regular containers have for the claims that they list,
KEP-4680 and the kubelet of 1.36.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.kubelet.plugins.health import HealthTable
from drakit_cluster.kubelet.pods.preparation import Preparation
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.runtime import ContainerView, State

RUN_SECONDS = "drakit.dev/run-seconds"
"""Annotation: how long the pod's simulated containers run before they succeed."""
Views = Mapping[str, ContainerView]


class Phase(enum.Enum):
    """The phases of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The reason that a container does not run, in Kubernetes' terms, and a message."""

    reason: str
    message: str


def has_failed(view: ContainerView) -> bool:
    """Return whether the container ended with an error."""
    return view.state is State.EXITED and view.exit_code != 0


def will_restart(pod: Object, view: ContainerView) -> bool:
    """Return whether an exited container restarts. One that only simulated a run time never does."""
    if view.state is State.RUNNING or view.finite:
        return False
    policy = json_types.text(pod, "spec", "restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and has_failed(view))


def init_restarts(pod: Object) -> bool:
    """Return whether a failed init container restarts."""
    return json_types.text(pod, "spec", "restartPolicy") != "Never"


def phase_of(pod: Object, views: Views) -> Phase:
    """Return the phase of a pod that should run. ``views`` are those of all started containers, by name."""
    if not init_restarts(pod) and any(has_failed(view) for view in _views_of(pod, "initContainers", views)):
        return Phase.FAILED
    main = _views_of(pod, "containers", views)
    if not main:
        return Phase.PENDING
    if len(main) < len(_names(pod, "containers")) or any(view.state is State.RUNNING or will_restart(pod, view) for view in main):
        return Phase.RUNNING
    return final_phase(pod, views)


def final_phase(pod: Object, views: Views) -> Phase:
    """Return the phase of a pod whose containers have ended."""
    return Phase.FAILED if any(has_failed(view) for view in _views_of(pod, "containers", views)) else Phase.SUCCEEDED


def _names(pod: Object, group: str) -> list[str]:
    return [json_types.text(container, "name") for container in json_types.objects(pod, "spec", group)]


def _views_of(pod: Object, group: str, views: Views) -> list[ContainerView]:
    return [views[name] for name in _names(pod, group) if name in views]


def status_of(
    pod: Object, phase: Phase, views: Views, waiting: Mapping[str, Waiting], health: Mapping[str, list[Object]] | None = None
) -> Object:
    """Return the status that the kubelet writes. ``health`` is the health of the devices by container name."""
    main = _views_of(pod, "containers", views)
    ready = phase is Phase.RUNNING and len(main) == len(_names(pod, "containers")) and all(view.state is State.RUNNING for view in main)
    unready = "" if ready else "PodCompleted" if phase is Phase.SUCCEEDED else "ContainersNotReady"
    conditions = [
        _condition(pod, "PodReadyToStartContainers", holds=bool(views)),
        _condition(pod, "Initialized", holds=_is_initialized(pod, views)),
        _condition(pod, "Ready", holds=ready, reason=unready),
        _condition(pod, "ContainersReady", holds=ready, reason=unready),
    ]
    containers = _containers(pod, "containers", views, waiting)
    for container in containers:
        if resources := (health or {}).get(json_types.text(container, "name")):
            container["allocatedResourcesStatus"] = json_types.from_objects(resources)
    status: Object = {
        "phase": phase.value,
        "conditions": json_types.from_objects(conditions),
        "containerStatuses": json_types.from_objects(containers),
        "startTime": json_types.text(pod, "status", "startTime") or naming.now(),
        "hostIP": "127.0.0.1",
    }
    if json_types.items(pod, "spec", "initContainers"):
        status["initContainerStatuses"] = json_types.from_objects(_containers(pod, "initContainers", views, waiting))
    return status


def _is_initialized(pod: Object, views: Views) -> bool:
    done = [view for view in _views_of(pod, "initContainers", views) if view.state is State.EXITED and not has_failed(view)]
    return len(done) == len(_names(pod, "initContainers"))


def _condition(pod: Object, kind: str, *, holds: bool, reason: str = "") -> Object:
    """Return a condition. Its transition time changes only with its status. An empty reason is null, so that a patch removes it."""
    status = "True" if holds else "False"
    existing = next((condition for condition in json_types.objects(pod, "status", "conditions") if condition.get("type") == kind), {})
    since = json_types.text(existing, "lastTransitionTime") if existing.get("status") == status else naming.now()
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason or None}


def _containers(pod: Object, group: str, views: Views, waiting: Mapping[str, Waiting]) -> list[Object]:
    statuses: list[Object] = []
    for container in json_types.objects(pod, "spec", group):
        name, image = json_types.text(container, "name"), json_types.text(container, "image")
        view = views.get(name)
        running = view is not None and view.state is State.RUNNING
        statuses.append(
            {
                "name": name,
                "image": image,
                "imageID": image,
                "ready": running,
                "started": running,
                "restartCount": view.restarts if view else 0,
                "state": _state(view, waiting.get(name)),
            }
        )
    return statuses


def _state(view: ContainerView | None, waiting: Waiting | None) -> Object:
    if waiting is not None:
        return {"waiting": {"reason": waiting.reason, "message": waiting.message}}
    if view is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    if view.state is State.RUNNING:
        return {"running": {"startedAt": view.started_at}}
    return {
        "terminated": {
            "exitCode": view.exit_code,
            "reason": "Error" if has_failed(view) else "Completed",
            "startedAt": view.started_at,
            "finishedAt": view.finished_at,
        }
    }


@dataclass(frozen=True, kw_only=True)
class PodHealth:
    """The health of the devices of pods. ``table`` is None if the gate is off. ``messages`` says whether messages are included."""

    preparation: Preparation
    table: HealthTable | None
    messages: bool = True

    def statuses(self, pod: Object) -> dict[str, list[Object]]:
        """Return allocatedResourcesStatus of each regular container that uses claims, by its name; a container without devices has no entry."""
        by_container = {
            json_types.text(container, "name"): self._container(pod, container)
            for container in json_types.objects(pod, "spec", "containers")
        }
        return {name: statuses for name, statuses in by_container.items() if statuses}

    def due(self, pod: Object) -> float | None:
        """Return the seconds until the first device of the pod becomes Unknown without a new report, or None."""
        if self.table is None:
            return None
        containers = json_types.objects(pod, "spec", "containers")
        used = [(driver, device) for container in containers for _, driver, device in self.preparation.uses(pod, container)]
        remaining = [self.table.of(driver, device)[2] for driver, device in used]
        return min((seconds for seconds in remaining if seconds is not None), default=None)

    def _container(self, pod: Object, container: Object) -> list[Object]:
        if self.table is None:
            return []
        claims = {reference.name: reference.claim for reference in pod_claims.references(pod) if not reference.special}
        statuses: dict[str, list[Object]] = {}
        for use in json_types.objects(container, "resources", "claims"):
            name, request = json_types.text(use, "name"), json_types.text(use, "request")
            devices = self.preparation.used(pod, claims.get(name) or "", request)
            if devices:
                statuses[f"claim:{name}/{request}" if request else f"claim:{name}"] = self._resources(self.table, devices)
        return [{"name": name, "resources": json_types.from_objects(resources)} for name, resources in statuses.items()]

    def _resources(self, table: HealthTable, devices: Sequence[tuple[str, PreparedDevice]]) -> list[Object]:
        """Return one entry for each resource ID, which is a device's first CDI name. Of devices with the same ID only the last is included."""
        resources: dict[str, Object] = {}
        for driver, device in devices:
            health, message, _ = table.of(driver, device)
            resource = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            entry: Object = {"resourceID": resource, "health": health}
            resources[resource] = {**entry, "message": message} if message and self.messages else entry
        return list(resources.values())
