"""The command line: ``drakit`` and ``python -m drakit``.

What belongs here: reading what a person typed, choosing adapters (``composition``), and showing results. What does not: decisions about devices,
claims or slices. Errors that a person can fix are one line on standard error and exit status 1; a mistake in the command itself is status 2.
"""

import os
import signal
import sys
import threading

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    is_caught = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_caught:
        # The commands take half a second to import; an exception in the middle of that may be lost in a library, or end in a traceback.
        signal.signal(signal.SIGINT, _end)
    from drakit.cli import app

    def catch_again() -> None:
        if is_caught:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    app.main(catch_again)


def _end(number: int, _frame: object) -> None:
    """End the process as an interrupted command does: with one line."""
    sys.stderr.write("drakit: interrupted\n")
    sys.stderr.flush()
    os._exit(128 + number)
