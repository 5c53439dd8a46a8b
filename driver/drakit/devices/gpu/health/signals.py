"""What a GPU says of its own health: the events it sends, and what it asks to be done to it. NVML's terms, as words."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Protocol, Self


class RecoveryAction(enum.Enum):
    """What a GPU needs before it can be relied on again (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""

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
    """The events that are waited for (nvml.h, nvmlEventType*)."""

    XID = "xid"
    DOUBLE_BIT_ECC = "double-bit-ecc"
    MIG = "mig"
    UNAVAILABLE = "unavailable"
    RECOVERY = "recovery"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened on a GPU (nvmlEventData_t). ``gpu`` is its UUID.

    ``xid`` is the number of an XID event. ``instance_id`` is the GPU instance it happened in, None where NVML names none.
    """

    gpu: str
    kind: EventKind
    xid: int | None = None
    instance_id: int | None = None


class Events(Protocol):
    """The events of all GPUs from when this was opened; a context, closed at its end. One thread may wait."""

    @property
    def unmonitored(self) -> frozenset[str]:
        """UUIDs of the GPUs whose Xids are not heard, because they cannot be asked to send them."""
        return frozenset()

    def wait(self, seconds: float) -> Event | None:
        """The next event, or None when none came in that time. Raises CallError; then another one has to be opened."""

    def close(self) -> None:
        """Let go of the GPUs; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
