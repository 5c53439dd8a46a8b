"""Times the parts of a claim's way without the engine knowing: the adapters it is handed are the same objects, some of their methods timed.

Phases: ``fetch`` the claim, wait for a ``lock``, the ``journal``'s durable commits, ``cdi`` files, and the driver's own ``device_prepare`` and
``device_unprepare``.
"""

import contextlib
import functools
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from drakit.core import claim as claims
from drakit.core import names, outcome, ports

FETCH = {"fetch": "fetch"}
JOURNAL = {"begin": "journal", "complete": "journal", "refresh": "journal", "withdraw": "journal", "forget": "journal"}
CDI = {"write": "cdi", "remove": "cdi"}
DEVICE = {"prepare": "device_prepare", "unprepare": "device_unprepare"}

Target = TypeVar("Target")


def timed(target: Target, phases: Mapping[str, str], meter: ports.Meter | None) -> Target:
    """The same object, with the methods named in ``phases`` timed; itself where nobody measures."""
    return target if meter is None else cast("Target", _Timed(target, phases, meter))


class _Timed:
    """Stands before an object."""

    def __init__(self, target: object, phases: Mapping[str, str], meter: ports.Meter) -> None:
        self._target = target
        for name, phase in phases.items():
            setattr(self, name, _timing(getattr(target, name), phase, meter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def _timing(method: Callable[..., object], phase: str, meter: ports.Meter) -> Callable[..., object]:
    @functools.wraps(method)
    def call(*given: object, **named: object) -> object:
        started = time.monotonic()
        try:
            return method(*given, **named)
        finally:
            meter.phase(phase, time.monotonic() - started)

    return call


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
        started = time.monotonic()
        self._held.__enter__()
        self._meter.phase("lock", time.monotonic() - started)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> bool | None:
        return self._held.__exit__(kind, error, trace)


class TimedEngine:
    """``ports.ClaimEngine`` before another one: how long each claim took, and what became of it."""

    def __init__(self, engine: ports.ClaimEngine, meter: ports.Meter) -> None:
        self._engine = engine
        self._meter = meter

    def prepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, outcome.Outcome]:
        """As the engine."""
        return {uid: answer for ref in refs for uid, answer in self._prepare_one(ref, caller).items()}

    def unprepare(self, refs: Sequence[claims.ClaimRef], caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        """As the engine."""
        return {uid: error for ref in refs for uid, error in self._unprepare_one(ref, caller).items()}

    def _prepare_one(self, ref: claims.ClaimRef, caller: ports.Caller) -> Mapping[names.ClaimUid, outcome.Outcome]:
        started = time.monotonic()
        answers = self._engine.prepare([ref], caller)
        self._meter.answered("prepare", ok=not any(answer.error for answer in answers.values()), seconds=time.monotonic() - started)
        return answers

    def _unprepare_one(self, ref: claims.ClaimRef, caller: ports.Caller) -> Mapping[names.ClaimUid, str]:
        started = time.monotonic()
        answers = self._engine.unprepare([ref], caller)
        self._meter.answered("unprepare", ok=not any(answers.values()), seconds=time.monotonic() - started)
        return answers
