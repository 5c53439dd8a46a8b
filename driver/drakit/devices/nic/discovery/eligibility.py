"""Decides which interfaces are offered, and explains why one is not and how to change that; pure.

Checks run in a fixed order, from what no setting can change to what one figure changes. The first that refuses gives the reason.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from drakit.core import quantity
from drakit.devices.nic import port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic.shaping import htb

CHILD_KINDS = frozenset({"macvlan", "macvtap", "ipvlan", "ipvtap"})
AGGREGATE_KINDS = frozenset({"bond", "team"})
_STACKED_KINDS = CHILD_KINDS | {"vlan"}
_PASSING = "ifb"
_GIVE_SPEED = "its speed by a rule in nic.rules (match, speed)"
_LEFT_TO_THE_HOST = quantity.Quantity.of(htb.SMALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """A reason, and in ``change`` what would make the interface be offered: a setting by its key, or a step on the host; empty where nothing would.

    ``expected`` says that it is so on most nodes or as the admin wrote it, so that no warning is logged; ``is_of_speed`` that only
    its speed is lacking, which an admin may give.
    """

    reason: str
    change: str = ""
    expected: bool = False
    is_of_speed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caution:
    """A warning about an offered interface: ``reason``, which follows its name, and ``change``, the setting that fixes it."""

    reason: str
    change: str


class NodeContext:
    """The node's settings and other interfaces, which the check of one interface needs."""

    def __init__(self, interfaces: Sequence[port.Interface], settings: nic_settings.NicSettings, machine: port.Shaping) -> None:
        self.settings = settings
        self.shaping = machine
        self.by_index: Mapping[int, port.Interface] = {interface.ifindex: interface for interface in interfaces}
        self.uplinks = _uplinks(interfaces)
        self._interfaces = interfaces

    def is_believable(self, interface: port.Interface) -> bool:
        """Return whether the speed an interface reports comes from hardware: its own, or that of all its slaves.

        Not that of a vlan: the NIC below has the same bandwidth, and it must not be offered twice.
        """
        if interface.kind not in AGGREGATE_KINDS:
            return not interface.is_virtual
        slaves = [other for other in self._interfaces if other.master == interface.ifindex]
        return bool(slaves) and not any(slave.is_virtual for slave in slaves)

    def speed(self, interface: port.Interface) -> int | None:
        """Return the speed believed, in bits per second: what hardware reports, capped by the admin's figure, or that alone."""
        given = self.settings.rule_for(interface).speed
        reported = interface.speed if self.is_believable(interface) else None
        return min((figure for figure in (reported, None if given is None else given.value) if figure is not None), default=None)


def speed_of(interface: port.Interface, context: NodeContext) -> int | Refusal:
    """The speed in bits per second to be shared out, or why there is none: a refusal of the interface as such comes before one of its speed."""
    for check in _CHECKS:
        refusal = check(interface, context)
        if refusal is not None:
            return refusal
    speed = context.speed(interface)
    return _unknown_speed(interface, context) if speed is None else speed


def too_small(speed: int, reserve: quantity.Quantity, rates: nic_settings.BandwidthPolicy) -> Refusal:
    """Return the refusal of an interface whose bandwidth has no room for two amounts of the policy."""
    least = rates.min + rates.step
    return Refusal(
        reason=f"{quantity.Quantity.of(speed)} less the reserve of {reserve} is under the policy's min + step of {least} bits per second",
        change="a smaller nic.reserve, or a smaller reserve, min and step by a rule in nic.rules",
    )


def caution(interface: port.Interface, context: NodeContext) -> Caution | None:
    """Return the caution for an interface that is offered although the host uses it, or None."""
    if not (interface.addressed or interface.ifindex in context.uplinks) or _reserve(interface, context):
        return None
    return Caution(
        reason=f"has an address of the host and no reserve: while it has shares, the host's own traffic by it is held to {_LEFT_TO_THE_HOST} bit/s",
        change="a reserve above 0, by nic.reserve or by a rule in nic.rules",
    )


def _uplinks(interfaces: Iterable[port.Interface]) -> frozenset[int]:
    """Indices of the interfaces that have a default route, and of all that carry those: slaves of a bond, ports of a bridge, a vlan's NIC."""
    carriers: dict[int, set[int]] = {}
    for interface in interfaces:
        if interface.master is not None:
            carriers.setdefault(interface.master, set()).add(interface.ifindex)
        if interface.lower is not None and interface.kind in _STACKED_KINDS:
            carriers.setdefault(interface.ifindex, set()).add(interface.lower)
    reached: set[int] = set()
    pending = [interface.ifindex for interface in interfaces if interface.default_route]
    while pending:
        index = pending.pop()
        if index not in reached:
            reached.add(index)
            pending += carriers.get(index, ())
    return frozenset(reached)


