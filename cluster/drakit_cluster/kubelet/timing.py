"""The kubelet's delays and deadlines. Deadlines are those of a real kubelet; comments mark shorter ones."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """All values are seconds. A pair is the first and the longest delay."""

    registration_tick: float = 0.1
    """How often the registration folder is searched; a real kubelet searches every second."""
    dial: float = 10.0
    get_info: float = 1.0
    notify: float = 5.0
    registration_retry: tuple[float, float] = (0.5, 122.0)
    call: float = 45.0
    """Deadline of NodePrepareResources and NodeUnprepareResources."""
    reconnect: tuple[float, float] = (0.1, 2.0)
    """A real kubelet begins at 1 s and goes up to 120 s."""
    health_retry: float = 5.0
    """The delay before an ended health stream is reopened."""
    health_valid: float = 30.0
    """How long a report of a device's health is valid if it does not say so itself."""
    wipe_delay: float = 30.0
    """How long a driver must be unusable before its slices are deleted."""
    wipe_retry: tuple[float, float] = (1.0, 300.0)
    prepare_retry: tuple[float, float] = (0.5, 12.0)
    """A real kubelet waits 12 to 15 s from the first retry on."""
    unprepare_retry: tuple[float, float] = (0.2, 12.0)
    container_retry: tuple[float, float] = (1.0, 300.0)
    """Between restarts of a container; a real kubelet begins at 10 s."""
    reconcile: float = 60.0
    """The longest interval between searches for claims of pods that were deleted while no kubelet ran."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            first = value[0] if isinstance(value, tuple) else value
            if first <= 0:
                raise ValueError(f"{name}: must be more than 0 seconds, not {first}")
