"""The group ``nic`` of the settings file: which interfaces are offered, and with which bandwidth.

Every rate is a whole number of bits per second, written as a Quantity (``25G``). A policy's default and max lie on min + n * step, as the API
requires of requestPolicy.validRange (KEP-5075). A value that breaks these rules is a ValueError of its field when the settings are read.
"""

import dataclasses
import fnmatch
import functools
from typing import Annotated, Literal, Self

import pydantic
import pydantic.dataclasses

import drakit
from drakit_nic import port

SHARES_MAX = 10**4
"""The maximum number of shares of one NIC. Its maps and the node's class numbers then suffice for several sandboxes of each share."""

VFS_MAX = 65535
"""The maximum number of virtual functions of one NIC (a 16-bit register of SR-IOV)."""

Child = Literal["macvlan", "ipvlan"]
"""The kind of the interfaces that pods get on a NIC."""

CarrierLoss = Literal["report", "taint", "evict"]
"""The reaction to the loss of an interface's carrier."""

_NANO = 10**9
_RATE_MAX = 2**63 - 1
_PREFIXES = ("pci", "driver", "vendor")
_DEFAULT = drakit.Quantity.of("100M")
_MIN = drakit.Quantity.of("10M")
_STEP = drakit.Quantity.of("10M")


def _rate(value: object) -> drakit.Quantity:
    """Return the quantity of a text or a number, as YAML reads ``10G`` and ``0``."""
    if isinstance(value, drakit.Quantity):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a quantity, such as 10G")  # noqa: TRY004 - pydantic reports ValueErrors by field
    try:
        return drakit.Quantity.of(value)
    except drakit.QuantityError as error:
        raise ValueError(error.reason) from error


def _in_range(amount: drakit.Quantity, least: int) -> drakit.Quantity:
    if amount.nanos % _NANO:
        raise ValueError(f"{amount} is not a whole number of bits per second")
    if not least <= amount.value <= _RATE_MAX:
        raise ValueError(f"{amount} is not between {least} and {_RATE_MAX} bits per second")
    return amount


def _glob(glob: str) -> str:
    prefix, colon, _ = glob.partition(":")
    if colon and prefix not in _PREFIXES:
        raise ValueError(f"{glob!r} begins with none of {', '.join(f'{known_prefix}:' for known_prefix in _PREFIXES)}")
    return glob


