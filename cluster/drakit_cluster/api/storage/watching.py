"""Watches: the changes of a kind, filtered by a query.

A :class:`Feed` turns changes of the store into encoded frames and never blocks. A :class:`Watch` reads a feed as a blocking iterator, for
threads.
"""

import enum
import json
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias

from drakit_cluster.api.storage.query import Query
from drakit_cluster.api.storage.store import Change, Entry, Store
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource

BOOKMARK_SECONDS = 60.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class EventType(enum.StrEnum):
    """The types of events, as the API spells them."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Event:
    """One event; the object of ERROR is a metav1 Status, that of BOOKMARK has only a resourceVersion."""

    type: EventType
    object: Object


class Frame(NamedTuple):
    """An event as it is sent: its type and the encoded object."""

    type: EventType
    encoded: bytes


Receiver: TypeAlias = Callable[[Frame | None], None]
"""Takes frames in order; None ends the feed. Called with the store locked: it must not block."""


class Watch(Protocol):
    """Events until ``close`` (from any thread), a timeout, or an ERROR event."""

    def __iter__(self) -> Iterator[Event]:
        """Return the watch itself."""

    def __next__(self) -> Event:
        """Wait for the next event; StopIteration when the watch has ended."""

    def close(self) -> None:
        """End the watch."""


def parse_version(since: str) -> int | None:
    """Return a resourceVersion as a number; None for unset and "0", which mean: start with the existing objects."""
    if since in ("", "0"):
        return None
    if not since.isdecimal():
        raise errors.BadRequestError(f"resourceVersion: want a number as given by the server, got {since!r}")
    return int(since)


def bookmark(resource: Resource, version: int, *, initial_end: bool = False) -> Frame:
    """Return a BOOKMARK frame; ``initial_end`` marks the end of the events of the initial list."""
    metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    body: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    return Frame(EventType.BOOKMARK, json.dumps(body, separators=(",", ":")).encode())


def error_frame(error: errors.ApiError) -> Frame:
    """Return an ERROR frame, which reports an error in a stream that began with 200."""
    return Frame(EventType.ERROR, json.dumps(error.status()).encode())


class Feed:
    """The changes of a kind that a query selects, passed to ``receiver``."""

    def __init__(self, store: Store, resource: Resource, query: Query, receiver: Receiver) -> None:
        self._store = store
        self._resource = resource
        self._query = query
        self._receiver = receiver

    def start(self, since: str, *, initial_bookmark: bool = False) -> None:
        """Begin after version ``since``; unset or "0" sends every existing object as ADDED first. Raises GoneError."""
        version = parse_version(since)
        with self._store.lock:
            if version is None:
                entries, version = self._store.scan(self._resource)
                for entry in entries:
                    if self._query.matches(entry.view):
                        self._receiver(Frame(EventType.ADDED, entry.encoded))
                if initial_bookmark:
                    self._receiver(bookmark(self._resource, version, initial_end=True))
            self._store.follow(self._resource, version, self._receive)

    def bookmark(self) -> None:
        """Send a bookmark after every change up to its version."""
        with self._store.lock:
            self._receiver(bookmark(self._resource, self._store.version))

    def stop(self) -> None:
        """Stop receiving; no frame comes after this returns."""
        self._store.unfollow(self._resource, self._receive)

    def _receive(self, change: Change | None) -> None:
        if change is None:
            self._receiver(None)
        elif (frame := self._frame(change)) is not None:
            self._receiver(frame)

    def _frame(self, change: Change) -> Frame | None:
        """Translate a change as the query sees it: an object that leaves the query is DELETED, one that enters is ADDED."""
        before = change.before is not None and self._query.matches(change.before.view)
        if change.after is not None and self._query.matches(change.after.view):
            return Frame(EventType.MODIFIED if before else EventType.ADDED, change.after.encoded)
        if before and change.before is not None:
            return Frame(EventType.DELETED, _at_version(change.before, change.version))
        return None


def _at_version(entry: Entry, version: int) -> bytes:
    """Return the encoded object with ``version``, the version at which it left the query."""
    if entry.version == version:
        return entry.encoded
    obj = entry.copy()
    json_types.child(obj, "metadata")["resourceVersion"] = str(version)
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode()


class LocalWatch:
    """A feed as a blocking iterator. ``timeout`` is in seconds over the whole watch; None means until closed."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        query: Query,
        *,
        since: str,
        bookmark_every: float | None = None,
        timeout: float | None = None,
    ) -> None:
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._feed = Feed(store, resource, query, self._frames.put)
        self._bookmark_every = bookmark_every
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._feed.start(since)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        while True:
            try:
                frame = self._frames.get(timeout=self._wait_seconds())
            except queue.Empty:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self.close()
                else:
                    self._feed.bookmark()
                continue
            if frame is None:
                self.close()
                raise StopIteration
            return Event(frame.type, json.loads(frame.encoded))

    def close(self) -> None:
        """End the watch; a thread waiting in it wakes up."""
        self._feed.stop()
        self._frames.put(None)

    def _wait_seconds(self) -> float | None:
        """Return the seconds to wait for a frame until the deadline or the next bookmark; None without either."""
        remaining = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        waits = [wait for wait in (remaining, self._bookmark_every) if wait is not None]
        return min(waits) if waits else None
