"""How a command's process ends: by a signal, or by an error.

An error that the user can fix is one line on standard error, never a traceback. ``drakit.exits`` has the statuses.
"""

import contextlib
import contextvars
import errno
import faulthandler
import os
import pathlib
import shlex
import shutil
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence

import drakit_command
from drakit import exits
from drakit.cli import terminal
from drakit.core import errors
from drakit.telemetry import logs

_DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT)

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRAM: contextvars.ContextVar[str] = contextvars.ContextVar("PROGRAM", default="drakit")
"""The name of the program for messages that show commands: drakit, or the program of an author's driver."""
AGAIN_SECONDS = 1.0
"""Signals within this time of the first one count as the first: ``timeout`` and shells send a stop twice."""
STOP_SECONDS = 25.0
"""How long a driver may take to stop. After 30 s the kubelet kills its pod, and nothing logs the reason."""
_log = logs.get_logger(__name__)


def guarded(command: Callable[[], object], program: str, interrupts: drakit_command.Interrupts | None = None) -> None:
    """Run a command line and escape its output for terminals; exit the process if it fails."""
    interrupts = interrupts or drakit_command.Interrupts(program)
    token = PROGRAM.set(program)
    try:
        with terminal.escaped_output():
            _guarded(lambda: _interruptible(command, interrupts), program, interrupts)
    finally:
        PROGRAM.reset(token)


def invocation() -> str:
    """Return how to start this program again from a shell: its name if PATH has it, otherwise the path that started it."""
    program, started = PROGRAM.get(), sys.argv[0]
    if shutil.which(program) or pathlib.Path(started).name != program:
        return program
    return shlex.quote(started)


def _interruptible(command: Callable[[], object], interrupts: drakit_command.Interrupts) -> None:
    """Run a command line; raises KeyboardInterrupt if it was interrupted, even if a library replaced that exception."""
    try:
        with interrupts.raised():
            command()
    except BaseException as error:
        # Typer replaces KeyboardInterrupt with a silent SystemExit.
        if interrupts.is_raised or isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _guarded(command: Callable[[], object], program: str, interrupts: drakit_command.Interrupts) -> None:
    try:
        command()
    except KeyboardInterrupt:
        interrupts.is_told = True
        _fail(program, "interrupted", exits.Exit.INTERRUPTED)
    except (errors.ConfigError, errors.SettingsError) as error:
        _fail(program, str(error), exits.Exit.BAD_INPUT)
    except errors.DrakitError as error:
        _fail(program, str(error))
    except BrokenPipeError:
        sys.exit(exits.Exit.OK)
    except RecursionError:
        _fail(program, "the input is nested too deeply")
    except OSError as error:
        if error.errno in _DISK and error.filename is None:
            # Without this the interpreter would fail again at exit, when it flushes the buffer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(program, f"standard output: {error.strerror}")
        if error.filename is None:
            raise
        _fail(program, f"{os.fsdecode(error.filename)}: {error.strerror}")


def _fail(program: str, reason: str, status: exits.Exit = exits.Exit.NEGATIVE) -> None:
    terminal.complain(program, reason)
    sys.exit(status)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt inside the block at the first signal, even if SIGINT was ignored (a shell's background job); ignore later ones."""

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
    """Ignore further signals, so that they cannot interrupt the clean-up."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


_forking = threading.local()


def _block_signals() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _default_signals() -> None:
    """Let the signals that this process handles end a child that a verb forked, also one that comes during the fork.

    ``multiprocessing`` ends the processes of a pool by SIGTERM and waits for them. With this process's handlers they would ignore it.
    """
    for number in _ENDING:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_default_signals)


def at_signals(
    stop: threading.Event,
    numbers: Sequence[signal.Signals] = SIGNALS,
    *,
    end: Callable[[int], object] = os._exit,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Set ``stop`` at the first signal; at a second signal, exit at once with status 128 plus the signal's number.

    A thread reads the signals from a pipe. Python would run a handler in the main thread only, and not while that waits for a lock: a signal that
    arrives right before such a wait, or in another thread, would be noticed only after it.
    """
    receiving, sending = os.pipe()
    os.set_blocking(sending, False)
    for number in numbers:
        signal.signal(number, _noted_in_the_pipe)
    signal.set_wakeup_fd(sending, warn_on_full_buffer=False)

    def caught() -> int:
        while (number := os.read(receiving, 1)[0]) not in numbers:
            pass
        return number

    def wait() -> None:
        caught()
        first = now()
        stop.set()
        while True:
            number = caught()
            if now() - first >= AGAIN_SECONDS:
                _log.warning("stop cut short by a second signal", signal=signal.Signals(number).name)
                end(128 + number)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _noted_in_the_pipe(_number: int, _frame: types.FrameType | None) -> None:
    """Do nothing: a signal with a handler is written to the wake-up descriptor."""


def bounded(stop: threading.Event, seconds: float = STOP_SECONDS) -> None:
    """Exit with status 1 if the process still runs ``seconds`` after ``stop`` was set, and write the stacks of all threads to standard error.

    A hanging call to hardware cannot be interrupted, and Python waits for the threads of a gRPC server when it exits. This exit does not need the
    interpreter, so it works even while a library holds the interpreter lock.
    """

    def wait() -> None:
        stop.wait()
        faulthandler.dump_traceback_later(seconds, exit=True)

    threading.Thread(target=wait, name="stop-limit", daemon=True).start()
