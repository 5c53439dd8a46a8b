"""The state of a cluster, from watches of its ResourceSlices, ResourceClaims, DeviceClasses, DeviceTaintRules, waiting Pods, Nodes and Events."""

import dataclasses
import datetime
import http
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence

from drakit.core import errors, ports
from drakit.kube import api_objects, transport, watch
from drakit.telemetry import logs
from drakit_tools.dashboard import cluster_state, model, rules

_log = logs.get_logger(__name__)
_TIME = "%Y-%m-%d %H:%M:%S"

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
PODS, WAITING = "/api/v1/pods", "status.phase=Pending"
"""Pods that run are named in their claims, so only those that wait are read."""
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
KINDS: Mapping[str, str] = {
    SLICES: "",
    CLAIMS: "",
    CLASSES: "claims of classes that do not exist are not named",
    PODS: "pods that wait are not shown",
    NODES: "cordons and nodes that are not ready are not shown",
    EVENTS: "no events are shown",
}
"""The collections, with what is not shown if the user may not list one. Slices and claims are always needed."""


class _Contact:
    """Which collections the API server does not answer for, and since when. It logs the first failure and the return once each. Thread-safe.

    After ``stop``, when the server may end too, failures do not count.
    """

    def __init__(self, clock: ports.Clock, stop: threading.Event) -> None:
        self._clock, self._stop = clock, stop
        self._lock = threading.Lock()
        self._failing: dict[str, tuple[datetime.datetime, errors.ApiError]] = {}

    def failed(self, path: str, error: errors.ApiError) -> None:
        """Note that a request failed. An expired version (410) is an answer: the next round lists anew."""
        if error.status == http.HTTPStatus.GONE or self._stop.is_set():
            return
        with self._lock:
            is_first = not self._failing
            self._failing.setdefault(path, (self._clock.now(), error))
            if is_first:
                _log.error("API server does not answer", path=path, error=str(error))

    def answered(self, path: str) -> None:
        """Note that a request was answered."""
        with self._lock:
            if self._failing.pop(path, None) and not self._failing:
                _log.info("API server answers again")

    def failing(self) -> Collection[str]:
        """Return the paths that are not answered."""
        with self._lock:
            return set(self._failing)

    def trouble(self) -> str:
        """Return what is not answered, since when and why; empty if all is well."""
        with self._lock:
            return self._trouble()

    def _trouble(self) -> str:
        if not self._failing:
            return ""
        since, error = min(self._failing.values(), key=lambda entry: entry[0])
        kinds = ", ".join(map(_kind, self._failing))
        does = f"refuses {kinds}" if error.status else "does not answer"
        return f"API server {does} since {since:{_TIME}} UTC; what is shown is of that time: {error}"


class _Collection:
    """The objects of one collection by UID, which a thread keeps up to date. It is the observer of its watch.

    Until a new list is complete, and while the server does not answer, it has the objects that were there before.
    """

    def __init__(
        self, api: transport.Transport, path: str, clock: ports.Clock, stop: threading.Event, contact: _Contact | None, selector: str = ""
    ) -> None:
        self._path, self._contact = path, contact
        self._lock = threading.Lock()
        self._objects: dict[str, transport.Object] = {}
        self._listing: dict[str, transport.Object] | None = {}
        self._is_read = False
        following = watch.objects(api, path, clock=clock, stop=stop, selector=selector, observer=self)
        threading.Thread(target=self._run, args=(following,), name=f"dashboard {path.rpartition('/')[2]}", daemon=True).start()

    def items(self) -> Sequence[transport.Object]:
        """Return the current objects."""
        with self._lock:
            return list(self._objects.values())

    def is_read(self) -> bool:
        """Return whether a list was complete."""
        with self._lock:
            return self._is_read

    def listed(self) -> None:
        """Take the new list, which is complete."""
        with self._lock:
            if self._listing is not None:
                self._objects, self._listing, self._is_read = self._listing, None, True

    def answered(self) -> None:
        """Note that the server answered."""
        if self._contact is not None:
            self._contact.answered(self._path)

    def failed(self, error: errors.ApiError) -> None:
        """Note that a request failed."""
        if self._contact is not None:
            self._contact.failed(self._path, error)

    def _run(self, following: Iterator[watch.ObservedObject | None]) -> None:
        for seen in following:
            with self._lock:
                if seen is None:
                    self._listing = {}
                    continue
                objects = self._objects if self._listing is None else self._listing
                uid = api_objects.metadata_text(seen.object, "uid")
                if seen.is_deleted:
                    objects.pop(uid, None)
                else:
                    objects[uid] = seen.object


class ClusterSource:
    """Watches a cluster until ``close``. It needs the rights to list and watch slices and claims in all namespaces.

    Without the rights for DeviceClasses, DeviceTaintRules, pods, nodes and events the state lacks them and says so.
    """

    def __init__(self, api: transport.Transport, clock: ports.Clock, title: str) -> None:
        # A request in the caller's thread, so that the command fails with a wrong kubeconfig or a missing right.
        refused = {path: error for path, lacks in KINDS.items() if (error := _refusal(api, path, is_needed=not lacks))}
        self._missing = [f"{KINDS[path]}: {error}" for path, error in refused.items()]
        self._rules = rules.find(api)
        self._title = title
        self._reader = cluster_state.Reader(title)
        self._stop = threading.Event()
        self._clock = clock
        self._contact = _Contact(clock, self._stop)
        paths = (*KINDS, *filter(None, [self._rules.path]))
        self._collections = {
            path: _Collection(api, path, clock, self._stop, None if path in refused else self._contact, WAITING if path == PODS else "")
            for path in paths
        }
        self._needed = [path for path in paths if path not in refused]

    def close(self) -> None:
        """Stop the watches."""
        self._stop.set()

    def state(self) -> model.State:
        """Return the current state. Not thread-safe.

        Its problem says that the server does not answer, which objects cannot be read and which kinds cannot be listed. Before all kinds are listed
        once it has only the names of those that are not.
        """
        failing = self._contact.failing()
        trouble = self._contact.trouble()
        reading = [_kind(path) for path in self._needed if path not in failing and not self._collections[path].is_read()]
        if reading:
            return model.State(title=self._title, reading=tuple(reading), problem=trouble)
        items = {path: collection.items() for path, collection in self._collections.items()}
        state = self._reader.state(listing(items, self._missing, self._rules), at=f"{self._clock.now():{_TIME}} UTC")
        return dataclasses.replace(state, is_old=bool(trouble), problem="; ".join(filter(None, (trouble, state.problem))))


def _kind(path: str) -> str:
    return path.rpartition("/")[2]


def listing(items: Mapping[str, Sequence[transport.Object]], missing: Sequence[str], served: rules.Served) -> cluster_state.Listing:
    """Return the objects by their collections."""
    return cluster_state.Listing(
        slices=items[SLICES],
        claims=items[CLAIMS],
        classes=items.get(CLASSES, ()),
        pods=items.get(PODS, ()),
        nodes=items.get(NODES, ()),
        events=items.get(EVENTS, ()),
        rules=items.get(served.path, ()),
        taints_every_device=served.taints_every_device,
        missing=(*missing, *filter(None, [served.problem])),
        note=served.note,
        pods_are_known=not any(text.startswith(KINDS[PODS]) for text in missing),
    )


def _refusal(api: transport.Transport, path: str, *, is_needed: bool) -> str:
    """Return why a collection cannot be listed, "" if this user may list it. Raise ApiError if it is needed."""
    try:
        api.request("GET", path, query={"limit": "1"})
    except errors.ApiError as error:
        if is_needed:
            raise
        return str(error)
    return ""
