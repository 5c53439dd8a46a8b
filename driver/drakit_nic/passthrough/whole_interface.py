"""The exclusive form: a whole interface allocated to one claim, moved into its pod and restored on the host afterwards.

The intent has the interface's state on the host (name, MAC, MTU, addresses, up or down; for a virtual function also its parent's settings). So the
state is durable before anything changes. ``prepare`` marks the interface and, for a virtual function, sets address, VLAN and rates by its parent. The
attach hook moves the interface, or the container runtime where it supports CDI's netDevices. ``unprepare`` returns it from the pod's namespace, or
from where the kernel puts hardware whose namespace ended. A virtual interface (veth, VLAN) is deleted with its pod, so it cannot be returned.

``WholeAttacher`` moves the interface into a sandbox when a container runtime calls for it, under the NIC's device lock. Only one pod at a time can
have it: another sandbox of the claim is refused until the host has the interface again. The placement is recorded before the move, with facts of the
interface and the sandbox that no pod can change. Until a container has the interface, every failure returns it at once, through the caller's
descriptor of the sandbox. The record is removed when the interface is back. Otherwise it stays, so that the next attempt, also of a later process,
continues from there.

An interface that is in a pod is still offered, from its intent, because a device in use must not vanish from its slice.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import drakit
from drakit import wire
from drakit_nic import config, interface_identity, pod_interfaces, port
from drakit_nic import options as nic_options
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, ip_pools
from drakit_nic.attach import announcer, attacher, sandboxes, server
from drakit_nic.discovery import attributes, device_names
from drakit_nic.passthrough import differences, host_routes, rdma_devices, sriov, virtual_functions

_KEY = _STATE_KEY = "whole"
_NAMES: Mapping[tuple[type[object], str], wire.Field] = {
    (kind, field.name): wire.Field(name=field.name) for kind in (port.Interface, port.PciFunction) for field in dataclasses.fields(kind)
}
_FORMAT = wire.Format(ignore_unknown=True, fields=_NAMES)
_RUNTIME_LEAVES_RDMA = (
    "this node's runtime moves interfaces (nic.net_devices), but not their RDMA devices, and RDMA is in exclusive mode, so the pod could not use "
    "{name}; turn nic.net_devices off, or run on the host while no pod is running: rdma system set netns shared"
)
_SOFTWARE_RDMA = (
    "{name}, a software RDMA device, is on {interface}, and the kernel deletes it when the interface moves to a pod; "
    "run on the host: rdma link delete {name}"
)
_log = drakit.get_logger(__name__)

Grant = drakit.Grant[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
    """The plan for a whole interface. ``function`` and its settings are None if it is no virtual function."""

    mark: str
    interface: port.Interface
    host_state: Annotated[pod_interfaces.HostState, wire.Field(name="former", converter=pod_interfaces.HOST_STATE)]
    function: sriov.Function | None = None
    function_was: Annotated[sriov.Settings | None, wire.Field(name="was")] = None
    function_is: Annotated[sriov.Settings | None, wire.Field(name="is")] = None

    @property
    def virtual(self) -> virtual_functions.Plan | None:
        """The plan for the virtual function, None if it is none."""
        if self.function is None or self.function_was is None or self.function_is is None:
            return None
        parent = self.interface.pci.physical_function if self.interface.pci else ""
        return virtual_functions.Plan(function=self.function, parent=parent, former=self.function_was, wanted=self.function_is)

    def to_record(self) -> drakit.Record:
        """Return the intent as the journal stores it."""
        return {_KEY: _FORMAT.encode(self)}


def intent_of(record: drakit.Record) -> Intent | None:
    """Return the intent in a record, None for a record of another kind, such as a share's."""
    return _FORMAT.decode_or_none(Intent, record[_KEY]) if _KEY in record else None


def away(intents: Iterable[drakit.Record], present: Sequence[port.Interface]) -> Iterator[port.Interface]:
    """Yield the whole interfaces of claims that the host does not have, as they were planned."""
    on_host = {(interface.name, interface.mac) for interface in present} | {interface.pci.bus_id for interface in present if interface.pci}
    for record in intents:
        intent = intent_of(record)
        if intent is None:
            continue
        interface = intent.interface
        if (interface.name, interface.mac) not in on_host and (interface.pci is None or interface.pci.bus_id not in on_host):
            yield interface


