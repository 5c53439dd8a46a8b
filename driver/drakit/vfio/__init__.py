"""Give PCI functions to virtual machines with VFIO: plan, bind to the driver vfio-pci, and restore the former driver.

The kernel hands out whole IOMMU groups (Documentation/driver-api/vfio.rst): a group can be used only while each of its functions is bound to vfio-pci
or to no driver. ``plan`` reads the group and refuses what must stay with the host. It changes nothing, so its result is durable in the journal before
``bind`` changes the first driver. ``release`` needs nothing but the plan. It continues from every step at which a process died, because each step is
visible in sysfs: ``driver_override`` is set first and reset last.

``Bus`` is the port. Its adapters are the kernel (``drakit.vfio.kernel``) and a mock machine (``drakit.vfio.mock``).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

from drakit import wire
from drakit.core import arguments, edits, errors, records
from drakit.telemetry import logs

DRIVER = "vfio-pci"
KEY = "vfio"
"""The key of the plan in a family's intents and records."""
_BRIDGE = 0x06
_LEFT_ALONE = frozenset({"", DRIVER, "pcieport", "pci-stub"})
"""Drivers that leave the DMA of a group to VFIO (pci_driver.driver_managed_dma)."""

_FORMAT = wire.Format(ignore_unknown=True)
_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function:
    """A PCI function as the kernel has it.

    ``address`` is ``dddd:bb:dd.f``, ``driver`` the bound driver and ``override`` its driver_override, both empty if there is none. ``group`` is the
    number of its IOMMU group, None without one. ``code`` is the class code, 24 bits (0x020000 is Ethernet), ``vendor`` four hexadecimal digits.
    """

    address: str
    driver: str = ""
    override: str = ""
    group: int | None = None
    code: int = 0
    vendor: str = ""

    @property
    def is_bridge(self) -> bool:
        """Return whether the function is a bridge, which always stays with the host."""
        return self.code >> 16 == _BRIDGE

    @property
    def slot(self) -> str:
        """Return the address without the function's number: all functions of one card and slot have the same."""
        return self.address.partition(".")[0]


