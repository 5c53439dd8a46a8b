"""The exclusive form: a whole interface given to one claim, moved into its pod and returned as it was.

What the interface was (name, MAC, MTU, addresses, up or down; of a virtual function also what its parent held it to) is planned, so it is on disk
before anything is changed. ``prepare`` marks it and, for a virtual function, sets address, VLAN and rates by its parent. It is moved by the attach
hook, or by the container runtime where that knows CDI's netDevices. ``unprepare`` returns it from wherever it is: the pod's namespace, or where
the kernel puts hardware whose namespace ended. A virtual interface (veth, VLAN) ends with its pod; then there is nothing to return.

An interface that is away is still offered, from what the intents say of it: a device that is in use must not vanish from its slice.
"""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, records
from drakit.core.encoding import wire
from drakit.devices.nic import config, pod_interfaces, port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic import share as shares
from drakit.devices.nic.discovery import hardware, offers
from drakit.devices.nic.passthrough import host_routes, sriov

_KEY = "whole"
_NAMES: Mapping[tuple[type[object], str], wire.Field] = {
    (kind, field.name): wire.Field(name=field.name) for kind in (port.Interface, port.PciFunction) for field in dataclasses.fields(kind)
}
_FORMAT = wire.Format(ignore_unknown=True, fields=_NAMES)
_log = logging.getLogger(__name__)

Grant = drivers.Grant[config.NicConfig]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
    """What is planned for a whole interface; ``function`` and its settings are None where it is no virtual function."""

    mark: str
    interface: port.Interface
    host_state: Annotated[pod_interfaces.HostState, wire.Field(name="former", converter=pod_interfaces.HOST_STATE)]
    function: sriov.Function | None = None
    function_was: Annotated[sriov.Settings | None, wire.Field(name="was")] = None
    function_is: Annotated[sriov.Settings | None, wire.Field(name="is")] = None

    def to_record(self) -> records.Record:
        """As the journal keeps it."""
        return {
            _KEY: {
                "mark": self.mark,
                "interface": dataclasses.asdict(self.interface),
                "former": pod_interfaces.to_record(self.host_state),
                "function": dataclasses.asdict(self.function) if self.function else None,
                "was": sriov.to_record(self.function_was) if self.function_was else None,
                "is": sriov.to_record(self.function_is) if self.function_is else None,
            }
        }


def is_whole(device: devices.Device) -> bool:
    """Return whether a device is the exclusive form of an interface."""
    return device.attributes.get(offers.FORM) == offers.WHOLE


def base_name(device: devices.Device) -> str:
    """Return the name of the device's shared form, which is the interface's."""
    return device.name.removesuffix(offers.WHOLE_SUFFIX) if is_whole(device) else device.name


def intent_of(record: records.Record) -> Intent | None:
    """Return what was planned; None for a record of another kind, such as a share's."""
    return _FORMAT.decode_or_none(Intent, record[_KEY]) if _KEY in record else None


def away(intents: Iterable[records.Record], present: Sequence[port.Interface]) -> Iterator[port.Interface]:
    """Yield the interfaces that claims have whole and that are not present, as they were."""
    there = {(interface.name, interface.mac) for interface in present} | {interface.pci.bus_id for interface in present if interface.pci}
    for record in intents:
        found = intent_of(record)
        if found is None:
            continue
        interface = found.interface
        if (interface.name, interface.mac) not in there and (interface.pci is None or interface.pci.bus_id not in there):
            yield interface


