"""Hold a Lease, so that of several publishers of one driver only one writes.

``leads`` is true from the first successful write of the lease until ``renew_deadline`` after the last one was asked for. It needs no thread to turn
false: a process that was stopped for a minute finds out at its next look, before it writes.
"""

import random
import threading
from collections.abc import Callable

from drakit.core import errors, leader_election, ports
from drakit.telemetry import logs

_log = logs.get_logger(__name__)
_jitter = random.SystemRandom()


class Election:
    """One candidate, ``me``, for one lease; ``run`` works until stopped, ``step`` makes one try."""

    def __init__(self, store: ports.LeaseStore, *, me: str, terms: leader_election.Terms, clock: ports.Clock) -> None:
        self._store = store
        self._me = me
        self._terms = terms
        self._clock = clock
        self._seen = leader_election.ObservedLease(lease=None, since=clock.monotonic())
        self._until = float("-inf")
        self._told = ""

    @property
    def holder(self) -> str:
        """Who holds the lease as last seen; empty where nobody does."""
        return self._seen.lease.holder if self._seen.lease else ""

    def leads(self) -> bool:
        """Whether this process may write now; ask before every write."""
        return self._clock.monotonic() < self._until

    def run(self, stop: threading.Event, changed: Callable[[], None]) -> None:
        """Try, renew and try again until ``stop`` is set, and call ``changed`` when this candidate begins or ceases to lead."""
        led = False
        while not stop.is_set():
            try:
                self.step()
            except errors.DrakitError as error:
                _log.warning("lease renewal failed" if led else "lease request failed", holder=self._me, error=str(error))
            if led != self.leads():
                led = not led
                _log.info("leadership acquired" if led else "leadership lost", holder=self._me)
                changed()
            self._clock.wait(stop, self._terms.retry * _jitter.uniform(1.0, 1.2))

    def step(self) -> None:
        """One look at the lease, and the write that follows from it; raises ApiError where either fails."""
        asked = self._clock.monotonic()
        found = self._store.read()
        self._seen = self._seen.again(found, self._clock.monotonic())
        step = leader_election.decide(self._seen, self._me, asked)
        if step is leader_election.Step.WAIT:
            self._until = float("-inf")
            self._tell_holder()
            return
        wanted = leader_election.following(step, self._seen, self._me, self._terms, self._clock.now())
        self._seen = leader_election.ObservedLease(lease=self._store.write(wanted), since=asked)
        self._until = asked + self._terms.renew_deadline

    def release(self) -> None:
        """Stop leading, and say so to the others; where that fails they wait the lease out."""
        led, self._until = self.leads(), float("-inf")
        lease = self._seen.lease
        if not led or lease is None:
            return
        try:
            self._store.write(leader_election.released(lease, self._clock.now()))
        except errors.DrakitError as error:
            _log.warning("releasing lease failed", duration_ms=round(self._terms.duration * 1000), error=str(error))

    def _tell_holder(self) -> None:
        if self.holder != self._told:
            _log.info("lease held by another publisher", holder=self.holder)
            self._told = self.holder
