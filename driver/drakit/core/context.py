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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number for the metrics: ``drakit_<name>`` with these labels beside ``driver``. ``total`` says that it only grows.

    With ``buckets`` it is a histogram whose sum is ``value``: how many were at most so much, by rising bound; the last bound is infinity.
    """

    name: str
    documentation: str
    value: float
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    total: bool = False
    buckets: Sequence[tuple[float, int]] = ()


class EventType(enum.Enum):
    """The two types of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An Event for the users of a claim: on every pod that has it reserved, on the claim itself where none has. ``reason`` is CamelCase."""

    reason: str
    message: str
    weight: EventType = EventType.WARNING


class DriverContext(Protocol):
    """One driver's place on one node."""

    @property
    def home(self) -> pathlib.Path:
        """The driver's own durable folder, mode 0700."""

    @property
    def boot_id(self) -> str:
        """Identity of this boot of the node."""

    def grants(self) -> Sequence["drivers.Grant[object]"]:
        """Every prepared grant of this node, oldest claim first, from the journal: also those of earlier processes."""

    def grant(self, uid: names.ClaimUid, device: str, share_id: names.ShareId | None = None) -> "drivers.Grant[object] | None":
        """The prepared grant of this claim, device and share, or None when it is not prepared now."""

    def notes(self, grant: "drivers.Grant[object]") -> Mapping[str, records.Record]:
        """What was noted of this grant, by key; empty once the claim is unprepared."""

    def note(self, grant: "drivers.Grant[object]", key: str, record: records.Record | None) -> None:
        """Remember something of a prepared grant durably, None to forget it. Raises ClaimError when the grant is no longer prepared."""

    def hold(self, lock_names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        """Hold the same device locks that the verbs are called under (``Device.lock_names``); not from within a verb."""

    def changed(self) -> None:
        """The hardware changed: discover and publish again soon."""

    def taint(self, device: str, taint: devices.Taint) -> None:
        """Publish the device with this taint too; the same key and effect replaces. Kept until ``untaint`` or a reboot."""

    def untaint(self, device: str, key: str) -> None:
        """Publish the device without this key's taint again; nothing to remove is success."""

    def taints(self) -> Mapping[str, Sequence[devices.Taint]]:
        """The taints put by ``taint`` and not removed, by device."""

    def health(self, report: HealthReport) -> None:
        """Tell the kubelet how a device is; a device nothing was said of is healthy while it is discovered."""

    def status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        """Write the device's status into the claim: conditions (binding conditions too), values and network facts; replaces what was said before."""

    def notice(self, claim: claims.ClaimRef, notice: Event) -> None:
        """Tell the users of a claim something by an Event; equal ones within ten minutes are told once."""
