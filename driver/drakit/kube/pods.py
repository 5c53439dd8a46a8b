"""Pods that a driver runs on its own node, at the API server: made from a PodTemplate, bound to the node without the scheduler.

The template is read for each pod, so a new one holds from the next pod on. Each pod is owned by its Node: ``kubectl drain`` refuses pods without a
controller, and the garbage collector removes the pods of a node that was deleted. A claim cannot own them, because no owner is in another namespace.
"""

import contextlib
import http
from collections.abc import Collection, Iterator

from drakit.core import errors, ports, records
from drakit.kube import fields, transport

TIMEOUT = 5.0
DRIVER_LABEL = "drakit.dev/driver"
_GRACE_SECONDS = 10


class ApiPods:
    """``core.ports.PodStore``: the pods that carry the driver's label on one node, in the namespace of the template."""

    def __init__(self, api: transport.Transport, *, namespace: str, template: str, node: str, driver: str, own_uid: str = "") -> None:
        """``own_uid`` is the UID of the driver's own pod, whose image the pods have; without it they have the template's."""
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._template = f"/api/v1/namespaces/{namespace}/podtemplates/{template}"
        self._namespace = namespace
        self._template_name = template
        self.node = node
        self._driver = driver
        self._own_uid = own_uid

    def create(self, pod: ports.PodRequest) -> None:
        """Create the pod; a pod of that name that is there already is left as it is. Raises ApiError."""
        template = fields.Field(self._read_template())
        with _reading("PodTemplate or Node"):
            body = self._pod(pod, template)
        try:
            self._api.request("POST", self._path, body=body, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.CONFLICT:
                raise

    def state(self, name: str) -> ports.PodState | None:
        """Return the state of a pod, None where there is no pod of that name. Raises ApiError."""
        try:
            pod = fields.Field(self._api.request("GET", f"{self._path}/{name}", timeout=TIMEOUT))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise
        with _reading("Pod"):
            return _state(pod)

    def delete(self, name: str) -> None:
        """Delete a pod; one that is gone already is success. Raises ApiError."""
        body: records.Record = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": _GRACE_SECONDS}
        try:
            self._api.request("DELETE", f"{self._path}/{name}", body=body, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def names(self) -> Collection[str]:
        """Return the names of the driver's pods on this node that are not being deleted. Raises ApiError."""
        query = {"labelSelector": f"{DRIVER_LABEL}={self._driver}", "fieldSelector": f"spec.nodeName={self.node}"}
        pod_list = fields.Field(self._api.request("GET", self._path, query=query, timeout=TIMEOUT))
        with _reading("list of pods"):
            metadata = [pod["metadata"] for pod in pod_list["items"].each()]
            return {pod_metadata["name"].text() for pod_metadata in metadata if not pod_metadata["deletionTimestamp"]}

    def _read_template(self) -> transport.Object:
        try:
            return self._api.request("GET", self._template, timeout=TIMEOUT)
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                message = f"PodTemplate {self._namespace}/{self._template_name} is not there; apply drakit's manifests, or correct gpu.mps_template"
                raise errors.ApiError(message, status=error.status, reason=error.reason) from error
            raise

    def _own_image(self) -> records.Record:
        """The image of the driver's own pod: it is on the node, and the only one that the admission policy allows."""
        if not self._own_uid:
            return {}
        query = {"fieldSelector": f"spec.nodeName={self.node}"}
        for pod in fields.Field(self._api.request("GET", self._path, query=query, timeout=TIMEOUT))["items"].each():
            if pod["metadata"]["uid"].text() == self._own_uid:
                return {"image": next(pod["spec"]["containers"].each())["image"].text()}
        return {}

    def _pod(self, pod: ports.PodRequest, template: fields.Field) -> records.Record:
        node = fields.Field(self._api.request("GET", f"/api/v1/nodes/{self.node}", timeout=TIMEOUT))
        owner: records.Record = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.node,
            "uid": node["metadata"]["uid"].text(),
            "controller": True,
        }
        given = template["template"]["metadata"]
        spec, containers = _mapping(template["template"]["spec"]), list(template["template"]["spec"]["containers"].each())
        if len(containers) != 1:
            raise errors.ApiError(f"PodTemplate {self._namespace}/{self._template_name} has {len(containers)} containers, and must have 1")
        environment: list[records.Json] = [{"name": name, "value": value} for name, value in pod.environment.items()]
        container = {**_mapping(containers[0]), **self._own_image(), "env": environment}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod.name,
                "namespace": self._namespace,
                "labels": {**_mapping(given["labels"]), **pod.labels, DRIVER_LABEL: self._driver},
                "annotations": {**_mapping(given["annotations"]), **pod.annotations},
                "ownerReferences": [owner],
            },
            "spec": {**spec, "nodeName": self.node, "containers": [container]},
        }


def _mapping(field: fields.Field) -> records.Record:
    return field.object() if field else {}


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except fields.UNREADABLE as error:
        if isinstance(error, errors.ApiError):
            raise
        raise errors.ApiError(f"the API server sent a {what} that cannot be read: {error}", reason=transport.UNREADABLE) from error


def _state(pod: fields.Field) -> ports.PodState:
    """The one container counts; a pod that the kubelet refused or evicted has none, and says why itself."""
    status = pod["status"]
    container = next(iter(status["containerStatuses"].each()), fields.Field(None))
    state = container["state"]
    ended = state["terminated"] or container["lastState"]["terminated"]
    if pod["metadata"]["deletionTimestamp"]:
        return ports.PodState(phase=ports.PodPhase.ENDING)
    if status["phase"].text_or_empty() in {"Failed", "Succeeded"}:
        return ports.PodState(phase=ports.PodPhase.OVER, message=_told(status))
    if state["running"]:
        return ports.PodState(phase=ports.PodPhase.RUNNING)
    if ended:
        return ports.PodState(phase=ports.PodPhase.FAILING, message=_told(ended))
    return ports.PodState(phase=ports.PodPhase.STARTING, message=_told(state["waiting"]))


def _told(field: fields.Field) -> str:
    words = (field["reason"].text_or_empty(), field["message"].text_or_empty()) if field else ()
    return ": ".join(" ".join(word.split()) for word in words if word)