class Whole:
    """Planning, preparing and unpreparing of whole interfaces. ``home`` is the driver's folder, None without files, as on a mock machine."""

    def __init__(self, machine: port.Port, *, node: str, options: nic_options.NicOptions, home: pathlib.Path | None = None) -> None:
        self._machine, self._node, self._home = machine, node, home
        self._runtime_moves = options.net_devices
        self.functions = virtual_functions.VirtualFunctions(machine, options)

    def plan(self, grant: Grant, interface: port.Interface) -> drakit.Record:
        """Return the intent with the interface's present and wanted state. Raises ConfigError, DeviceBusyError, DeviceGoneError, HardwareError."""
        chosen = config.of(grant)
        config.check(chosen, node=self._node)
        self._check_config(chosen, interface)
        mark = pod_interfaces.mark_of(shares.id_on_node(grant.claim, grant.device, grant.share_id))
        host_state = self._machine.host_state(interface.name)
        if host_state is None:
            raise drakit.DeviceGoneError(f"{grant.device.name}: {device_names.gone(grant.device)}")
        if host_state.alias.startswith(pod_interfaces.mark_of("")) and host_state.alias != mark:
            raise drakit.DeviceBusyError(f"{grant.device.name} still has the mark of another claim: {host_state.alias}")
        _check_routes(host_state)
        self._check_rdma(host_state)
        rate = shares.bandwidth(grant.device, grant.consumed_capacity, "")
        function = self.functions.plan(interface, chosen, rate=rate)
        if function is None:
            config.check_no_function(chosen, f"{interface.name} is not a virtual function of a NIC of this host")
        return Intent(
            mark=mark,
            interface=interface,
            host_state=host_state,
            function=function.function if function else None,
            function_was=function.former if function else None,
            function_is=function.wanted if function else None,
        ).to_record()

    def prepare(self, grant: Grant, hook: drakit.Hook | None) -> drakit.Prepared:
        """Mark the interface, set its virtual function, and return the container's edits. An interface that is in the pod already is not changed."""
        planned, chosen = _intent_of_grant(grant), config.of(grant)
        if not self._machine.is_plugged(planned.interface):
            raise drakit.DeviceGoneError(f"{grant.device.name}: {device_names.gone(grant.device)}")
        if planned.virtual is not None:
            self._machine.set_function(planned.virtual.function, planned.virtual.wanted)
        name = chosen.interface_name or planned.host_state.name
        present = self._machine.host_state(planned.host_state.name)
        if present is not None and present.mac in {planned.host_state.mac, chosen.mac, ""}:
            self._machine.mark(present, planned.mark)
            if self._runtime_moves:
                on_host = pod_interfaces.InterfaceRef(namespace=pod_interfaces.HOST, name=present.name)
                # The move resets the interface's sysctls, and on the host they would affect other interfaces.
                self._machine.apply(on_host, dataclasses.replace(pod_interfaces.interface_config(chosen, name=present.name), sysctls={}))
        return drakit.Prepared(
            edits=drakit.Edits(
                env=_env_of(grant, planned, name),
                device_nodes=_rdma_nodes(planned),
                net_devices=(drakit.NetDevice(host_interface_name=planned.host_state.name, name=name),) if self._runtime_moves else (),
                hooks=(hook,) if hook is not None and not self._runtime_moves else (),
            ),
            record=grant.intent,
        )

    def unprepare(self, grant: Grant, placement: interface_identity.Placement | None = None) -> None:
        """Return the interface to the host and restore its virtual function.

        Raises HardwareError while the interface cannot be reached, ReleaseDeferredError while only the function's settings cannot be restored.
        """
        planned = intent_of(grant.intent) or intent_of(grant.record)
        host_state = planned.host_state if planned else _host_state_of(grant.device)
        mark = pod_interfaces.mark_of(shares.id_on_node(grant.claim, grant.device, grant.share_id))
        whole = pod_interfaces.Passthrough(mark=mark, host_state=host_state, placement=placement)
        virtual = planned.virtual if planned else None
        if virtual is not None:
            self.functions.release(virtual)
        if not self._machine.return_to_host(whole, on_failed=functools.partial(differences.report, self._home, host_state)):
            _log.warning("interface gone with its pod", device=grant.device.name, interface=host_state.name)
        if virtual is not None:
            self.functions.restore(virtual, interface=host_state.name, mark=mark)

    def _check_rdma(self, host_state: pod_interfaces.HostState) -> None:
        """Raise HardwareError for an RDMA device that cannot follow its interface."""
        device = host_state.rdma
        if device is not None and device.software:
            raise drakit.HardwareError("plan", _SOFTWARE_RDMA.format(name=device.name, interface=host_state.name))
        if device is not None and device.exclusive and self._runtime_moves:
            raise drakit.HardwareError("plan", _RUNTIME_LEAVES_RDMA.format(name=device.name))

    def _check_config(self, chosen: config.NicConfig, interface: port.Interface) -> None:
        """Raise ConfigError for DHCP, and for settings that the container runtime cannot apply where it moves the interface itself."""
        if chosen.dhcp:
            reason = f"{interface.name} moves into the pod, where the driver cannot renew a lease; run a DHCP client in the pod, or set addresses"
            raise drakit.ConfigError(reason, field="dhcp")
        if not self._runtime_moves:
            return
        unsupported = ("routes", "rules", "neighbours", "sysctls", "forwarding", "address_pools")
        for name in unsupported:
            if getattr(chosen, name):
                wire = "addressPools" if name == "address_pools" else name
                reason = f"cannot be set on {interface.name}: this node's runtime moves it (nic.net_devices) and supports addresses only"
                raise drakit.ConfigError(reason, field=wire)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Call:
    """One call for a whole interface, with the sandbox's namespace open."""

    request: server.Request
    grant: Grant
    sandbox: pod_interfaces.InterfaceRef
    sandbox_id: address_leases.SandboxId
    placement: interface_identity.Placement

    @property
    def whole(self) -> pod_interfaces.Passthrough:
        """Return the interface with its present or planned placement."""
        return passthrough(self.grant, self.placement)

    @property
    def wanted(self) -> pod_interfaces.InterfaceConfig:
        """Return the interface's configuration in the pod, with the configured addresses."""
        nic_config = config.of(self.grant)
        return pod_interfaces.interface_config(nic_config, name=nic_config.interface_name or self.whole.host_state.name)


