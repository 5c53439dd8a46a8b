"""Moves a whole interface into a sandbox when a container runtime calls for it, under the NIC's device lock.

The interface can be in one pod at a time. While it is in one, another sandbox of the claim is refused; when the host has it again, the next one gets
it. What no pod can write about the interface and the sandbox is noted before it is moved. Until a container has it, every failure takes it back at
once, through the caller's descriptor of the sandbox: nothing else needs to be visible from here. The note is removed when the interface is back,
and stays where it is not, so that the next try, of this process or a later one, goes on from there.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors
from drakit.devices.nic import config, pod_interfaces
from drakit.devices.nic.addresses import address_leases
from drakit.devices.nic.attach import attacher, sandboxes, server
from drakit.devices.nic.passthrough import whole_interface

_NOTE = "whole"
_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


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
        return whole_interface.passthrough(self.grant, self.placement)

    @property
    def wanted(self) -> pod_interfaces.InterfaceConfig:
        """What it is to be in the pod, with the addresses of the configuration."""
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
        known: address_leases.AddressIndex | None = None,
    ) -> None:
        self._kernel, self._context = kernel, context
        self._leases = address_leases.AddressLeases(context, node=node, known=known)

    def attach(self, request: server.Request, grant: Grant, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Move the interface of a prepared grant into the sandbox; raises RefusedError, DrakitError."""
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
        whole = whole_interface.passthrough(grant, recorded)
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
        with contextlib.suppress(errors.ClaimError):  # The notes of a claim that is prepared no more are gone with it, or about to be.
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
                f"the claim's {request.device} is not prepared on this node; it is tried again when the claim is",
                server.Reason.NOT_PREPARED,
            )
        if not is_waited_for():
            raise server.RefusedError("the container runtime no longer waits for the interface", server.Reason.TOO_LATE)
        return current


def placement_of(context: contexts.DriverContext, grant: Grant) -> pod_interfaces.Placement | None:
    """Return what was noted of a grant's interface when it was moved last; None where it was not moved, or is known to be back."""
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
