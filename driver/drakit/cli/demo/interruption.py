"""Signals that end a demo, each as Ctrl-C does; what is being put in order then is not disturbed by a second one."""

import contextlib
import signal
import types
from collections.abc import Iterator

INTERRUPTED = 128 + signal.SIGINT
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
