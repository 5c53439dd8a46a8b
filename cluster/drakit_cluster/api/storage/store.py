"""The object store: every object of the cluster, in memory, with one counter of versions and a bounded history of changes.

Invariants
- Every write takes the next resourceVersion, so versions order all changes of all kinds.
- An entry never changes; readers get bytes or their own decoded copy, so no caller can change a stored object.
- A subscriber gets each change after its starting version exactly once, in order, or an error where the history is lost.
- Objects are lost with the process unless the store has a log. Each change is in the log before any reader sees it, and a new store begins with
  the objects and the version of the log. Watches from older versions get an error.

The store refuses objects that are too large for etcd. It measures them as JSON; Kubernetes stores protobuf, which is smaller.
Source: etcd's --max-request-bytes.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from drakit_cluster.api.storage.state_log import StateError, StateLog
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

DEFAULT_HISTORY = 4096
"""Changes in the history of a kind."""
SIZE_LIMIT = 3 << 19
"""Bytes of the largest object: 1.5 MiB, etcd's limit of a request."""

FIRST_VERSION = 1
"""A fresh store's version. Zero means "any version" in a request, so no object has it."""


class Key(NamedTuple):
    """The key of an object; cluster-scoped objects have the empty namespace."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one object. ``view`` is for reading inside the cluster package only; never change it or return it to a caller."""

    key: Key
    version: int
    view: Object
    encoded: bytes

    def copy(self) -> Object:
        """Return the caller's own copy of the object."""
        decoded: Object = json.loads(self.encoded.decode())
        return decoded


@dataclass(frozen=True, slots=True)
class Change:
    """One step of history: ``before`` is None for a new object, ``after`` None for a removed one."""

    version: int
    before: Entry | None
    after: Entry | None


Sink: TypeAlias = Callable[[Change | None], None]
"""Takes changes in order; None is the last call. Called with the store locked: it must be fast and must not block."""


class Store:
    """Objects by kind and key. All methods are safe to call from any thread; ``lock`` joins several calls in one step.

    With a ``log``, raise StateError where the log cannot be read.
    """

    def __init__(self, *, history: int = DEFAULT_HISTORY, log: StateLog | None = None) -> None:
        self.lock = threading.RLock()
        self._version = FIRST_VERSION
        self._limit = history
        self._entries: dict[Resource, dict[Key, Entry]] = {}
        self._history: dict[Resource, deque[Change]] = {}
        self._lost: dict[Resource, int] = {}
        self._sinks: dict[Resource, list[Sink]] = {}
        self._log = log
        if log is not None:
            self._restore(log)

    def _restore(self, log: StateLog) -> None:
        contents = log.read()
        for resource, obj in contents.objects:
            metadata = json_types.mapping(obj, "metadata")
            key = Key(json_types.text(metadata, "namespace"), json_types.text(metadata, "name"))
            entry = Entry(key, int(json_types.text(metadata, "resourceVersion")), obj, _encoded(obj))
            self._entries.setdefault(resource, {})[key] = entry
        if contents.version:
            self._version = contents.version
            self._lost = dict.fromkeys(resources.ALL, contents.version)
        self._rewrite(log)

    def _rewrite(self, log: StateLog) -> None:
        log.rewrite(((resource, entry.view) for resource, entries in self._entries.items() for entry in entries.values()), self._version)

    def close(self) -> None:
        """Close the log, where there is one; later changes are not logged."""
        with self.lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    @property
    def version(self) -> int:
        """The version of the latest change of any kind."""
        with self.lock:
            return self._version

    def get(self, resource: Resource, key: Key) -> Entry | None:
        """Return the entry under ``key``, or None."""
        with self.lock:
            return self._entries.get(resource, {}).get(key)

    def scan(self, resource: Resource) -> tuple[list[Entry], int]:
        """Return all entries of a kind ordered by key, and the version of the store at that moment."""
        with self.lock:
            entries = self._entries.get(resource, {})
            return [entries[key] for key in sorted(entries)], self._version

    def put(self, resource: Resource, obj: Object) -> Entry:
        """Store ``obj`` under its own name and namespace as the next version; the resourceVersion is written into ``obj``.

        Raises StorageError for an object that is larger than etcd accepts, or that cannot be logged.
        """
        metadata = json_types.child(obj, "metadata")
        key = Key(json_types.text(metadata, "namespace"), json_types.text(metadata, "name"))
        with self.lock:
            entry = self._entry(key, obj)
            if len(entry.encoded) > SIZE_LIMIT:
                raise errors.StorageError("etcdserver: request is too large")
            self._append_to_log(lambda log: log.put(resource, entry.view))
            entries = self._entries.setdefault(resource, {})
            before = entries.get(key)
            entries[key] = entry
            self._record(resource, Change(entry.version, before, entry))
            return entry

    def remove(self, resource: Resource, key: Key) -> Entry:
        """Remove the object under ``key`` (which must exist); the entry returned carries the version of the removal.

        Raises StorageError where the removal cannot be logged.
        """
        with self.lock:
            last = self._entry(key, self._entries[resource][key].copy())
            self._append_to_log(lambda log: log.remove(resource, key.namespace, key.name, last.version))
            del self._entries[resource][key]
            self._record(resource, Change(last.version, last, None))
            return last

    def follow(self, resource: Resource, since: int, sink: Sink) -> None:
        """Send every change after version ``since`` to ``sink``: past changes at once, later changes as they happen.

        Raises GoneError where the history does not reach back to ``since``.
        """
        with self.lock:
            if since < self._lost.get(resource, 0):
                oldest = self._lost[resource]
                raise errors.GoneError(f"too old resource version: {since} ({oldest})")
            for change in self._history.get(resource, ()):
                if change.version > since:
                    sink(change)
            self._sinks.setdefault(resource, []).append(sink)

    def unfollow(self, resource: Resource, sink: Sink) -> None:
        """Stop calling ``sink``; an unknown sink is ignored."""
        with self.lock:
            sinks = self._sinks.get(resource, [])
            if sink in sinks:
                sinks.remove(sink)

    def forget_history(self) -> None:
        """Discard the history, as etcd's compaction does: watches from older versions are refused from now on."""
        with self.lock:
            self._history.clear()
            self._lost = dict.fromkeys(self._entries, self._version)

    def end_watches(self) -> None:
        """End every subscription."""
        with self.lock:
            sinks = [sink for group in self._sinks.values() for sink in group]
            self._sinks.clear()
            for sink in sinks:
                sink(None)

    def _append_to_log(self, write: Callable[[StateLog], None]) -> None:
        if self._log is None:
            return
        try:
            if self._log.is_long:
                self._rewrite(self._log)
            write(self._log)
        except StateError as error:
            raise errors.StorageError(str(error)) from error

    def _entry(self, key: Key, obj: Object) -> Entry:
        self._version += 1
        json_types.child(obj, "metadata")["resourceVersion"] = str(self._version)
        encoded = _encoded(obj)
        return Entry(key, self._version, json.loads(encoded.decode()), encoded)

    def _record(self, resource: Resource, change: Change) -> None:
        history = self._history.setdefault(resource, deque())
        history.append(change)
        if len(history) > self._limit:
            self._lost[resource] = history.popleft().version
        for sink in tuple(self._sinks.get(resource, ())):
            sink(change)


def _encoded(obj: Object) -> bytes:
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode()
