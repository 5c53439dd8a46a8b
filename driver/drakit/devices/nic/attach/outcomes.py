"""What became of attachments, for the metrics: how long each call of a container runtime took, and why calls were refused."""

import bisect
import enum
import itertools
import math
import threading
from collections.abc import Iterator

from drakit.core import advanced, errors

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)
"""The histogram's upper bounds in seconds; a runtime waits for ten."""


class Reason(enum.Enum):
    """Why a sandbox got no interface, as a metric's label."""

    HOST_NETWORK = "host_network"
    NOT_PREPARED = "not_prepared"
    TOO_LATE = "too_late"
    NAME_TAKEN = "name_taken"
    MAC_TAKEN = "mac_taken"
    IN_ANOTHER_POD = "in_another_pod"
    INTERFACE_GONE = "interface_gone"
    NIC_REPLACED = "nic_replaced"
    CONFIGURATION = "configuration"
    HARDWARE = "hardware"
    OTHER = "other"


class RefusedError(Exception):
    """A sandbox that gets no interface; the message is for the pod's owner."""

    def __init__(self, message: str, reason: Reason = Reason.OTHER) -> None:
        super().__init__(message)
        self.reason = reason


def reason_of(error: Exception) -> Reason:
    """Why an attachment failed, from what it raised."""
    match error:
        case RefusedError():
            return error.reason
        case errors.ConfigError():
            return Reason.CONFIGURATION
        case errors.HardwareError():
            return Reason.HARDWARE
        case _:
            return Reason.OTHER


class Calls:
    """The calls of one process; safe between threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts = {outcome: [0] * len(BOUNDS) for outcome in ("ok", "refused")}
        self._seconds = dict.fromkeys(self._counts, 0.0)
        self._refused = dict.fromkeys(Reason, 0)

    def attached(self, seconds: float) -> None:
        """One sandbox got its interface, or had it."""
        self._add("ok", seconds)

    def refused(self, reason: Reason, seconds: float) -> None:
        """One sandbox got none."""
        self._add("refused", seconds)
        with self._guard:
            self._refused[reason] += 1

    def readings(self) -> Iterator[advanced.Metric]:
        """All of it, also what never happened."""
        with self._guard:
            refused = dict(self._refused)
            seen = {outcome: (tuple(counts), self._seconds[outcome]) for outcome, counts in self._counts.items()}
        for outcome, (counts, seconds) in seen.items():
            yield advanced.Metric(
                name="nic_attach_seconds",
                documentation="Seconds from a container runtime's call for an interface to its answer.",
                value=seconds,
                labels={"outcome": outcome},
                buckets=tuple(zip(BOUNDS, itertools.accumulate(counts), strict=True)),
            )
        for reason, count in refused.items():
            yield advanced.Metric(
                name="nic_attach_refusals",
                documentation="Calls of container runtimes for an interface that were refused.",
                value=float(count),
                labels={"reason": reason.value},
                total=True,
            )

    def _add(self, outcome: str, seconds: float) -> None:
        with self._guard:
            self._counts[outcome][bisect.bisect_left(BOUNDS, seconds)] += 1
            self._seconds[outcome] += seconds
