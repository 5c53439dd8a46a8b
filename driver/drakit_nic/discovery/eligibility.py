"""The checks that decide whether an interface is offered, with the reason and the fix where it is not; pure.

The checks run in a fixed order, from reasons that no setting can change to a single missing value. The first check that fails gives the reason.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import drakit
from drakit_nic import interface_identity, port
from drakit_nic import options as nic_options
from drakit_nic.shaping import htb

CHILD_KINDS = frozenset({"macvlan", "macvtap", "ipvlan", "ipvtap"})
AGGREGATE_KINDS = frozenset({"bond", "team"})
_REDIRECT = "ifb"
_SET_SPEED = "set its speed with a rule in nic.rules (match, speed)"
_HOST_MIN = drakit.Quantity.of(htb.MIN_RATE_BITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """The reason that an interface is not offered, or the problem of one that is (``caution``).

    ``reason`` is read after the interface's name. ``change`` is the fix, as an imperative phrase; empty if there is none. An ``expected`` reason is
    normal or follows the admin's settings, so no warning is logged.
    """

    reason: str
    change: str = ""
    expected: bool = False


class NodeContext:
    """The settings, the machine's shaping and all interfaces, which the checks of one interface read."""

    def __init__(self, interfaces: Sequence[port.Interface], options: nic_options.NicOptions, machine: port.Shaping) -> None:
        self.options = options
        self.shaping = machine
        self.by_index: Mapping[int, port.Interface] = {interface.ifindex: interface for interface in interfaces}
        self.uplinks = _uplinks(interfaces)
        self.users = _users(interfaces)
        self._interfaces = interfaces

    def is_believable(self, interface: port.Interface) -> bool:
        """Return whether the reported speed comes from hardware: the interface itself, or all its slaves.

        The speed of a vlan does not count, because it shares the bandwidth of the NIC below, which must not be offered twice.
        """
        if interface.kind not in AGGREGATE_KINDS:
            return not interface.is_virtual
        slaves = [other for other in self._interfaces if other.master == interface.ifindex]
        return bool(slaves) and not any(slave.is_virtual for slave in slaves)

    def speed(self, interface: port.Interface) -> int | None:
        """Return the speed in bits per second: the lower of the hardware's and the admin's rule, None if both are unknown."""
        configured = self.options.rule_for(interface).speed
        reported = interface.speed if self.is_believable(interface) else None
        return min((speed for speed in (reported, None if configured is None else configured.value) if speed is not None), default=None)


def speed_of(interface: port.Interface, context: NodeContext) -> int | Refusal:
    """Return the speed in bits per second that shares can use, or the refusal. Checks of the interface come before the check of its speed."""
    for check in _CHECKS:
        refusal = check(interface, context)
        if refusal is not None:
            return refusal
    speed = context.speed(interface)
    return _unknown_speed(interface, context) if speed is None else speed


def too_small(speed: int, reserve: drakit.Quantity, rates: nic_options.BandwidthPolicy) -> Refusal:
    """Return the refusal of an interface whose bandwidth is too small for the policy's two smallest amounts."""
    smallest = rates.min + rates.step
    return Refusal(
        reason=f"has {drakit.Quantity.of(speed)} minus the reserve of {reserve}, which is less than min + step of the policy, {smallest} bit/s",
        change="lower nic.reserve, or lower reserve, min or step with a rule in nic.rules",
    )


def caution(interface: port.Interface, context: NodeContext) -> Refusal | None:
    """Return the caution for an offered interface that the host uses and that has no reserve, else None."""
    if not use_of(interface, context) or _reserve(interface, context):
        return None
    return Refusal(
        reason=f"is used by the host and has no reserve: while it has shares, the host's own traffic is limited to {_HOST_MIN} bit/s",
        change="set a reserve above 0 (nic.reserve, or a rule in nic.rules)",
    )


def _uplinks(interfaces: Iterable[port.Interface]) -> frozenset[int]:
    """Return the indices of interfaces with a default route and of the interfaces below: bond slaves, bridge ports, the NIC of a vlan."""
    lower_links: dict[int, set[int]] = {}
    for interface in interfaces:
        if interface.master is not None:
            lower_links.setdefault(interface.master, set()).add(interface.ifindex)
        if interface.lower is not None and interface.kind not in interface_identity.PAIRS:
            lower_links.setdefault(interface.ifindex, set()).add(interface.lower)
    uplinks: set[int] = set()
    pending = [interface.ifindex for interface in interfaces if interface.default_route]
    while pending:
        index = pending.pop()
        if index not in uplinks:
            uplinks.add(index)
            pending += lower_links.get(index, ())
    return frozenset(uplinks)


def _users(interfaces: Iterable[port.Interface]) -> Mapping[int, port.Interface]:
    """Return an interface on top of each one that has any: a child such as a VLAN, macvlan or tunnel, or a port of a bridge.

    A bond has its slaves to itself.
    """
    users: dict[int, port.Interface] = {}
    for interface in interfaces:
        if interface.lower is not None and interface.kind not in interface_identity.PAIRS:
            users.setdefault(interface.lower, interface)
    masters = {interface.ifindex for interface in interfaces if interface.kind not in AGGREGATE_KINDS}
    for interface in interfaces:
        if interface.master in masters:
            users.setdefault(interface.master, interface)
    return users


def use_of(interface: port.Interface, context: NodeContext) -> str:
    """Return a use of the interface by others, to be read after its name, empty where there is none."""
    user = context.users.get(interface.ifindex)
    if interface.ifindex in context.uplinks:
        return "carries the host's default route"
    if interface.addressed:
        return "has an address of the host"
    if user is not None:
        return f"carries the host's {user.name} ({user.kind})"
    return interface.used


