"""How the process of a command ends: by a signal, or by an error.

An error that a person can fix is one line on standard error and exit status 1, never a traceback.
"""

import contextlib
import contextvars
import errno
import faulthandler
import os
import queue
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence

import drakit_command
from drakit.cli import terminal
from drakit.core import errors
from drakit.telemetry import logs

_DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
INTERRUPTED = drakit_command.STATUS

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRAM: contextvars.ContextVar[str] = contextvars.ContextVar("PROGRAM", default="drakit")
"""The command that a person typed, for messages that say what to call: drakit, or the program of an author's driver."""
AGAIN_SECONDS = 1.0
"""Signals that come within this time of the first belong to it: ``timeout`` and shells send one stop twice."""
STOP_SECONDS = 25.0
"""How long a driver may take to stop. Its pod has 30 s, after which the kubelet kills it without a word about why."""
_log = logs.get_logger(__name__)


def guarded(command: Callable[[], object], program: str, interrupts: drakit_command.Interrupts | None = None) -> None:
    """Run a command line, with what it writes made safe for a terminal; ends the process where it failed."""
    interrupts = interrupts or drakit_command.Interrupts(program)
    token = PROGRAM.set(program)
    try:
        with terminal.escaped_output():
            _guarded(lambda: _interruptible(command, interrupts), program, interrupts)
    finally:
        PROGRAM.reset(token)


def _interruptible(command: Callable[[], object], interrupts: drakit_command.Interrupts) -> None:
    """Run a command line; raises KeyboardInterrupt where it was interrupted, also if a library made another exception of that."""
    try:
        with interrupts.raised():
            command()
    except BaseException as error:
        # Typer ends an interrupted command with SystemExit, and says nothing.
        if interrupts.is_raised or isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _guarded(command: Callable[[], object], program: str, interrupts: drakit_command.Interrupts) -> None:
    try:
        command()
    except KeyboardInterrupt:
        interrupts.is_told = True
        _fail(program, "interrupted", INTERRUPTED)
    except errors.DrakitError as error:
        _fail(program, str(error))
    except BrokenPipeError:
        sys.exit(0)
    except RecursionError:
        _fail(program, "the input is nested too deeply")
    except OSError as error:
        if error.errno in _DISK and error.filename is None:
            # What is still buffered cannot be written either; without this the interpreter would report it once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(program, f"standard output: {error.strerror}")
        if error.filename is None:
            raise
        _fail(program, f"{os.fsdecode(error.filename)}: {error.strerror}")


def _fail(program: str, reason: str, status: int = 1) -> None:
    terminal.complain(program, reason)
    sys.exit(status)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """The first such signal raises KeyboardInterrupt, also where SIGINT was ignored before (as in a shell's background job); others are ignored."""

    def interrupt(_number: int, _frame: types.FrameType | None) -> None:
        ignore()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def ignore() -> None:
    """From now on no Ctrl-C keeps anything from being stopped and put back."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def at_signals(
    stop: threading.Event,
    numbers: Sequence[signal.Signals] = SIGNALS,
    *,
    end: Callable[[int], object] = os._exit,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Set ``stop`` at the first signal, from a thread that sleeps until then, and end the process at once with 128 plus the signal at a second one.

    A signal's own code may put something in a SimpleQueue at any moment; it may not set an Event, whose lock the code that it interrupts may hold.
    """
    seen: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
    for number in numbers:
        signal.signal(number, lambda caught, _: seen.put((caught, now())))

    def wait() -> None:
        _, first = seen.get()
        stop.set()
        while True:
            number, later = seen.get()
            if later - first >= AGAIN_SECONDS:
                _log.warning("stop cut short by a second signal", signal=signal.Signals(number).name)
                end(128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def bounded(stop: threading.Event, seconds: float = STOP_SECONDS) -> None:
    """End the process with status 1 where it still lives ``seconds`` after ``stop`` was set, and write the stacks of all threads on standard error.

    A call to hardware that hangs can be neither interrupted nor left to its thread: Python waits for the threads of a gRPC server when it exits. The
    interpreter takes no part in this end, so it comes even where a library holds its lock.
    """

    def wait() -> None:
        stop.wait()
        faulthandler.dump_traceback_later(seconds, exit=True)

    threading.Thread(target=wait, name="stop-limit", daemon=True).start()
