"""What a running driver may ask of the node it runs on, at any time and from any thread: the author's calls beside the verbs.

A ``Site`` is handed to ``Driver.start`` once the journal is recovered and before the kubelet may call; the driver keeps it until ``stop``. Every
call returns at once: what has to travel (slices, health, status, events) is sent by the node's own threads, in order, and tried again until it
arrives or is superseded. What must survive the process (taints, notes) is durable when the call returns.

Where there is no kubelet and no API server, a site keeps taints and notes, and what would travel is only logged. One-off commands such as ``drakit
prepare`` do not call ``start``: they may run beside the driver, and are over before anything beside the verbs would matter.
"""

import contextlib
import dataclasses
import enum
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import names, records


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
class Condition:
    """One condition of a device in a claim's status (metav1.Condition); ``reason`` is CamelCase. Times and generation are filled in."""

    type: str
    status: bool
    reason: str
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkStatus:
    """resource.k8s.io NetworkDeviceData: ``addresses`` in canonical CIDR form, ``hardware_address`` a MAC."""

    interface: str = ""
    addresses: tuple[str, ...] = ()
    hardware_address: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceStatus:
    """What a driver says of one device of a claim (ResourceClaim.status.devices[]); ``values`` goes into its ``data`` field as a JSON object.

    A device of a pool that is not this node's own may be prepared by several nodes; ``nodes`` says how many have a part in it. What they say is
    joined (see ``core.joint``): nobody overwrites another's, and a condition holds when all of them say that it does. Network facts are told only of
    devices of the node's own pool.
    """

    device: str
    pool: str = ""
    share_id: names.ShareId | None = None
    conditions: tuple[Condition, ...] = ()
    values: records.Record = dataclasses.field(default_factory=records.empty)
    network: NetworkStatus | None = None
    nodes: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """One number for the metrics: ``drakit_<name>`` with these labels beside ``driver``. ``total`` says that it only grows.

    With ``buckets`` it is a histogram whose sum is ``value``: how many were at most so much, by rising bound; the last bound is infinity.
    """

    name: str
    documentation: str
    value: float
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    total: bool = False
    buckets: Sequence[tuple[float, int]] = ()


class Weight(enum.Enum):
    """The two types of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notice:
    """An Event for the users of a claim: on every pod that has it reserved, on the claim itself where none has. ``reason`` is CamelCase."""

    reason: str
    message: str
    weight: Weight = Weight.WARNING


class Site(Protocol):
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

    def status(self, claim: claims.ClaimRef, status: DeviceStatus) -> None:
        """Write the device's status into the claim: conditions (binding conditions too), values and network facts; replaces what was said before."""

    def notice(self, claim: claims.ClaimRef, notice: Notice) -> None:
        """Tell the users of a claim something by an Event; equal ones within ten minutes are told once."""
