"""How errors leave a command: what a person can mend is one line and status 1, never a trace."""

import errno
import os
import sys
from collections.abc import Callable

from drakit.core import errors

_DISK = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def guarded(command: Callable[[], object], program: str) -> None:
    """Run a command line; ends the process where it failed."""
    try:
        command()
    except errors.DrakitError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        # What is still buffered cannot be written either; without this the interpreter would say so once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"{program}: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)
