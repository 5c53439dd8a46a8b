"""The admin's settings of the NIC family. Every rate is a whole number of bits per second, written as a Quantity (``25G``).

Invariants, checked on construction (SettingsError names the key): a policy's default and max lie on min + n * step, as the API requires of
requestPolicy.validRange (KEP-5075); rates fit 64 bits.
"""

import dataclasses
import enum
import fnmatch
import pathlib
from collections.abc import Mapping
from typing import Self

import drakit
from drakit_nic import port

_NANO = 10**9
_RATE_MAX = 2**63 - 1
SHARES_MAX = 10**4
"""The maximum number of shares of one NIC. Its maps and the node's class numbers then suffice for several sandboxes of each share."""

_PREFIXES = ("pci", "driver", "vendor")
_OWN_FIGURES = ("speed", "reserve", "ceil")
_POLICY_FIGURES = ("default", "min", "step", "max")
_DEFAULT = drakit.Quantity.of("100M")
_MIN = drakit.Quantity.of("10M")
_STEP = drakit.Quantity.of("10M")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BandwidthPolicy:
    """The bandwidth that a share may request: from ``min`` in steps of ``step`` up to ``max`` (None: the whole NIC).

    ``default`` is the bandwidth of a share without a request. On a NIC too small for them, ``default`` and ``max`` are lowered to its largest valid
    amount.
    """

    default: drakit.Quantity = _DEFAULT
    min: drakit.Quantity = _MIN
    step: drakit.Quantity = _STEP
    max: drakit.Quantity | None = None

    def __post_init__(self) -> None:
        for key in _POLICY_FIGURES:
            amount = getattr(self, key)
            if amount is not None:
                _check_rate(amount, f"policy.{key}", least=1)
        self._check_on_step(self.default, "policy.default")
        if self.max is None:
            return
        self._check_on_step(self.max, "policy.max")
        if self.max < self.default:
            raise drakit.SettingsError(f"{self.max} is below default {self.default}", key="policy.max")

    @classmethod
    def of(cls, figures: Mapping[str, drakit.Quantity]) -> Self:
        """Return a policy from some of its values by name. The default of ``default`` is 100M, rounded up to a valid amount."""
        least = figures.get("min", _MIN)
        rates = cls(**{"default": least, "min": least, **figures})
        if "default" in figures:
            return rates
        span = drakit.ValidRange(min=rates.min, max=rates.max, step=rates.step)
        return dataclasses.replace(rates, default=span.round_up(_DEFAULT) or rates.max or rates.default)

    def _check_on_step(self, amount: drakit.Quantity, key: str) -> None:
        if amount < self.min:
            raise drakit.SettingsError(f"{amount} is below min {self.min}", key=key)
        if self.floor(amount.value) != amount.value:
            raise drakit.SettingsError(f"{amount} is not min {self.min} plus a multiple of step {self.step}", key=key)

    def floor(self, amount: int) -> int:
        """Return the largest min + n * step up to ``amount`` bits per second, less than min for a smaller amount."""
        least, step = self.min.value, self.step.value
        return least + (amount - least) // step * step


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterfaceRule:
    """The admin's settings of interfaces that match the glob ``match``. None keeps the family's setting.

    ``speed`` limits the reported speed of hardware and replaces a missing or unreliable one: a virtual interface is offered only where a rule sets
    its speed. ``reserve`` is for the host's own traffic. ``ceil`` limits the rate up to which a share borrows.
    """

    match: str
    speed: drakit.Quantity | None = None
    reserve: drakit.Quantity | None = None
    ceil: drakit.Quantity | None = None
    policy: BandwidthPolicy | None = None

    def __post_init__(self) -> None:
        if self.speed is not None:
            _check_rate(self.speed, f"interfaces[{self.match}].speed", least=1)
        if self.reserve is not None:
            _check_rate(self.reserve, f"interfaces[{self.match}].reserve", least=0)
        if self.ceil is not None:
            _check_rate(self.ceil, f"interfaces[{self.match}].ceil", least=0)

    @classmethod
    def parse(cls, match: str, figures: Mapping[str, str | None]) -> Self:
        """Return a rule from texts: ``speed``, ``reserve`` and ``ceil``, and the policy's ``default``, ``min``, ``step`` and ``max``.

        Raises SettingsError whose key is ``interfaces[<match>].<figure>``.
        """
        root = f"interfaces[{match}]"
        amounts = {name: _parse(text, f"{root}.{name}") for name, text in figures.items() if text is not None}
        for name in amounts.keys() - {*_OWN_FIGURES, *_POLICY_FIGURES}:
            raise drakit.SettingsError("is not a figure of an interface", key=f"{root}.{name}")
        rates = {name: amounts[name] for name in _POLICY_FIGURES if name in amounts}
        try:
            policy = BandwidthPolicy.of(rates) if rates else None
        except drakit.SettingsError as error:
            raise drakit.SettingsError(str(error), key=root) from error
        return cls(match=match, policy=policy, **{name: amounts[name] for name in _OWN_FIGURES if name in amounts})


