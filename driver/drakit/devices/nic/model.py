"""From interfaces and settings to what is offered; pure.

The law: every interface is either offered or withheld with a reason, never both and never neither. An interface is withheld when it cannot
carry shares, when the host uses it, when it is filtered out, when its queueing is somebody else's or cannot hold a rate, or when nobody knows its
speed: a guess would be sold as bandwidth.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import counters, device, inventory, policy, quantity
from drakit.devices.nic import attributes, names, port
from drakit.devices.nic import settings as nic_settings

_CHILD_KINDS = frozenset({"macvlan", "macvtap", "ipvlan", "ipvtap"})
_STACKED_KINDS = _CHILD_KINDS | {"vlan"}
_PASSING = "ifb"
_AGGREGATE_KINDS = frozenset({"bond", "team"})
_ONE_USE = {"uses": quantity.ONE}
WHOLE_SUFFIX = "-whole"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nic:
    """An interface that is offered: its device name, the speed believed (bits per second) and the bandwidth to share out.

    ``whole`` says that it is offered in the exclusive form too, ``shares`` how many shares it may have, 0 any number that its bandwidth has room for.
    """

    name: str
    interface: port.Interface
    speed: int
    bandwidth: policy.Capacity
    classifier: port.Classifier = port.Classifier.NONE
    whole: bool = False
    shares: int = 0

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
        bandwidth = self.bandwidth if function else policy.Capacity(value=quantity.Quantity.of(self.speed))
        return device.Device(
            name=f"{self.name}{WHOLE_SUFFIX}",
            attributes=attributes.of(self.interface, speed=self.speed, classifier=port.Classifier.NONE, form=attributes.WHOLE),
            capacity={attributes.BANDWIDTH: bandwidth, **({attributes.SLOTS: _slots(1)} if function else {})},
            consumes=self._consumes(),
            allow_multiple_allocations=function,
        )

    def _consumes(self) -> tuple[counters.CounterConsumption, ...]:
        """One use of the interface: shares together draw it once, so either there are shares or somebody has the whole."""
        return (counters.CounterConsumption(counter_set=self.name, counters=_ONE_USE),) if self.whole else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Withheld:
    """An interface that is not offered, by its interface name, and why."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """The interfaces of a node, sorted into offered (by device name) and withheld (by interface name)."""

    nics: tuple[Nic, ...]
    withheld: tuple[Withheld, ...]

    def to_inventory(self) -> inventory.Inventory:
        """What is published; the shared form before the whole, as the scheduler takes the first that fits."""
        devices = [form for nic in self.nics for form in (nic.to_device(), *([nic.to_whole()] if nic.whole else []))]
        sets = tuple(counters.CounterSet(name=nic.name, counters=_ONE_USE) for nic in self.nics if nic.whole)
        return inventory.Inventory(devices=tuple(devices), counter_sets=sets)


NOT_SHAPED = port.Shaping(classifier=port.Classifier.NONE)


def survey(interfaces: Sequence[port.Interface], settings: nic_settings.NicSettings, shaping: port.Shaping = NOT_SHAPED) -> Survey:
    """Sort interfaces by the settings and by what the machine can enforce."""
    surroundings = _Surroundings(interfaces, settings, shaping)
    nics: list[Nic] = []
    withheld: list[Withheld] = []
    for name, interface in sorted(names.device_names(interfaces).items()):
        found = _judge(name, interface, surroundings)
        if isinstance(found, Nic):
            nics.append(found)
        else:
            withheld.append(Withheld(name=interface.name, reason=found))
    return Survey(nics=tuple(nics), withheld=tuple(sorted(withheld, key=lambda item: item.name)))


def shareable(available: int, rates: nic_settings.BandwidthPolicy) -> policy.Capacity | None:
    """The capacity made of ``available`` bits per second, rounded down to a valid amount; None when it is too little for the policy.

    The API asks that min + step fits the capacity, and that default and max are min + n * step within it (KEP-5075, validRange).
    """
    value = rates.floor(available)
    if value < rates.min.value + rates.step.value:
        return None
    most = value if rates.max is None else min(value, rates.max.value)
    return policy.Capacity(
        value=quantity.Quantity.of(value),
        policy=policy.RequestPolicy(
            default=quantity.Quantity.of(min(rates.default.value, most)),
            valid_range=policy.ValidRange(min=rates.min, max=quantity.Quantity.of(most), step=rates.step),
        ),
    )


class _Surroundings:
    """What the verdict on one interface needs to know of the others."""

    def __init__(self, interfaces: Sequence[port.Interface], settings: nic_settings.NicSettings, shaping: port.Shaping) -> None:
        self.settings = settings
        self.shaping = shaping
        self.by_index: Mapping[int, port.Interface] = {item.ifindex: item for item in interfaces}
        self.uplinks = _uplinks(interfaces)
        self._interfaces = interfaces

    def is_believable(self, interface: port.Interface) -> bool:
        """Whether the speed an interface reports comes from hardware: its own, or that of all its slaves.

        Not that of a vlan: the NIC below has the same bandwidth, and it must not be offered twice.
        """
        if interface.kind not in _AGGREGATE_KINDS:
            return not interface.is_virtual
        slaves = [item for item in self._interfaces if item.master == interface.ifindex]
        return bool(slaves) and not any(slave.is_virtual for slave in slaves)


def _uplinks(interfaces: Iterable[port.Interface]) -> frozenset[int]:
    """Indices of the interfaces that have a default route, and of all that carry those: slaves of a bond, ports of a bridge, a vlan's NIC."""
    carriers: dict[int, set[int]] = {}
    for item in interfaces:
        if item.master is not None:
            carriers.setdefault(item.master, set()).add(item.ifindex)
        if item.lower is not None and item.kind in _STACKED_KINDS:
            carriers.setdefault(item.ifindex, set()).add(item.lower)
    found: set[int] = set()
    pending = [item.ifindex for item in interfaces if item.default_route]
    while pending:
        index = pending.pop()
        if index not in found:
            found.add(index)
            pending += carriers.get(index, ())
    return frozenset(found)


