"""The calls that a running driver makes to its node, at any time and from any thread.

``Driver.start`` receives a ``DriverContext`` after the journal is recovered and before the kubelet may call. The driver may use it until ``stop``.
Every call returns at once. The node's own threads send slices, health, status and events in order, and retry until they arrive or are superseded.
Taints and state are durable when the call returns.

Without kubelet and API server a context stores taints and state, and only logs the rest. One-off commands such as ``drakit prepare`` do not call
``start``, because they may run beside the driver.
"""

import contextlib
import dataclasses
import enum
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from drakit.core import arguments, claim_status, names, records
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers

LOCK_SECONDS = 30.0
"""The time that ``DriverContext.hold`` waits by default."""


class Health(enum.Enum):
    """The health of one device (HealthStatus of dra-health v1alpha1 and v1)."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class HealthReport:
    """The health of one device of this node's pool. ``message`` is for the pod's owner and is cut to 1024 bytes."""

    device: str
    health: Health
    message: str = ""


class EventType(enum.Enum):
    """The two types of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An Event on every pod that has the claim reserved, or on the claim itself if there is none. ``reason`` is CamelCase."""

    reason: str
    message: str
    type: EventType = EventType.WARNING


class StopSignal(Protocol):
    """The signal to stop, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Return whether the driver has to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for ``timeout`` seconds at most; return whether the driver has to stop."""


class DriverContext(Protocol):
    """The calls that one driver makes to its node."""

    @property
    def stopping(self) -> StopSignal:
        """Set when the driver has to stop, before ``Driver.stop`` is called; for waits in ``Driver.watch``."""

    @property
    def data_dir(self) -> pathlib.Path:
        """The driver's own durable folder, mode 0700."""

    @property
    def boot_id(self) -> str:
        """The id of the node's present boot."""

    def grants(self) -> Sequence["drivers.Grant[object]"]:
        """Return every prepared grant of this node, oldest claim first, including those of earlier processes."""

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> "drivers.Grant[object] | None":
        """Return the prepared grant of this claim, device and share, or None if it is not prepared now."""

    def state(self, grant: "drivers.Grant[object]") -> Mapping[str, records.Record]:
        """Return the stored state of a grant, by key; empty after the claim is unprepared."""

    def set_state(self, grant: "drivers.Grant[object]", key: str, record: records.Record | None) -> None:
        """Store one record of a prepared grant durably; None removes it. Raises ClaimError if the grant is no longer prepared."""

    def hold(self, lock_names: Iterable[str], wanted: Callable[[], bool] | None = None) -> contextlib.AbstractContextManager[None]:
        """Hold the device locks under which the verbs run (``Device.lock_names``). Do not call it within a verb.

        Another process may hold a lock for as long as its hardware call hangs. The call waits while ``wanted`` returns True, by default
        ``LOCK_SECONDS``, and then raises LockedError.
        """

    def rediscover(self) -> None:
        """Call ``discover`` soon and publish the result, because hardware changed."""

    def taint(self, device: str, taint: devices.Taint, *, after: float = 0.0) -> None:
        """Add a taint to the published device until ``untaint`` or a reboot. It replaces a taint of the same key and effect.

        With ``after`` the call adds it only if equal calls began that many seconds ago, with no ``untaint`` of its key since.
        """

    def untaint(self, device: str, key: str) -> None:
        """Remove the taints of a key that ``taint`` added. Succeeds if there is none."""

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        """Return the present taints that ``taint`` added, by device."""

    def report_health(self, report: HealthReport, *, after: float = 0.0) -> None:
        """Report a device's health to the kubelet. A device without a report is healthy while it is discovered.

        With ``after`` a report other than HEALTHY counts only if such reports began that many seconds ago, with no HEALTHY one since.
        """

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Replace the device's status in the claim: conditions (also binding conditions), values and network data."""

    def record_event(self, claim: claims.ClaimRef, event: Event) -> None:
        """Record an Event for the users of a claim. Equal events within ten minutes are recorded once."""
