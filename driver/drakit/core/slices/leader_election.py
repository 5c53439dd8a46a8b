"""Who of several may write: leader election by a Lease (coordination.k8s.io/v1), as decisions.

The rules are those of Kubernetes' own leader election. Clocks of different machines are never compared: a lease counts as given up when it has not
changed for its duration since *this* process first saw it so. The leader counts from the moment before it asked for its last renewal, and stops
``duration - renew_deadline`` before anybody else may start. Everything here is pure.
"""

import dataclasses
import datetime
import enum

from drakit.core import errors

_JITTER = 1.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """Seconds: how long a lease holds unrenewed, how long the leader goes on without a renewal, and the pause between two tries."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if self.duration < 1 or self.duration != int(self.duration):
            raise errors.SettingsError("must be whole seconds, at least 1", key="duration")
        if not self.renew_deadline < self.duration:
            raise errors.SettingsError(f"must be below the lease's duration of {self.duration:g} s", key="renew_deadline")
        if not 0 < self.retry * _JITTER < self.renew_deadline:
            raise errors.SettingsError(f"must be above 0, and {_JITTER} of it below the deadline of {self.renew_deadline:g} s", key="retry")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """The stored lease. An empty ``holder`` has given it up. ``version`` is metadata.resourceVersion, empty before it is stored."""

    holder: str
    duration: float
    acquired: datetime.datetime
    renewed: datetime.datetime
    transitions: int = 0
    version: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservedLease:
    """The lease as last read (None: there is none), and since when, on this process's own clock, it has been exactly so."""

    lease: Lease | None
    since: float

    def again(self, found: Lease | None, moment: float) -> "ObservedLease":
        """What is known after another look."""
        return self if found == self.lease else ObservedLease(lease=found, since=moment)


class Step(enum.Enum):
    """What to do now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def decide(seen: ObservedLease, me: str, moment: float) -> Step:
    """What ``me`` does at a moment of its own clock: renew its lease, take one that is free or overdue, or wait."""
    lease = seen.lease
    if lease is None:
        return Step.CREATE
    if lease.holder == me:
        return Step.RENEW
    if not lease.holder or moment - seen.since > lease.duration:
        return Step.TAKE
    return Step.WAIT


def following(step: Step, seen: ObservedLease, me: str, terms: Terms, now: datetime.datetime) -> Lease:
    """The lease to write for a step that is not WAIT; ``now`` is wall-clock time, for people who look at it."""
    before = seen.lease
    kept = before is not None and step is Step.RENEW
    return Lease(
        holder=me,
        duration=terms.duration,
        acquired=before.acquired if kept and before else now,
        renewed=now,
        transitions=(before.transitions + (step is Step.TAKE)) if before else 0,
        version=before.version if before else "",
    )


def released(lease: Lease, now: datetime.datetime) -> Lease:
    """The lease given up, so that the next one need not wait it out."""
    return dataclasses.replace(lease, holder="", duration=1.0, renewed=now)
