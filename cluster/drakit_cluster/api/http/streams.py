"""Watches over HTTP: a streamed response with one JSON line per event."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import StreamingResponse

from drakit_cluster.api.http import answers, tables, targets
from drakit_cluster.api.http.targets import Target
from drakit_cluster.api.storage import query, watching
from drakit_cluster.api.storage.store import Store
from drakit_cluster.api.storage.watching import EventType, Feed, Frame
from drakit_cluster.objects import errors
from drakit_cluster.objects.resources import Resource

DEFAULT_SECONDS = 30 * 60
MAX_WAITING = 20_000
"""Frames that a slow client may leave unread before its watch ends with 410."""

Frames: TypeAlias = "asyncio.Queue[Frame | None]"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a watch. ``seconds`` is its length; ``bookmark_every`` is None if the client wants no bookmarks.

    ``include`` is includeObject: what the rows of a Table have of their objects.
    """

    since: str
    seconds: float
    bookmark_every: float | None
    initial_bookmark: bool
    as_table: bool
    include: str


def parse_options(parameters: Mapping[str, str], accept: str, bookmark_every: float) -> Options:
    """Return the options of a watch; BadRequestError where they contradict each other."""
    bookmarks = targets.flag(parameters, "allowWatchBookmarks")
    since, initial = parameters.get("resourceVersion", ""), parameters.get("sendInitialEvents", "")
    if initial and parameters.get("resourceVersionMatch") != "NotOlderThan":
        raise errors.BadRequestError('resourceVersionMatch: must be "NotOlderThan" when sendInitialEvents is set')
    if parameters.get("resourceVersionMatch") and not initial:
        raise errors.BadRequestError("resourceVersionMatch: is forbidden for watch unless sendInitialEvents is set")
    watching.parse_version(since)
    wants_state = initial in ("true", "1")
    return Options(
        since="" if wants_state else since,
        seconds=targets.whole_number(parameters, "timeoutSeconds") or DEFAULT_SECONDS,
        bookmark_every=bookmark_every if bookmarks else None,
        initial_bookmark=wants_state and bookmarks,
        as_table=tables.is_requested(accept),
        include=parameters.get("includeObject", ""),
    )


class Streams:
    """The watches that are open, so that a stopping server can end them all. Used on the server's event loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: set[Frames] = set()

    def end(self) -> None:
        """End every open watch."""
        for frames in self._open:
            frames.put_nowait(None)

    def open(self, target: Target, selection: query.Query, options: Options) -> StreamingResponse:
        """Return the response that streams a watch; GoneError where its history is lost."""
        frames: Frames = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def receive(frame: Frame | None) -> None:
            with contextlib.suppress(RuntimeError):  # A closed loop means that the server has stopped; the writer must not fail.
                loop.call_soon_threadsafe(frames.put_nowait, frame)

        feed = Feed(self._store, target.stored, selection, receive)
        feed.start(options.since, initial_bookmark=options.initial_bookmark)
        return StreamingResponse(self._lines(feed, frames, options, target.resource), media_type="application/json")

    async def _lines(self, feed: Feed, frames: Frames, options: Options, resource: Resource) -> AsyncIterator[bytes]:
        self._open.add(frames)
        try:
            async for frame in _bounded(feed, frames, options):
                yield _encoded(frame, resource, options)
        finally:
            feed.stop()
            self._open.discard(frames)


async def _bounded(feed: Feed, frames: Frames, options: Options) -> AsyncIterator[Frame]:
    """Yield frames until the watch's time is over, with a bookmark after each ``bookmark_every`` seconds without a frame."""
    end = asyncio.get_running_loop().time() + options.seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            frame = await asyncio.wait_for(frames.get(), min(left, options.bookmark_every or left))
        except TimeoutError:
            if options.bookmark_every:
                feed.bookmark()
            continue
        if frame is None:
            return
        yield frame
        if frames.qsize() > MAX_WAITING:
            yield watching.error_frame(errors.GoneError("the watch fell too far behind; list again"))
            return


def ended(error: errors.ApiError) -> StreamingResponse:
    """Return a watch of one ERROR event: the response of a server that detects a lost history only after it sent 200."""

    async def lines() -> AsyncIterator[bytes]:
        yield _line(watching.error_frame(error))

    return StreamingResponse(lines(), media_type="application/json")


def _line(frame: Frame) -> bytes:
    return b'{"type":"' + frame.type.encode() + b'","object":' + frame.encoded + b"}\n"


def _encoded(frame: Frame, resource: Resource, options: Options) -> bytes:
    if frame.type is EventType.ERROR or (options.as_table and frame.type is EventType.BOOKMARK):
        return _line(frame)
    if options.as_table:
        table = tables.table(resource, [json.loads(frame.encoded)], "", options.include)
        return _line(Frame(frame.type, json.dumps(table).encode()))
    return _line(Frame(frame.type, answers.outward_bytes(resource, frame.encoded)))
