"""The numbers of virtual functions that ``nic.sriov`` wants: what differs, what forbids a change, and the change.

The kernel goes from one count above 0 to another only through 0, so a change removes every function first. It is made at the driver's start only, and
only while nobody uses any of them. A physical function without any gets them also later: when it is plugged, and after its kernel driver was reset. A
driver that dies between the two writes leaves 0, which the next one continues from.

A write that fails may reset the physical function and so interrupt its link. So it is tried again after pauses only, which become longer. A number
for which functions were removed in vain is tried again after a reboot only, unless the functions are gone.

The locks of the NIC's devices are held from the check to the last write. So no claim can be prepared on a function that is about to be removed.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import drakit
from drakit import vfio
from drakit_nic import options as nic_options
from drakit_nic import port
from drakit_nic.discovery import device_names, eligibility, hardware, offers
from drakit_nic.passthrough import sriov, whole_interface

TOPIC = "SR-IOV"
LOCK_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
REFUSED_FILE = "refused-virtual-functions.json"
"""The file in the driver's folder with the numbers that the machine refused in one boot, by the NIC's PCI address."""
_VFIO = "vfio-pci"

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """A physical function on the host with the functions that it has, and the number that a rule wants. ``field`` is the rule's setting."""

    parent: port.Interface
    bus_id: str
    functions: Sequence[sriov.BusFunction]
    wanted: int
    field: str

    @property
    def is_right(self) -> bool:
        """Return whether nothing has to be changed."""
        return len(self.functions) == self.wanted

    @property
    def most(self) -> int:
        """Return the maximum number of functions (sriov_totalvfs), 0 without SR-IOV."""
        return self.parent.pci.virtual_functions if self.parent.pci else 0


