"""The two kinds of gRPC server that a socket can have.

``prompt`` is gRPC's server of threads: a call costs least, and its poller wakes five times a second for as long as it lives. ``quiet`` is gRPC's
server of an event loop, whose poller sleeps until somebody calls; a call costs some 200 microseconds more. All quiet servers of a process share one
thread with one loop, from the first one's start to the last one's end. Services are the same for both: plain functions that run in the threads of
the pool. On a quiet server they refuse by ``set_code`` and ``set_details``, because what ``abort`` raises there keeps the server alive in a circle of
references, and they cannot ask whether the caller still waits.
"""

import asyncio
import gc
import pathlib
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from typing import Any, Protocol, TypeVar

import grpc
from grpc import aio

Register = Callable[[grpc.Server], None]
Result = TypeVar("Result")

_OPTIONS = [("grpc.so_reuseport", 0)]
_TIDY_SECONDS = 1.0
_LOOK_SECONDS = 0.01


class Ending(Protocol):
    """The end of a server that was told to stop."""

    def wait(self) -> object:
        """Wait until no call runs any more and nothing of the server is left."""


class Bound(Protocol):
    """A gRPC server that is bound to its socket."""

    def start(self) -> None:
        """Answer calls."""

    def stop(self, grace: float) -> Ending:
        """Refuse new calls, and end running ones after ``grace`` seconds; to be waited for. May be told again, with less grace."""


Kind = Callable[[futures.ThreadPoolExecutor, Register, pathlib.Path], Bound]
"""Makes a server with these threads and services on a socket of that path; raises RuntimeError when the path cannot be bound."""


def prompt(pool: futures.ThreadPoolExecutor, register: Register, path: pathlib.Path) -> Bound:
    """A server for calls that somebody waits for: see Kind."""
    server = grpc.server(pool, options=_OPTIONS)
    register(server)
    server.add_insecure_port(f"unix:{path}")
    bound: Bound = server
    return bound


def quiet(pool: futures.ThreadPoolExecutor, register: Register, path: pathlib.Path) -> Bound:
    """A server that is hardly ever called: see Kind."""
    return _Quiet(pool, register, path)


class _Loop:
    """The event loop of all quiet servers of a process, in a thread that lives while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        """Use the loop for one more server, until ``leave``."""
        with self._lock:
            if self._loop is None:
                selector = selectors.DefaultSelector()
                self._loop = asyncio.SelectorEventLoop(selector)
                self._thread = threading.Thread(target=_turn, args=(self._loop, selector), name="quiet-servers", daemon=True)
                self._thread.start()
            self._servers += 1
            return self._loop

    def leave(self) -> None:
        """One server is gone; with the last one the loop and its thread are."""
        with self._lock:
            self._servers -= 1
            if self._servers or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None


_shared = _Loop()


def _turn(loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector) -> None:
    loop.run_forever()
    loop.run_until_complete(_tidy())
    # gRPC's poller ends, and takes its socket out of the selector, once no server is referred to; the loop's own socket is the one that stays. A
    # call that ended in an exception may refer to its server in a circle, and the pool's thread to that of the call it has just answered; the one is
    # broken and the other waited for here, while there is a loop to take the socket out of.
    if len(selector.get_map()) > 1:
        gc.collect()
    end = loop.time() + _TIDY_SECONDS
    while len(selector.get_map()) > 1 and loop.time() < end:
        loop.run_until_complete(asyncio.sleep(_LOOK_SECONDS))
    loop.close()


async def _tidy() -> None:
    """End what calls have left behind: gRPC says that a server has stopped once its callers have their answers, and goes on tidying up."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if not left:
        return
    await asyncio.wait(left, timeout=_TIDY_SECONDS)
    for one in left:
        one.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class _Quiet:
    """A server on the shared loop; every use of gRPC's object, its end included, is in the loop's thread."""

    def __init__(self, pool: futures.ThreadPoolExecutor, register: Register, path: pathlib.Path) -> None:
        self._lock = threading.Lock()
        self._stops = 0
        self._gone, self._left = threading.Event(), False
        self._server: aio.Server | None = None
        self._loop = _shared.enter()
        failure = self._call(self._make(pool, register, path)).result()
        if failure is not None:
            _shared.leave()
            raise failure

    def start(self) -> None:
        """Answer calls."""
        self._call(self._start()).result()

    def stop(self, grace: float) -> Ending:
        """Refuse new calls, and end running ones after ``grace`` seconds."""
        with self._lock:
            if not self._gone.is_set():
                self._stops += 1
                self._call(self._stop(grace))
        return self

    def wait(self) -> None:
        """Wait until the server that was told to stop is gone, and with the last one the loop."""
        self._gone.wait()
        with self._lock:
            is_first, self._left = not self._left, True
        if is_first:
            _shared.leave()

    def _call(self, work: Coroutine[Any, Any, Result]) -> "futures.Future[Result]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _make(self, pool: futures.ThreadPoolExecutor, register: Register, path: pathlib.Path) -> Exception | None:
        """Bind; a failure is returned without its frames, which would keep the server that failed."""
        server = aio.server(migration_thread_pool=pool, options=_OPTIONS)
        try:
            register(server)
            server.add_insecure_port(f"unix:{path}")
        except Exception as error:  # noqa: BLE001 - raised by the constructor, in the caller's thread
            return error.with_traceback(None)
        self._server = server
        return None

    async def _start(self) -> None:
        if self._server is not None:
            await self._server.start()

    async def _stop(self, grace: float) -> None:
        """The last of all stops under way lets go of the server."""
        try:
            if self._server is not None:
                await self._server.stop(grace)
        finally:
            with self._lock:
                self._stops -= 1
                if not self._stops:
                    self._server = None
                    self._gone.set()
