"""A mock machine's NICs: interfaces from the machine's file, shares and their members in a state file that outlives the driver.

No traffic passes here, so nothing is shaped and every counter stays 0; what is to be kept is kept as the kernel keeps it. The state file stands
for the hardware: what is in it is installed, and stays so when the driver is killed. It is replaced whole and durably (fsync, rename, fsync of the
directory) under a lock file that processes share; what an earlier boot of the machine installed is forgotten, as a kernel would.
"""

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

from drakit.core import errors
from drakit.core.encoding import wire
from drakit.devices import machines, tables
from drakit.devices.nic import pod_interfaces, port
from drakit.devices.nic.passthrough import sriov

_KEY = "nics"
_STATE = "nics.json"
_LOCK = "nics.lock"
_MEGA = 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class _State:
    """The content of the state file: what is installed, on which machine since which boot.

    ``functions`` are what physical functions hold their virtual ones to. One that was never set has its interface's address, no VLAN and no rates.
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


_FORMAT = wire.Format(fields={(port.Member, "share_id"): wire.Field(name="share_id")})


class _Uneventful:
    """A watch of a machine to which nothing happens."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def narrow(self, interest: port.Interest) -> bool:  # noqa: ARG002
        return False

    def wait(self, seconds: float) -> bool:
        return self._woken.wait(seconds)

    def drain(self) -> None:
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Do nothing: the mock holds no resources."""


class MockHostInterfaces:
    """The interfaces of a mock machine as the host has them, in memory: no pod is there to have one, so what is given away whole stays here."""

    def __init__(self, interface: Callable[[str], port.Interface | None]) -> None:
        self._interface = interface
        self._hosts: dict[str, pod_interfaces.HostState] = {}

    def apply(self, child: pod_interfaces.InterfaceRef, wanted: pod_interfaces.InterfaceConfig) -> None:
        del child
        here = self._existing(wanted.name, "apply")
        addresses = tuple(sorted({*here.addresses, *wanted.addresses}))
        self._hosts[wanted.name] = dataclasses.replace(
            here, mac=wanted.mac or here.mac, mtu=wanted.mtu or here.mtu, up=True, addresses=addresses
        )

    def host_state(self, name: str) -> pod_interfaces.HostState | None:
        interface = self._interface(name)
        if interface is None:
            return None
        place = pod_interfaces.Identity(place=f"mock {interface.mac}")
        as_made = pod_interfaces.HostState(name=name, mac=interface.mac, mtu=interface.mtu, up=interface.state == "up", identity=place)
        return self._hosts.get(name, as_made)

    def mark(self, host_state: pod_interfaces.HostState, mark: str) -> None:
        self._existing(host_state.name, "mark")
        self._hosts[host_state.name] = dataclasses.replace(host_state, alias=mark)

    def return_to_host(self, whole: pod_interfaces.Passthrough, sandbox: pod_interfaces.InterfaceRef | None = None) -> bool:
        del sandbox
        self._hosts[whole.host_state.name] = whole.host_state
        return self._interface(whole.host_state.name) is not None

    def _existing(self, name: str, call: str) -> pod_interfaces.HostState:
        here = self.host_state(name)
        if here is None:
            raise errors.HardwareError(call, f"there is no interface {name}")
        return here


class MockPort(MockHostInterfaces):
    """The NICs of a mock machine in a directory of its own.

    ``after_effect`` is called with the name of a call between its effect and its answer, which is where a test dies. Raises SettingsError for a
    machine that is unknown or whose file is malformed, HardwareError when the state cannot be read or written.
    """

    def __init__(self, choice: machines.Choice, *, after_effect: Callable[[str], None] = lambda _: None) -> None:
        self._machine = choice.name
        self._interfaces = from_machine(machines.load(choice.name))
        self._directory = choice.directory
        self._after_effect = after_effect
        machines.boot_id(self._directory)
        MockHostInterfaces.__init__(self, self.interface)

    def interfaces(self) -> tuple[port.Interface, ...]:
        return self._interfaces

    def interface(self, name: str) -> port.Interface | None:
        return next((interface for interface in self._interfaces if interface.name == name), None)

    def shaping(self) -> port.Shaping:
        return port.Shaping(classifier=port.Classifier.NONE)

    def install(self, uplink: port.Uplink, share: port.Share) -> None:
        if self.interface(uplink.interface) is None:
            raise errors.HardwareError("install", f"no interface {uplink.interface!r}")
        self._change("install", lambda held: held.with_share(share))

    def remove(self, share_id: str, hint: port.Share | None = None) -> None:
        del hint
        self._change("remove", lambda held: held.without(share_id))

    def shares(self) -> tuple[port.Share, ...]:
        return self._look("shares").shares

    def share(self, ifindex: int, minor: int) -> port.Share | None:
        return next((share for share in self.shares() if (share.ifindex, share.minor) == (ifindex, minor)), None)

    def admit(self, share: port.Share, *, cookie: int, mac: str) -> None:
        def admitted(held: _State) -> _State:
            if share.id not in {other.id for other in held.shares}:
                raise errors.HardwareError("admit", f"share {share.id} is not installed on {share.interface}")
            return held.with_member(port.Member(share_id=share.id, cookie=cookie, mac=mac.lower()))

        self._change("admit", admitted)

    def dismiss(self, share: port.Share, *, cookie: int, mac: str) -> None:
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
            raise errors.HardwareError("set_function", f"{of.parent} has no virtual function {of.number}")
        self._change("set_function", lambda held: dataclasses.replace(held, functions={**held.functions, _function_key(of): wanted}))

    def watch(self) -> port.Watch:
        return _Uneventful()

    def _look(self, call: str) -> _State:
        with self._locked(call):
            return self._read()

    def _change(self, call: str, change: Callable[[_State], _State]) -> None:
        with self._locked(call):
            held = self._read()
            wanted = change(held)
            if wanted != held:
                machines.rewrite(self._directory / _STATE, json.dumps(_FORMAT.encode(wanted), indent=1))
        self._after_effect(call)

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        """Hold the machine's lock; what goes wrong with its files is a HardwareError of the call."""
        try:
            with machines.locked(self._directory, _LOCK):
                yield
        except (OSError, ValueError, errors.ConfigError, errors.SettingsError) as error:
            raise errors.HardwareError(call, f"the mock machine's state: {error}") from error

    def _read(self) -> _State:
        file, boot_id = self._directory / _STATE, machines.boot_id(self._directory)
        empty = _State(machine=self._machine, boot_id=boot_id, shares=())
        if not file.exists():
            return empty
        state = _FORMAT.decode(_State, json.loads(file.read_text("utf-8")))
        if state.machine != self._machine:
            raise ValueError(f"{file.name}: machine: {state.machine!r} is not one of {self._machine}")
        return state if state.boot_id == boot_id else empty

    def _function_interface(self, of: sriov.Function) -> port.Interface | None:
        parents = {parent.pci.bus_id for parent in self._interfaces if parent.name == of.parent and parent.pci}
        functions = ((interface, interface.pci) for interface in self._interfaces if interface.pci)
        places = {pci.function_number: interface for interface, pci in functions if pci.physical_function in parents}
        return places.get(of.number)


