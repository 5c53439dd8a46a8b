"""``ports.Clock`` that a test turns by hand: a wait is over at once and moves the clock, so that nothing sleeps."""

import datetime
import threading

START = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)


class ManualClock:
    """``moment`` is seconds since the start; ``waits`` are the waits asked for. After ``last`` waits the event is set, so that loops end."""

    def __init__(self, *, last: int = 1000) -> None:
        self.moment = 0.0
        self.waits: list[float] = []
        self._last = last

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.moment)

    def monotonic(self) -> float:
        return self.moment

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        if len(self.waits) >= self._last:
            event.set()
        if not event.is_set():
            self.moment += seconds
        return event.is_set()
