"""Signals that tell a command to stop, for commands that run until they are told to."""

import queue
import signal
import threading
from collections.abc import Sequence

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def at_signals(stop: threading.Event, numbers: Sequence[signal.Signals] = SIGNALS) -> None:
    """Set ``stop`` at the first signal, from a thread that sleeps until then.

    A signal's own code may put something in a SimpleQueue at any moment; it may not set an Event, whose lock the code that it interrupts may hold.
    """
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        signal.signal(number, lambda caught, _: seen.put(caught))

    def wait() -> None:
        seen.get()
        stop.set()

    threading.Thread(target=wait, name="signals", daemon=True).start()