class WholeAttacher:
    """Moves whole interfaces into sandboxes."""

    def __init__(
        self,
        machine: port.Port,
        kernel: sandboxes.KernelSandboxes,
        context: drakit.DriverContext,
        *,
        node: str,
        index: address_leases.AddressIndex | None = None,
        announcing: announcer.Announcer | None = None,
    ) -> None:
        self._machine, self._kernel, self._context = machine, kernel, context
        self._announcer = announcing or announcer.Announcer(kernel)
        self._leases = address_leases.AddressLeases(context, node=node, index=index)

    def attach(self, request: server.Request, grant: Grant, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Move the interface of a prepared grant into the sandbox. Raises RefusedError, DrakitError."""
        if self._kernel.is_host(descriptor):
            reason = "the pod uses the host's network (hostNetwork), where the interface is already"
            raise server.RefusedError(reason, server.Reason.HOST_NETWORK)
        locks = (*grant.device.lock_names, *address_leases.locks_for(config.of(grant)))
        with self._context.hold(locks, is_waited_for), self._kernel.opened(descriptor) as sandbox:
            self._announcer.cancel((grant.claim.uid, grant.device.name))
            current = self._current_grant(request, is_waited_for)
            call = self._plan_call(request, current, pod_interfaces.InterfaceRef(namespace=descriptor, name=""), sandbox)
            try:
                self._complete(call, sandbox, is_waited_for)
            except Exception as error:
                rollback_error = "" if call.placement.is_attached else self._undo(call)
                if rollback_error:
                    raise server.RefusedError(f"{error}; {rollback_error}", server.reason_of(error)) from error
                raise
            _log.info("interface moved into pod", **_log_keys(call))

    def _plan_call(self, request: server.Request, grant: Grant, sandbox: pod_interfaces.InterfaceRef, opened: sandboxes.Sandbox) -> _Call:
        """Return the call with its placement: the recorded one where the sandbox has the interface, else a new one.

        Raises RefusedError, HardwareError.
        """
        sandbox_id = address_leases.SandboxId(cookie=opened.cookie, pod=request.pod)
        recorded = placement_of(self._context, grant)
        whole = passthrough(grant, recorded)
        location = self._kernel.locate(whole, sandbox)
        if location is not pod_interfaces.Location.HERE:
            _check_free(grant, location)
            _check_names(grant, opened)
            placement = self._kernel.planned_placement(whole, sandbox, request.pod)
        elif recorded is not None and recorded.cookie == sandbox_id.cookie:
            placement = recorded
        else:  # This version of the driver did not move the interface there.
            identity = whole.host_state.identity
            placement = interface_identity.Placement(
                cookie=sandbox_id.cookie, pod=request.pod, identity=identity, ifindex=0, is_attached=True
            )
        return _Call(request=request, grant=grant, sandbox=sandbox, sandbox_id=sandbox_id, placement=placement)

    def end(self, grant: Grant) -> None:
        """Stop announcing a grant's interface, because that keeps the pod's namespace."""
        self._announcer.cancel((grant.claim.uid, grant.device.name))

    def _complete(self, call: _Call, sandbox: sandboxes.Sandbox, is_waited_for: Callable[[], bool]) -> None:
        grant = call.grant
        if not call.placement.is_attached:
            self._context.set_state(grant, _STATE_KEY, interface_identity.placement_to_record(call.placement))
        addresses = self._leases.acquire(grant, config.of(grant), call.sandbox_id)
        wanted = dataclasses.replace(call.wanted, addresses=addresses)
        virtual = _intent_of_grant(grant).virtual
        if virtual is not None:
            # A function that was made again since ``prepare`` has lost its settings.
            self._machine.set_function(virtual.function, virtual.wanted)
        self._kernel.move_in(call.whole, dataclasses.replace(call.sandbox, name=wanted.name), wanted)
        self._current_grant(call.request, is_waited_for)
        if not call.placement.is_attached:
            self._context.set_state(
                grant, _STATE_KEY, interface_identity.placement_to_record(dataclasses.replace(call.placement, is_attached=True))
            )
        self._announce(call, sandbox, wanted)

    def _announce(self, call: _Call, sandbox: sandboxes.Sandbox, wanted: pod_interfaces.InterfaceConfig) -> None:
        link = sandbox.find(wanted.name)
        if link is None:  # The pod's root renamed it, and may announce it too.
            return
        subject = announcer.Subject(
            key=(call.grant.claim.uid, call.grant.device.name),
            nsid=sandbox.nsid(),
            ifindex=link.ifindex,
            name=link.name,
            mac=link.mac,
            hosts=ip_pools.hosts(wanted.addresses),
            versions=pod_interfaces.announced_versions(wanted),
            is_router=config.of(call.grant).forwarding,
        )
        self._announcer.announce(subject, sandbox.descriptor)

    def _undo(self, call: _Call) -> str:
        """Return the interface to the host in the state after ``prepare``, and remove its record.

        Return an error text for the pod's owner where that fails, else an empty text.
        """
        # The interface gets the mark with the last request, so that a crash never leaves it on the host without one.
        marked = dataclasses.replace(call.whole.host_state, alias=call.whole.mark)
        try:
            is_back = self._kernel.return_to_host(dataclasses.replace(call.whole, host_state=marked), call.sandbox)
        except drakit.DrakitError as error:
            _log.error("interface not returned to host", **_log_keys(call, error=str(error)))
            return f"returning the interface to the host failed: {error}"
        if not is_back:
            _log.error("interface gone", **_log_keys(call))
            return "the interface is lost: no interface in the pod has its identity"
        with contextlib.suppress(drakit.ClaimError):  # The claim is no longer prepared, so its state is deleted already.
            self._leases.release(call.grant, call.sandbox_id)
            self._context.set_state(call.grant, _STATE_KEY, None)
        _log.info("interface returned to host", **_log_keys(call))
        try:
            self._kernel.remove_config(call.sandbox, call.wanted)  # Rules outlive the interface in the pod.
        except drakit.HardwareError as error:
            _log.warning("pod rules not removed", **_log_keys(call, error=str(error)))
        return ""

    def _current_grant(self, request: server.Request, is_waited_for: Callable[[], bool]) -> Grant:
        """Return the present grant of a request. Raises RefusedError where it is not prepared or the runtime no longer waits."""
        current = self._context.grant(request.claim, request.device, request.share_id)
        if current is None:
            raise attacher.not_prepared(request.device)
        attacher.check_waited_for(is_waited_for)
        return current


def placement_of(context: drakit.DriverContext, grant: Grant) -> interface_identity.Placement | None:
    """Return the recorded placement of a grant's interface, None if it was not moved or is on the host again."""
    return interface_identity.placement_from_record(context.state(grant).get(_STATE_KEY))


def _log_keys(call: _Call, **more: object) -> dict[str, object]:
    return attacher.log_keys(call.grant, call.request, **more)


def _check_free(grant: Grant, location: pod_interfaces.Location) -> None:
    """Raise RefusedError or HardwareError where the host does not have the interface."""
    if location is pod_interfaces.Location.ELSEWHERE:
        reason = f"{grant.device.name} is a whole interface and in another pod of claim {grant.claim}; only one pod at a time can have it"
        raise server.RefusedError(reason, server.Reason.IN_ANOTHER_POD)
    if location is pod_interfaces.Location.RETURNING:
        reason = f"{grant.device.name} is in no network namespace that can be seen; it is the host's again when the one that has it ends"
        raise drakit.HardwareError("attach", reason)
    if location is pod_interfaces.Location.GONE and _intent_of_grant(grant).host_state.identity.place:
        raise server.RefusedError(f"{grant.device.name}: {device_names.gone(grant.device)}", server.Reason.INTERFACE_GONE)
    if location is pod_interfaces.Location.GONE:
        reason = f"the interface of {grant.device.name} is gone; a virtual interface ends with the network namespace of the pod that had it"
        raise server.RefusedError(f"{reason}: delete the pod and claim {grant.claim}", server.Reason.INTERFACE_GONE)


def _check_names(grant: Grant, sandbox: sandboxes.Sandbox) -> None:
    """Raise RefusedError where the pod has another interface of the wanted name, or of an alternative name of the interface."""
    interface = _intent_of_grant(grant).interface
    name = config.of(grant).interface_name or interface.name
    holder = sandbox.find(name)
    if holder is not None:
        raise attacher.name_taken(holder, name)
    for altname in interface.altnames:
        holder = sandbox.find(altname)
        if holder is not None:
            reason = f"the pod has another interface named {altname!r}, which is an alternative name of the NIC {interface.name}"
            fix = f"rename the pod's interface, or on the host: ip link property del dev {interface.name} altname {altname}"
            raise server.RefusedError(f"{reason}; {fix}", server.Reason.NAME_TAKEN)


def _check_routes(host_state: pod_interfaces.HostState) -> None:
    """Raise HardwareError where the interface has too many routes to record, because the first move would lose some silently."""
    if host_state.routes_left_out:
        count = len(host_state.routes) + host_state.routes_left_out
        limit = f"of which at most {host_routes.MOST} can be restored"
        raise drakit.HardwareError(
            "plan", f"the host has {count} routes by {host_state.name}, {limit}; remove some, or take it out of nic.whole"
        )


def _intent_of_grant(grant: Grant) -> Intent:
    """Return the intent of a grant. Raises HardwareError for a grant of another form."""
    planned = intent_of(grant.intent)
    if planned is None:
        raise drakit.HardwareError("plan", f"{grant.device.name} was not planned as a whole interface")
    return planned


def passthrough(grant: Grant, placement: interface_identity.Placement | None) -> pod_interfaces.Passthrough:
    """Return the planned interface of a grant with its last recorded placement. Raises HardwareError."""
    planned = _intent_of_grant(grant)
    return pod_interfaces.Passthrough(mark=planned.mark, host_state=planned.host_state, placement=placement)


def _rdma_nodes(planned: Intent) -> tuple[drakit.DeviceNode, ...]:
    """Return the device nodes of the interface's RDMA device. The intent of an earlier version has only the device's name."""
    device, pci = planned.host_state.rdma, planned.interface.pci
    names = device.nodes if device is not None else rdma_devices.nodes_of(pci.rdma_device) if pci else ()
    return tuple(drakit.DeviceNode(path=f"{rdma_devices.NODES}/{name}", permissions="rw") for name in names)


def _env_of(grant: Grant, planned: Intent, name: str) -> Mapping[str, str]:
    values = {
        "DEVICE": grant.device.name,
        "NIC": planned.host_state.name,
        "INTERFACE": name,
        "MAC": config.of(grant).mac or planned.host_state.mac,
        "RDMA_DEVICE": planned.host_state.rdma.name if planned.host_state.rdma else "",
    }
    if planned.function_is is not None:
        values |= {"BANDWIDTH": str(shares.bandwidth(grant.device, grant.consumed_capacity, "")), "MAC": planned.function_is.mac}
    return shares.variables(grant.request, shares.id_on_node(grant.claim, grant.device, grant.share_id), values)


def _host_state_of(device: drakit.Device) -> pod_interfaces.HostState:
    """Return the published state of an interface whose intent is lost, without addresses."""
    mtu = device.attributes.get("mtu")
    name, mac = (str(device.attributes.get(key, "")) for key in (attributes.IF_NAME, "mac"))
    return pod_interfaces.HostState(name=name, mac=mac, mtu=mtu if isinstance(mtu, int) else 1500, up=True)
