"""Debounce: a fault counts once it has lasted, so that a device that flickers evicts nobody."""

from collections.abc import Callable, Hashable

from drakit.core import context


class Debounce:
    """The faults that were reported and do not count yet. ``monotonic`` gives seconds. Threads may share it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[Hashable, float] = {}

    def has_lasted(self, fault: Hashable, seconds: float) -> bool:
        """Return whether a fault, reported now, was first reported ``seconds`` ago or earlier and not cleared since."""
        now = self._monotonic()
        return now - self._since.setdefault(fault, now) >= seconds

    def counts(self, report: context.HealthReport, seconds: float) -> bool:
        """Return whether a health report counts now: a healthy one at once, and it clears the device; any other once it has lasted."""
        if report.health is context.Health.HEALTHY:
            self.clear(report.device)
            return True
        return self.has_lasted(report.device, seconds)

    def clear(self, fault: Hashable) -> None:
        """Forget a fault that is over; one that was never reported is fine."""
        self._since.pop(fault, None)
