"""The system clock, and the durations of a claim's phases.

Phases: ``fetch`` the claim, wait for a ``lock``, the ``journal``'s durable commits, ``cdi`` files, and the driver's own ``device_prepare``
and ``device_unprepare``. The engine does not know that it is timed: the adapters it gets are the same objects, some of their methods
wrapped.

The outcome of a call is known at its end. So a thread collects the phases of its call, and observes them then with the call's outcome.
Phases outside of a kubelet's call (a recovery, a claim that is bound) are observed at once, with their own outcome.
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
from drakit.node import device_preparer


class SystemClock:
    """``ports.Clock`` on the machine's clocks."""

    def now(self) -> datetime.datetime:
        """Wall-clock time, in UTC."""
        return datetime.datetime.now(datetime.UTC)

    monotonic = staticmethod(time.monotonic)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the time is over; whether it is set."""
        return event.wait(seconds)


SYSTEM = SystemClock()


FETCH = {"fetch": "fetch"}
JOURNAL = {"begin": "journal", "complete": "journal", "refresh": "journal", "begin_unprepare": "journal", "finish_unprepare": "journal"}
CDI = {"write": "cdi", "remove": "cdi"}
DEVICE = {"prepare": "device_prepare", "prepare_claim": "device_prepare", "unprepare": "device_unprepare"}

Target = TypeVar("Target")


class _Running(threading.local):
    """What this thread is in the midst of: the phases of the call so far, None outside of calls."""

    phases: list[tuple[str, float]] | None = None


_running = _Running()


def timed(target: Target, phases: Mapping[str, str], meter: ports.Meter | None) -> Target:
    """The same object, with the methods named in ``phases`` timed; itself where nobody measures."""
    return target if meter is None else cast("Target", _Timed(target, phases, meter))


class _Timed:
    """Stands before an object."""

    def __init__(self, target: object, phases: Mapping[str, str], meter: ports.Meter) -> None:
        self._target = target
        self.drakit_author = target
        for name in dir(type(target)):
            # Static, because to ask a class for an attribute may run an author's code, and may fail.
            if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(type(target), name)):
                setattr(self, name, getattr(target, name))
        for name, phase in phases.items():
            # Only some drivers prepare whole claims.
            if hasattr(target, name):
                setattr(self, name, _timing(getattr(target, name), phase, meter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def _timing(method: Callable[..., object], phase: str, meter: ports.Meter) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*given: object, **named: object) -> object:
        started, ok = time.monotonic(), False
        try:
            answer = method(*given, **named)
            ok = True
            return answer
        finally:
            _over(meter, phase, started, ok=ok)

    return call


def _over(meter: ports.Meter, phase: str, started: float, *, ok: bool) -> None:
    """A phase of this thread has ended."""
    seconds, phases = time.monotonic() - started, _running.phases
    if phases is None:
        meter.phase(phase, ok=ok, seconds=seconds)
    else:
        phases.append((phase, seconds))


def timed_locks(locks: ports.Locks, meter: ports.Meter | None) -> ports.Locks:
    """Return locks whose waits are timed; the same locks where nobody measures."""
    return locks if meter is None else TimedLocks(locks, meter)


class TimedLocks:
    """``ports.Locks`` that say how long they were waited for."""

    def __init__(self, locks: ports.Locks, meter: ports.Meter) -> None:
        self._locks = locks
        self._meter = meter

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] = lambda: True) -> contextlib.AbstractContextManager[None]:
        """As the locks."""
        return _TimedHold(self._locks.hold(lock_names, wanted), self._meter)


class _TimedHold:
    """A class, because a generator costs twice as much, and every claim holds two locks."""

    def __init__(self, held: contextlib.AbstractContextManager[None], meter: ports.Meter) -> None:
        self._held = held
        self._meter = meter

    def __enter__(self) -> None:
        started, ok = time.monotonic(), False
        try:
            self._held.__enter__()
            ok = True
        finally:
            _over(self._meter, "lock", started, ok=ok)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> bool | None:
        return self._held.__exit__(kind, error, trace)


class Engine(Protocol):
    """A ``ports.ClaimEngine`` that lets somebody call the work of each claim."""

    def prepare(
        self, refs: Sequence[claims.ClaimRef], caller: ports.Caller, around: device_preparer.ClaimWrapper
    ) -> Mapping[names.ClaimUid, claims.Outcome]:
        """Prepare claims; ``around`` calls the work of each."""

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """Unprepare claims."""


class TimedEngine:
    """``ports.ClaimEngine`` before another one: how long each claim took, and what became of it."""

    def __init__(self, engine: Engine, meter: ports.Meter) -> None:
        self._engine = engine
        self._meter = meter

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, claims.Outcome]:
        """As the engine."""
        # The engine gets the whole call: it keeps answers until a call with all its claims ends in time.
        return self._engine.prepare(refs, caller, self._prepare_one)

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """As the engine."""
        return {uid: error for ref in refs for uid, error in self._unprepare_one(ref, caller).items()}

    def _prepare_one(self, work: Callable[[], claims.Outcome]) -> claims.Outcome:
        with _Call("prepare", self._meter) as call:
            answer = work()
            call.ok = not answer.error
        return answer

    def _unprepare_one(self, ref: claims.ClaimRef, caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        with _Call("unprepare", self._meter) as call:
            answers = self._engine.unprepare([ref], caller)
            call.ok = not any(answers.values())
        return answers


class _Call:
    """One claim's way from the call to the answer; whoever answers says whether it is ``ok``, and a bug that is raised is not."""

    def __init__(self, verb: str, meter: ports.Meter) -> None:
        self._verb = verb
        self._meter = meter
        self.ok = False

    def __enter__(self) -> Self:
        self._phases: list[tuple[str, float]] = []
        _running.phases = self._phases
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        seconds = time.monotonic() - self._started
        _running.phases = None
        for phase, taken in self._phases:
            self._meter.phase(phase, ok=self.ok, seconds=taken)
        self._meter.answered(self._verb, ok=self.ok, seconds=seconds)
