"""The end of a simulated process: it ends the driver's threads, as the end of a real process does.

A death that a test raises leaves the driver's threads alive, and they would continue in the next simulated process. So each call that they make on
the context ends their thread, ``stop`` is called once more, and a remaining thread is interrupted. A thread that survives all of that is an error.
"""

import contextlib
import ctypes
import gc
import pathlib
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, cast

from drakit.core import context as contexts
from drakit.telemetry import plurals

STOP_SECONDS = 5.0
JOIN_SECONDS = 2.0


class ProcessEndedError(BaseException):
    """The end of this thread's simulated process. It is no Exception, so that no driver handles it as an error of the node."""


class SurvivorError(AssertionError):
    """Threads of a driver that did not end with its simulated process. The text names them."""


class Process:
    """One simulated process of a driver. It is created before the driver, so that every later thread belongs to it."""

    _alive: ClassVar[set["Process"]] = set()

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._ended = threading.Event()
        self._die: Callable[[], None] = self.close

    def lives(self, die: Callable[[], None]) -> None:
        """Make ``at_death`` end this process with ``die``, until it is closed."""
        self._die = die
        self._alive.add(self)

    def close(self) -> None:
        """Remove the process, because it has ended by itself."""
        self._alive.discard(self)

    @classmethod
    @contextlib.contextmanager
    def at_death(cls, death: type[BaseException]) -> Iterator[None]:
        """End the processes of the block when it dies, because an exception can come between the body of a ``with`` and its ``__exit__``."""
        before = set(cls._alive)
        try:
            yield
        except death:
            for process in cls._alive - before:
                process._die()  # noqa: SLF001 - of this class
            raise

    def context(self, context: contexts.DriverContext) -> contexts.DriverContext:
        """Return the driver's context, whose calls end their thread after the process has ended."""
        return cast("contexts.DriverContext", _Context(context, self._ended))

    def survivors(self, seconds: float = JOIN_SECONDS) -> Sequence[threading.Thread]:
        """Return the threads that still run after ``seconds``."""
        deadline = time.monotonic() + seconds
        for thread in self._threads():
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._threads()

    def end(self, stop: Callable[[], object]) -> None:
        """End every thread of the process. Raises SurvivorError. Errors of the driver's ``stop`` are ignored, because its state may be partial."""
        self._ended.set()
        _hide_ends()
        _bounded(stop)
        for thread in self.survivors():
            _interrupt(thread)
        if left := self.survivors():
            raise SurvivorError(
                f"after a simulated death {describe(left)} did not end: let stop() end it, and never catch BaseException without raising it again"
            )

    def _threads(self) -> list[threading.Thread]:
        mine = {*self._before, threading.current_thread()}
        return [thread for thread in threading.enumerate() if thread not in mine and not isinstance(thread, _Stopping)]


def describe(threads: Sequence[threading.Thread]) -> str:
    """Return the names and positions of threads."""
    # A garbage collection within the call can deadlock the interpreter (CPython gh-106883).
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see another thread's stack
    finally:
        if is_collecting:
            gc.enable()
    named = [f"{thread.name!r}{place(frames.get(thread.ident or 0))}" for thread in threads]
    return f"{plurals.noun(len(named), 'thread')} {', '.join(named)}"


def place(frame: types.FrameType | None) -> str:
    """Return the innermost line outside Python's own library."""
    library = str(pathlib.Path(threading.__file__).parent)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((library, "<")) or "site-packages" in name:
            return f" (at {pathlib.Path(name).name}:{frame.f_lineno} in {frame.f_code.co_name})"
        frame = frame.f_back
    return ""


class _Context:
    """A context that passes calls on until the process has ended."""

    def __init__(self, context: contexts.DriverContext, ended: threading.Event) -> None:
        self._context, self._ended = context, ended

    def __getattr__(self, name: str) -> object:
        if name != "stopping":
            self._check()
        value = getattr(self._context, name)
        return self._checked(value) if callable(value) else value

    def _checked(self, call: Callable[..., object]) -> Callable[..., object]:
        def checked(*arguments: object, **named: object) -> object:
            self._check()
            return call(*arguments, **named)

        return checked

    def _check(self) -> None:
        if self._ended.is_set():
            raise ProcessEndedError


class _Stopping(threading.Thread):
    """A call of ``stop`` on a driver that may be partly started, which may wait for a thread that never started."""


def _bounded(stop: Callable[[], object]) -> None:
    def work() -> None:
        with contextlib.suppress(BaseException):
            stop()

    stopping = _Stopping(target=work, name="stop after a simulated death", daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)


def _interrupt(thread: threading.Thread) -> None:
    """Raise ProcessEndedError in the thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(ProcessEndedError))


def _hide_ends() -> None:
    """Do not report threads that end by ProcessEndedError, because that is no error."""
    before = threading.excepthook
    if getattr(before, "hides_ends", False):
        return

    def report(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is not ProcessEndedError:
            before(arguments)

    report.hides_ends = True  # type: ignore[attr-defined] # how it knows itself
    threading.excepthook = report
