"""Events: what a component wants people to know about an object, written to the API in the background.

A repeated event counts up instead of adding another object. Writing never delays or fails the one who records.
"""

import queue
import threading
import uuid
from dataclasses import dataclass

from drakit.telemetry import logs
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import EVENT, Resource

_log = logs.get_logger(__name__)

NORMAL = "Normal"
WARNING = "Warning"
_KEPT = 1000
_JOIN_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class _Note:
    resource: Resource
    subject: Object
    type: str
    reason: str
    message: str
    time: str


class Recorder:
    """Writes events of one component; ``host`` is the node of a kubelet."""

    def __init__(self, api: Api, component: str, host: str = "") -> None:
        self._api = api
        self._component = component
        self._host = host
        self._notes: queue.SimpleQueue[_Note | None] = queue.SimpleQueue()
        self._written: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._late = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{component}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, seconds: float = _JOIN_SECONDS) -> None:
        """Write what was recorded so far, for at most so long, then end. Once this returns the API may be closed."""
        self._notes.put(None)
        self._thread.join(seconds)
        self._late.set()
        self._thread.join(_JOIN_SECONDS)

    def normal(self, resource: Resource, subject: Object, reason: str, message: str) -> None:
        """Record that something went as it should."""
        self._note(resource, subject, NORMAL, reason, message)

    def warning(self, resource: Resource, subject: Object, reason: str, message: str) -> None:
        """Record that something needs attention."""
        self._note(resource, subject, WARNING, reason, message)

    def _note(self, resource: Resource, subject: Object, kind: str, reason: str, message: str) -> None:
        note = _Note(resource=resource, subject=subject, type=kind, reason=reason, message=message, time=naming.now_micro())
        self._notes.put(note)

    def _run(self) -> None:
        while (note := self._notes.get()) is not None and not self._late.is_set():
            try:
                self._write(note)
            except errors.ApiError as error:
                _log.debug("event not written", reason=note.reason, message=note.message, error=str(error))

    def _write(self, note: _Note) -> None:
        key = (json_types.text(note.subject, "metadata", "uid"), note.reason, note.message)
        namespace = json_types.text(note.subject, "metadata", "namespace") or "default"
        name, count = self._written.get(key, ("", 0))
        if name and self._count_up(name, namespace, count + 1, note.time):
            self._written[key] = (name, count + 1)
            return
        created = self._api.create(EVENT, self._event(note, namespace), namespace=namespace)
        if len(self._written) >= _KEPT:
            self._written.pop(next(iter(self._written)))
        self._written[key] = (json_types.text(created, "metadata", "name"), 1)

    def _count_up(self, name: str, namespace: str, count: int, time: str) -> bool:
        try:
            patch: Object = {"count": count, "lastTimestamp": _whole_seconds(time), "series": {"count": count, "lastObservedTime": time}}
            self._api.patch(EVENT, name, patch, namespace=namespace, kind=PatchKind.MERGE)
        except errors.NotFoundError:
            return False
        return True

    def _event(self, note: _Note, namespace: str) -> Object:
        subject = note.subject
        involved: Object = {
            "kind": note.resource.kind,
            "apiVersion": note.resource.api_version,
            "name": json_types.text(subject, "metadata", "name"),
            "namespace": json_types.text(subject, "metadata", "namespace"),
            "uid": json_types.text(subject, "metadata", "uid"),
            "resourceVersion": json_types.text(subject, "metadata", "resourceVersion"),
        }
        source: Object = {"component": self._component}
        if self._host:
            source["host"] = self._host
        return {
            "metadata": {"name": f"{involved['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": note.type,
            "reason": note.reason,
            "message": note.message,
            "eventTime": note.time,
            "firstTimestamp": _whole_seconds(note.time),
            "lastTimestamp": _whole_seconds(note.time),
            "count": 1,
            "action": note.reason,
            "reportingComponent": self._component,
            "reportingInstance": self._host or self._component,
            "source": source,
        }


def _whole_seconds(micro: str) -> str:
    return f"{micro.partition('.')[0]}Z"
