"""Events that components record about objects, written to the API in the background.

A repeated event increases the count of its object instead of creating another. Writing never delays the caller and never raises to it.
"""

import contextlib
import queue
import threading
import uuid

from drakit.telemetry import logs
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import EVENT, Resource

_log = logs.get_logger(__name__)

NORMAL = "Normal"
WARNING = "Warning"
_MAX_COUNTED = 1000
_JOIN_SECONDS = 5.0


class Recorder:
    """Writes events of one component; ``host`` is the node of a kubelet."""

    def __init__(self, api: Api, component: str, host: str = "") -> None:
        self._api = api
        self._component = component
        self._host = host
        self._events: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._written: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._deadline_passed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{component}", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def stop(self, seconds: float = _JOIN_SECONDS) -> None:
        """Write the events recorded so far, for at most ``seconds``, then end. After this returns the API may be closed."""
        if self._thread.ident is None:
            return
        self._events.put(None)
        self._thread.join(seconds)
        self._deadline_passed.set()
        self._thread.join(_JOIN_SECONDS)

    def normal(self, resource: Resource, subject: Object, reason: str, message: str) -> None:
        """Record an event of type Normal."""
        self._record(resource, subject, NORMAL, reason, message)

    def warning(self, resource: Resource, subject: Object, reason: str, message: str) -> None:
        """Record an event of type Warning."""
        self._record(resource, subject, WARNING, reason, message)

    def _record(self, resource: Resource, subject: Object, kind: str, reason: str, message: str) -> None:
        fields = ("name", "namespace", "uid", "resourceVersion")
        involved: Object = {field: value for field in fields if (value := json_types.text(subject, "metadata", field))}
        time, source = naming.now_micro(), {"component": self._component} | ({"host": self._host} if self._host else {})
        event: Object = {
            "metadata": {
                "name": f"{involved.get('name', '')}.{uuid.uuid4().hex[:16]}",
                "namespace": json_types.text(subject, "metadata", "namespace") or "default",
            },
            "involvedObject": {"kind": resource.kind, "apiVersion": resource.api_version, **involved},
            "type": kind,
            "reason": reason,
            "message": message,
            "eventTime": time,
            "firstTimestamp": _whole_seconds(time),
            "lastTimestamp": _whole_seconds(time),
            "count": 1,
            "action": reason,
            "reportingComponent": self._component,
            "reportingInstance": self._host or self._component,
            "source": {**source},
        }
        self._events.put(event)

    def _run(self) -> None:
        while (event := self._events.get()) is not None and not self._deadline_passed.is_set():
            try:
                self._write(event)
            except errors.ApiError as error:
                _log.debug("event not written", reason=event["reason"], message=event["message"], error=str(error))

    def _write(self, event: Object) -> None:
        """Increase the count of an event that was written before, or create a new event."""
        key = (json_types.text(event, "involvedObject", "uid"), json_types.text(event, "reason"), json_types.text(event, "message"))
        namespace, time = json_types.text(event, "metadata", "namespace"), json_types.text(event, "eventTime")
        name, count = self._written.get(key, ("", 0))
        if name:
            series: Object = {"count": count + 1, "lastObservedTime": time}
            patch: Object = {"count": count + 1, "lastTimestamp": _whole_seconds(time), "series": series}
            with contextlib.suppress(errors.NotFoundError):
                self._api.patch(EVENT, name, patch, namespace=namespace, kind=PatchKind.MERGE)
                self._written[key] = (name, count + 1)
                return
        self._api.create(EVENT, event, namespace=namespace)
        if len(self._written) >= _MAX_COUNTED:
            self._written.pop(next(iter(self._written)))
        self._written[key] = (json_types.text(event, "metadata", "name"), 1)


def _whole_seconds(micro: str) -> str:
    return f"{micro.partition('.')[0]}Z"
