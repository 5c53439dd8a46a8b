"""The system clock, and the timing of the engine's calls and their phases.

The phases are ``fetch`` of the claim, waits for a ``lock``, durable ``journal`` commits, ``cdi`` files, and the driver's own ``device_prepare`` and
``device_unprepare``. The engine gets wrapped adapters, so it needs no code for timing.

The outcome of a call is known only at its end. So each thread collects the phases of its call and observes them at the end with the call's outcome.
Phases outside a call of the kubelet (a recovery, a claim that is bound) are observed at once, with their own outcome.
"""

import contextlib
import datetime
import functools
import inspect
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar, cast

from drakit.core import claim as claims
from drakit.core import names, ports
from drakit.node import call_budget


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

FETCH = {"fetch": "fetch"}
JOURNAL = {"begin": "journal", "complete": "journal", "refresh": "journal", "begin_unprepare": "journal", "finish_unprepare": "journal"}
CDI = {"write": "cdi", "remove": "cdi"}
DEVICE = {"prepare": "device_prepare", "prepare_claim": "device_prepare", "unprepare": "device_unprepare"}

Target = TypeVar("Target")


class _CurrentCall(threading.local):
    """The finished phases of this thread's call with their seconds; None outside calls."""

    phases: list[tuple[str, float]] | None = None


_current_call = _CurrentCall()


def timed(target: Target, phases: Mapping[str, str], meter: ports.Meter | None) -> Target:
    """Return the object with the methods named in ``phases`` timed, or the object itself where ``meter`` is None."""
    return target if meter is None else cast("Target", _Timed(target, phases, meter))


class _Timed:
    """A wrapper that forwards to an object and times some of its methods."""

    def __init__(self, target: object, phases: Mapping[str, str], meter: ports.Meter) -> None:
        self._target = target
        self.drakit_author = target
        for name in dir(type(target)):
            # A plain getattr on the class may run an author's code, and may fail.
            if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(type(target), name)):
                setattr(self, name, getattr(target, name))
        for name, phase in phases.items():
            # Only some drivers have ``prepare_claim``.
            if hasattr(target, name):
                setattr(self, name, _timed_method(getattr(target, name), phase, meter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def _timed_method(method: Callable[..., object], phase: str, meter: ports.Meter) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        started, ok = time.monotonic(), False
        try:
            result = method(*args, **kwargs)
            ok = True
            return result
        finally:
            _end_phase(meter, phase, started, ok=ok)

    return call


def _end_phase(meter: ports.Meter, phase: str, started: float, *, ok: bool) -> None:
    """Add a finished phase to this thread's call, or observe it at once outside calls."""
    seconds, phases = time.monotonic() - started, _current_call.phases
    if phases is None:
        meter.phase(phase, ok=ok, seconds=seconds)
    else:
        phases.append((phase, seconds))


def timed_locks(locks: ports.Locks, meter: ports.Meter | None) -> ports.Locks:
    """Return locks with timed waits, or the same locks where ``meter`` is None."""
    return locks if meter is None else TimedLocks(locks, meter)


class TimedLocks:
    """A ``ports.Locks`` that times the waits for its locks."""

    def __init__(self, locks: ports.Locks, meter: ports.Meter) -> None:
        self._locks = locks
        self._meter = meter

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
        """Hold locks, and time the wait for them."""
        return _TimedHold(self._locks.hold(lock_names, wanted), self._meter)


class _TimedHold:
    """A timed lock. It is a class, because a generator is twice as slow and every claim holds two locks."""

    def __init__(self, held: contextlib.AbstractContextManager[None], meter: ports.Meter) -> None:
        self._held = held
        self._meter = meter

    def __enter__(self) -> None:
        started, ok = time.monotonic(), False
        try:
            self._held.__enter__()
            ok = True
        finally:
            _end_phase(self._meter, "lock", started, ok=ok)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> bool | None:
        return self._held.__exit__(kind, error, trace)


class Engine(Protocol):
    """A ``ports.ClaimEngine`` whose methods take a wrapper for the work of each claim."""

    def prepare(
        self, refs: Sequence[claims.ClaimRef], caller: ports.Caller, around: call_budget.ClaimWrapper[claims.Outcome]
    ) -> Mapping[names.ClaimUid, claims.Outcome]:
        """Prepare claims; ``around`` wraps the work of each."""

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], caller: ports.Caller, around: call_budget.ClaimWrapper[str]
    ) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims; ``around`` wraps the work of each."""


class TimedEngine:
    """A ``ports.ClaimEngine`` that forwards to another one and meters the duration and outcome of each claim."""

    def __init__(self, engine: Engine, meter: ports.Meter) -> None:
        self._engine = engine
        self._meter = meter

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        """Prepare claims with the wrapped engine."""
        # The engine gets all claims at once, because it divides the call's time between them.
        return self._engine.prepare(refs, caller, self._prepare_one)

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims with the wrapped engine."""
        return self._engine.unprepare(refs, caller, self._unprepare_one)

    def _prepare_one(self, work: Callable[[], claims.Outcome]) -> claims.Outcome:
        with _Call("prepare", self._meter) as call:
            answer = work()
            call.ok = not answer.error
        return answer

    def _unprepare_one(self, work: Callable[[], str]) -> str:
        with _Call("unprepare", self._meter) as call:
            error = work()
            call.ok = not error
        return error


class _Call:
    """The timing of one claim from call to answer. ``ok`` is False until the caller sets it, so an unexpected error counts as a failure."""

    def __init__(self, verb: str, meter: ports.Meter) -> None:
        self._verb = verb
        self._meter = meter
        self.ok = False

    def __enter__(self) -> Self:
        self._phases: list[tuple[str, float]] = []
        _current_call.phases = self._phases
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        seconds = time.monotonic() - self._started
        _current_call.phases = None
        for phase, taken in self._phases:
            self._meter.phase(phase, ok=self.ok, seconds=taken)
        self._meter.answered(self._verb, ok=self.ok, seconds=seconds)
