"""The command line: ``drakit`` and ``python -m drakit``.

What belongs here: reading what a person typed, choosing adapters (``composition``), and showing results. What does not: decisions about devices,
claims or slices. Errors that a person can fix are one line on standard error and exit status 1; a mistake in the command itself is status 2.
"""

import signal
import threading

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    is_caught = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_caught:
        # Ctrl-C while the commands are imported, which takes half a second, ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from drakit.cli import app

    def catch_again() -> None:
        if is_caught:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    app.main(catch_again)
