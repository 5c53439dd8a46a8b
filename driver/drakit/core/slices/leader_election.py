"""Decide leader election by a Lease (coordination.k8s.io/v1).

The rules are those of Kubernetes' own leader election. Clocks of different machines are never compared: a lease counts as expired when it has not
changed for its duration since *this* process first observed it. The leader counts from the time before its last renewal request, and stops
``duration - renew_deadline`` before another candidate may start. All functions are pure.
"""

import dataclasses
import datetime
import enum

from drakit.core import errors

_JITTER = 1.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """The times of an election in seconds: the duration of a lease, the leader's deadline for a renewal, and the pause between attempts."""

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
    """A stored lease. An empty ``holder`` means that it is released. ``version`` is metadata.resourceVersion, empty before it is stored."""

    holder: str
    duration: float
    acquired: datetime.datetime
    renewed: datetime.datetime
    transitions: int = 0
    version: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservedLease:
    """The lease as last read (None: there is none), and when this process first read it so, on its own clock."""

    lease: Lease | None
    since: float

    def again(self, lease: Lease | None, moment: float) -> "ObservedLease":
        """Return the observation after another read."""
        return self if lease == self.lease else ObservedLease(lease=lease, since=moment)


class Step(enum.Enum):
    """The next step of a candidate."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def decide(seen: ObservedLease, me: str, moment: float) -> Step:
    """Return the step of candidate ``me`` at a time of its own clock: renew its lease, take a free or expired one, or wait."""
    lease = seen.lease
    if lease is None:
        return Step.CREATE
    if lease.holder == me:
        return Step.RENEW
    if not lease.holder or moment - seen.since > lease.duration:
        return Step.TAKE
    return Step.WAIT


def following(step: Step, seen: ObservedLease, me: str, terms: Terms, now: datetime.datetime) -> Lease:
    """Return the lease to write for a step that is not WAIT; ``now`` is wall-clock time, for information only."""
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
    """Return the released lease, so that the next leader need not wait until it expires."""
    return dataclasses.replace(lease, holder="", duration=1.0, renewed=now)
