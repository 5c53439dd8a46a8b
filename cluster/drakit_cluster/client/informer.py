"""Informers: list a kind once, then watch its changes, across lost connections and lost history.

A :class:`Loop` joins several informers in one thread that first observes all changes and then acts. Its state needs no locks, and a
burst of changes causes one action. An informer waits for changes in a thread of its own, except for those of a registry in this process, which
come to the loop directly.
"""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from drakit.telemetry import logs
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage import query
from drakit_cluster.api.storage.store import Key
from drakit_cluster.api.storage.watching import Event, EventType, Feed, Frame, Watch
from drakit_cluster.client.api import Api
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

_log = logs.get_logger(__name__)

_RETRY_SECONDS = (0.05, 2.0)
_AFTER_BUG_SECONDS = 1.0
_JOIN_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The objects to follow."""

    resource: Resource
    field_selector: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """An object was added, modified or deleted: see ``type``. ``before`` is the state that the informer had of it."""

    resource: Resource
    type: EventType
    object: Object
    before: Object | None = None

    @property
    def deleted(self) -> bool:
        """Whether the object was deleted."""
        return self.type is EventType.DELETED


@dataclass(frozen=True, kw_only=True)
class _Wake:
    """A message to a loop without a change; ``synced`` marks the end of an informer's first list."""

    synced: bool


Message: TypeAlias = Change | _Wake
Sink: TypeAlias = Callable[[Message], None]


def key_of(obj: Object) -> Key:
    """Return where an object lives."""
    return Key(json_types.text(obj, "metadata", "namespace"), json_types.text(obj, "metadata", "name"))


def uid_of(obj: Object) -> str:
    """Return an object's UID."""
    return json_types.text(obj, "metadata", "uid")


def version_of(obj: Object) -> int:
    """Return an object's resourceVersion as a number, which this cluster's server counts up."""
    text = json_types.text(obj, "metadata", "resourceVersion")
    return int(text) if text.isdecimal() else 0


def find(api: Api, resource: Resource, key: Key) -> Object | None:
    """Return an object, None if there is none."""
    try:
        return api.get(resource, key.name, key.namespace)
    except errors.NotFoundError:
        return None


def find_named(api: Api, resource: Resource, reference: Object, namespace: str) -> Object | None:
    """Return the object that has both name and UID of a reference."""
    obj = find(api, resource, Key(namespace if resource.namespaced else "", json_types.text(reference, "name")))
    return obj if obj is not None and uid_of(obj) == json_types.text(reference, "uid") else None


def discard(api: Api, resource: Resource, obj: Object) -> bool:
    """Delete an object; return whether it existed."""
    key = key_of(obj)
    try:
        api.delete(resource, key.name, namespace=key.namespace, uid=uid_of(obj))
    except errors.NotFoundError:
        return False
    return True


def amend(api: Api, resource: Resource, obj: Object, patch: Object, *, subresource: str = "", kind: PatchKind = PatchKind.MERGE) -> Object:
    """Patch an object if it is still the same one by its UID; return it afterwards."""
    key, metadata = key_of(obj), {"uid": uid_of(obj)} | json_types.mapping(patch, "metadata")
    return api.patch(resource, key.name, patch | {"metadata": metadata}, namespace=key.namespace, kind=kind, subresource=subresource)


class _Cache:
    """The objects of a selection as an informer knows them."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._objects: dict[Key, Object] = {}

    def change(self, kind: EventType, obj: Object) -> Change:
        """Apply an event and return it as a change."""
        key = key_of(obj)
        before = self._objects.pop(key, None)
        if kind is not EventType.DELETED:
            self._objects[key] = obj
        return Change(resource=self._resource, type=kind, object=obj, before=before)

    def differences(self, objects: Sequence[Object]) -> Iterator[Change]:
        """Apply a list and yield its differences from the cache."""
        present = {key_of(element): element for element in objects}
        for key in [key for key in self._objects if key not in present]:
            yield self.change(EventType.DELETED, self._objects[key])
        for key, obj in present.items():
            cached = self._objects.get(key)
            if cached is not None and uid_of(cached) != uid_of(obj):
                yield self.change(EventType.DELETED, cached)
                cached = None
            if cached is None or version_of(cached) != version_of(obj):
                yield self.change(EventType.MODIFIED if cached is not None else EventType.ADDED, obj)


class Informer:
    """Sends every change of a selection to ``sink``, in order, from a thread of its own. After a lost history it sends the differences."""

    def __init__(self, api: Api, selection: Selection, sink: Sink) -> None:
        self._api = api
        self._selection = selection
        self._sink = sink
        self._cache = _Cache(selection.resource)
        self._synced = False
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"informer-{selection.resource.plural}", daemon=True)

    def start(self) -> None:
        """Start to follow the selection."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; no change is sent after this returns."""
        self._stopping.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        backoff = Backoff(*_RETRY_SECONDS)
        while not self._stopping.is_set():
            try:
                version = self._list()
                backoff.reset()
                while not self._stopping.is_set():
                    version = self._follow(version)
            except errors.GoneError:
                continue
            except errors.ApiError as error:
                delay = backoff.next()
                _log.debug("list and watch failed", resource=self._selection.resource.plural, error=str(error), retry_in_s=delay)
                self._stopping.wait(delay)

    def _list(self) -> str:
        """List the selection, send the differences from the cache, and return the version of the list."""
        listing = self._api.list(self._selection.resource, field_selector=self._selection.field_selector)
        for change in self._cache.differences(listing.items):
            self._send(change)
        if not self._synced:
            self._synced = True
            self._sink(_Wake(synced=True))
        return listing.resource_version

    def _follow(self, version: str) -> str:
        """Send changes until the watch ends; return the version to continue from. Raises GoneError where the history is lost."""
        watch = self._api.watch(self._selection.resource, since=version, field_selector=self._selection.field_selector)
        with self._lock:
            self._watch = watch
            if self._stopping.is_set():
                watch.close()
        try:
            for event in watch:
                version = self._process(event) or version
        finally:
            with self._lock:
                self._watch = None
            watch.close()
        return version

    def _process(self, event: Event) -> str:
        if event.type is EventType.ERROR:
            raise errors.from_status(event.object)
        if event.type is not EventType.BOOKMARK:
            self._send(self._cache.change(event.type, event.object))
        return json_types.text(event.object, "metadata", "resourceVersion")

    def _send(self, change: Change) -> None:
        if not self._stopping.is_set():
            self._sink(change)


