"""The offered and withheld interfaces of a node, and the devices of the offered ones with attributes and capacity; pure.

Every interface is either offered or withheld with a reason. It is withheld when it cannot carry shares, when the host uses it, when a setting
excludes it, when another program configured its queueing, when the kernel cannot enforce a rate, or when its speed is unknown, because a guess would
be allocated as bandwidth.
"""

import dataclasses
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import drakit
from drakit import vfio
from drakit_nic import options as nic_options
from drakit_nic import port
from drakit_nic.discovery import attributes, device_names, eligibility, hardware

TREE_FRAMES = 10**6
"""Frames a second that one tree of queues passes, because one lock guards it: about what ``bench_nic_queues`` measured (ADR 98)."""

_ONE_USE = {"uses": drakit.ONE}
NOT_SHAPED = port.Shaping(classifier=port.Classifier.NONE)
_USES = "uses"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """The link of a physical function: its device name, and the bandwidth that its own shares and its virtual functions draw on."""

    name: str
    bandwidth: drakit.Quantity


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nic:
    """An interface that is offered, with its device name, its usable speed (bits per second) and the bandwidth for shares.

    ``whole`` is set where the interface is also offered whole, ``vfio`` where it is offered to virtual machines. ``min_rate`` is set for a virtual
    function whose parent guarantees the bandwidth of a claim, and ``link`` for a virtual function and its parent. ``shares`` is the maximum number
    of shares, 0 where only the bandwidth limits it, and ``child`` the kind of their interfaces.
    ``caution`` is a problem for the admin, if there is one.
    """

    name: str
    interface: port.Interface
    speed: int
    bandwidth: drakit.Capacity
    classifier: port.Classifier = port.Classifier.NONE
    whole: bool = False
    vfio: bool = False
    min_rate: bool = False
    link: Link | None = None
    shares: int = 0
    child: port.ChildKind = port.ChildKind.MACVLAN
    caution: eligibility.Refusal | None = None

    def to_device(self) -> drakit.Device:
        """Return the published device that many claims may share."""
        capacity = {attributes.BANDWIDTH: self.bandwidth, **({attributes.SLOTS: _slots(self.shares)} if self.shares else {})}
        return drakit.Device(
            name=self.name,
            attributes=attributes.of(
                self.interface, speed=self.speed, classifier=self.classifier, capacities=len(capacity), child=self.child.value
            ),
            capacity=capacity,
            consumes=self._consumes(self.bandwidth.value),
            allow_multiple_allocations=True,
        )

    @property
    def queueing(self) -> str:
        """Return what shares do to the transmit queues of hardware with several, to be read after its name; empty for other interfaces.

        The frames that count are those before segmentation, in which TCP sends up to 64 KB.
        """
        if self.interface.transmit_queues == 1 or self.interface.is_virtual:
            return ""
        least, speed = -(-self.speed // (8 * TREE_FRAMES)), drakit.Quantity.of(self.speed)
        return (
            f"shares use one HTB tree and none of up to {self.interface.transmit_queues} transmit queues; it passes about "
            f"{TREE_FRAMES // 10**6} million frames a second, so {speed} needs frames of {least} bytes or more before segmentation"
        )

    @property
    def is_exclusive(self) -> bool:
        """Return whether the interface is also offered in a form that only one claim can have."""
        return self.whole or self.vfio

    def forms(self) -> Iterator[drakit.Device]:
        """Yield the published devices. The shared form comes first, because the scheduler allocates the first device that fits."""
        yield self.to_device()
        if self.whole:
            yield self.to_exclusive(attributes.WHOLE, device_names.WHOLE_SUFFIX)
        if self.vfio:
            yield self.to_exclusive(attributes.VFIO, device_names.VFIO_SUFFIX)

    def to_exclusive(self, form: str, suffix: str) -> drakit.Device:
        """Return the published device of a form that only one claim can have.

        A claim may request part of a virtual function's bandwidth, which the physical function then enforces. In the API that is a device with at
        most one share.
        """
        is_function = bool(self.interface.pci and self.interface.pci.physical_function)
        bandwidth = self.bandwidth if is_function else drakit.Capacity(value=drakit.Quantity.of(self.speed))
        capacity = {attributes.BANDWIDTH: bandwidth, **({attributes.SLOTS: _slots(1)} if is_function else {})}
        return drakit.Device(
            name=f"{self.name}{suffix}",
            attributes=attributes.of(
                self.interface,
                speed=self.speed,
                classifier=port.Classifier.NONE,
                capacities=len(capacity),
                form=form,
                min_rate=self.min_rate,
            ),
            capacity=capacity,
            consumes=self._consumes(bandwidth.value if is_function else None),
            allow_multiple_allocations=is_function,
        )

    def _consumes(self, bandwidth: drakit.Quantity | None) -> tuple[drakit.CounterConsumption, ...]:
        """Return one use of the interface, and the bandwidth from the link of its physical function, None for all of it.

        All shares together consume them once. So an interface has either shares or one claim for an exclusive form, and no link is promised twice.
        """
        is_function = bool(self.interface.pci and self.interface.pci.physical_function)
        drawn: dict[str, dict[str, drakit.Quantity]] = {self.name: {_USES: drakit.ONE}} if self.is_exclusive else {}
        if self.link is not None:
            drawn.setdefault(self.link.name, {})[attributes.BANDWIDTH] = (
                self.link.bandwidth if bandwidth is None else bandwidth if is_function else min(bandwidth, self.link.bandwidth)
            )
        return tuple(drakit.CounterConsumption(counter_set=name, counters=counters) for name, counters in drawn.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Withheld:
    """An interface that is not offered: its interface name, with the reason and the fix (``eligibility.Refusal``).

    ``device`` is the device name that it would have.
    """

    name: str
    refusal: eligibility.Refusal
    device: str = ""

    @property
    def reason(self) -> str:
        """Return the reason, to be read after the interface's name: ``is the loopback interface``."""
        return self.refusal.reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Survey:
    """The offered and withheld interfaces of a node, and the events that can change them.

    ``not_passed`` are the offered ones that match nic.vfio and cannot be passed to a virtual machine now, by device name.
    """

    nics: tuple[Nic, ...]
    withheld: tuple[Withheld, ...]
    links: tuple[Link, ...] = ()
    not_passed: Mapping[str, vfio.Refusal] = dataclasses.field(default_factory=dict)
    interest: port.Interest = dataclasses.field(default_factory=port.Interest)

    def to_inventory(self) -> drakit.Inventory:
        """Return the inventory to publish."""
        sets: dict[str, dict[str, drakit.Quantity]] = {nic.name: {_USES: drakit.ONE} for nic in self.nics if nic.is_exclusive}
        for link in self.links:
            sets.setdefault(link.name, {})[attributes.BANDWIDTH] = link.bandwidth
        counter_sets = tuple(drakit.CounterSet(name=name, counters=counters) for name, counters in sets.items())
        return drakit.Inventory(devices=tuple(form for nic in self.nics for form in nic.forms()), counter_sets=counter_sets)

    def withheld_devices(self) -> Mapping[str, str]:
        """Return why an interface that is there is not offered, by the names of all forms of its device."""
        reasons = {entry.device: f"{attributes.text(entry.name)} {entry.reason}" for entry in self.withheld}
        withheld = {
            f"{name}{suffix}": reason
            for name, reason in reasons.items()
            for suffix in ("", device_names.WHOLE_SUFFIX, device_names.VFIO_SUFFIX)
        }
        for nic in self.nics:
            for suffix, is_offered, setting in (
                (device_names.WHOLE_SUFFIX, nic.whole, "nic.whole"),
                (device_names.VFIO_SUFFIX, nic.vfio, "nic.vfio"),
            ):
                if not is_offered:
                    withheld[f"{nic.name}{suffix}"] = f"{attributes.text(nic.interface.name)} does not match {setting}"
            if nic.name in self.not_passed:
                withheld[f"{nic.name}{device_names.VFIO_SUFFIX}"] = (
                    f"{attributes.text(nic.interface.name)} {self.not_passed[nic.name].reason}"
                )
        return withheld


class LastSpeeds:
    """The last speed of each interface while it had a link, by PCI address or name.

    Hardware without a link reports no speed, and an interface of unknown speed is not offered. But a device must not vanish from its slice because a
    cable is unplugged for a minute. After a restart without a link, only the speed of a rule keeps the interface offered.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def fill(self, interfaces: Iterable[port.Interface]) -> tuple[port.Interface, ...]:
        """Return the interfaces, those without a link with their last speed."""
        return tuple(map(self._fill, interfaces))

    def _fill(self, interface: port.Interface) -> port.Interface:
        key = interface.pci.bus_id if interface.pci else interface.name
        if interface.speed is not None:
            self._last[key] = interface.speed
        elif not interface.carrier and key in self._last:
            return dataclasses.replace(interface, speed=self._last[key])
        return interface


def survey(
    interfaces: Sequence[port.Interface],
    options: nic_options.NicOptions,
    shaping: port.Shaping = NOT_SHAPED,
    guaranteeing: Collection[str] = (),
    passed: Mapping[str, vfio.Refusal | None] = types.MappingProxyType({}),
) -> Survey:
    """Return the offered and withheld interfaces by the settings and by the machine's shaping.

    ``guaranteeing`` are the bus ids of physical functions that guarantee their virtual ones a minimum rate. ``passed`` has the interfaces that match
    nic.vfio by bus id, with the reason why one cannot be passed to a virtual machine, None if it can.
    """
    context = eligibility.NodeContext(interfaces, options, shaping)
    nics: list[Nic] = []
    withheld: list[Withheld] = []
    not_passed: dict[str, vfio.Refusal] = {}
    for name, interface in sorted(device_names.by_name(interfaces).items()):
        nic_or_refusal = _offer_or_refuse(name, interface, context)
        if isinstance(nic_or_refusal, Nic):
            is_guaranteed = bool(interface.pci and interface.pci.physical_function in guaranteeing)
            bus_id = interface.pci.bus_id if interface.pci else ""
            refused = passed.get(bus_id)
            if refused is not None:
                not_passed[name] = refused
            nics.append(dataclasses.replace(nic_or_refusal, min_rate=is_guaranteed, vfio=bus_id in passed and refused is None))
        else:
            withheld.append(Withheld(name=interface.name, refusal=nic_or_refusal, device=name))
    links = _links(interfaces, nics, options)
    return Survey(
        nics=tuple(dataclasses.replace(nic, link=links.get(_link_address(nic.interface))) for nic in nics),
        withheld=tuple(sorted(withheld, key=lambda entry: entry.name)),
        links=tuple(links.values()),
        not_passed=not_passed,
        interest=_interest(interfaces, options),
    )


def _links(interfaces: Sequence[port.Interface], nics: Sequence[Nic], options: nic_options.NicOptions) -> Mapping[str, Link]:
    """Return the links of physical functions with offered virtual functions, by bus id, as far as their speed is known.

    The speed is the reported one, because a rule may give shares only a part of it. The host's reserve is not available.
    """
    device_of = {interface.ifindex: name for name, interface in device_names.by_name(interfaces).items()}
    offered = {nic.interface.pci.physical_function for nic in nics if nic.interface.pci}
    links: dict[str, Link] = {}
    for bus_id, parent in hardware.physical_functions(interfaces).items():
        rule = options.rule_for(parent)
        speed = parent.speed if parent.speed is not None else rule.speed and rule.speed.value
        if speed and bus_id in offered:
            available = max(speed - (rule.reserve or drakit.ZERO).value, 0)
            links[bus_id] = Link(name=device_of[parent.ifindex], bandwidth=drakit.Quantity.of(available))
    return links


def _link_address(interface: port.Interface) -> str:
    """Return the bus id of the physical function whose link an interface uses, empty where it is unknown."""
    return (interface.pci.physical_function or interface.pci.bus_id) if interface.pci else ""


def _interest(interfaces: Sequence[port.Interface], options: nic_options.NicOptions) -> port.Interest:
    """Return the interfaces besides hardware that can be offered: bonds, teams, and interfaces whose speed a rule sets.

    Hardware is not listed: a node may have hundreds of virtual functions, and the kernel limits the size of the filter.
    """
    return port.Interest(
        ifindexes=frozenset(
            interface.ifindex
            for interface in interfaces
            if interface.kind in eligibility.AGGREGATE_KINDS or options.rule_for(interface).speed is not None
        ),
        globs=tuple(rule.match for rule in options.rules if rule.speed is not None),
    )


def shareable(available: int, rates: nic_options.BandwidthPolicy) -> drakit.Capacity | None:
    """Return the capacity of ``available`` bits per second, rounded down to a valid amount, None if the policy needs more.

    The API requires that min + step fits the capacity, and that default and max are min + n * step within it (KEP-5075, validRange).
    """
    value = rates.floor(available)
    if value < rates.min.value + rates.step.value:
        return None
    maximum = value if rates.max is None else min(value, rates.max.value)
    return drakit.Capacity(
        value=drakit.Quantity.of(value),
        policy=drakit.RequestPolicy(
            default=drakit.Quantity.of(min(rates.default.value, maximum)),
            valid_range=drakit.ValidRange(min=rates.min, max=drakit.Quantity.of(maximum), step=rates.step),
        ),
    )


def _offer_or_refuse(name: str, interface: port.Interface, context: eligibility.NodeContext) -> Nic | eligibility.Refusal:
    speed = eligibility.speed_of(interface, context)
    if isinstance(speed, eligibility.Refusal):
        return speed
    rule = context.options.rule_for(interface)
    rates, reserve = rule.policy, rule.reserve or drakit.ZERO
    bandwidth = shareable(speed - reserve.value, rates)
    if bandwidth is None:
        return eligibility.too_small(speed, reserve, rates)
    whole = nic_options.matches(interface, context.options.whole) and interface.kind not in eligibility.AGGREGATE_KINDS
    return Nic(
        name=name,
        interface=interface,
        speed=speed,
        bandwidth=bandwidth,
        classifier=context.shaping.classifier,
        whole=whole,
        shares=context.options.shares or _default_shares(bandwidth, rates),
        child=port.ChildKind(rule.child),
        caution=eligibility.caution(interface, context),
    )


def _default_shares(bandwidth: drakit.Capacity, rates: nic_options.BandwidthPolicy) -> int:
    """Return the default maximum number of shares, 0 where the bandwidth is used up first."""
    return nic_options.SHARES_MAX if bandwidth.value.value // rates.min.value > nic_options.SHARES_MAX else 0


def _slots(shares: int) -> drakit.Capacity:
    """Return a capacity for this number of shares. Each share consumes one."""
    policy = drakit.RequestPolicy(default=drakit.ONE, valid_values=(drakit.ONE,))
    return drakit.Capacity(value=drakit.Quantity.of(shares), policy=policy)
