"""How errors leave a command: what a person can fix is one line and status 1, never a traceback."""

import errno
import os
import signal
import sys
from collections.abc import Callable

from drakit.cli import terminal
from drakit.core import errors
from drakit.telemetry import escaping

_DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
INTERRUPTED = 128 + signal.SIGINT


def guarded(command: Callable[[], object], program: str) -> None:
    """Run a command line, with what it writes made safe for a terminal; ends the process where it failed."""
    with terminal.escaped_output():
        _guarded(command, program)


def _guarded(command: Callable[[], object], program: str) -> None:
    try:
        command()
    except errors.DrakitError as error:
        _fail(program, str(error))
    except KeyboardInterrupt:
        _fail(program, "interrupted", INTERRUPTED)
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
    # One line, whatever the text of others in it.
    print(f"{program}: {escaping.escaped(reason)}", file=sys.stderr)
    sys.exit(status)