class Bus(Protocol):
    """The PCI functions of a machine and their IOMMU groups. Every call is idempotent, and raises HardwareError."""

    def boot_id(self) -> str:
        """Return the id of this boot. A reboot restores all drivers."""

    def functions(self) -> Sequence[Function]:
        """Return all PCI functions in the order of their addresses."""

    def function(self, address: str) -> Function | None:
        """Return a function, None if there is none at this address."""

    def group(self, number: int) -> Sequence[Function]:
        """Return the functions of an IOMMU group. A device that is no PCI function has its name as address."""

    def has_driver(self, driver: str) -> bool:
        """Return whether the kernel has this PCI driver now."""

    def uses(self, address: str) -> Sequence[str]:
        """Return how the host uses a function, each to be read after its address: ``has the disk nvme0n1``."""

    def has_own_devices(self, address: str) -> bool:
        """Return whether a function has a network interface or a disk."""

    def set_override(self, address: str, driver: str) -> None:
        """Allow only this driver to bind to a function; an empty name allows the default ones."""

    def unbind(self, address: str) -> None:
        """Unbind a function from its driver, if it has one. With vfio-pci this waits until the function is closed."""

    def probe(self, address: str) -> None:
        """Bind a function without a driver to the first driver that accepts it, if there is one."""

    def reset(self, address: str) -> None:
        """Reset a function, if it can be reset."""

    def is_open(self, number: int) -> bool:
        """Return whether a process has this IOMMU group open."""

    def nodes(self, function: Function, *, iommufd: bool) -> Sequence[edits.DeviceNode]:
        """Return the device nodes of a function that is bound to vfio-pci, and of the kernel's interface to it; none if it lacks the interface."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    """The reason that a function cannot be passed, to be read after its address, and the fix."""

    reason: str
    change: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A function that is bound to vfio-pci for a claim, with its former driver (empty: none; None: unknown)."""

    address: str
    driver: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan to pass the function at ``address``: all ``members`` of its group that change their driver, in one boot."""

    boot: str
    address: str
    group: int
    members: tuple[Member, ...]

    @classmethod
    def from_record(cls, record: object) -> Self | None:
        """Return the plan in a record of the journal, None for another record."""
        return _FORMAT.decode_or_none(cls, record)

    def to_record(self) -> records.Record:
        """Return the plan as the journal stores it."""
        return _FORMAT.encode(self)


@arguments.checked_call
def plans(intents: Iterable[records.Record]) -> Iterator[Plan]:
    """Yield the plans in the records of a journal that have one, by the key ``KEY``."""
    plans = (Plan.from_record(intent[KEY]) for intent in intents if KEY in intent)
    return (planned for planned in plans if planned is not None)


@arguments.checked_call
def refusal(bus: Bus, address: str) -> Refusal | None:
    """Return why the function at this address cannot be passed now, None if it can. Raises HardwareError."""
    function = bus.function(address)
    if function is None:
        return Refusal(reason="is not in this machine", change="")
    if function.group is None:
        change = "turn on the IOMMU in the machine's firmware, and boot with intel_iommu=on (Intel) or with amd_iommu=on (AMD)"
        return Refusal(reason="has no IOMMU group", change=change)
    if not bus.has_driver(DRIVER):
        change = "run modprobe vfio-pci on the host, and name the module in /etc/modules-load.d"
        return Refusal(reason=f"needs the driver {DRIVER}, which is not loaded", change=change)
    if function.is_bridge:
        return Refusal(reason="is a bridge", change="")
    if uses := bus.uses(address):
        return Refusal(reason="; ".join(uses), change="end this use on the host, or do not offer the device")
    others = (other for other in bus.group(function.group) if other.address != address)
    return next((refused for other in others if (refused := _refusal_of_other(bus, function, other)) is not None), None)


def _refusal_of_other(bus: Bus, function: Function, other: Function) -> Refusal | None:
    is_of_card = other.slot == function.slot and not other.is_bridge and not bus.has_own_devices(other.address)
    if other.driver in _LEFT_ALONE or is_of_card:
        return None
    reason = f"shares IOMMU group {function.group} with {other.address}, which the host uses with the driver {other.driver}"
    change = f"move the card to a slot whose IOMMU group is its own, or unbind {other.address} from {other.driver}"
    return Refusal(reason=reason, change=change)


@arguments.checked_call
def plan(bus: Bus, address: str) -> Plan:
    """Return the plan to pass a function with its whole IOMMU group. Nothing is changed.

    Functions of the same card without a network interface or disk, such as the audio function of a GPU, are bound to vfio-pci too. Raises
    DeviceBusyError for a function that cannot be passed, DeviceGoneError for one that is gone, HardwareError.
    """
    function = _require(bus, address)
    if DRIVER in {function.driver, function.override}:
        raise errors.DeviceBusyError(
            f"{address} is bound to {DRIVER} already, for a claim that the journal lost or by an admin; "
            f"to return it to the host: drakit unprepare --unclaimed {address} --yes"
        )
    others = (other for other in bus.group(_group_of(function)) if other.address != address and other.driver not in _LEFT_ALONE)
    members = [Member(address=member.address, driver=member.driver) for member in (function, *others)]
    return Plan(boot=bus.boot_id(), address=address, group=_group_of(function), members=tuple(members))


@arguments.checked_call
def recall(bus: Bus, address: str) -> Plan:
    """Return the plan by which a function is or may be bound, after the journal was lost.

    The former drivers are unknown: ``release`` lets the kernel choose. Raises DeviceGoneError, HardwareError.
    """
    number = _group_of(_existing(bus, address))
    others = (other for other in bus.group(number) if other.override == DRIVER or other.driver not in _LEFT_ALONE)
    addresses = dict.fromkeys((address, *(other.address for other in others)))
    return Plan(boot=bus.boot_id(), address=address, group=number, members=tuple(Member(address=each, driver=None) for each in addresses))


@arguments.checked_call
def bind(bus: Bus, planned: Plan) -> None:
    """Bind all members to vfio-pci. A member that is bound already is left alone. After an error all members have their former drivers again.

    Raises DeviceBusyError, DeviceGoneError for a plan of an earlier boot or a function that is gone, HardwareError.
    """
    if planned.boot != bus.boot_id():
        raise errors.DeviceGoneError(f"{planned.address} was planned in an earlier boot")
    if is_bound(bus, planned):
        return
    _require(bus, planned.address)
    try:
        for member in planned.members:
            _bind(bus, member)
    except Exception as error:
        try:
            release(bus, planned)
        except errors.DrakitError as failed:
            error.add_note(f"the former drivers could not be restored yet: {failed}")
        raise


@arguments.checked_call
def is_bound(bus: Bus, planned: Plan) -> bool:
    """Return whether all members are bound to vfio-pci. Raises HardwareError."""
    return all(function is not None and function.driver == DRIVER for function in map(bus.function, _addresses(planned)))


@arguments.checked_call
def release(bus: Bus, planned: Plan) -> None:
    """Restore the former driver of every member, after a reset. Succeeds if there is nothing to undo, as after a reboot.

    A member whose driver_override is not vfio-pci is not touched, because then it was not bound by this plan or is restored already. Raises
    DeviceBusyError while a process has the group open, HardwareError.
    """
    if planned.boot != bus.boot_id():
        return
    bound = [function for address in _addresses(planned) if (function := bus.function(address)) is not None and function.driver == DRIVER]
    if any(function.override == DRIVER for function in bound) and bus.is_open(planned.group):
        raise errors.DeviceBusyError(f"{planned.address}: a process has /dev/vfio/{planned.group} open; end the virtual machine")
    failed = [error for member in reversed(planned.members) if (error := _try_to_release(bus, member)) is not None]
    if failed:
        raise failed[0]


@arguments.checked_call
def nodes(bus: Bus, planned: Plan, *, iommufd: bool = False) -> tuple[edits.DeviceNode, ...]:
    """Return the device nodes for a virtual machine: /dev/vfio/vfio and the group's, or /dev/iommu and the device's. Raises HardwareError."""
    function = _existing(bus, planned.address)
    nodes = tuple(bus.nodes(function, iommufd=iommufd))
    if not nodes:
        lacking = "/dev/iommu and /dev/vfio/devices (iommufd)" if iommufd else "/dev/vfio/vfio and VFIO groups"
        other = "group" if iommufd else "iommufd"
        raise errors.HardwareError("vfio", f"this kernel has no {lacking}; load the module, or set vfio_nodes to {other}")
    return nodes


def _bind(bus: Bus, member: Member) -> None:
    function = _existing(bus, member.address)
    if member.driver is not None and function.driver not in {"", DRIVER, member.driver}:
        raise errors.DeviceBusyError(f"{member.address} was bound to {function.driver} by another program")
    bus.set_override(member.address, DRIVER)
    if function.driver == DRIVER:
        return
    bus.unbind(member.address)
    bus.probe(member.address)
    if _existing(bus, member.address).driver != DRIVER:
        raise _not_bound(member.address, DRIVER)


def _try_to_release(bus: Bus, member: Member) -> errors.DrakitError | None:
    try:
        _release(bus, member)
    except errors.DrakitError as error:
        return error
    return None


def _release(bus: Bus, member: Member) -> None:
    function = bus.function(member.address)
    if function is None:
        _log.warning("PCI function gone", device=member.address)
        return
    if function.override == DRIVER and function.driver in {"", DRIVER}:
        bus.unbind(member.address)
        bus.reset(member.address)
    if function.override == DRIVER:
        bus.set_override(member.address, "")
    if function.driver not in {"", DRIVER} or (function.driver == DRIVER and function.override != DRIVER) or member.driver == "":
        return
    bus.probe(member.address)
    _check_restored(bus, member)


def _check_restored(bus: Bus, member: Member) -> None:
    function = bus.function(member.address)
    driver = "" if function is None else function.driver
    if driver == member.driver or (member.driver is None and driver):
        return
    if driver or member.driver is None or not bus.has_driver(member.driver):
        # The function is the host's again, as after a boot without the former driver.
        _log.warning("PCI function has another driver", device=member.address, state=driver or "none", was=member.driver)
        return
    raise _not_bound(member.address, member.driver)


def _not_bound(address: str, driver: str) -> errors.HardwareError:
    return errors.HardwareError("drivers_probe", f"{address} did not bind to {driver}; the kernel's log has the reason (dmesg)")


def _require(bus: Bus, address: str) -> Function:
    """Return a function. Raise DeviceBusyError for one that cannot be passed, DeviceGoneError for one that is gone."""
    function = _existing(bus, address)
    if (refused := refusal(bus, address)) is not None:
        fix = f"; {refused.change}" if refused.change else ""
        raise errors.DeviceBusyError(f"{address} {refused.reason}{fix}")
    return function


def _existing(bus: Bus, address: str) -> Function:
    function = bus.function(address)
    if function is None:
        raise errors.DeviceGoneError(f"{address} is not in this machine")
    return function


def _group_of(function: Function) -> int:
    if function.group is None:
        raise errors.DeviceGoneError(f"{function.address} has no IOMMU group")
    return function.group


def _addresses(planned: Plan) -> tuple[str, ...]:
    return tuple(member.address for member in planned.members)