def _reserve(interface: port.Interface, context: NodeContext) -> int:
    reserve = context.options.rule_for(interface).reserve
    return 0 if reserve is None else reserve.value


def _check_usable(interface: port.Interface, context: NodeContext) -> Refusal | None:
    reason = ""
    if interface.kind == port.LOOPBACK:
        reason = "is the loopback interface"
    elif interface.encapsulation != port.ETHERNET or not interface.mac:
        reason = "is not an Ethernet interface"
    elif interface.kind == _REDIRECT:
        reason = "is an ifb device, which only redirects the traffic of other interfaces"
    elif interface.kind in CHILD_KINDS:
        reason = f"is a {interface.kind} child of another interface"
    elif interface.master is not None:
        master = context.by_index.get(interface.master)
        reason = f"is enslaved to {master.name if master else 'another interface'}"
    return Refusal(reason=reason, expected=True) if reason else None


def _check_filters(interface: port.Interface, context: NodeContext) -> Refusal | None:
    if not nic_options.matches(interface, context.options.include):
        return Refusal(reason="does not match nic.include", change="add a glob that matches it to nic.include", expected=True)
    if nic_options.matches(interface, context.options.exclude):
        return Refusal(reason="matches nic.exclude", change="remove the glob that matches it from nic.exclude", expected=True)
    return None


def _check_host_use(interface: port.Interface, context: NodeContext) -> Refusal | None:
    use = use_of(interface, context)
    if not use:
        return None
    if nic_options.matches(interface, context.options.take_over):
        return _check_host_reserve(interface, context)
    if interface.ifindex in context.uplinks:
        change = "add a glob that matches it to nic.take_over, and set a reserve for the host (nic.reserve, or a rule in nic.rules)"
        return Refusal(reason=use, change=change, expected=True)
    if not context.options.offer_addressed:
        change = (
            "set nic.offer_addressed to true, or add a glob that matches it to nic.take_over; in both cases set nic.reserve for the host"
        )
        return Refusal(reason=use, change=change, expected=True)
    return None


def _check_host_reserve(interface: port.Interface, context: NodeContext) -> Refusal | None:
    """Return a refusal if the used interface has no reserve: the driver would limit the host's traffic to the smallest rate."""
    if _reserve(interface, context):
        return None
    return Refusal(
        reason=f"matches nic.take_over and has no reserve: the host's own traffic would be limited to {_HOST_MIN} bit/s",
        change="set a reserve above 0 (nic.reserve, or a rule in nic.rules)",
    )


def _check_virtual_function(interface: port.Interface, context: NodeContext) -> Refusal | None:
    parent = interface.pci.physical_function if interface.pci else ""
    if parent and context.options.rule_for(interface).speed is None:
        reason = f"is a virtual function of {parent}, whose bandwidth it shares"
        return Refusal(reason=reason, change=_SET_SPEED, expected=True)
    return None


def _check_enforceable(interface: port.Interface, context: NodeContext) -> Refusal | None:
    """Return a refusal if the rate of a share could not be enforced on the interface."""
    if interface.other_driver:
        change = (
            f"release that driver's shares and exclude it there (if that driver is gone for good: ip link delete drb{interface.ifindex})"
        )
        return Refusal(reason=f"is shared out by the driver {interface.other_driver}", change=change)
    if interface.queueing:
        reason = f"has a root qdisc of another program ({interface.queueing})"
        return Refusal(reason=reason, change=f"stop that program and remove the qdisc: tc qdisc delete dev {interface.name} root")
    if context.shaping.missing:
        return Refusal(reason=context.shaping.missing, change="add what is missing to the host; no setting replaces it")
    return _check_child(interface, context)


def _check_child(interface: port.Interface, context: NodeContext) -> Refusal | None:
    """Return a refusal if the kernel cannot create the interfaces of shares, or cannot identify the sender of a frame behind them."""
    child, user = context.options.rule_for(interface).child, context.users.get(interface.ifindex)
    if user is not None and user.kind in CHILD_KINDS and user.kind[:3] != child[:3]:
        reason = f"carries the host's {user.name} ({user.kind}), beside which the kernel allows no {child}"
        return Refusal(reason=reason, change="remove that interface, or set child in a rule in nic.rules to the other kind")
    if child != port.ChildKind.IPVLAN.value:
        return None
    if not context.shaping.ipvlan:
        change = "load the kernel module ipvlan, or remove child: ipvlan from the rule in nic.rules"
        return Refusal(reason="has child: ipvlan in nic.rules, and this kernel has no ipvlan", change=change)
    if context.shaping.classifier is port.Classifier.MAC:
        reason = "has child: ipvlan in nic.rules, and this kernel tells senders apart by MAC address only, which all ipvlans share"
        return Refusal(
            reason=reason, change="use a newer kernel (drakit doctor says why), or remove child: ipvlan from the rule in nic.rules"
        )
    return None


def _unknown_speed(interface: port.Interface, context: NodeContext) -> Refusal:
    if not context.is_believable(interface):
        reason, expected = f"is virtual ({interface.kind}), so its reported speed is ignored", True
    else:
        reason, expected = f"reports no speed{'' if interface.carrier else ' (no carrier)'}", not interface.carrier
    return Refusal(reason=reason, change=_SET_SPEED, expected=expected)


_CHECKS: tuple[Callable[[port.Interface, NodeContext], Refusal | None], ...] = (
    _check_usable,
    _check_filters,
    _check_host_use,
    _check_virtual_function,
    _check_enforceable,
)