def _judge(name: str, interface: port.Interface, around: _Surroundings) -> Nic | str:
    for why_not in _VERDICTS:
        reason = why_not(interface, around)
        if reason:
            return reason
    rule = around.settings.rule_for(interface)
    speed = _speed(interface, rule, around)
    if speed is None:
        return _why_no_speed(interface, around)
    rates, reserve = rule.policy or around.settings.policy, rule.reserve or quantity.ZERO
    bandwidth = shareable(speed - reserve.value, rates)
    if bandwidth is None:
        least = rates.min + rates.step
        return f"{quantity.Quantity.of(speed)} less the reserve of {reserve} is under the policy's min + step of {least} bits per second"
    whole = nic_settings.matches(interface, around.settings.whole) and interface.kind not in _AGGREGATE_KINDS
    return Nic(
        name=name,
        interface=interface,
        speed=speed,
        bandwidth=bandwidth,
        classifier=around.shaping.classifier,
        whole=whole,
        shares=around.settings.shares or _bound(bandwidth, rates),
    )


def _bound(bandwidth: policy.Capacity, rates: nic_settings.BandwidthPolicy) -> int:
    """How many shares to offer at most where the admin does not say: 0, no bound, where the bandwidth is used up first."""
    return nic_settings.SHARES_MAX if bandwidth.value.value // rates.min.value > nic_settings.SHARES_MAX else 0


def _slots(shares: int) -> policy.Capacity:
    """Room for so many shares, of which each takes one."""
    one = policy.RequestPolicy(default=quantity.ONE, valid_values=(quantity.ONE,))
    return policy.Capacity(value=quantity.Quantity.of(shares), policy=one)


def _speed(interface: port.Interface, rule: nic_settings.InterfaceRule, around: _Surroundings) -> int | None:
    known = interface.speed if around.is_believable(interface) else None
    figures = [figure for figure in (known, None if rule.speed is None else rule.speed.value) if figure is not None]
    return min(figures, default=None)


def _why_no_speed(interface: port.Interface, around: _Surroundings) -> str:
    fix = "give its speed in the settings"
    if not around.is_believable(interface):
        return f"is virtual ({interface.kind}), so its speed is not believed; {fix}"
    return f"reports no speed{'' if interface.carrier else ' (no carrier)'}; {fix}"


def _is_unusable(interface: port.Interface, around: _Surroundings) -> str:
    if interface.kind == port.LOOPBACK:
        return "is the loopback"
    if interface.encapsulation != port.ETHERNET or not interface.mac:
        return "is not an Ethernet interface"
    if interface.kind == _PASSING:
        return "only passes on what others receive (ifb)"
    if interface.kind in _CHILD_KINDS:
        return f"is itself a part ({interface.kind}) of another interface"
    if interface.master is not None:
        master = around.by_index.get(interface.master)
        return f"is enslaved to {master.name if master else 'another interface'}"
    return ""


def _is_filtered(interface: port.Interface, around: _Surroundings) -> str:
    if not nic_settings.matches(interface, around.settings.include):
        return "is not in the setting include"
    if nic_settings.matches(interface, around.settings.exclude):
        return "is in the setting exclude"
    return ""


def _is_of_the_host(interface: port.Interface, around: _Surroundings) -> str:
    if nic_settings.matches(interface, around.settings.take_over):
        return ""
    if interface.ifindex in around.uplinks:
        return "carries the host's default route"
    return "has an address of the host" if interface.addressed and not around.settings.offer_addressed else ""


def _is_counted_elsewhere(interface: port.Interface, around: _Surroundings) -> str:
    parent = interface.pci.physical_function if interface.pci else ""
    if parent and around.settings.rule_for(interface).speed is None:
        return f"is a virtual function of {parent}, whose bandwidth it shares; give its speed in the settings"
    return ""


def _is_out_of_hand(interface: port.Interface, around: _Surroundings) -> str:
    """Whether a share of it could not be held to its rate."""
    if interface.queueing:
        return f"has a root qdisc of somebody else's ({interface.queueing})"
    return around.shaping.lacking


_VERDICTS: tuple[Callable[[port.Interface, _Surroundings], str], ...] = (
    _is_unusable,
    _is_filtered,
    _is_of_the_host,
    _is_counted_elsewhere,
    _is_out_of_hand,
)
