"""Real time."""

import datetime
import threading
import time


class SystemClock:
    """``ports.Clock`` on the machine's clocks."""

    def now(self) -> datetime.datetime:
        """Wall-clock time, in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; whether it is set."""
        return event.wait(seconds)


SYSTEM = SystemClock()
