"""A GPU's reports of its own health, in NVML's terms: its events, and the recovery action it requests."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Protocol, Self


class RecoveryAction(enum.Enum):
    """The action a GPU needs before it is reliable again (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""

    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"
    DRAIN_P2P = "drain-p2p"
    DRAIN_AND_RESET = "drain-and-reset"
    RECOVER_IMEX_DOMAIN = "recover-imex-domain"
    BUS_RESET = "bus-reset"
    SYSTEM_REBOOT = "system-reboot"


# nvml.h, NVML_GPU_RECOVERY_ACTION_*.
ACTIONS: Mapping[int, RecoveryAction] = dict(enumerate(RecoveryAction))


class EventKind(enum.Enum):
    """The kinds of events that drakit reads (nvml.h, nvmlEventType*)."""

    XID = "xid"
    DOUBLE_BIT_ECC = "double-bit-ecc"
    MIG = "mig"
    UNAVAILABLE = "unavailable"
    RECOVERY = "recovery"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a GPU (nvmlEventData_t). ``gpu`` is its UUID.

    ``xid`` is the number of an XID event. ``instance_id`` is the GPU instance it happened in, None if NVML names none.
    """

    gpu: str
    kind: EventKind
    xid: int | None = None
    instance_id: int | None = None


class Events(Protocol):
    """The events of all GPUs since this was opened; a context manager. One thread may wait."""

    @property
    def unmonitored(self) -> frozenset[str]:
        """UUIDs of the GPUs that cannot send Xids."""
        return frozenset()

    def wait(self, seconds: float) -> Event | None:
        """Return the next event, or None when none came in that time. Raises CallError; then events have to be reopened."""

    def close(self) -> None:
        """Release the events; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