_Rate = Annotated[drakit.Quantity, pydantic.BeforeValidator(_rate), pydantic.AfterValidator(functools.partial(_in_range, least=0))]
_Positive = Annotated[drakit.Quantity, pydantic.BeforeValidator(_rate), pydantic.AfterValidator(functools.partial(_in_range, least=1))]
_Glob = Annotated[str, pydantic.AfterValidator(_glob)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandwidthPolicy:
    """The bandwidth that a share may request: from ``min`` in steps of ``step`` up to ``max`` (None: the whole NIC).

    ``default`` is the bandwidth of a share without a request. On a NIC too small for them, ``default`` and ``max`` are lowered to its largest valid
    amount. Raises ValueError for a default or max that is no valid amount.
    """

    default: drakit.Quantity = _DEFAULT
    min: drakit.Quantity = _MIN
    step: drakit.Quantity = _STEP
    max: drakit.Quantity | None = None

    def __post_init__(self) -> None:
        self._check_on_step(self.default, "default")
        if self.max is None:
            return
        self._check_on_step(self.max, "max")
        if self.max < self.default:
            raise ValueError(f"max: {self.max} is below default {self.default}")

    @classmethod
    def of(
        cls,
        *,
        default: drakit.Quantity | None = None,
        min: drakit.Quantity | None = None,  # noqa: A002 - the names of the settings
        step: drakit.Quantity | None = None,
        max: drakit.Quantity | None = None,  # noqa: A002
    ) -> Self:
        """Return a policy from some of its values. The default of ``default`` is 100M, rounded up to a valid amount."""
        least = min or _MIN
        rates = cls(default=default or least, min=least, step=step or _STEP, max=max)
        if default is not None:
            return rates
        span = drakit.ValidRange(min=rates.min, max=rates.max, step=rates.step)
        return dataclasses.replace(rates, default=span.round_up(_DEFAULT) or rates.max or rates.default)

    def _check_on_step(self, amount: drakit.Quantity, key: str) -> None:
        if amount < self.min:
            raise ValueError(f"{key}: {amount} is below min {self.min}")
        if self.floor(amount.value) != amount.value:
            raise ValueError(f"{key}: {amount} is not min {self.min} plus a multiple of step {self.step}")

    def floor(self, amount: int) -> int:
        """Return the largest min + n * step up to ``amount`` bits per second, less than min for a smaller amount."""
        least, step = self.min.value, self.step.value
        return least + (amount - least) // step * step


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
class NicRule:
    """Bandwidth of the interfaces whose name matches. Quantities are bits per second, such as 10G."""

    match: _Glob
    """Glob on the interface name, for example eth*."""

    speed: _Positive | None = None
    """Bandwidth of the interface. Needed where the kernel reports no reliable speed (veth, virtio)."""

    reserve: _Rate | None = None
    """Bandwidth reserved for the host's own traffic; nic.reserve if not given."""

    ceil: _Rate | None = None
    """Upper limit of what a share may borrow, for every DeviceClass; nic.ceil if not given."""

    default: _Positive | None = None
    """Bandwidth of a share whose request names none."""

    min: _Positive | None = None
    """Smallest share."""

    step: _Positive | None = None
    """The bandwidth of a share is min plus a multiple of step."""

    max: _Positive | None = None
    """Largest share."""

    child: Child = "macvlan"
    """Kind of the interfaces that pods get. ipvlan: they have the NIC's MAC address, for networks that refuse others, such as clouds."""

    def __post_init__(self) -> None:
        _ = self.policy

    @functools.cached_property
    def policy(self) -> BandwidthPolicy:
        """Return the bandwidths that a share of the interfaces may request."""
        return BandwidthPolicy.of(default=self.default, min=self.min, step=self.step, max=self.max)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
class SriovRule:
    """The number of virtual functions of the NICs that match."""

    match: _Glob
    """Glob on the NIC, as in nic.include, for example driver:igb or eth1."""

    vfs: Annotated[int, pydantic.Field(ge=1, le=VFS_MAX)]
    """Number of virtual functions that each of them has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicOptions:
    """The network interface driver."""

    enabled: bool = True
    """Whether the driver serves network interfaces."""

    driver_name: str = "nic.drakit.dev"
    """Driver name."""

    include: tuple[_Glob, ...] = ("*",)
    """Globs of interfaces to offer. A glob matches the name or an alternative name, or pci:ADDRESS, driver:NAME or vendor:ID."""

    exclude: tuple[_Glob, ...] = ()
    """Globs of interfaces that are never offered, as in nic.include."""

    offer_addressed: bool = False
    """Whether to offer interfaces that are in use, for example with an address of the host. Those of the default route need nic.take_over."""

    take_over: tuple[_Glob, ...] = ()
    """Globs of interfaces to offer although the host uses them, even for its default route. Each needs a reserve above 0 for the host."""

    reserve: _Rate = drakit.ZERO
    """Bandwidth of every interface that is reserved for the host's own traffic, and limits it. A rule can set another for an interface."""

    ceil: _Rate | None = None
    """Upper limit of what a share of any interface may borrow, for every DeviceClass. The interface's speed if not given; 0: no borrowing."""

    netns: str | None = None
    """Name of the network namespace with the interfaces. Without it, that of the process."""

    rules: tuple[NicRule, ...] = ()
    """Bandwidth by interface name. The first rule that matches counts."""

    whole: tuple[_Glob, ...] = ()
    """Globs of interfaces to offer also as whole devices: the driver moves the interface into the pod."""

    vfio: tuple[_Glob, ...] = ()
    """Globs of interfaces to offer also to virtual machines: the driver binds the NIC or virtual function to vfio-pci while a claim has it."""

    vfio_nodes: Literal["group", "iommufd"] = "group"
    """Device nodes for a virtual machine. group: /dev/vfio/vfio and the group's. iommufd: /dev/iommu and the device's."""

    sriov: tuple[SriovRule, ...] = ()
    """Virtual functions that the driver creates at its start, by NIC. The first rule that matches counts. Functions in use are never removed."""

    net_devices: bool = False
    """Whether the container runtime moves whole interfaces (CDI 1.1 netDevices). Without it, the attach hook does."""

    shares: Annotated[int, pydantic.Field(ge=0, le=SHARES_MAX)] = 0
    """Maximum number of shares of one interface. 0: as many as fit its bandwidth, at most 10000."""

    carrier_loss: CarrierLoss = "report"
    """Effect of a lost link. report: the interface is Unhealthy. taint: new pods avoid it (NoSchedule). evict: its pods end (NoExecute)."""

    @property
    def uses_ipvlan(self) -> bool:
        """Return whether a rule gives pods ipvlans."""
        return any(rule.child == "ipvlan" for rule in self.rules)

    def rule_for(self, subject: str | port.Interface) -> NicRule:
        """Return the rule of one interface, with a missing reserve and ceil replaced by the settings of every interface."""
        name = subject if isinstance(subject, str) else subject.name
        rule = next((rule for rule in self.rules if matches(subject, (rule.match,))), NicRule(match=name))
        return dataclasses.replace(
            rule,
            reserve=self.reserve if rule.reserve is None else rule.reserve,
            ceil=self.ceil if rule.ceil is None else rule.ceil,
        )


def matches(subject: str | port.Interface, globs: tuple[str, ...]) -> bool:
    """Return whether any of the globs matches an interface: its whole name or an alternative name, or with a prefix a property of its hardware.

    ``pci:0000:8a:*`` is compared with the PCI address, ``driver:mlx5_*`` with the kernel driver, ``vendor:15b3`` with the PCI vendor. No interface's
    name has a colon. A name alone (``subject`` is text) has no such facts.
    """
    return any(_matches(subject, glob) for glob in globs)


def _matches(subject: str | port.Interface, glob: str) -> bool:
    prefix, colon, rest = glob.partition(":")
    if not colon:
        names = (subject,) if isinstance(subject, str) else (subject.name, *subject.altnames)
        return any(fnmatch.fnmatchcase(name, glob) for name in names)
    if isinstance(subject, str):
        return False
    facts = {
        "pci": subject.pci.bus_id if subject.pci else "",
        "driver": subject.driver,
        "vendor": subject.pci.vendor if subject.pci else "",
    }
    return bool(facts[prefix]) and fnmatch.fnmatchcase(facts[prefix], rest.lower() if prefix != "driver" else rest)
