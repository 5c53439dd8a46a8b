"""A mock machine's NICs: interfaces from the machine's file, shares and their members in a state file that outlives the driver.

No traffic passes, so nothing is shaped and every counter stays 0. The state file replaces the kernel: its shares are installed, and stay when the
driver is killed. It is replaced whole and durably (fsync, rename, fsync of the directory) under a lock file that processes share. Shares of an
earlier boot of the machine are ignored, because a kernel would have lost them.
"""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import drakit
from drakit import machines, tables, vfio, wire
from drakit.vfio import mock
from drakit_nic import interface_identity, pod_interfaces, port
from drakit_nic.passthrough import sriov

_KEY = "nics"
_STATE = "nics.json"
_LOCK = "nics.lock"
_BITS_PER_MEGABIT = 10**6
# A roll-back reads what a later version wrote.
_FORMAT = wire.Format(ignore_unknown=True, fields={(port.Member, "share_id"): wire.Field(name="share_id")})
_ETHERNET = 0x020000


@dataclasses.dataclass(frozen=True, kw_only=True)
class _State:
    """The content of the state file: the installed shares and their members, with the machine and its boot.

    ``functions`` are the settings of virtual functions. One that was never set has its interface's address, no VLAN and no rates.
    """

    version: Literal["1"] = "1"
    machine: str
    boot_id: Annotated[str, wire.Field(name="bootID")]
    shares: tuple[port.Share, ...]
    members: tuple[port.Member, ...] = ()
    functions: Mapping[str, sriov.Settings] = dataclasses.field(default_factory=dict)

    def with_share(self, share: port.Share) -> "_State":
        others = (other for other in self.shares if other.id != share.id)
        return dataclasses.replace(self, shares=tuple(sorted((*others, share), key=lambda share: share.id)))

    def without(self, share_id: str) -> "_State":
        shares = tuple(share for share in self.shares if share.id != share_id)
        return dataclasses.replace(self, shares=shares, members=tuple(member for member in self.members if member.share_id != share_id))

    def with_member(self, member: port.Member) -> "_State":
        others = (other for other in self.members if other.mac != member.mac)
        return dataclasses.replace(self, members=tuple(sorted((*others, member), key=lambda member: (member.share_id, member.mac))))

    def without_member(self, member: port.Member) -> "_State":
        return dataclasses.replace(self, members=tuple(other for other in self.members if other != member))


class _SilentWatch:
    """A watch of a machine without events."""

    def __init__(self) -> None:
        self._wake_event = threading.Event()

    def narrow(self, interest: port.Interest) -> bool:  # noqa: ARG002
        return False

    def wait(self, seconds: float) -> bool:
        return self._wake_event.wait(seconds)

    def drain(self) -> None:
        self._wake_event.clear()

    def wake(self) -> None:
        self._wake_event.set()

    def close(self) -> None:
        """Do nothing: the mock holds no resources."""


