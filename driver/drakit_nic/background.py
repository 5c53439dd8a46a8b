"""The checks that ``NicDriver.watch`` runs in the background: at intervals, and after events of the kernel, once no event has come for a moment.

A hundred shares prepared one after the other cause hundreds of events, nearly all by the driver itself. A check after each event would hold the locks
that the next share waits for. So a burst of events causes a limited number of checks.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence

import drakit
from drakit_nic import port
from drakit_nic.discovery import offers

QUIET_SECONDS = 0.5
BURST_SECONDS = 5.0
STOP_SECONDS = 0.5
"""The longest time that a wait for events delays the driver's stop."""


def wait_until_quiet(
    events: port.Watch, stopping: drakit.StopSignal, *, quiet: float, most: float, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Drain events until none came for ``quiet`` seconds, for about ``most`` seconds at most, or until stopped."""
    until = monotonic() + most
    while True:
        events.drain()
        if stopping.wait(quiet) or not events.wait(0) or monotonic() >= until:
            return


@dataclasses.dataclass
class Check:
    """A check that is due at once, then every ``interval()`` seconds and, with ``on_events``, after events."""

    run: Callable[[], object]
    interval: Callable[[], float]
    on_events: bool = True
    due: float = float("-inf")

    def bring_forward(self) -> None:
        """Make the check due now."""
        self.due = float("-inf")


class Checks:
    """Runs the checks of one driver in order. One thread calls ``watch``; any thread may call ``wake``."""

    def __init__(self, events: port.Watch, checks: Sequence[Check], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._events, self._checks, self._monotonic = events, checks, monotonic

    def watch(self, stopping: drakit.StopSignal) -> None:
        """Run all due checks, then wait until one is due, an event comes, or the driver stops. Raises a check's error after all have run."""
        with contextlib.ExitStack() as due:
            for check in reversed(self._checks):
                due.callback(self._run, check)
        self._wait(stopping)

    def wake(self) -> None:
        """Run the checks as after an event."""
        self._events.wake()

    def close(self) -> None:
        """Close the events. No thread may be in ``watch``."""
        self._events.close()

    def _run(self, check: Check) -> None:
        if self._monotonic() >= check.due:
            check.run()
            check.due = self._monotonic() + check.interval()

    def _wait(self, stopping: drakit.StopSignal) -> None:
        due = min(check.due for check in self._checks)
        while not self._events.wait(min(max(due - self._monotonic(), 0.0), STOP_SECONDS)):
            if stopping.is_set() or self._monotonic() >= due:
                return
        wait_until_quiet(self._events, stopping, quiet=QUIET_SECONDS, most=BURST_SECONDS, monotonic=self._monotonic)
        for check in self._checks:
            if check.on_events:
                check.bring_forward()


def survey_and_narrow(survey: Callable[[], offers.Survey], events: port.Watch) -> offers.Survey:
    """Return the result of ``survey``, and receive only events that can change it. Survey again after missed events. Raises HardwareError."""
    surveyed = survey()
    return survey() if events.narrow(surveyed.interest) else surveyed
