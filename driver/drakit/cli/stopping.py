"""Signals that stop a command, for commands that run until one comes, and the bound on how long a stop takes."""

import faulthandler
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence

from drakit.telemetry import logs

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AGAIN_SECONDS = 1.0
"""Signals that come within this time of the first belong to it: ``timeout`` and shells send one stop twice."""
STOP_SECONDS = 25.0
"""How long a driver may take to stop. Its pod has 30 s, after which the kubelet kills it without a word about why."""

_log = logs.get_logger(__name__)


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
