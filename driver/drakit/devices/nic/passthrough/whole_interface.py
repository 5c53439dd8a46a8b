"""The exclusive form: a whole interface given to one claim, moved into its pod and returned as it was.

What the interface was (name, MAC, MTU, addresses, up or down; of a virtual function also what its parent held it to) is planned, so it is on disk
before anything is changed. ``prepare`` marks it and, for a virtual function, sets address, VLAN and rates by its parent. It is moved by the attach
hook, or by the container runtime where that knows CDI's netDevices. ``unprepare`` returns it from wherever it is: the pod's namespace, or where
the kernel puts hardware whose namespace ended. A virtual interface (veth, VLAN) ends with its pod; then there is nothing to return.

``WholeAttacher`` moves it into a sandbox when a container runtime calls for it, under the NIC's device lock. It can be in one pod at a time: while it
is in one, another sandbox of the claim is refused; when the host has it again, the next one gets it. What no pod can write about the interface and
the sandbox is noted before it is moved. Until a container has it, every failure returns it at once, through the caller's descriptor of the
sandbox: nothing else needs to be visible from here. The note is removed when the interface is back, and stays where it is not, so that the next try,
of this process or a later one, goes on from there.

An interface that is away is still offered, from what the intents say of it: a device that is in use must not vanish from its slice.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from drakit.core import context as contexts
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, records
from drakit.core.encoding import wire
from drakit.devices.nic import config, pod_interfaces, port
from drakit.devices.nic import settings as nic_settings
from drakit.devices.nic import share as shares
from drakit.devices.nic.addresses import address_leases
from drakit.devices.nic.attach import attacher, sandboxes, server
from drakit.devices.nic.discovery import hardware, offers
from drakit.devices.nic.passthrough import host_routes, sriov

_KEY = _NOTE = "whole"
_NAMES: Mapping[tuple[type[object], str], wire.Field] = {
    (kind, field.name): wire.Field(name=field.name) for kind in (port.Interface, port.PciFunction) for field in dataclasses.fields(kind)
}
_FORMAT = wire.Format(ignore_unknown=True, fields=_NAMES)
_log = logging.getLogger(__name__)

Grant = drivers.Grant[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
    """The plan for a whole interface; ``function`` and its settings are None where it is no virtual function."""

    mark: str
    interface: port.Interface
    host_state: Annotated[pod_interfaces.HostState, wire.Field(name="former", converter=pod_interfaces.HOST_STATE)]
    function: sriov.Function | None = None
    function_was: Annotated[sriov.Settings | None, wire.Field(name="was")] = None
    function_is: Annotated[sriov.Settings | None, wire.Field(name="is")] = None

    def to_record(self) -> records.Record:
        """Return the intent as the journal stores it."""
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


def intent_of(record: records.Record) -> Intent | None:
    """Return the intent of a record; None for a record of another kind, such as a share's."""
    return _FORMAT.decode_or_none(Intent, record[_KEY]) if _KEY in record else None


def away(intents: Iterable[records.Record], present: Sequence[port.Interface]) -> Iterator[port.Interface]:
    """Yield the interfaces that claims hold whole and that are away, as they were."""
    there = {(interface.name, interface.mac) for interface in present} | {interface.pci.bus_id for interface in present if interface.pci}
    for record in intents:
        intent = intent_of(record)
        if intent is None:
            continue
        interface = intent.interface
        if (interface.name, interface.mac) not in there and (interface.pci is None or interface.pci.bus_id not in there):
            yield interface


class Whole:
    """The verbs for whole interfaces. ``runtime_moves`` is set where the container runtime supports CDI's netDevices."""

    def __init__(self, machine: port.Port, *, node: str, settings: nic_settings.NicSettings) -> None:
        self._machine, self._node = machine, node
        self._settings, self._runtime_moves = settings, settings.net_devices

    def plan(self, grant: Grant, interface: port.Interface) -> records.Record:
        """Return what the interface is now and what it will be; raises ConfigError, DeviceBusyError, DeviceGoneError, HardwareError."""
        chosen = config.of(grant)
        config.check(chosen, node=self._node)
        self._check_config(chosen, interface)
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
            most = self._ceil(chosen, interface)
            planned = sriov.wanted(was, mac=chosen.mac, vlan=chosen.vlan, min_rate=rate, max_rate=max(rate, most))
        elif chosen.vlan is not None:
            raise errors.ConfigError(
                f"{interface.name} is no virtual function, and only those have a VLAN by their parent", field="parameters.vlan"
            )
        return Intent(
            mark=mark, interface=interface, host_state=host_state, function=function if was else None, function_was=was, function_is=planned
        ).to_record()

    def prepare(self, grant: Grant, hook: edits.Hook | None) -> drivers.Prepared:
        """Mark the interface, set its virtual function, and return the container's edits. Where it is in the pod already, nothing is changed."""
        planned, chosen = _planned(grant), config.of(grant)
        if planned.function is not None and planned.function_is is not None:
            self._machine.set_function(planned.function, planned.function_is)
        name = chosen.interface_name or planned.host_state.name
        here = self._machine.host_state(planned.host_state.name)
        if here is not None and here.mac in {planned.host_state.mac, chosen.mac, ""}:
            self._machine.mark(here, planned.mark)
            if self._runtime_moves:
                on_host = pod_interfaces.InterfaceRef(namespace=pod_interfaces.HOST, name=here.name)
                self._machine.apply(on_host, pod_interfaces.interface_config(chosen, name=here.name))
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
        """Return the rate up to which a virtual function may borrow: that of its class, bounded by the admin's."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """One call for the interface, with the sandbox open."""

    request: server.Request
    grant: Grant
    sandbox: pod_interfaces.InterfaceRef
    sandbox_id: address_leases.SandboxId
    placement: pod_interfaces.Placement

    @property
    def whole(self) -> pod_interfaces.Passthrough:
        """The interface, and where it is or is to be."""
        return passthrough(self.grant, self.placement)

    @property
    def wanted(self) -> pod_interfaces.InterfaceConfig:
        """Return the interface's configuration in the pod, with the configured addresses."""
        chosen = config.of(self.grant)
        return pod_interfaces.interface_config(chosen, name=chosen.interface_name or self.whole.host_state.name)


