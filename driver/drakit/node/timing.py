"""The system clock, and the timing of claims and their phases.

The phases are ``fetch`` of the claim, waits for a ``lock``, durable ``journal`` commits, ``cdi`` files, and the driver's own ``device_prepare`` and
``device_unprepare``.

The outcome of a claim is known only at its end. So each thread collects the phases of its claim and observes them at the end with the claim's
outcome. Phases outside a call of the kubelet (a recovery, a claim that is bound) are observed at once, with their own outcome.
"""

import abc
import datetime
import threading
import time
import types
from typing import Self


class SystemClock:
    """``ports.Clock`` on the machine's clocks."""

    def now(self) -> datetime.datetime:
        """Return the wall-clock time in UTC."""
        return datetime.datetime.now(datetime.UTC)

    monotonic = staticmethod(time.monotonic)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; return whether it is set."""
        return event.wait(seconds)


SYSTEM = SystemClock()


class ClaimTimer(abc.ABC):
    """The part of a ``ports.Meter`` that times claims and phases. A subclass observes the durations."""

    def __init__(self) -> None:
        self.current = _CurrentClaim()

    def claim(self, verb: str) -> "_TimedClaim":
        """Time one claim in the block."""
        return _TimedClaim(self, verb)

    def phase(self, phase: str) -> "_TimedPhase":
        """Time one phase in the block."""
        return _TimedPhase(self, phase)

    @abc.abstractmethod
    def observe_claim(self, verb: str, *, ok: bool, seconds: float) -> None:
        """Observe the duration of one claim."""

    @abc.abstractmethod
    def observe_phase(self, phase: str, *, ok: bool, seconds: float) -> None:
        """Observe the duration of one phase; ``ok`` is the outcome of its claim, or its own outside claims."""


class _CurrentClaim(threading.local):
    """The finished phases of this thread's claim with their seconds; None outside claims."""

    phases: list[tuple[str, float]] | None = None


class _TimedClaim:
    """The timing of one claim. ``ok`` is False until the caller sets it, so an unexpected error counts as a failure."""

    def __init__(self, timer: ClaimTimer, verb: str) -> None:
        self._timer = timer
        self._verb = verb
        self.ok = False

    def __enter__(self) -> Self:
        self._phases = self._timer.current.phases = list[tuple[str, float]]()
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        seconds = time.monotonic() - self._started
        self._timer.current.phases = None
        for phase, taken in self._phases:
            self._timer.observe_phase(phase, ok=self.ok, seconds=taken)
        self._timer.observe_claim(self._verb, ok=self.ok, seconds=seconds)


class _TimedPhase:
    """The timing of one phase. It is a class, because a generator is slower and every claim has about ten phases."""

    def __init__(self, timer: ClaimTimer, phase: str) -> None:
        self._timer = timer
        self._phase = phase

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        seconds, phases = time.monotonic() - self._started, self._timer.current.phases
        if phases is None:
            self._timer.observe_phase(self._phase, ok=error is None, seconds=seconds)
        else:
            phases.append((self._phase, seconds))