class Machine(Protocol):
    """The calls of the port that count virtual functions."""

    def interfaces(self) -> Sequence[port.Interface]:
        """As ``port.Port.interfaces``."""

    def functions_of(self, bus_id: str) -> Sequence[sriov.BusFunction]:
        """As ``sriov.Functions.functions_of``."""

    def set_function_count(self, bus_id: str, count: int) -> None:
        """As ``sriov.Functions.set_function_count``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claimed:
    """The bus ids of the PCI functions that intents name: those of which one claim has all, and those with shares."""

    exclusive: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, intents: Iterable[drakit.Record], interfaces: Iterable[port.Interface]) -> "Claimed":
        """Return those of the intents of a journal."""
        by_index = {interface.ifindex: interface.pci.bus_id for interface in interfaces if interface.pci}
        records = tuple(intents)
        whole = (intent.interface.pci for record in records if (intent := whole_interface.intent_of(record)) is not None)
        indices = (index for record in records if isinstance(index := record.get("ifIndex"), int))
        return cls(
            exclusive=frozenset({pci.bus_id for pci in whole if pci} | {planned.address for planned in vfio.plans(records)}),
            shared=frozenset(by_index[index] for index in indices if index in by_index),
        )


def counts(interfaces: Iterable[port.Interface], options: nic_options.NicOptions, machine: Machine) -> Iterator[Count]:
    """Yield the count of each physical function on the host that a rule names. Raises HardwareError."""
    for bus_id, parent in sorted(hardware.physical_functions(interfaces).items()):
        number = next((number for number, rule in enumerate(options.sriov) if nic_options.matches(parent, (rule.match,))), None)
        if number is not None:
            functions = machine.functions_of(bus_id)
            yield Count(
                parent=parent, bus_id=bus_id, functions=functions, wanted=options.sriov[number].vfs, field=f"nic.sriov[{number}].vfs"
            )


def refusal(count: Count, interfaces: Sequence[port.Interface], claimed: Claimed) -> vfio.Refusal | None:
    """Return why the number must not be changed now, None if it may.

    ``interfaces`` are those of the host.
    """
    if not count.most:
        return vfio.Refusal(
            reason="has no SR-IOV (sriov_totalvfs)", change="turn SR-IOV on in the firmware, or narrow match to leave the NIC out"
        )
    if count.wanted > count.most:
        return vfio.Refusal(
            reason=f"can have {_functions(count.most)} (sriov_totalvfs), not {count.wanted}", change=f"set vfs to {count.most} or less"
        )
    if count.bus_id in claimed.exclusive:
        return vfio.Refusal(reason="has a claim that has it whole", change="wait until its pod ends; the driver creates the functions then")
    context = eligibility.NodeContext(interfaces, nic_options.NicOptions(), offers.NOT_SHAPED)
    on_host = {interface.pci.bus_id: interface for interface in interfaces if interface.pci}
    present = len(count.functions)
    for function in count.functions:
        used = _use(function, on_host.get(function.bus_id), context, claimed)
        if used is not None:
            reason = f"has {_functions(present)}, not {count.wanted}, and {function.bus_id} {used.reason}"
            return vfio.Refusal(reason=reason, change=f"{used.change}, and restart the driver; or set vfs to {present}")
    return None


def _use(
    function: sriov.BusFunction, interface: port.Interface | None, context: eligibility.NodeContext, claimed: Claimed
) -> vfio.Refusal | None:
    """Return the use of a function by somebody, with the way to end it, None if it has none."""
    if function.bus_id in claimed.exclusive | claimed.shared:
        return vfio.Refusal(reason="has a claim", change="delete the pods of its claim")
    if function.driver == _VFIO:
        return vfio.Refusal(reason=f"is bound to {_VFIO}", change="end its virtual machine, return it to the host")
    if interface is None:
        return (
            vfio.Refusal(reason="has its interface in another place, such as a pod", change="return it to the host")
            if function.driver
            else None
        )
    used = eligibility.use_of(interface, context) or ("belongs to another interface" if interface.master is not None else "")
    if used:
        return vfio.Refusal(reason=f"({interface.name}) {used}", change="end that use")
    if interface.up:
        return vfio.Refusal(reason=f"({interface.name}) is up", change=f"run: ip link set {interface.name} down")
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Failure:
    """The writes that failed for one NIC since the last success: their pauses, and the time before which no other is tried."""

    pauses: drakit.Backoff
    until: float


class FunctionCounts:
    """The numbers of virtual functions of one node."""

    def __init__(
        self,
        machine: Machine,
        options: nic_options.NicOptions,
        intents: Callable[[], Iterable[drakit.Record]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine, self._options, self._intents, self._monotonic = machine, options, intents, monotonic
        self._warned: dict[str, vfio.Refusal] = {}
        self._failures: dict[str, _Failure] = {}

    def ensure(self, context: drakit.DriverContext, *, at_start: bool) -> None:
        """Give each NIC of a rule its number of virtual functions. Where that is impossible, log the reason once.

        Only at the start, a number other than 0 is changed. A NIC whose write failed is left alone until its pause is over.
        Raises HardwareError where the interfaces cannot be read.
        """
        interfaces = self._machine.interfaces()
        for count in counts(interfaces, self._options, self._machine):
            name = count.parent.name
            if count.is_right:
                self._warned.pop(name, None)
                self._failures.pop(count.bus_id, None)
            elif (at_start or not count.functions) and not self._is_paused(count.bus_id):
                refused = self._try(context, count, interfaces)
                if refused is not None and self._warned.get(name) != refused:
                    reason = f"{count.field}: {refused.reason}"
                    _log.warning("virtual functions not created", interface=name, reason=reason, fix=refused.change)
                    self._warned[name] = refused

    def findings(self) -> Iterator[drakit.Finding]:
        """Yield for ``doctor`` whether each NIC of a rule has its number of virtual functions. Raises HardwareError."""
        if not self._options.sriov:
            return
        interfaces = self._machine.interfaces()
        for count in counts(interfaces, self._options, self._machine):
            refused, present = refusal(count, interfaces, Claimed.of(self._intents(), interfaces)), len(count.functions)
            if count.is_right and count.most:
                yield drakit.Finding.ok(TOPIC, count.parent.name, f"has {_functions(present)} ({count.field})")
            elif refused is not None:
                yield drakit.Finding.warning(
                    TOPIC, count.parent.name, f"{count.field}: {count.parent.name} {refused.reason}", refused.change
                )
            else:
                message = f"{count.field}: {count.parent.name} has {_functions(present)}, not {count.wanted}"
                fix = "restart the driver; if that does not help, look for 'virtual functions not created' in its log"
                yield drakit.Finding.warning(TOPIC, count.parent.name, message, fix)

    def _is_paused(self, bus_id: str) -> bool:
        failure = self._failures.get(bus_id)
        return failure is not None and self._monotonic() < failure.until

    def _pause(self, bus_id: str) -> None:
        failure = self._failures.get(bus_id)
        pauses = drakit.Backoff(FIRST_PAUSE, LONGEST_PAUSE) if failure is None else failure.pauses
        self._failures[bus_id] = _Failure(pauses=pauses, until=self._monotonic() + pauses.next())

    def _try(self, context: drakit.DriverContext, count: Count, interfaces: Sequence[port.Interface]) -> vfio.Refusal | None:
        addresses = {count.bus_id, *(function.bus_id for function in count.functions)}
        names = {name for name, each in device_names.by_name(interfaces).items() if each.pci and each.pci.bus_id in addresses}
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            with context.hold(sorted(names | set(map(device_names.of_function, addresses))), lambda: time.monotonic() < deadline):
                return self._change(context, count.bus_id)
        except drakit.CallerGoneError:
            return vfio.Refusal(
                reason="is in use by a claim that is being prepared or ends", change="restart the driver if the functions stay missing"
            )
        except drakit.HardwareError as error:
            self._pause(count.bus_id)
            return vfio.Refusal(reason=f"did not get {_functions(count.wanted)}: {error}", change="see the reason")

    def _change(self, context: drakit.DriverContext, bus_id: str) -> vfio.Refusal | None:
        """Read everything again under the locks, and change the number unless something forbids it."""
        interfaces = self._machine.interfaces()
        count = next((each for each in counts(interfaces, self._options, self._machine) if each.bus_id == bus_id), None)
        if count is None or count.is_right:
            return None
        refused = refusal(count, interfaces, Claimed.of(self._intents(), interfaces))
        if refused is not None:
            return refused
        former = len(count.functions)
        if former and _refused_numbers(context).get(bus_id) == count.wanted:
            return vfio.Refusal(
                reason=f"has {_functions(former)}, and the machine refused {count.wanted} in this boot",
                change=f"set vfs to {former}; or reboot; or remove the functions (write 0 to sriov_numvfs) to try {count.wanted} again",
            )
        if former:
            self._machine.set_function_count(bus_id, 0)
        try:
            self._machine.set_function_count(bus_id, count.wanted)
        except drakit.HardwareError:
            if former:
                _remember(context, bus_id, count.wanted)
                self._machine.set_function_count(bus_id, former)
            raise
        _remember(context, bus_id, None)
        _log.info("virtual functions created", interface=count.parent.name, count=count.wanted)
        return None


def _refused_numbers(context: drakit.DriverContext) -> Mapping[str, int]:
    """Return the numbers that the machine refused in this boot, by PCI address. A file that cannot be read has none."""
    try:
        content = json.loads((context.data_dir / REFUSED_FILE).read_text("utf-8"))
        return dict(content["numbers"]) if content["boot"] == context.boot_id else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _remember(context: drakit.DriverContext, bus_id: str, refused: int | None) -> None:
    """Record that the machine refused a number of functions of a NIC in this boot, None that it refused none. An error stops nothing."""
    former = _refused_numbers(context)
    if former.get(bus_id) == refused:
        return
    numbers = {address: number for address, number in former.items() if address != bus_id}
    if refused is not None:
        numbers[bus_id] = refused
    try:
        (context.data_dir / REFUSED_FILE).write_text(json.dumps({"boot": context.boot_id, "numbers": numbers}), "utf-8")
    except OSError as error:
        _log.warning("refused number of virtual functions not recorded", error=str(error))


def _functions(count: int) -> str:
    return f"{count} virtual function{'' if count == 1 else 's'}"