class WholeAttacher:
    """Attaches whole interfaces to sandboxes."""

    def __init__(
        self,
        kernel: sandboxes.KernelSandboxes,
        context: contexts.DriverContext,
        *,
        node: str,
        index: address_leases.AddressIndex | None = None,
    ) -> None:
        self._kernel, self._context = kernel, context
        self._leases = address_leases.AddressLeases(context, node=node, index=index)

    def attach(self, request: server.Request, grant: Grant, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Move the interface of a prepared grant into the sandbox; raises RefusedError, DrakitError."""
        if self._kernel.is_host(descriptor):
            reason = "the pod uses the host's network (hostNetwork), where the interface is already"
            raise server.RefusedError(reason, server.Reason.HOST_NETWORK)
        locks = (*grant.device.lock_names, *address_leases.locks_for(config.of(grant)))
        with self._context.hold(locks), self._kernel.opened(descriptor) as sandbox:
            current = self._wanted(request, is_waited_for)
            sandbox_id = address_leases.SandboxId(cookie=sandbox.cookie, pod=request.pod)
            call = self._begun(request, current, pod_interfaces.InterfaceRef(namespace=descriptor, name=""), sandbox_id)
            try:
                self._complete(call, is_waited_for)
            except Exception as error:
                left = "" if call.placement.is_attached else self._undo(call)
                if left:
                    raise server.RefusedError(f"{error}; {left}", server.reason_of(error)) from error
                raise
            _log.info("interface moved into pod", extra=_keys(call))

    def _begun(
        self, request: server.Request, grant: Grant, sandbox: pod_interfaces.InterfaceRef, sandbox_id: address_leases.SandboxId
    ) -> _Call:
        """Return the call with its placement: the recorded one where the sandbox has the interface, else a new one.

        Raises RefusedError, HardwareError.
        """
        recorded = placement_of(self._context, grant)
        whole = passthrough(grant, recorded)
        where = self._kernel.locate(whole, sandbox)
        if where is not pod_interfaces.Location.HERE:
            _check_free(grant, where)
            placement = self._kernel.planned_placement(whole, sandbox, request.pod)
        elif recorded is not None and recorded.cookie == sandbox_id.cookie:
            placement = recorded
        else:  # This version did not move it there.
            identity = whole.host_state.identity
            placement = pod_interfaces.Placement(cookie=sandbox_id.cookie, pod=request.pod, identity=identity, ifindex=0, is_attached=True)
        return _Call(request=request, grant=grant, sandbox=sandbox, sandbox_id=sandbox_id, placement=placement)

    def _complete(self, call: _Call, is_waited_for: Callable[[], bool]) -> None:
        grant = call.grant
        if not call.placement.is_attached:
            self._context.set_state(grant, _NOTE, pod_interfaces.placement_to_record(call.placement))
        addresses = self._leases.acquire(grant, config.of(grant), call.sandbox_id)
        wanted = dataclasses.replace(call.wanted, addresses=addresses)
        self._kernel.move_in(call.whole, dataclasses.replace(call.sandbox, name=wanted.name), wanted)
        self._wanted(call.request, is_waited_for)
        if not call.placement.is_attached:
            self._context.set_state(grant, _NOTE, pod_interfaces.placement_to_record(dataclasses.replace(call.placement, is_attached=True)))

    def _undo(self, call: _Call) -> str:
        """Return the interface to the host as ``prepare`` left it, and remove its record.

        Returns what to report to the pod's owner where that fails, else nothing.
        """
        # The interface gets the mark with the last request, so that a crash never leaves it on the host without one.
        marked = dataclasses.replace(call.whole.host_state, alias=call.whole.mark)
        try:
            is_back = self._kernel.return_to_host(dataclasses.replace(call.whole, host_state=marked), call.sandbox)
        except errors.DrakitError as error:
            _log.error("interface not returned to host", extra=_keys(call, error=str(error)))
            return f"returning the interface to the host failed: {error}"
        if not is_back:
            _log.error("interface gone", extra=_keys(call))
            return "the interface is lost: no interface in the pod has its identity"
        with contextlib.suppress(errors.ClaimError):  # The claim is no longer prepared, and its notes end with it.
            self._leases.release(call.grant, call.sandbox_id)
            self._context.set_state(call.grant, _NOTE, None)
        _log.info("interface returned to host", extra=_keys(call))
        try:
            self._kernel.remove_config(call.sandbox, call.wanted)  # Rules outlive the interface in the pod.
        except errors.HardwareError as error:
            _log.warning("pod rules not removed", extra=_keys(call, error=str(error)))
        return ""

    def _wanted(self, request: server.Request, is_waited_for: Callable[[], bool]) -> Grant:
        current = self._context.grant(request.claim, request.device, request.share_id)
        if current is None:
            raise server.RefusedError(
                f"the claim's {request.device} is not prepared on this node; the kubelet retries after it has prepared the claim",
                server.Reason.NOT_PREPARED,
            )
        if not is_waited_for():
            raise server.RefusedError("the container runtime no longer waits for the interface", server.Reason.TOO_LATE)
        return current


def placement_of(context: contexts.DriverContext, grant: Grant) -> pod_interfaces.Placement | None:
    """Return the recorded placement of a grant's interface; None where it was not moved, or is back."""
    return pod_interfaces.placement_from_record(context.state(grant).get(_NOTE))


def _keys(call: _Call, **more: object) -> dict[str, object]:
    return attacher.log_keys(call.grant, call.request, **more)


def _check_free(grant: Grant, where: pod_interfaces.Location) -> None:
    """Raise RefusedError, HardwareError where the interface cannot be moved from the host."""
    if where is pod_interfaces.Location.ELSEWHERE:
        reason = f"{grant.device.name} is a whole interface and in another pod of claim {grant.claim}; only one pod at a time can have it"
        raise server.RefusedError(reason, server.Reason.IN_ANOTHER_POD)
    if where is pod_interfaces.Location.RETURNING:
        reason = f"{grant.device.name} is in no network namespace that can be seen; it is the host's again when the one that has it ends"
        raise errors.HardwareError("attach", reason)
    if where is pod_interfaces.Location.GONE:
        reason = f"the interface of {grant.device.name} is gone; a virtual interface ends with the network namespace of the pod that had it"
        raise server.RefusedError(f"{reason}: delete the pod and claim {grant.claim}", server.Reason.INTERFACE_GONE)


def _check_routes(host_state: pod_interfaces.HostState) -> None:
    """Raise HardwareError where not all routes can be recorded: the first pod would lose them silently."""
    if host_state.routes_left_out:
        count = len(host_state.routes) + host_state.routes_left_out
        bound = f"of which at most {host_routes.MOST} can be restored"
        raise errors.HardwareError(
            "plan", f"the host has {count} routes by {host_state.name}, {bound}; remove some, or take it out of nic.whole"
        )


def _planned(grant: Grant) -> Intent:
    planned = intent_of(grant.intent)
    if planned is None:
        raise errors.HardwareError("plan", f"{grant.device.name} was not planned as a whole interface")
    return planned


def passthrough(grant: Grant, placement: pod_interfaces.Placement | None) -> pod_interfaces.Passthrough:
    """Return the interface of a grant as it was planned; ``placement`` is what was noted when it was moved last. Raises HardwareError."""
    planned = _planned(grant)
    return pod_interfaces.Passthrough(mark=planned.mark, host_state=planned.host_state, placement=placement)


def _variables(grant: Grant, planned: Intent, name: str) -> Mapping[str, str]:
    facts = {
        "DEVICE": grant.device.name,
        "NIC": planned.host_state.name,
        "INTERFACE": name,
        "MAC": config.of(grant).mac or planned.host_state.mac,
    }
    if planned.function_is is not None:
        facts |= {"BANDWIDTH": str(planned.function_is.min_rate), "MAC": planned.function_is.mac}
    return shares.variables(grant.request, shares.identity(grant.claim, grant.device, grant.share_id), facts)


def _host_state_of(device: devices.Device) -> pod_interfaces.HostState:
    """Return the interface as it was published, where its intent is lost: its addresses are unknown."""
    mtu = device.attributes.get("mtu")
    name, mac = (str(device.attributes.get(key, "")) for key in (offers.IF_NAME, "mac"))
    return pod_interfaces.HostState(name=name, mac=mac, mtu=mtu if isinstance(mtu, int) else 1500, up=True)