def _reserve(interface: port.Interface, context: NodeContext) -> int:
    reserve = context.settings.rule_for(interface).reserve
    return 0 if reserve is None else reserve.value


def _is_unusable(interface: port.Interface, context: NodeContext) -> Refusal | None:
    reason = ""
    if interface.kind == port.LOOPBACK:
        reason = "is the loopback"
    elif interface.encapsulation != port.ETHERNET or not interface.mac:
        reason = "is not an Ethernet interface"
    elif interface.kind == _PASSING:
        reason = "only passes on what others receive (ifb)"
    elif interface.kind in CHILD_KINDS:
        reason = f"is itself a part ({interface.kind}) of another interface"
    elif interface.master is not None:
        master = context.by_index.get(interface.master)
        reason = f"is enslaved to {master.name if master else 'another interface'}"
    return Refusal(reason=reason, expected=True) if reason else None


def _is_filtered(interface: port.Interface, context: NodeContext) -> Refusal | None:
    if not nic_settings.matches(interface, context.settings.include):
        return Refusal(reason="is not in the setting include", change="a glob in nic.include that fits it", expected=True)
    if nic_settings.matches(interface, context.settings.exclude):
        return Refusal(reason="is in the setting exclude", change="nic.exclude without the glob that fits it", expected=True)
    return None


def _is_of_the_host(interface: port.Interface, context: NodeContext) -> Refusal | None:
    is_uplink = interface.ifindex in context.uplinks
    if nic_settings.matches(interface, context.settings.take_over):
        return _is_left_nothing(interface, context, is_used=is_uplink or interface.addressed)
    if is_uplink:
        change = "a glob in nic.take_over that fits it, and a reserve for the host (nic.reserve, or a rule in nic.rules)"
        return Refusal(reason="carries the host's default route", change=change, expected=True)
    if interface.addressed and not context.settings.offer_addressed:
        change = "nic.offer_addressed, or a glob in nic.take_over that fits it, and a reserve for the host"
        return Refusal(reason="has an address of the host", change=change, expected=True)
    return None


def _is_left_nothing(interface: port.Interface, context: NodeContext, *, is_used: bool) -> Refusal | None:
    """Return the host's class has the reserve's rate, so without one the take-over would cut the host off by the driver's smallest class."""
    if not is_used or _reserve(interface, context):
        return None
    return Refusal(
        reason=(
            "is named by nic.take_over and its reserve is 0 (nic.reserve), which would hold the host's own traffic by it to "
            f"{_LEFT_TO_THE_HOST} bit/s"
        ),
        change="nic.reserve, or the reserve of a rule in nic.rules, above 0",
    )


def _is_counted_elsewhere(interface: port.Interface, context: NodeContext) -> Refusal | None:
    parent = interface.pci.physical_function if interface.pci else ""
    if parent and context.settings.rule_for(interface).speed is None:
        reason = f"is a virtual function of {parent}, whose bandwidth it shares"
        return Refusal(reason=reason, change=_GIVE_SPEED, expected=True, is_of_speed=True)
    return None


def _is_out_of_hand(interface: port.Interface, context: NodeContext) -> Refusal | None:
    """Return whether a share of it could not be held to its rate."""
    if interface.sharer:
        change = f"an end of that driver's shares of it, and nic.exclude there (where it is gone for good: ip link delete drb{interface.ifindex})"
        return Refusal(reason=f"is shared out by the driver {interface.sharer}", change=change)
    if interface.queueing:
        reason = f"has a root qdisc of another program ({interface.queueing})"
        return Refusal(reason=reason, change=f"no setting: whoever made it removes it (tc qdisc delete dev {interface.name} root)")
    if context.shaping.missing:
        return Refusal(reason=context.shaping.missing, change="no setting: the host must have what is lacking")
    return None


def _unknown_speed(interface: port.Interface, context: NodeContext) -> Refusal:
    if not context.is_believable(interface):
        reason, expected = f"is virtual ({interface.kind}), so its speed is not believed", True
    else:
        reason, expected = f"reports no speed{'' if interface.carrier else ' (no carrier)'}", not interface.carrier
    return Refusal(reason=reason, change=_GIVE_SPEED, expected=expected, is_of_speed=True)


_CHECKS: tuple[Callable[[port.Interface, NodeContext], Refusal | None], ...] = (
    _is_unusable,
    _is_filtered,
    _is_of_the_host,
    _is_counted_elsewhere,
    _is_out_of_hand,
)
