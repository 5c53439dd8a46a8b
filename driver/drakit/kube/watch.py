"""Watch a collection and yield every change, across restarts of the watch.

A watch ends for many reasons: the server's time limit, a restart, a proxy, an expired version (410). The next watch starts at the last version of
the one before; the collection is listed again only if the server reports an error. Limits and pauses have jitter, and pauses grow while watches end
in quick succession, so that the nodes of a cluster do not reconnect at the same moment.
"""

import contextlib
import dataclasses
import http
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self, TypeVar

from drakit.core import backoff, errors, ports, records
from drakit.kube import api_objects, transport
from drakit.telemetry import logs, secrets

SERVER_SECONDS = 300
SILENCE_SECONDS = SERVER_SECONDS * (1 + backoff.JITTER) + 30.0
RECONNECT_SECONDS = 1.0
"""A watch that lasted is restarted after a random pause of at most this time."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY_SECONDS = 5.0
_STOP_POLL_SECONDS = 5.0
_PAGE = 500

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_log = logs.get_logger(__name__)
_random = random.SystemRandom()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservedObject:
    """An object of the collection; its last state if it ``is_deleted``."""

    object: transport.Object
    is_deleted: bool = False


class Observer(Protocol):
    """What the objects of a watch do not say. The thread that reads the watch calls it."""

    def listed(self) -> None:
        """Note that a list is complete. Changes follow."""

    def answered(self) -> None:
        """Note that the server answered a request."""

    def failed(self, error: errors.ApiError) -> None:
        """Note that a request failed. A watch that ends early is no failed request."""


class _Unobserved:
    def listed(self) -> None: ...

    def answered(self) -> None: ...

    def failed(self, error: errors.ApiError) -> None: ...


def objects(
    api: transport.Transport, path: str, *, clock: ports.Clock, stop: threading.Event, selector: str = "", observer: Observer | None = None
) -> Iterator[ObservedObject | None]:
    """Yield every object of a collection, then every change of one, until ``stop`` is set; yield None before each complete list.

    With a field ``selector`` an object that no longer matches is reported as deleted. Deletions without a connection are not reported, so callers
    must check their known objects after None.
    """
    yield from _repeat(_ListWatch(api, path, selector, observer=observer).list_and_watch, path, clock, stop)


def changes(
    api: transport.Transport,
    path: str,
    *,
    selector: str,
    version: Callable[[], str],
    clock: ports.Clock,
    stop: threading.Event,
    meter: ports.Meter | None = None,
) -> Iterator[ObservedObject | None]:
    """Yield every change of a selected object, until ``stop`` is set; yield None where changes may have been missed, as at the start.

    ``version`` is called after each None and returns the resourceVersion of a list, where the watch starts; it may raise DrakitError. Errors of the
    server are retried and never raised. A thread closes a silent watch when ``stop`` is set.
    """
    yield from _repeat(_ListWatch(api, path, selector, version).list_and_watch, path, clock, stop, meter)


class _ListWatch:
    """A list and watch of a collection. Without a version the next round lists first, or calls ``list_version`` for the version of a list."""

    def __init__(
        self,
        api: transport.Transport,
        path: str,
        selector: str = "",
        list_version: Callable[[], str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or _Unobserved()
        self._api = api
        self._path = path
        self._selector = selector
        self._list_version = list_version
        self._version = ""

    def list_and_watch(self, connection: "_Connection") -> Iterator[ObservedObject | None]:
        """Run one list, if there is no version, and one watch. Raise ApiError or ConfigError if either fails."""
        if not self._version:
            yield None
            if self._list_version is None:
                yield from self._list()
                self._observer.listed()
            else:
                self._version = self._list_version()
        query = {"fieldSelector": self._selector} if self._selector else {}
        query |= {"watch": "true", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(round(backoff.jittered(SERVER_SECONDS)))
        try:
            stream = self._ask(lambda: self._api.stream(self._path, query=query, timeout=SILENCE_SECONDS))
            with connection.of(stream):
                for event in stream:
                    yield from self._changed(event)
        except errors.ApiError as error:
            # From the same version, an event that is not JSON or an error event would recur; a new list has the changes.
            if error.status or error.reason == transport.UNREADABLE:
                self._version = ""
            raise

    def _list(self) -> Iterator[ObservedObject]:
        query = {"limit": str(_PAGE)} | ({"fieldSelector": self._selector} if self._selector else {})
        while True:
            page = api_objects.FORMAT.decode(api_objects.ObjectList, self._ask(lambda: self._api.request("GET", self._path, query=query)))
            for element in page.items:
                yield from _objects(element, self._path)
            query["continue"] = page.continue_
            if not query["continue"]:
                self._version = page.resource_version
                return

    def _ask(self, send: Callable[[], _Answer]) -> _Answer:
        try:
            answer = send()
        except errors.ApiError as error:
            self._observer.failed(error)
            raise
        self._observer.answered()
        return answer

    def _changed(self, event: Mapping[str, records.Json]) -> Iterator[ObservedObject]:
        is_change = _is_change(event)
        changed = event.get("object")
        if is_change:
            yield from _objects(changed, self._path, is_deleted=event.get("type") == "DELETED")
        self._version = api_objects.metadata_text(changed, "resourceVersion") or self._version


def _objects(resource: object, path: str, *, is_deleted: bool = False) -> Iterator[ObservedObject]:
    if isinstance(resource, Mapping):
        yield ObservedObject(object=resource, is_deleted=is_deleted)
    else:
        _log.warning("object ignored: cannot be read", path=path)


def _repeat(
    list_and_watch: Callable[["_Connection"], Iterator[_Item]],
    path: str,
    clock: ports.Clock,
    stop: threading.Event,
    meter: ports.Meter | None = None,
) -> Iterator[_Item]:
    pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
    with _Connection(stop) as connection:
        while not stop.is_set():
            started = clock.monotonic()
            try:
                for item in list_and_watch(connection):
                    yield item
                    if stop.is_set():
                        return
            except errors.DrakitError as error:
                if not stop.is_set() and not (isinstance(error, errors.ApiError) and error.status == http.HTTPStatus.GONE):
                    _log.warning("watch failed", path=path, error=str(error))
            if meter is not None and not stop.is_set():
                meter.watch_restarted()
            if clock.monotonic() - started >= STEADY_SECONDS:
                pauses.reset()
                clock.wait(stop, _random.uniform(0, RECONNECT_SECONDS))
            else:
                clock.wait(stop, backoff.jittered(pauses.next()))


def _is_change(event: Mapping[str, object]) -> bool:
    """Return whether an event reports a change of an object. Raise ApiError for an error event."""
    if event.get("type") == "ERROR":
        status = event.get("object")
        status_object = status if isinstance(status, Mapping) else {}
        code = status_object.get("code")
        raise errors.ApiError(
            f"watch ended: {_text(status_object.get('message')) or 'no reason given'}",
            status=code if isinstance(code, int) else 0,
            reason=_text(status_object.get("reason")) if isinstance(code, int) else transport.UNREADABLE,
        )
    return event.get("type") in ("ADDED", "MODIFIED", "DELETED")


def _text(value: object) -> str:
    return secrets.one_line(value) if isinstance(value, str) else ""


class _Connection:
    """The current stream. A thread closes it when ``stop`` is set, because the reader is blocked."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._stream: transport.Stream | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._close_on_stop, name="watch-stop", daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._left.set()

    @contextlib.contextmanager
    def of(self, stream: transport.Stream) -> Iterator[None]:
        """Use this as the current stream during the body."""
        with self._lock:
            self._stream = stream
        if self._stop.is_set():
            stream.close()
        try:
            yield
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _close_on_stop(self) -> None:
        while not self._left.is_set():
            if self._stop.wait(_STOP_POLL_SECONDS):
                with self._lock:
                    if self._stream is not None:
                        self._stream.close()
                return
