"""What a running driver may ask of the node it runs on, at any time and from any thread.

``Driver.start`` receives a ``DriverContext`` once the journal is recovered and before the kubelet may call; the driver keeps it until ``stop``. Every
call returns at once: the node's own threads send slices, health, status and events in order, and retry until they arrive or are superseded.
Taints and state are durable when the call returns.

Where there is no kubelet and no API server, a context keeps taints and state, and only logs the rest. One-off commands such as ``drakit prepare`` do
not call ``start``: they may run beside the driver.
"""

import contextlib
import dataclasses
import enum
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from drakit.core import claim as claims
from drakit.core import claim_status, names, records
from drakit.core import device as devices
from drakit.core import driver as drivers


class Health(enum.Enum):
    """The health of one device as the kubelet knows it (dra-health v1alpha1 and v1 HealthStatus)."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthReport:
    """Health of one device of this node's pool; ``message`` is for the pod's owner (at most 1024 bytes reach them)."""

    device: str
    health: Health
    message: str = ""


class EventType(enum.Enum):
    """The two types of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An Event for the users of a claim: on every pod that has it reserved, on the claim itself where none has. ``reason`` is CamelCase."""

    reason: str
    message: str
    type: EventType = EventType.WARNING


class StopSignal(Protocol):
    """Whether the driver has to stop; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether the driver has to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for ``timeout`` seconds at most; return whether the driver has to stop."""


class DriverContext(Protocol):
    """What one driver may ask of its node."""

    @property
    def stopping(self) -> StopSignal:
        """Set when the driver has to stop, before ``Driver.stop`` is called; for waits in ``Driver.watch``."""

    @property
    def data_dir(self) -> pathlib.Path:
        """The driver's own durable folder, mode 0700."""

    @property
    def boot_id(self) -> str:
        """Identity of this boot of the node."""

    def grants(self) -> Sequence["drivers.Grant[object]"]:
        """Return every prepared grant of this node, oldest claim first, from the journal: also those that earlier processes prepared."""

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> "drivers.Grant[object] | None":
        """Return the prepared grant of this claim, device and share, or None when it is not prepared now."""

    def state(self, grant: "drivers.Grant[object]") -> Mapping[str, records.Record]:
        """Return the stored state of a grant, by key; empty once the claim is unprepared."""

    def set_state(self, grant: "drivers.Grant[object]", key: str, record: records.Record | None) -> None:
        """Store one record of a prepared grant durably; None removes it. Raises ClaimError when the grant is no longer prepared."""

    def hold(self, lock_names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        """Hold the device locks under which the verbs run (``Device.lock_names``). Do not call it within a verb."""

    def rediscover(self) -> None:
        """Call ``discover`` soon and publish the result; for hardware that changed."""

    def taint(self, device: str, taint: devices.Taint, *, after: float = 0.0) -> None:
        """Add a taint to the published device; it replaces one of the same key and effect. Kept until ``untaint`` or a reboot.

        With ``after`` the call adds it only where equal calls began that many seconds ago, with no ``untaint`` of its key since.
        """

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key that ``taint`` added; a missing taint is success."""

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        """Return the taints that ``taint`` added and nothing removed, by device."""

    def report_health(self, report: HealthReport, *, after: float = 0.0) -> None:
        """Report a device's health to the kubelet; a device without a report is healthy while it is discovered.

        With ``after`` a report other than HEALTHY counts only where such reports began that many seconds ago, with no HEALTHY one since.
        """

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim: conditions (also binding conditions), values and network data; replaces the previous one."""

    def record_event(self, claim: claims.ClaimRef, event: Event) -> None:
        """Record an Event for the users of a claim; equal events within ten minutes are recorded once."""