class Whole:
    """The verbs for whole interfaces. ``runtime_moves`` is set where the container runtime supports CDI's netDevices."""

    def __init__(self, machine: port.Port, *, node: str, settings: nic_settings.NicSettings) -> None:
        self._machine, self._node = machine, node
        self._settings, self._runtime_moves = settings, settings.net_devices

    def plan(self, grant: Grant, interface: port.Interface) -> records.Record:
        """Return what the interface is now and what it will be; raises ConfigError, DeviceBusyError, DeviceGoneError, HardwareError."""
        config.check(grant.config, node=self._node)
        self._check_config(grant.config, interface)
        mark = pod_interfaces.mark_of(shares.identity(grant.claim, grant.device, grant.share_id))
        host_state = self._machine.host_state(interface.name)
        if host_state is None:
            raise errors.DeviceGoneError(f"{grant.device.name}: the interface is no longer there")
        if host_state.alias.startswith(pod_interfaces.mark_of("")) and host_state.alias != mark:
            raise errors.DeviceBusyError(f"{grant.device.name} is still marked as another claim's: {host_state.alias}")
        _check_routes(host_state)
        function = self._function_of(interface)
        was = None if function is None else self._machine.function(function)
        planned = None
        if was is not None:
            rate = shares.bandwidth(grant.device, grant.consumed_capacity, "")
            most = self._ceil(grant.config, interface)
            planned = sriov.wanted(was, mac=grant.config.mac, vlan=grant.config.vlan, min_rate=rate, max_rate=max(rate, most))
        elif grant.config.vlan is not None:
            raise errors.ConfigError(
                f"{interface.name} is no virtual function, and only those have a VLAN by their parent", field="parameters.vlan"
            )
        return Intent(
            mark=mark, interface=interface, host_state=host_state, function=function if was else None, function_was=was, function_is=planned
        ).to_record()

    def prepare(self, grant: Grant, hook: edits.Hook | None) -> drivers.Prepared:
        """Mark the interface, set its virtual function, and return the container's edits. Where it is in the pod already, nothing is changed."""
        planned = _planned(grant)
        if planned.function is not None and planned.function_is is not None:
            self._machine.set_function(planned.function, planned.function_is)
        name = grant.config.interface_name or planned.host_state.name
        here = self._machine.host_state(planned.host_state.name)
        if here is not None and here.mac in {planned.host_state.mac, grant.config.mac, ""}:
            self._machine.mark(here, planned.mark)
            if self._runtime_moves:
                on_host = pod_interfaces.InterfaceRef(namespace=pod_interfaces.HOST, name=here.name)
                self._machine.apply(on_host, pod_interfaces.interface_config(grant.config, name=here.name))
        pci = planned.interface.pci
        return drivers.Prepared(
            edits=edits.Edits(
                env=_variables(grant, planned, name),
                device_nodes=hardware.rdma_nodes_of(pci.rdma_device) if pci else (),
                net_devices=(edits.NetDevice(host_interface_name=planned.host_state.name, name=name),) if self._runtime_moves else (),
                hooks=(hook,) if hook is not None and not self._runtime_moves else (),
            ),
            record=grant.intent,
        )

    def unprepare(self, grant: Grant, placement: pod_interfaces.Placement | None = None) -> None:
        """Return the interface to the host and restore its virtual function. Raises HardwareError while it is out of reach."""
        planned = intent_of(grant.intent) or intent_of(grant.record)
        host_state = planned.host_state if planned else _host_state_of(grant.device)
        mark = pod_interfaces.mark_of(shares.identity(grant.claim, grant.device, grant.share_id))
        if not self._machine.return_to_host(pod_interfaces.Passthrough(mark=mark, host_state=host_state, placement=placement)):
            _log.warning("interface gone with its pod", extra={"device": grant.device.name, "interface": host_state.name})
        if planned and planned.function is not None and planned.function_was is not None:
            self._machine.set_function(planned.function, planned.function_was)

    def _ceil(self, chosen: config.NicConfig, interface: port.Interface) -> int:
        """Return what a virtual function may send beyond its rate: the figure of its class, bounded by the admin's."""
        bound = self._settings.rule_for(interface).ceil
        asked = chosen.ceil.value if chosen.ceil else 0
        return asked if bound is None else min(asked, bound.value)

    def _function_of(self, interface: port.Interface) -> sriov.Function | None:
        """Return where the interface is a virtual function; None when it is none, or its parent has no interface here."""
        pci = interface.pci
        if pci is None or not pci.physical_function or pci.function_number is None:
            return None
        parents = (
            interface.name for interface in self._machine.interfaces() if interface.pci and interface.pci.bus_id == pci.physical_function
        )
        parent = next(parents, "")
        return sriov.Function(parent=parent, number=pci.function_number) if parent else None

    def _check_config(self, chosen: config.NicConfig, interface: port.Interface) -> None:
        """Raises ConfigError for what a runtime that moves the interface itself cannot give it."""
        if not self._runtime_moves:
            return
        given = ("routes", "rules", "neighbours", "sysctls", "forwarding", "address_pools")
        for name in given:
            if getattr(chosen, name):
                wire = "addressPools" if name == "address_pools" else name
                reason = f"cannot be given to {interface.name}: this node's runtime moves it itself (nic.net_devices) and gives it addresses only"
                raise errors.ConfigError(reason, field=f"parameters.{wire}")


def _check_routes(host_state: pod_interfaces.HostState) -> None:
    """Raise HardwareError where not all routes can be recorded: the first pod would lose them silently."""
    if host_state.routes_left_out:
        found = len(host_state.routes) + host_state.routes_left_out
        bound = f"of which at most {host_routes.MOST} can be restored"
        raise errors.HardwareError(
            "plan", f"the host has {found} routes by {host_state.name}, {bound}; remove some, or take it out of nic.whole"
        )


def _planned(grant: drivers.Grant[Any]) -> Intent:
    planned = intent_of(grant.intent)
    if planned is None:
        raise errors.HardwareError("plan", f"{grant.device.name} was not planned as a whole interface")
    return planned


def passthrough(grant: drivers.Grant[Any], placement: pod_interfaces.Placement | None) -> pod_interfaces.Passthrough:
    """Return the interface of a grant as it was planned; ``placement`` is what was noted when it was moved last. Raises HardwareError."""
    planned = _planned(grant)
    return pod_interfaces.Passthrough(mark=planned.mark, host_state=planned.host_state, placement=placement)


def _variables(grant: Grant, planned: Intent, name: str) -> Mapping[str, str]:
    facts = {
        "DEVICE": grant.device.name,
        "NIC": planned.host_state.name,
        "INTERFACE": name,
        "MAC": grant.config.mac or planned.host_state.mac,
    }
    if planned.function_is is not None:
        facts |= {"BANDWIDTH": str(planned.function_is.min_rate), "MAC": planned.function_is.mac}
    return shares.variables(grant.request, shares.identity(grant.claim, grant.device, grant.share_id), facts)


def _host_state_of(device: devices.Device) -> pod_interfaces.HostState:
    """Return the interface as it was published, where its intent is lost: its addresses are unknown."""
    mtu = device.attributes.get("mtu")
    name, mac = (str(device.attributes.get(key, "")) for key in (offers.IF_NAME, "mac"))
    return pod_interfaces.HostState(name=name, mac=mac, mtu=mtu if isinstance(mtu, int) else 1500, up=True)
