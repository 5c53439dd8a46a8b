"""Create and delete the pods that a driver runs on its own node, from a PodTemplate and bound to the node without the scheduler.

The template is read for each pod, so a change applies from the next pod on. Each pod is owned by its Node: ``kubectl drain`` refuses pods without a
controller, and the garbage collector removes the pods of a deleted node. A claim cannot own them, because an owner must be in the same namespace.
"""

import contextlib
import dataclasses
import http
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from drakit.core import errors, ports, records
from drakit.core.encoding import wire
from drakit.kube import api_objects, transport

TIMEOUT = 5.0
DRIVER_LABEL = "drakit.dev/driver"
_GRACE_SECONDS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reason:
    reason: str = ""
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ContainerStatus:
    running: Annotated[object, wire.Field(name="state.running")] = None
    terminated: Annotated[_Reason | None, wire.Field(name="state.terminated")] = None
    waiting: Annotated[_Reason | None, wire.Field(name="state.waiting")] = None
    terminated_before: Annotated[_Reason | None, wire.Field(name="lastState.terminated")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Container:
    image: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pod:
    name: Annotated[str, wire.Field(name="metadata.name")]
    uid: Annotated[str, wire.Field(name="metadata.uid")] = ""
    deleted: Annotated[str, wire.Field(name="metadata.deletionTimestamp")] = ""
    containers: Annotated[tuple[_Container, ...], wire.Field(name="spec.containers")] = ()
    phase: Annotated[str, wire.Field(name="status.phase")] = ""
    reason: Annotated[str, wire.Field(name="status.reason")] = ""
    message: Annotated[str, wire.Field(name="status.message")] = ""
    container_statuses: Annotated[tuple[_ContainerStatus, ...], wire.Field(name="status.containerStatuses")] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PodList:
    items: tuple[_Pod, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Template:
    """A PodTemplate with its whole spec, which is copied into each pod."""

    labels: Annotated[Mapping[str, Any], wire.Field(name="template.labels")] = dataclasses.field(default_factory=dict)
    annotations: Annotated[Mapping[str, Any], wire.Field(name="template.annotations")] = dataclasses.field(default_factory=dict)
    spec: Annotated[Mapping[str, Any], wire.Field(name="template.spec")]


class ApiPods:
    """The ``core.ports.PodStore`` of the pods with the driver's label on one node, in the namespace of the template."""

    def __init__(self, api: transport.Transport, *, namespace: str, template: str, node: str, driver: str, own_uid: str = "") -> None:
        """Make the store. ``own_uid`` is the UID of the driver's own pod, whose image the pods get; without it they get the template's."""
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._template = f"/api/v1/namespaces/{namespace}/podtemplates/{template}"
        self._namespace = namespace
        self._template_name = template
        self.node = node
        self._driver = driver
        self._own_uid = own_uid

    def create(self, pod: ports.PodRequest) -> None:
        """Create the pod, unless a pod of that name exists. Raise ApiError."""
        template = self._read_template()
        with _reading("PodTemplate or Node"):
            body = self._pod(pod, api_objects.FORMAT.decode(_Template, template))
        try:
            self._api.request("POST", self._path, body=body, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise

    def state(self, name: str) -> ports.PodState | None:
        """Return the state of a pod, None where there is no pod of that name. Raise ApiError."""
        try:
            pod = self._api.request("GET", f"{self._path}/{name}", timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise
        with _reading("Pod"):
            return _state(api_objects.FORMAT.decode(_Pod, pod))

    def delete(self, name: str) -> None:
        """Delete a pod, if it exists. Raise ApiError."""
        body: records.Record = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": _GRACE_SECONDS}
        try:
            self._api.request("DELETE", f"{self._path}/{name}", body=body, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def names(self) -> Collection[str]:
        """Return the names of the driver's pods on this node that are not being deleted. Raise ApiError."""
        query = {"labelSelector": f"{DRIVER_LABEL}={self._driver}", "fieldSelector": f"spec.nodeName={self.node}"}
        with _reading("list of pods"):
            return {pod.name for pod in self._list(query) if not pod.deleted}

    def _read_template(self) -> transport.Object:
        try:
            return self._api.request("GET", self._template, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                message = (
                    f"PodTemplate {self._namespace}/{self._template_name} not found; apply drakit's manifests, or correct gpu.mps_template"
                )
                raise errors.ApiError(message, status=error.status, reason=error.reason) from error
            raise

    def _own_image(self) -> records.Record:
        """Return the image of the driver's own pod, which is on the node and is the only image that the admission policy allows."""
        if not self._own_uid:
            return {}
        query = {"fieldSelector": f"spec.nodeName={self.node}"}
        for pod in self._list(query):
            if pod.uid == self._own_uid:
                return {"image": next(iter(pod.containers), _Container()).image}
        return {}

    def _list(self, query: Mapping[str, str]) -> Sequence[_Pod]:
        return api_objects.FORMAT.decode(_PodList, self._api.request("GET", self._path, query=query, timeout=TIMEOUT)).items

    def _pod(self, pod: ports.PodRequest, template: _Template) -> records.Record:
        node = self._api.request("GET", f"/api/v1/nodes/{self.node}", timeout=TIMEOUT)
        owner: records.Record = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.node,
            "uid": api_objects.FORMAT.decode(api_objects.Identity, node).uid,
            "controller": True,
        }
        containers: Sequence[Mapping[str, Any]] = template.spec.get("containers") or ()
        if len(containers) != 1:
            raise errors.ApiError(f"PodTemplate {self._namespace}/{self._template_name} has {len(containers)} containers, and must have 1")
        environment: list[records.Json] = [{"name": name, "value": value} for name, value in pod.environment.items()]
        container = {**containers[0], **self._own_image(), "env": environment}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod.name,
                "namespace": self._namespace,
                "labels": {**template.labels, **pod.labels, DRIVER_LABEL: self._driver},
                "annotations": {**template.annotations, **pod.annotations},
                "ownerReferences": [owner],
            },
            "spec": {**template.spec, "nodeName": self.node, "containers": [container]},
        }


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except api_objects.UNREADABLE as error:
        if isinstance(error, errors.ApiError):
            raise
        raise errors.ApiError(f"the API server sent a {what} that cannot be read: {error}", reason=transport.UNREADABLE) from error


def _state(pod: _Pod) -> ports.PodState:
    """Return the state of a pod by its one container; a pod that the kubelet rejected or evicted has no container but a reason of its own."""
    container = next(iter(pod.container_statuses), _ContainerStatus())
    ended = container.terminated or container.terminated_before
    if pod.deleted:
        return ports.PodState(phase=ports.PodPhase.ENDING)
    if pod.phase in {"Failed", "Succeeded"}:
        return ports.PodState(phase=ports.PodPhase.OVER, message=_message(pod))
    if container.running is not None:
        return ports.PodState(phase=ports.PodPhase.RUNNING)
    if ended is not None:
        return ports.PodState(phase=ports.PodPhase.FAILING, message=_message(ended))
    return ports.PodState(phase=ports.PodPhase.STARTING, message=_message(container.waiting or _Reason()))


def _message(reason: _Reason | _Pod) -> str:
    return ": ".join(" ".join(text.split()) for text in (reason.reason, reason.message) if text)