def from_machine(machine: machines.Machine) -> tuple[port.Interface, ...]:
    """Return the interfaces a machine's file lists, if any, numbered from 2 (1 is lo's, which no file lists); raises SettingsError."""
    part = machine.family(_KEY)
    rows = part.optional(_KEY, part.rows) or ()
    return tuple(_interface(index, row) for index, row in enumerate(rows, start=2))


def _interface(index: int, row: tables.Table) -> port.Interface:
    speed = row.optional("speedMbps", lambda field: row.integer(field, least=1))
    carrier = row.optional("carrier", row.flag)
    linked = carrier is not False
    interface = port.Interface(
        ifindex=index,
        name=row.text("name"),
        mac=row.text("mac").lower(),
        mtu=row.integer("mtu", least=68),
        driver=row.text("driver"),
        speed=speed * _MEGA if speed is not None and linked else None,
        carrier=linked,
        state="up" if linked else "down",
        pci=port.PciFunction(
            bus_id=row.text("pciBusID").lower(),
            root=row.optional("pcieRoot", row.text) or "",
            numa_node=row.optional("numaNode", row.integer),
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


def _differences(held: _State, uplink: port.Uplink, shares: Sequence[port.Share]) -> tuple[str, ...]:
    installed = {share.id: share for share in held.shares if share.ifindex == uplink.ifindex}
    wanted = {share.id: share for share in shares}
    nobodys = [f"share {key} has no claim" for key in sorted(installed.keys() - wanted.keys())]
    missing = [f"share {key} is missing" for key in sorted(wanted.keys() - installed.keys())]
    altered = [f"share {key} differs from its claim" for key in sorted(installed.keys() & wanted.keys()) if installed[key] != wanted[key]]
    return (*nobodys, *missing, *altered)


def _function_key(of: sriov.Function) -> str:
    return f"{of.parent} {of.number}"
