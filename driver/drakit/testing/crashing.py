"""Die at every line: the driver's own code and drakit's engine are run again and again, and each time the process ends one line later.

``Death.RAISE`` raises ``Crash`` at the line. It needs nothing of the driver, but ``finally`` blocks and context managers still run, which a dead
process would not do. ``Death.KILL`` forks and kills the child with SIGKILL: nothing runs afterwards, so hardware that the driver keeps in its own
memory dies with it; use it for drivers whose (mock) hardware is a file or another process.
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

from drakit.core import driver as drivers
from drakit.node import device_preparer, engine, recovery
from drakit.testing import simulated_death

MOST_POINTS = 100_000


class Death(enum.Enum):
    """How the process ends at a crash point."""

    RAISE = "raise"
    KILL = "kill"


class Crash(BaseException):
    """The process ended here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """Where the process ended: the how manieth line that ran, and, where it can be known, its file and number."""

    number: int
    where: str = ""

    def __str__(self) -> str:
        return f"crash point {self.number}{f' at {self.where}' if self.where else ''}"


def crash_points(
    driver: drivers.Driver[Any] | Callable[[], drivers.Driver[Any]], work: Callable[[], None], *, death: Death = Death.RAISE, every: int = 1
) -> Iterator[CrashPoint]:
    """Run ``work`` once for each line it passes through, dying at that line; ends with the first run that reaches its end.

    The caller's loop body is what comes after the crash: restart, retry, look. ``work`` must start from the same world each time it is called, so
    clean up in the loop body. ``every=N`` dies at every Nth line. ``driver`` says whose lines count: a driver, or anything callable that makes one.
    """
    folders = traced_folders(driver if isinstance(driver, drivers.Driver) else driver())
    for number in range(0, MOST_POINTS, every):
        point = _killed(work, folders, number) if death is Death.KILL else _raised(work, folders, number)
        if point is None:
            return
        yield point
    raise AssertionError(f"the work did not end within {MOST_POINTS} lines")


def traced_folders(driver: drivers.Driver[Any]) -> tuple[str, ...]:
    """The files whose lines count: the driver's package or module, the engine and recovery."""
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
    child = os.fork()
    if child == 0:
        _live_and_die(work, folders, number)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return CrashPoint(number=number)
    if status:
        raise AssertionError(f"the work failed by itself before line {number}; its error is above")
    return None


def _live_and_die(work: Callable[[], None], folders: tuple[str, ...], number: int) -> None:
    """The child's whole life."""
    status = 1
    try:
        with _Countdown(folders, number, _kill):
            work()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent's stack must not be unwound in the child
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _raise(where: str) -> None:
    raise Crash(where)


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Countdown:
    """Counts lines of some files in this thread and ends the process at one of them."""

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
