"""From interfaces and settings to what is offered; pure.

The law: every interface is either offered or withheld with a reason, never both and never neither. An interface is withheld when it cannot
carry shares, when the host uses it, when it is filtered out, when its queueing is somebody else's or cannot hold a rate, or when nobody knows its
speed: a guess would be sold as bandwidth.
"""

import dataclasses
from collections.abc import Sequence

from drakit.core import capacity, device, inventory, quantity
from drakit.devices.nic import port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic.discovery import attributes, device_names, eligibility

_ONE_USE = {"uses": quantity.ONE}
WHOLE_SUFFIX = "-whole"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nic:
    """An interface that is offered: its device name, the speed believed (bits per second) and the bandwidth to share out.

    ``whole`` says that it is offered in the exclusive form too, ``shares`` how many shares it may have, 0 any number that its bandwidth has room for.
    ``caution`` is what an admin should know of it, if anything.
    """

    name: str
    interface: port.Interface
    speed: int
    bandwidth: capacity.Capacity
    classifier: port.Classifier = port.Classifier.NONE
    whole: bool = False
    shares: int = 0
    caution: eligibility.Caution | None = None

    def to_device(self) -> device.Device:
        """The device that many claims may hold, as it is published."""
        return device.Device(
            name=self.name,
            attributes=attributes.of(self.interface, speed=self.speed, classifier=self.classifier),
            capacity={attributes.BANDWIDTH: self.bandwidth, **({attributes.SLOTS: _slots(self.shares)} if self.shares else {})},
            consumes=self._consumes(),
            allow_multiple_allocations=True,
        )

    def to_whole(self) -> device.Device:
        """The device that one claim has alone.

        Of a virtual function a part of the bandwidth may be asked for, which its parent then holds it to: in the API's words it is a device of
        which there can be one share.
        """
        function = bool(self.interface.pci and self.interface.pci.physical_function)
        bandwidth = self.bandwidth if function else capacity.Capacity(value=quantity.Quantity.of(self.speed))
        return device.Device(
            name=f"{self.name}{WHOLE_SUFFIX}",
            attributes=attributes.of(self.interface, speed=self.speed, classifier=port.Classifier.NONE, form=attributes.WHOLE),
            capacity={attributes.BANDWIDTH: bandwidth, **({attributes.SLOTS: _slots(1)} if function else {})},
            consumes=self._consumes(),
            allow_multiple_allocations=function,
        )

    def _consumes(self) -> tuple[device.CounterConsumption, ...]:
        """One use of the interface: shares together draw it once, so either there are shares or somebody has the whole."""
        return (device.CounterConsumption(counter_set=self.name, counters=_ONE_USE),) if self.whole else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Withheld:
    """An interface that is not offered, by its interface name, why, and what would change it (``verdicts.Refusal``)."""

    name: str
    refusal: eligibility.Refusal

    @property
    def reason(self) -> str:
        """Why, after the interface's name: ``is the loopback``."""
        return self.refusal.reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """The interfaces of a node, sorted into offered (by device name) and withheld (by interface name), and which changes could alter that."""

    nics: tuple[Nic, ...]
    withheld: tuple[Withheld, ...]
    interest: port.Interest = dataclasses.field(default_factory=port.Interest)

    def to_inventory(self) -> inventory.Inventory:
        """What is published; the shared form before the whole, as the scheduler takes the first that fits."""
        devices = [form for nic in self.nics for form in (nic.to_device(), *([nic.to_whole()] if nic.whole else []))]
        sets = tuple(device.CounterSet(name=nic.name, counters=_ONE_USE) for nic in self.nics if nic.whole)
        return inventory.Inventory(devices=tuple(devices), counter_sets=sets)


NOT_SHAPED = port.Shaping(classifier=port.Classifier.NONE)


def survey(interfaces: Sequence[port.Interface], settings: nic_settings.NicSettings, shaping: port.Shaping = NOT_SHAPED) -> Survey:
    """Sort interfaces by the settings and by what the machine can enforce."""
    context = eligibility.NodeContext(interfaces, settings, shaping)
    nics: list[Nic] = []
    withheld: list[Withheld] = []
    for name, interface in sorted(device_names.device_names(interfaces).items()):
        found = _judge(name, interface, context)
        if isinstance(found, Nic):
            nics.append(found)
        else:
            withheld.append(Withheld(name=interface.name, refusal=found))
    return Survey(nics=tuple(nics), withheld=tuple(sorted(withheld, key=lambda item: item.name)), interest=_interest(interfaces, settings))


def _interest(interfaces: Sequence[port.Interface], settings: nic_settings.NicSettings) -> port.Interest:
    """What can be offered besides hardware: bonds and teams, and what a rule gives a speed.

    Hardware is not listed: a node may have hundreds of virtual functions, and the kernel limits the size of the filter.
    """
    return port.Interest(
        ifindexes=frozenset(
            item.ifindex for item in interfaces if item.kind in eligibility.AGGREGATE_KINDS or settings.rule_for(item).speed is not None
        ),
        globs=tuple(rule.match for rule in settings.interfaces if rule.speed is not None),
    )


def shareable(available: int, rates: nic_settings.BandwidthPolicy) -> capacity.Capacity | None:
    """The capacity made of ``available`` bits per second, rounded down to a valid amount; None when it is too little for the policy.

    The API asks that min + step fits the capacity, and that default and max are min + n * step within it (KEP-5075, validRange).
    """
    value = rates.floor(available)
    if value < rates.min.value + rates.step.value:
        return None
    most = value if rates.max is None else min(value, rates.max.value)
    return capacity.Capacity(
        value=quantity.Quantity.of(value),
        policy=capacity.RequestPolicy(
            default=quantity.Quantity.of(min(rates.default.value, most)),
            valid_range=capacity.ValidRange(min=rates.min, max=quantity.Quantity.of(most), step=rates.step),
        ),
    )


def _judge(name: str, interface: port.Interface, context: eligibility.NodeContext) -> Nic | eligibility.Refusal:
    speed = eligibility.speed_of(interface, context)
    if isinstance(speed, eligibility.Refusal):
        return speed
    rule = context.settings.rule_for(interface)
    rates, reserve = rule.policy or context.settings.policy, rule.reserve or quantity.ZERO
    bandwidth = shareable(speed - reserve.value, rates)
    if bandwidth is None:
        return eligibility.too_small(speed, reserve, rates)
    whole = nic_settings.matches(interface, context.settings.whole) and interface.kind not in eligibility.AGGREGATE_KINDS
    return Nic(
        name=name,
        interface=interface,
        speed=speed,
        bandwidth=bandwidth,
        classifier=context.shaping.classifier,
        whole=whole,
        shares=context.settings.shares or _bound(bandwidth, rates),
        caution=eligibility.caution(interface, context),
    )


def _bound(bandwidth: capacity.Capacity, rates: nic_settings.BandwidthPolicy) -> int:
    """How many shares to offer at most where the admin does not say: 0, no bound, where the bandwidth is used up first."""
    return nic_settings.SHARES_MAX if bandwidth.value.value // rates.min.value > nic_settings.SHARES_MAX else 0


def _slots(shares: int) -> capacity.Capacity:
    """Room for so many shares, of which each takes one."""
    one = capacity.RequestPolicy(default=quantity.ONE, valid_values=(quantity.ONE,))
    return capacity.Capacity(value=quantity.Quantity.of(shares), policy=one)
