"""The driver's verbs that run now. A verb that hangs is named in the log, a metric, ``/readyz`` and the errors of calls that wait for its locks.

A hung verb cannot be interrupted. It keeps its claim's lock and its devices' locks, so later calls for them end without result.
"""

import contextlib
import dataclasses
import datetime
import threading
from collections.abc import Iterator, Sequence

from drakit.core import claim as claims
from drakit.core import lifecycle, ports
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

SLOW_SECONDS = 30.0
"""A verb that runs longer is reported. The log repeats it after twice the time."""
LONGEST_PAUSE = 600.0
CHECK_SECONDS = 5.0
SHOWN = 3


@dataclasses.dataclass(kw_only=True, eq=False)
class RunningVerb:
    """One running call: the claim and its grants, when it started (monotonic), and when it is logged next."""

    verb: str
    claim: claims.ClaimRef
    grants: Sequence[lifecycle.GrantEntry]
    started: float
    warn_at: float

    @property
    def devices(self) -> list[str]:
        """The names of the devices."""
        return [grant.device.name for grant in self.grants]

    def holds(self, lock: str) -> bool:
        """Return whether the call holds a lock (the claim's UID or a lock of a device)."""
        return lock == self.claim.uid or any(lock in grant.device.lock_names for grant in self.grants)


class RunningVerbs:
    """The running verbs of one driver in this process. Thread-safe."""

    def __init__(self, clock: ports.Clock) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._running: dict[int, RunningVerb] = {}

    @contextlib.contextmanager
    def run(self, verb: str, ref: claims.ClaimRef, grants: Sequence[lifecycle.GrantEntry]) -> Iterator[None]:
        """List one call of a verb with these grants of a claim while the block runs."""
        now = self._clock.monotonic()
        run = RunningVerb(verb=verb, claim=ref, grants=grants, started=now, warn_at=now + SLOW_SECONDS)
        with self._guard:
            self._running[id(run)] = run
        try:
            yield
        finally:
            with self._guard:
                del self._running[id(run)]
            seconds = self._clock.monotonic() - run.started
            if seconds >= SLOW_SECONDS:
                _log.warning("slow verb ended", **_keys(run), duration_ms=round(1000 * seconds))

    @property
    def is_idle(self) -> bool:
        """Whether no verb runs."""
        return not self._running

    def busy_last(self, refs: Sequence[claims.ClaimRef]) -> Sequence[claims.ClaimRef]:
        """Return the claims, last those for which a verb still runs: a call may wait for them in vain until its time is over."""
        with self._guard:
            busy = {run.claim.uid for run in self._running.values()}
        return sorted(refs, key=lambda ref: ref.uid in busy) if busy else refs

    def holding(self, lock: str) -> str:
        """Return a text about the verb that holds a lock (a claim's UID or a device's lock), empty where none in this process does."""
        return next((self._text(run) for run in self._snapshot() if run.holds(lock)), "")

    def oldest_seconds(self) -> float:
        """Return for how long the oldest running verb has run, 0 where none runs."""
        now = self._clock.monotonic()
        return max((now - run.started for run in self._snapshot()), default=0.0)

    def slow(self) -> str:
        """Return a text about the verbs that have run for long, oldest first, empty where there is none."""
        now = self._clock.monotonic()
        slow = [run for run in self._snapshot() if now - run.started >= SLOW_SECONDS]
        more = f"; and {len(slow) - SHOWN} more" if len(slow) > SHOWN else ""
        return "; ".join(map(self._text, slow[:SHOWN])) + more

    def watch(self, stop: threading.Event) -> None:
        """Log slow verbs until ``stop`` is set."""
        while not self._clock.wait(stop, CHECK_SECONDS):
            self.warn()

    def warn(self) -> None:
        """Log each verb that has run for long, first after ``SLOW_SECONDS`` and then after growing pauses."""
        now = self._clock.monotonic()
        for run in self._snapshot():
            if now >= run.warn_at:
                seconds = now - run.started
                run.warn_at = now + min(seconds, LONGEST_PAUSE)
                _log.warning("verb still runs", **_keys(run), duration_ms=round(1000 * seconds), retry_in_s=round(run.warn_at - now))

    def _snapshot(self) -> tuple[RunningVerb, ...]:
        with self._guard:
            return tuple(self._running.values())

    def _text(self, run: RunningVerb) -> str:
        seconds = self._clock.monotonic() - run.started
        since = (self._clock.now() - datetime.timedelta(seconds=seconds)).replace(microsecond=0, tzinfo=None)
        return f"{run.verb} of claim {run.claim} ({', '.join(run.devices)}) has run for {seconds:.0f} s, since {since.isoformat()}Z"


def _keys(run: RunningVerb) -> dict[str, object]:
    return {"verb": run.verb, "claim": str(run.claim), "claim_uid": run.claim.uid, "devices": run.devices}