class _LocalInformer:
    """Follows a selection of a registry in this process, without a thread. It sends frames to its loop, which gets their changes here."""

    def __init__(self, registry: Registry, selection: Selection, sink: Callable[["_Frame"], None]) -> None:
        self._registry = registry
        self._selection = selection
        self._sink = sink
        self._cache = _Cache(selection.resource)
        self._synced = False
        self._stopped = False
        wanted = query.parse(selection.resource, field_selector=selection.field_selector)
        self._feed = Feed(registry.store, selection.resource, wanted, self._receive)

    def start(self) -> None:
        """Start to follow the selection."""
        self._receive(None)

    def stop(self) -> None:
        """Stop; no frame is sent after this returns."""
        with self._registry.store.lock:
            self._stopped = True
            self._feed.stop()

    def changes(self, frame: Frame | None) -> Iterator[Message]:
        """Yield the change of a frame; where the feed has ended, or not begun, follow it again and yield the differences from the cache."""
        if frame is not None:
            yield self._cache.change(frame.type, json.loads(frame.encoded))
            return
        with self._registry.store.lock:
            listing = self._registry.list(self._selection.resource, field_selector=self._selection.field_selector)
            if not self._stopped:
                self._feed.start(listing.resource_version)
        yield from self._cache.differences(listing.items)
        if not self._synced:
            self._synced = True
            yield _Wake(synced=True)

    def _receive(self, frame: Frame | None) -> None:
        self._sink(_Frame(informer=self, frame=frame))


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """A frame of a feed for its loop; None at the feed's end, and before its start."""

    informer: _LocalInformer
    frame: Frame | None


class Loop:
    """A thread that passes changes to ``observe`` and then calls ``act``, but not before every selection was listed once.

    ``act`` returns the seconds until it is called again without a change; None means never.
    """

    def __init__(
        self, api: Api, name: str, selections: Sequence[Selection], observe: Callable[[Change], None], act: Callable[[], float | None]
    ) -> None:
        self._name = name
        self._observe = observe
        self._act = act
        self._inbox: queue.SimpleQueue[Message | _Frame] = queue.SimpleQueue()
        self._informers = [
            _LocalInformer(api, selection, self._inbox.put) if isinstance(api, Registry) else Informer(api, selection, self._inbox.put)
            for selection in selections
        ]
        self._unsynced = len(selections)
        self._newest: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the informers and the thread."""
        for informer in self._informers:
            informer.start()
        self._thread.start()

    def wake(self) -> None:
        """Make the loop act soon without a change."""
        self._inbox.put(_Wake(synced=False))

    def has_observed(self, resource: Resource, obj: Object) -> bool:
        """Return whether this version of an object, or a later change of another object of its kind, was passed to ``observe``."""
        return self._newest.get(resource.kind, 0) >= version_of(obj)

    def stop(self) -> None:
        """Stop; neither function is called after this returns."""
        self._stopping.set()
        for informer in self._informers:
            informer.stop()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        due: float | None = None
        while not self._stopping.is_set():
            for message in self._messages(due):
                self._process(message)
            if self._stopping.is_set() or self._unsynced:
                continue
            delay = self._guarded_act()
            due = None if delay is None else time.monotonic() + delay

    def _messages(self, due: float | None) -> Iterator[Message | _Frame]:
        """Wait for a message until ``due`` on the monotonic clock, then yield all queued ones."""
        try:
            yield self._inbox.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            while True:
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _process(self, message: Message | _Frame) -> None:
        if isinstance(message, _Frame):
            for change in message.informer.changes(message.frame):
                self._process(change)
        elif isinstance(message, Change):
            self._observe(message)
            self._newest[message.resource.kind] = version_of(message.object)
        elif message.synced:
            self._unsynced -= 1

    def _guarded_act(self) -> float | None:
        try:
            return self._act()
        except Exception:  # noqa: BLE001 - a bug in one decision must not end all later ones.
            _log.exception("loop failed", loop=self._name)
            return _AFTER_BUG_SECONDS


def earliest(*delays: float | None) -> float | None:
    """Return the shortest delay; None, which means never, if there is no other."""
    return min((delay for delay in delays if delay is not None), default=None)