class CarrierLoss(enum.Enum):
    """The reaction to the loss of an interface's carrier."""

    REPORT = "report"
    TAINT = "taint"
    EVICT = "evict"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicSettings:
    """The admin's settings that decide which interfaces are offered and how.

    ``include``, ``exclude``, ``take_over``, ``whole`` and ``vfio`` are globs (see ``matches``), compared with case. ``offer_addressed`` offers
    interfaces that are in use, for example with an address of the host, but not those of its default route. ``take_over`` lists interfaces that are
    offered although the host uses them.
    The first matching rule of ``interfaces`` counts. ``home`` is the driver's folder, by the same path here and on the host, with the socket that the
    attach hook calls; None if containers get no interface.

    ``whole`` lists the interfaces that are also offered whole, ``vfio`` those that are also offered to virtual machines: by the VFIO group, or with
    ``iommufd`` by the device. ``net_devices`` is set where the container runtime moves those itself (CDI 1.1
    netDevices). ``shares`` limits the number of shares of one interface; with 0 only the bandwidth and ``SHARES_MAX`` limit it. ``ceil`` limits the
    rate up to which a share may borrow, whatever its class sets; None is the NIC's speed. ``carrier_loss`` is the reaction to a lost link: a report
    of the health only, a taint that keeps new pods away, or a taint that also evicts pods.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    take_over: tuple[str, ...] = ()
    offer_addressed: bool = False
    reserve: drakit.Quantity = drakit.ZERO
    ceil: drakit.Quantity | None = None
    policy: BandwidthPolicy = dataclasses.field(default_factory=BandwidthPolicy)
    interfaces: tuple[InterfaceRule, ...] = ()
    home: pathlib.Path | None = None
    whole: tuple[str, ...] = ()
    vfio: tuple[str, ...] = ()
    iommufd: bool = False
    net_devices: bool = False
    shares: int = 0
    carrier_loss: CarrierLoss = CarrierLoss.REPORT

    def __post_init__(self) -> None:
        _check_rate(self.reserve, "reserve", least=0)
        if self.ceil is not None:
            _check_rate(self.ceil, "ceil", least=0)
        if not 0 <= self.shares <= SHARES_MAX:
            raise drakit.SettingsError(f"{self.shares} is not between 0 and {SHARES_MAX}", key="shares")
        for key in ("include", "exclude", "take_over", "whole", "vfio"):
            for glob in getattr(self, key):
                _check_glob(glob, key)
        for rule in self.interfaces:
            _check_glob(rule.match, "interfaces.match")

    def rule_for(self, subject: str | port.Interface) -> InterfaceRule:
        """Return the rule of one interface, with every None but the speed's replaced by the family's setting."""
        name = subject if isinstance(subject, str) else subject.name
        rule = next((rule for rule in self.interfaces if matches(subject, (rule.match,))), InterfaceRule(match=name))
        return dataclasses.replace(
            rule,
            reserve=self.reserve if rule.reserve is None else rule.reserve,
            ceil=self.ceil if rule.ceil is None else rule.ceil,
            policy=rule.policy or self.policy,
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


def _check_glob(glob: str, key: str) -> None:
    prefix, colon, _ = glob.partition(":")
    if colon and prefix not in _PREFIXES:
        raise drakit.SettingsError(f"{glob!r} begins with none of {', '.join(f'{known_prefix}:' for known_prefix in _PREFIXES)}", key=key)


def _parse(text: str, key: str) -> drakit.Quantity:
    try:
        return drakit.Quantity.parse(text)
    except drakit.QuantityError as error:
        raise drakit.SettingsError(error.reason, key=key) from error


def _check_rate(amount: drakit.Quantity, key: str, *, least: int) -> None:
    if amount.nanos % _NANO:
        raise drakit.SettingsError(f"{amount} is not a whole number of bits per second", key=key)
    if not least <= amount.value <= _RATE_MAX:
        raise drakit.SettingsError(f"{amount} is not between {least} and {_RATE_MAX} bits per second", key=key)
