"""``ports.Clock`` by the real clock, its waits cut short so that no test waits out a back-off."""

import datetime
import threading
import time

LONGEST_WAIT = 0.05


class RealClock:
    def now(self) -> datetime.datetime:
        return datetime.datetime.now(tz=datetime.UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(min(seconds, LONGEST_WAIT))
