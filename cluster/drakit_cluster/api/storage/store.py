"""The object store: every object of the cluster, in memory, with one counter of versions and a bounded history of changes.

Invariants
- Every write takes the next resourceVersion, so versions order all changes of all kinds.
- An entry never changes; readers get bytes or their own decoded copy, so no caller can change a stored object.
- A subscriber gets each change after its starting version exactly once, in order, or an error where the history is lost.
- Objects are lost with the process unless the store has a log. Each change is in the log before any reader sees it, and a new store begins with
  the objects and the version of the log. Watches from older versions get an error.

The store refuses objects that are too large for etcd. Kubernetes stores its own kinds in protobuf, so the size is computed by the rules of that
encoding, without encoding: a key of one byte for each value, lengths and whole numbers as varints, a quantity as a message with one text, a time
as a message with seconds. For the kinds of this cluster the result is right to within a few percent.
Source: etcd's --max-request-bytes, its client's MaxCallSendMsgSize.
"""

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from drakit_cluster.api.storage.state_log import StateError, StateLog
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type

DEFAULT_HISTORY = 4096
"""Changes in the history of a kind."""

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
        decoded: Object = json.loads(self.encoded)
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

        Raise StorageError for an object that is larger than etcd accepts, or that cannot be logged.
        """
        metadata = json_types.child(obj, "metadata")
        key = Key(json_types.text(metadata, "namespace"), json_types.text(metadata, "name"))
        with self.lock:
            entry = self._entry(key, obj)
            check_size(resource, key, obj, len(entry.encoded))
            self._append_to_log(lambda log: log.put(resource, entry.view))
            entries = self._entries.setdefault(resource, {})
            before = entries.get(key)
            entries[key] = entry
            self._record(resource, Change(entry.version, before, entry))
            return entry

    def remove(self, resource: Resource, key: Key) -> Entry:
        """Remove the object under ``key`` (which must exist); the entry returned carries the version of the removal.

        Raise StorageError where the removal cannot be logged.
        """
        with self.lock:
            last = self._entry(key, self._entries[resource][key].copy())
            self._append_to_log(lambda log: log.remove(resource, key.namespace, key.name, last.version))
            del self._entries[resource][key]
            self._record(resource, Change(last.version, last, None))
            return last

    def follow(self, resource: Resource, since: int, sink: Sink) -> None:
        """Send every change after version ``since`` to ``sink``: past changes at once, later changes as they happen.

        Raise GoneError where the history does not reach back to ``since``.
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
        return Entry(key, self._version, json.loads(encoded), encoded)

    def _record(self, resource: Resource, change: Change) -> None:
        history = self._history.setdefault(resource, deque())
        history.append(change)
        if len(history) > self._limit:
            self._lost[resource] = history.popleft().version
        for sink in tuple(self._sinks.get(resource, ())):
            sink(change)


def _encoded(obj: Object) -> bytes:
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode()


REQUEST_LIMIT = 3 << 19
"""Bytes of one request to etcd: 1.5 MiB."""
MESSAGE_LIMIT = 2 << 20
"""The largest message, in bytes, that etcd's client sends."""
_ENVELOPE = 128
"""About the size of the transaction, of the object's type and of the revision that is compared."""
_KEY_COPIES = 3
_TIME_BYTES = 8
_GROUP_BITS = 7


def check_size(resource: Resource, key: tuple[str, str], obj: Object, encoded: int) -> None:
    """Raise StorageError for an object that etcd would refuse. ``key`` is namespace and name, ``encoded`` the size as JSON, in bytes."""
    if encoded <= REQUEST_LIMIT // 2:
        return
    size = request_bytes(resource, key, obj)
    if size > MESSAGE_LIMIT:
        detail = f"trying to send message larger than max ({size} vs. {MESSAGE_LIMIT})"
        raise errors.StorageError(f"rpc error: code = ResourceExhausted desc = {detail}")
    if size > REQUEST_LIMIT:
        raise errors.StorageError("etcdserver: request is too large")


def request_bytes(resource: Resource, key: tuple[str, str], obj: Object) -> int:
    """Return the size of the request that writes an object."""
    path = "/".join(part for part in ("/registry", resource.plural, *key) if part)
    return _message(table.shape_of(resource), obj) + _KEY_COPIES * len(path.encode()) + _ENVELOPE


def _message(shape: Shape, value: Json) -> int:
    """Return the size of a value without its key; of a list or a map, with the keys of its items. Free JSON is stored as JSON."""
    if _is_free(shape) and isinstance(value, list | dict):
        return len(json.dumps(value, separators=(",", ":")).encode())
    if isinstance(value, list):
        item = shape.item if isinstance(shape, ListOf) else _UNKNOWN
        return sum(_field(item, element) for element in value)
    if isinstance(value, dict):
        if isinstance(shape, MapOf):
            return sum(_prefixed(_prefixed(len(name.encode())) + _field(shape.value, element)) for name, element in value.items())
        fields = shape.fields if isinstance(shape, Struct) else {}
        return sum(_field(fields.get(name, _UNKNOWN), element) for name, element in value.items())
    return _leaf(shape, value)


def _field(shape: Shape, value: Json) -> int:
    """Return the size of a value with its key; of a list or a map, the sum for its items."""
    if value is None:
        return 0
    if not _is_free(shape) and (isinstance(value, list) or isinstance(shape, MapOf)):
        return _message(shape, value)
    if isinstance(value, bool):
        return 2
    size = _message(shape, value)
    return 1 + size if isinstance(value, int) else _prefixed(size)


def _is_free(shape: Shape) -> bool:
    return isinstance(shape, Leaf) and shape.type is Type.ANY


def _leaf(shape: Shape, value: Json) -> int:
    """Return the size of a single value; a number that is not a quantity is a varint."""
    kind = shape.type if isinstance(shape, Leaf) else Type.ANY
    if kind is Type.TIME:
        return _TIME_BYTES
    size = len(value.encode()) if isinstance(value, str) else _varint(value) if isinstance(value, int) else len(str(value))
    return _prefixed(size) if kind is Type.QUANTITY else size


def _prefixed(size: int) -> int:
    return 1 + _varint(size) + size


def _varint(number: int) -> int:
    return max(1, -(-(number % (1 << 64)).bit_length() // _GROUP_BITS))


_UNKNOWN = Struct(fields={}, open=True)
"""The shape of a field that an open kind does not describe."""
