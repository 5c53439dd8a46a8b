"""The group ``nic`` of the settings file."""

import dataclasses
from typing import Annotated, Literal

import pydantic
import pydantic.dataclasses


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
class NicRule:
    """Bandwidth of the interfaces whose name matches. Quantities are bits per second, such as 10G."""

    match: str
    """Glob on the interface name, for example eth*."""

    speed: str | None = None
    """Bandwidth of the interface. Needed where the kernel reports no reliable speed (veth, virtio)."""

    reserve: str | None = None
    """Bandwidth reserved for the host's own traffic; nic.reserve if not given."""

    ceil: str | None = None
    """Upper limit of what a share may borrow, for every DeviceClass; nic.ceil if not given."""

    default: str | None = None
    """Bandwidth of a share whose request names none."""

    min: str | None = None
    """Smallest share."""

    step: str | None = None
    """The bandwidth of a share is min plus a multiple of step."""

    max: str | None = None
    """Largest share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicOptions:
    """The network interface driver."""

    enabled: bool = True
    """Whether the driver serves network interfaces."""

    driver_name: str = "nic.drakit.dev"
    """Driver name."""

    include: tuple[str, ...] = ("*",)
    """Globs of interfaces to offer. A glob matches the name or an alternative name, or pci:ADDRESS, driver:NAME or vendor:ID."""

    exclude: tuple[str, ...] = ()
    """Globs of interfaces that are never offered, as in nic.include."""

    offer_addressed: bool = False
    """Whether to offer interfaces that are in use, for example with an address of the host. Those of the default route need nic.take_over."""

    take_over: tuple[str, ...] = ()
    """Globs of interfaces to offer although the host uses them, even for its default route. Each needs a reserve above 0 for the host."""

    reserve: str = "0"
    """Bandwidth of every interface that is reserved for the host's own traffic, and limits it. A rule can set another for an interface."""

    ceil: str | None = None
    """Upper limit of what a share of any interface may borrow, for every DeviceClass. The interface's speed if not given; 0: no borrowing."""

    netns: str | None = None
    """Name of the network namespace with the interfaces. Without it, that of the process."""

    rules: tuple[NicRule, ...] = ()
    """Bandwidth by interface name. The first rule that matches counts."""

    whole: tuple[str, ...] = ()
    """Globs of interfaces to offer also as whole devices: the driver moves the interface into the pod."""

    vfio: tuple[str, ...] = ()
    """Globs of interfaces to offer also to virtual machines: the driver binds the NIC or virtual function to vfio-pci while a claim has it."""

    vfio_nodes: Literal["group", "iommufd"] = "group"
    """Device nodes for a virtual machine. group: /dev/vfio/vfio and the group's. iommufd: /dev/iommu and the device's."""

    net_devices: bool = False
    """Whether the container runtime moves whole interfaces (CDI 1.1 netDevices). Without it, the attach hook does."""

    shares: Annotated[int, pydantic.Field(ge=0, le=10000)] = 0
    """Maximum number of shares of one interface. 0: as many as fit its bandwidth, at most 10000."""

    carrier_loss: Literal["report", "taint", "evict"] = "report"
    """Effect of a lost link. report: the interface is Unhealthy. taint: new pods avoid it (NoSchedule). evict: its pods end (NoExecute)."""
