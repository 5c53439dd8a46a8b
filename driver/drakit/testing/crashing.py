"""Simulated crashes at every line of the driver and of drakit's engine: each run ends one line later.

``Death.RAISE`` raises ``Crash`` at the line. It works with every driver, but ``finally`` blocks and context managers still run, unlike in a dead
process. ``Death.KILL`` forks and kills the child with SIGKILL, so nothing runs afterwards. The child's memory is lost, so use it for drivers whose
(mock) hardware is a file or another process.
"""

import dataclasses
import enum
import inspect
import os
import pathlib
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from drakit.core import arguments
from drakit.core import driver as drivers
from drakit.node import device_preparer, engine, recovery
from drakit.testing import simulated_death

MOST_POINTS = 100_000
_PLACE_MAX = 1024


class Death(enum.Enum):
    """The way in which the process ends at a crash point."""

    RAISE = "raise"
    KILL = "kill"


class Crash(BaseException):
    """The simulated end of the process."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """The place where the process ended: ``number`` counts the lines that ran; ``where`` is the file and line, if known."""

    number: int
    where: str = ""

    def __str__(self) -> str:
        return f"crash point {self.number}{f' at {self.where}' if self.where else ''}"


@arguments.checked_call
def crash_points(
    driver: drivers.Driver[Any] | Callable[[], drivers.Driver[Any]], work: Callable[[], None], *, death: Death = Death.RAISE, every: int = 1
) -> Iterator[CrashPoint]:
    """Run ``work`` once for each line that it executes, and end the process at that line. Stop after the first run that completes.

    The body of the caller's loop runs after each crash: restart, retry and check there. ``work`` must start from the same state each time, so clean
    up in the loop body. ``every=N`` ends the process at every Nth line. The lines of ``driver`` (a driver, or a function that returns one) count.
    """
    check_every(every)
    folders = traced_folders(driver if isinstance(driver, drivers.Driver) else drivers.made_by(driver))
    for number in range(0, MOST_POINTS, every):
        point = _killed(work, folders, number) if death is Death.KILL else _raised(work, folders, number)
        if point is None:
            return
        yield point
    raise AssertionError(f"the work did not end within {MOST_POINTS} lines")


def check_every(every: int) -> None:
    """Raise ValueError for a number of lines below 1."""
    if every < 1:
        raise ValueError(f"every is {every}; give 1 for each line, or more")


def traced_folders(driver: drivers.Driver[Any]) -> tuple[str, ...]:
    """Return the files whose lines count: the driver's package or module, the engine and recovery."""
    module = inspect.getmodule(type(driver))
    own = pathlib.Path(inspect.getfile(type(driver)))
    is_package = module is not None and "." in module.__name__ and (own.parent / "__init__.py").exists()
    return (f"{own.parent}{os.sep}" if is_package else str(own), *(str(module.__file__) for module in (engine, device_preparer, recovery)))


def _raised(work: Callable[[], None], folders: tuple[str, ...], number: int) -> CrashPoint | None:
    try:
        with simulated_death.Process.at_death(Crash), _Countdown(folders, number, _raise):
            work()
    except Crash as crash:
        return CrashPoint(number=number, where=str(crash))
    return None


def _killed(work: Callable[[], None], folders: tuple[str, ...], number: int) -> CrashPoint | None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _live_and_die(work, folders, number, writing)
    os.close(writing)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:  # A child that hangs must not outlive the check.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        raise
    where = _text_in(reading)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return CrashPoint(number=number, where=where)
    if status:
        raise AssertionError(f"the work failed by itself before line {number}; its error is above")
    return None


def _text_in(pipe: int) -> str:
    """Return what the child wrote, and close the pipe. Do not wait: a process that the child forked may still hold the other end."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, _PLACE_MAX).decode()
    except BlockingIOError:
        return ""
    finally:
        os.close(pipe)


def _live_and_die(work: Callable[[], None], folders: tuple[str, ...], number: int, pipe: int) -> None:
    """Run the child process, which writes the place of its death into the pipe."""
    status = 1

    def die(where: str) -> None:
        os.write(pipe, where.encode()[:_PLACE_MAX])
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with _Countdown(folders, number, die):
            work()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent's stack must not be unwound in the child
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _raise(where: str) -> None:
    raise Crash(where)


class _Countdown:
    """A counter of executed lines in this thread, which ends the process at one of them."""

    def __init__(self, folders: tuple[str, ...], number: int, end: Callable[[str], None]) -> None:
        self._folders, self._left, self._end = folders, number, end
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        sys.settrace(self._before)

    def _call(self, frame: types.FrameType, event: str, argument: object) -> Any:
        del event, argument
        return self._line if frame.f_code.co_filename.startswith(self._folders) else None

    def _line(self, frame: types.FrameType, event: str, argument: object) -> Any:
        del argument
        if event != "line" or self._left < 0:
            return self._line
        self._left -= 1
        if self._left < 0:
            self._end(f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})")
        return self._line
