"""A limit for each call of a driver that ``check_driver`` makes, because a call that never returns would keep its author waiting without a word.

A timer of the process interrupts the call, also in ``time.sleep`` or a wait for a child process. There is no limit in other threads than the main
one, beside another timer of this kind, such as that of pytest-timeout, and while a debugger holds the call.
"""

import contextlib
import signal
import threading
import types
from collections.abc import Callable, Iterator

from drakit.testing import simulated_death


class StuckError(BaseException):
    """A call that did not return in time. It is no Exception, so that no driver handles it as an error of its hardware."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[Callable[[], object]]:
    """Raise StuckError in the block where it does not call the yielded function for ``seconds``; 0 means no limit."""
    if not seconds or threading.current_thread() is not threading.main_thread() or any(signal.getitimer(signal.ITIMER_REAL)):
        yield bool
        return

    def stop(number: int, frame: types.FrameType | None) -> None:
        del number
        if not _is_debugged(frame):
            raise StuckError(f"a call did not return within {seconds:g} s{simulated_death.place(frame)}; timeout sets the limit")

    def renew() -> object:
        return signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        renew()
        yield renew
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_debugged(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "bdb":
            return True
        frame = frame.f_back
    return False