class MockHostInterfaces:
    """The state of a mock machine's interfaces, in memory. There are no pods, so a whole interface stays on the host."""

    def __init__(self, interface: Callable[[str], port.Interface | None]) -> None:
        self._interface = interface
        self._hosts: dict[str, pod_interfaces.HostState] = {}

    def apply(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        del child
        state = self._existing(wanted.name, "apply")
        addresses = tuple(sorted({*state.addresses, *wanted.addresses}))
        self._hosts[wanted.name] = dataclasses.replace(
            state, mac=wanted.mac or state.mac, mtu=wanted.mtu or state.mtu, up=True, addresses=addresses
        )

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        interface = self._interface(name)
        if interface is None:
            return None
        place = interface_identity.Identity(place=f"mock {interface.mac}")
        initial = pod_interfaces.HostState(name=name, mac=interface.mac, mtu=interface.mtu, up=interface.state == "up", identity=place)
        return self._hosts.get(name, initial)

    def alias(self, name: str) -> str:
        state = self.host_state(name)
        return "" if state is None else state.alias

    def mark(self, host_state: pod_interfaces.HostState, mark: str) -> None:
        self._existing(host_state.name, "mark")
        self._hosts[host_state.name] = dataclasses.replace(host_state, alias=mark)

    def return_to_host(
        self,
        whole: pod_interfaces.Passthrough,
        sandbox: pod_interfaces.InterfaceRef | None = None,
        on_failed: pod_interfaces.OnFailed = pod_interfaces.ignore,
    ) -> bool:
        del sandbox
        on_failed({})
        self._hosts[whole.host_state.name] = whole.host_state
        return self._interface(whole.host_state.name) is not None

    def _existing(self, name: str, call: str) -> pod_interfaces.HostState:
        state = self.host_state(name)
        if state is None:
            raise drakit.HardwareError(call, f"there is no interface {name}")
        return state


class MockPort(MockHostInterfaces):
    """The NICs of a mock machine in a directory of its own.

    ``after_effect`` is called with the name of a call between its effect and its answer, where tests let the process die. Raises SettingsError
    for an unknown machine or a malformed file, and HardwareError when the state cannot be read or written.
    """

    def __init__(self, choice: machines.Choice, *, after_effect: Callable[[str], None] = lambda _: None) -> None:
        self._machine = choice.name
        self._interfaces = from_machine(machines.load(choice.name))
        self._directory = choice.directory
        self._after_effect = after_effect
        machines.boot_id(self._directory)
        self.bus = mock.MockBus(choice.directory, [_function(*entry) for entry in enumerate(self._interfaces) if entry[1].pci])
        MockHostInterfaces.__init__(self, self.interface)

    def interfaces(self, own_namespaces: Callable[[], Collection[int]] = tuple) -> tuple[port.Interface, ...]:  # noqa: ARG002
        return tuple(interface for interface in self._interfaces if self._has_driver(interface))

    def interface(self, name: str) -> port.Interface | None:
        return next((interface for interface in self._interfaces if interface.name == name and self._has_driver(interface)), None)

    def _has_driver(self, interface: port.Interface) -> bool:
        """Return whether the function of an interface has its driver, without which there is no interface."""
        function = self.bus.function(interface.pci.bus_id) if interface.pci else None
        return function is None or function.driver == interface.driver

    def is_plugged(self, interface: port.Interface) -> bool:
        return interface.pci is None or any(each.name == interface.name for each in self._interfaces)

    def shaping(self) -> port.Shaping:
        return port.Shaping(classifier=port.Classifier.NONE, ipvlan=True)

    def install(self, uplink: port.Uplink, share: port.Share) -> None:
        if self.interface(uplink.interface) is None:
            raise drakit.HardwareError("install", f"no interface {uplink.interface!r}")
        self._change("install", lambda held: held.with_share(share))

    def remove(self, share_id: str, hint: port.Share | None = None) -> None:
        del hint
        self._change("remove", lambda held: held.without(share_id))

    def shares(self) -> tuple[port.Share, ...]:
        return self._look("shares").shares

    def share(self, ifindex: int, minor: int) -> port.Share | None:
        return next((share for share in self.shares() if (share.ifindex, share.minor) == (ifindex, minor)), None)

    def admit(self, share: port.Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:  # noqa: ARG002
        def admitted(held: _State) -> _State:
            if share.id not in {other.id for other in held.shares}:
                raise drakit.HardwareError("admit", f"share {share.id} is not installed on {share.interface}")
            return held.with_member(port.Member(share_id=share.id, cookie=cookie, mac=mac.lower()))

        self._change("admit", admitted)

    def dismiss(self, share: port.Share, *, cookie: int, mac: str, hosts: Collection[str] = ()) -> None:  # noqa: ARG002
        gone = port.Member(share_id=share.id, cookie=cookie, mac=mac.lower())
        self._change("dismiss", lambda held: held.without_member(gone))

    def members(self, of: port.Share | None = None) -> tuple[port.Member, ...]:
        return tuple(member for member in self._look("members").members if of is None or member.share_id == of.id)

    def members_at(self, mac: str) -> tuple[port.Member, ...]:
        return tuple(member for member in self.members() if member.mac == mac.lower())

    def check(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
        return _differences(self._look("check"), uplink, shares)

    def repair(self, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
        fixed: list[str] = []

        def as_wanted(held: _State) -> _State:
            fixed.extend(_differences(held, uplink, shares))
            for share in held.shares:
                held = (
                    held.without(share.id) if share.ifindex == uplink.ifindex and share.id not in {wanted.id for wanted in shares} else held
                )
            for share in shares:
                held = held.with_share(share)
            return held

        self._change("repair", as_wanted)
        return tuple(fixed)

    def traffic(self) -> tuple[port.Traffic, ...]:
        still = [(share, port.Counters(rate=share.bandwidth, ceil=max(share.ceil, share.bandwidth))) for share in self.shares()]
        return tuple(port.Traffic(share_id=share.id, egress=counters, ingress=counters) for share, counters in still)

    def function(self, of: sriov.Function) -> sriov.Settings | None:
        interface = self._function_interface(of)
        as_made = None if interface is None else sriov.Settings(mac=interface.mac)
        return self._look("function").functions.get(_function_key(of), as_made)

    def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
        if self._function_interface(of) is None:
            raise drakit.HardwareError("set_function", f"{of.parent} has no virtual function {of.number}")
        self._change("set_function", lambda held: dataclasses.replace(held, functions={**held.functions, _function_key(of): wanted}))

    def guarantees(self, parent: str) -> bool:
        functions = self._look("guarantees").functions
        return any(settings.min_rate for key, settings in functions.items() if key.startswith(f"{parent} "))

    def functions_of(self, bus_id: str) -> Sequence[sriov.BusFunction]:
        found = [pci for interface in self._interfaces if (pci := interface.pci) is not None and pci.physical_function == bus_id]
        bound = [(pci.bus_id, self.bus.function(pci.bus_id)) for pci in sorted(found, key=lambda pci: pci.function_number or 0)]
        return tuple(sriov.BusFunction(bus_id=address, driver=function.driver if function else "") for address, function in bound)

    def set_function_count(self, bus_id: str, count: int) -> None:  # noqa: ARG002
        raise drakit.HardwareError(
            "set_function_count", f"the mock machine {self._machine} has the virtual functions of its file; remove nic.sriov"
        )

    def watch(self) -> port.Watch:
        return _SilentWatch()

    def _look(self, call: str) -> _State:
        with self._locked(call):
            return self._read()

    def _change(self, call: str, change: Callable[[_State], _State]) -> None:
        with self._locked(call):
            present = self._read()
            wanted = change(present)
            if wanted != present:
                machines.rewrite(self._directory / _STATE, json.dumps(_FORMAT.encode(wanted), indent=1))
        self._after_effect(call)

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        """Hold the machine's lock. Raises an error of its files as a HardwareError of the call."""
        try:
            with machines.locked(self._directory, _LOCK):
                yield
        except (OSError, ValueError, drakit.ConfigError, drakit.SettingsError) as error:
            raise drakit.HardwareError(call, f"the mock machine's state: {error}") from error

    def _read(self) -> _State:
        file, boot_id = self._directory / _STATE, machines.boot_id(self._directory)
        empty = _State(machine=self._machine, boot_id=boot_id, shares=())
        if not file.exists():
            return empty
        state = _FORMAT.decode(_State, json.loads(machines.read_bytes(file)))
        if state.machine != self._machine:
            raise ValueError(f"{file.name}: machine: {state.machine!r} is not one of {self._machine}")
        return state if state.boot_id == boot_id else empty

    def _function_interface(self, of: sriov.Function) -> port.Interface | None:
        parents = {parent.pci.bus_id for parent in self._interfaces if parent.name == of.parent and parent.pci}
        functions = ((interface, interface.pci) for interface in self._interfaces if interface.pci)
        by_number = {pci.function_number: interface for interface, pci in functions if pci.physical_function in parents}
        return by_number.get(of.number)


def from_machine(machine: machines.Machine) -> tuple[port.Interface, ...]:
    """Return the interfaces in a machine's file, numbered from 2, because 1 is the index of lo. Raises SettingsError."""
    part = machine.family(_KEY)
    rows = part.optional(_KEY, part.rows) or ()
    return tuple(_interface(index, row) for index, row in enumerate(rows, start=2))


def _interface(index: int, row: tables.Table) -> port.Interface:
    speed = row.optional("speedMbps", lambda field: row.integer(field, least=1))
    carrier = row.optional("carrier", row.flag)
    has_link = carrier is not False
    interface = port.Interface(
        ifindex=index,
        name=row.text("name"),
        mac=row.text("mac").lower(),
        mtu=row.integer("mtu", least=68),
        driver=row.text("driver"),
        speed=speed * _BITS_PER_MEGABIT if speed is not None and has_link else None,
        carrier=has_link,
        state="up" if has_link else "down",
        pci=port.PciFunction(
            bus_id=row.text("pciBusID").lower(),
            root=row.optional("pcieRoot", row.text) or "",
            numa_nodes=machines.numa_nodes(row),
            physical_function=row.optional("physicalFunction", row.text) or "",
            function_number=row.optional("functionNumber", row.integer),
            virtual_functions=row.optional("virtualFunctions", row.integer) or 0,
            vendor=row.optional("vendor", row.text) or "",
            rdma_device=row.optional("rdmaDevice", row.text) or "",
        ),
        default_route=row.optional("defaultRoute", row.flag) or False,
    )
    row.close()
    return interface


def _function(index: int, interface: port.Interface) -> vfio.Function:
    """Return the PCI function of an interface, in an IOMMU group of its own."""
    pci = interface.pci or port.PciFunction(bus_id="")
    return vfio.Function(address=pci.bus_id, driver=interface.driver, group=index + 1, code=_ETHERNET, vendor=pci.vendor)


def _differences(state: _State, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
    installed = {share.id: share for share in state.shares if share.ifindex == uplink.ifindex}
    wanted = {share.id: share for share in shares}
    unclaimed = [f"share {key} has no claim" for key in sorted(installed.keys() - wanted.keys())]
    missing = [f"share {key} is missing" for key in sorted(wanted.keys() - installed.keys())]
    altered = [f"share {key} differs from its claim" for key in sorted(installed.keys() & wanted.keys()) if installed[key] != wanted[key]]
    return (*unclaimed, *missing, *altered)


def _function_key(of: sriov.Function) -> str:
    return f"{of.parent} {of.number}"
