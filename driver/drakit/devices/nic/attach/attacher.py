"""The attachment of a sandbox to a share when a runtime calls for its interface, and its rollback.

Everything runs under the NIC's device lock. Order: record the attachment durably; create the child, down, and mark it; direct its frames to the
share's class; configure it, which sets it up; keep it only if the caller still waits and the claim is still prepared. Every step may be repeated: the
next container of the sandbox, or the next attempt after a crash of the driver, runs the same steps and finds them done.

``AttachmentCollector`` repairs and removes attachments in the background. At start, children with our mark and an unknown share are removed: a driver
died between a claim's end and the child's. A share is known while the journal plans or has it, or while it is installed, so that pods keep what they
have while the journal is incomplete. At intervals, each recorded attachment is compared with the kernel: it is removed where its sandbox is gone, and
its frames are directed to the share's class again where they are not.

A claim that no container lists is prepared and never attached. Kubelet and runtime see no error, so an Event reports it: once for a claim, after a
while in which an image may be pulled, and never for a claim that was attached at any time.
"""

import contextlib
import dataclasses
import errno
import logging
import time
from collections.abc import Callable, Iterable

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, names, records
from drakit.devices.nic import config, pod_interfaces, port
from drakit.devices.nic import share as shares
from drakit.devices.nic.addresses import address_leases
from drakit.devices.nic.attach import sandboxes, server
from drakit.devices.nic.netlink import link_requests

_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


def log_keys(grant: Grant | None, sandbox: server.Request | sandboxes.Attachment, **more: object) -> dict[str, object]:
    """Return the keys of a log line about a grant, None where it is unknown, and a sandbox that uses it."""
    named: dict[str, object] = {}
    if grant is not None:
        named = {"claim": str(grant.claim), "claim_uid": grant.claim.uid, "device": grant.device.name, "share_id": grant.share_id}
    return {**named, "pod": sandbox.pod, "sandbox": sandbox.sandbox, **more}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call for an interface, with the sandbox's namespace open; ``descriptor`` is the caller's."""

    request: server.Request
    grant: Grant
    share: port.Share
    sandbox: sandboxes.Sandbox
    descriptor: int


class Attacher:
    """Attaches sandboxes to the prepared shares of one node."""

    def __init__(
        self,
        machine: port.Port,
        kernel: sandboxes.KernelSandboxes,
        context: contexts.DriverContext,
        *,
        node: str,
        index: address_leases.AddressIndex | None = None,
    ) -> None:
        self._machine, self._kernel, self._context = machine, kernel, context
        self._node = node
        self._leases = address_leases.AddressLeases(context, node=node, is_alive=self._is_alive, survey=self._survey, index=index)

    def attach(
        self, request: server.Request, descriptor: int, is_waited_for: Callable[[], bool], *, just_read: Grant | None = None
    ) -> None:
        """Attach an interface to the sandbox whose namespace is open as ``descriptor``. ``just_read`` is the grant, if known.

        Raises RefusedError, DrakitError.
        """
        if self._kernel.is_host(descriptor):
            raise server.RefusedError(
                "the pod uses the host's network (hostNetwork), into which no share of a NIC can be put", server.Reason.HOST_NETWORK
            )
        grant = just_read or self._prepared(request)[0]
        with self._context.hold((*grant.device.lock_names, *address_leases.locks_for(config.of(grant)))):
            grant, share = self._wanted(request, is_waited_for)
            with self._kernel.opened(descriptor) as sandbox:
                call = Call(request=request, grant=grant, share=share, sandbox=sandbox, descriptor=descriptor)
                self._attach(call, is_waited_for)

    def attachments(self, grant: Grant) -> tuple[sandboxes.Attachment, ...]:
        """Return every recorded attachment of a grant."""
        return sandboxes.attachments_of(self._context.state(grant))

    def links(self, share: port.Share, attachment: sandboxes.Attachment) -> tuple[link_requests.Link, ...]:
        """Return the existing links of an attachment, usually one or none."""
        own = sandboxes.alias(share.id, attachment.sandbox)
        return tuple(link for link in self._kernel.children(attachment.nsid, share.ifindex) if _is_of(link, own, attachment.mac))

    def undo(self, grant: Grant, share: port.Share, attachment: sandboxes.Attachment) -> None:
        """Remove an attachment, if it exists; the caller holds the device's lock."""
        for link in self.links(share, attachment):
            self._kernel.delete(attachment.nsid, link)
        self._machine.dismiss(share, cookie=attachment.cookie, mac=attachment.mac)
        with contextlib.suppress(errors.ClaimError):  # The claim is no longer prepared, and its notes end with it.
            self._leases.release(grant, _sandbox_id(attachment))
            self._context.set_state(grant, attachment.key, None)

    def end(self, grant: Grant) -> None:
        """Release the grant's addresses, because it is about to be unprepared."""
        self._leases.end(grant)

    def _undo_after_failure(self, grant: Grant, share: port.Share, attachment: sandboxes.Attachment) -> None:
        """Roll back now; record what fails, so that unprepare rolls it back. The first error is reported."""
        try:
            self.undo(grant, share, attachment)
        except errors.DrakitError as error:
            _log.warning("attachment rollback failed", extra=log_keys(grant, attachment, interface=attachment.name, error=str(error)))

    def _prepared(self, request: server.Request) -> tuple[Grant, port.Share]:
        grant = self._context.grant(request.claim, request.device, request.share_id)
        share = None if grant is None else shares.from_record(grant.record)
        if grant is None or share is None:
            raise server.RefusedError(
                f"the claim's share of {request.device} is not prepared on this node; it is tried again when the claim is",
                server.Reason.NOT_PREPARED,
            )
        return grant, share

    def _attach(self, call: Call, is_waited_for: Callable[[], bool]) -> None:
        recorded = sandboxes.from_record(self._context.state(call.grant).get(sandboxes.key_of(call.sandbox.cookie), {}))
        attachment = self._planned(call, recorded)
        link = _own(call.sandbox.find(attachment.name), call.share, attachment)
        if recorded != attachment:
            self._check_mac(call, attachment)
            self._context.set_state(call.grant, attachment.key, sandboxes.to_record(attachment))
        try:
            self._complete(call, attachment, link)
            self._wanted(call.request, is_waited_for)
        except Exception:
            if recorded is None:
                self._undo_after_failure(call.grant, call.share, attachment)
            raise
        if recorded is None:
            _log.info("sandbox attached", extra=log_keys(call.grant, attachment, interface=attachment.name, mac=attachment.mac))

    def _planned(self, call: Call, recorded: sandboxes.Attachment | None) -> sandboxes.Attachment:
        """Return the attachment to make: the recorded one, else a new one."""
        nsid, cookie = call.sandbox.nsid(), call.sandbox.cookie
        if recorded is not None:
            return dataclasses.replace(recorded, nsid=nsid)
        chosen, sandbox = config.of(call.grant), sandboxes.sandbox_name(call.request.sandbox, cookie)
        return sandboxes.Attachment(
            cookie=cookie,
            nsid=nsid,
            sandbox=sandbox,
            pod=call.request.pod,
            name=sandboxes.interface_name(chosen, call.share.id),
            mac=sandboxes.mac_address(chosen, self._node, call.share.id, sandbox),
        )

    def _check_mac(self, call: Call, attachment: sandboxes.Attachment) -> None:
        """Raise RefusedError where a configured address is in use: two interfaces of one NIC cannot have the same.

        Whose it is, and whether that one is still there, is looked up among all claims only where the kernel knows another sandbox with it.
        """
        if not config.of(call.grant).mac or all(member.cookie == attachment.cookie for member in self._machine.members_at(attachment.mac)):
            return
        for grant in self._context.grants():
            share = shares.from_record(grant.record)
            for other in self.attachments(grant) if share is not None else ():
                same = other.mac == attachment.mac and other.cookie != attachment.cookie
                if same and share is not None and self.links(share, other):
                    raise server.RefusedError(
                        f"the DeviceClass gives the MAC {other.mac}, which another pod has: claim {grant.claim}", server.Reason.MAC_TAKEN
                    )

    def _complete(self, call: Call, attachment: sandboxes.Attachment, link: link_requests.Link | None) -> None:
        """Create what is missing. An address or MTU that the pod has changed since then stays."""
        addresses = self._addresses(call, attachment)
        wanted = pod_interfaces.interface_config(config.of(call.grant), name=attachment.name, mac=attachment.mac, addresses=addresses)
        was_up = link is not None and link.up
        if link is None:
            _make(call.sandbox, wanted, call.share)
            link = call.sandbox.find(wanted.name)
            if link is None:
                raise errors.HardwareError("RTM_NEWLINK", f"{wanted.name} was made and is not there")
        alias = sandboxes.alias(call.share.id, attachment.sandbox)
        if link.alias != alias:
            call.sandbox.mark(link, alias)
        self._machine.admit(call.share, cookie=attachment.cookie, mac=attachment.mac)
        if wanted.mode is config.Mode.BRIDGE and not was_up:
            call.sandbox.limit(link, max(call.share.bandwidth, call.share.ceil))
        child = pod_interfaces.InterfaceRef(namespace=call.descriptor, name=wanted.name)
        self._kernel.apply(child, dataclasses.replace(wanted, mac="", mtu=0) if was_up else wanted)

    def _addresses(self, call: Call, attachment: sandboxes.Attachment) -> tuple[str, ...]:
        """Return the sandbox's addresses; leases are only read for a configuration that requests addresses."""
        chosen = config.of(call.grant)
        return self._leases.acquire(call.grant, chosen, _sandbox_id(attachment)) if address_leases.locks_for(chosen) else ()

    def _is_alive(self, lease: address_leases.Lease) -> bool:
        """Return whether the sandbox of a lease exists: it is a member of a share until it ends."""
        share = shares.from_record(lease.grant.record)
        return share is not None and any(member.cookie == lease.sandbox_id.cookie for member in self._machine.members(of=share))

    def _survey(self) -> address_leases.IsAlive:
        """Return the same check for any lease, from one read of the kernel."""
        there = {(member.share_id, member.cookie) for member in self._machine.members()}

        def is_alive(lease: address_leases.Lease) -> bool:
            share = shares.from_record(lease.grant.record)
            return share is not None and (share.id, lease.sandbox_id.cookie) in there

        return is_alive

    def _wanted(self, request: server.Request, is_waited_for: Callable[[], bool]) -> tuple[Grant, port.Share]:
        """Return the grant as it is now. Raises RefusedError where the runtime has given up, because it would never remove the interface."""
        if not is_waited_for():
            raise server.RefusedError("the container runtime no longer waits for the interface", server.Reason.TOO_LATE)
        return self._prepared(request)


def _sandbox_id(attachment: sandboxes.Attachment) -> address_leases.SandboxId:
    return address_leases.SandboxId(cookie=attachment.cookie, pod=attachment.pod)


def _make(sandbox: sandboxes.Sandbox, wanted: pod_interfaces.InterfaceConfig, share: port.Share) -> None:
    try:
        sandbox.create(wanted, share.ifindex)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        raise server.RefusedError(
            f"the NIC {share.interface} was replaced since the claim was prepared; delete the pod and its claim",
            server.Reason.NIC_REPLACED,
        ) from error


def _is_of(link: link_requests.Link, alias: str, mac: str) -> bool:
    """Return whether a child is the attachment's. A pod's root may change its mark or its address; if it changes both, the child is nobody's.

    An address that an admin chose proves nothing without a mark: an earlier sandbox may have had the same.
    """
    return link.alias == alias or (not sandboxes.share_of(link.alias) and link.mac == mac)


def _own(link: link_requests.Link | None, share: port.Share, attachment: sandboxes.Attachment) -> link_requests.Link | None:
    """Return the link where it is the attachment's; raises RefusedError where the name is another's."""
    if link is None:
        return None
    alias = sandboxes.alias(share.id, attachment.sandbox)
    if not sandboxes.is_child_of(link, share.ifindex) or not _is_of(link, alias, attachment.mac):
        raise server.RefusedError(
            f"the pod has another interface named {link.name!r}; choose a different NicConfig.interfaceName", server.Reason.NAME_TAKEN
        )
    return link


COLLECT_INTERVAL = 30.0
GRACE = 120.0
_USED, _WARNED, _WAITING = "attached", "warned", "waiting"
_NOT_ATTACHED = (
    "no container has attached to the claim's share of {device} in {seconds:.0f} seconds; if containers are running, list the claim in the "
    "resources.claims of one of them, else the pod gets no interface"
)


class AttachmentCollector:
    """Compares the attachments of one driver with the kernel."""

    def __init__(
        self,
        machine: port.Port,
        kernel: sandboxes.KernelSandboxes,
        context: contexts.DriverContext,
        attaching: Attacher,
        *,
        intents: Callable[[], Iterable[records.Record]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine, self._kernel, self._context = machine, kernel, context
        self._attacher = attaching
        self._intents = intents
        self._monotonic = monotonic

    def remove_orphans(self) -> None:
        """Remove children with our mark whose share is unknown. Raises HardwareError."""
        marked = self._kernel.marked()
        if not marked:
            return
        share_ids = {share.id for share in self._machine.shares()} | {intent.get("id") for intent in self._intents()}
        for nsid, link in marked:
            if sandboxes.share_of(link.alias) not in share_ids:
                _log.warning("removing interface without a claim", extra={"interface": link.name, "alias": link.alias})
                self._kernel.delete(nsid, link)

    def collect(self) -> None:
        """Compare every prepared share's attachments with the kernel once. Raises DrakitError."""
        admitted = {(member.share_id, member.cookie, member.mac) for member in self._machine.members()}
        for grant in self._context.grants():
            share = shares.from_record(grant.record)
            if share is None:
                continue
            self._repair(grant, share, admitted)
            self._warn(grant)

    def _repair(self, grant: Grant, share: port.Share, admitted: set[tuple[str, int, str]]) -> None:
        for attachment in self._attacher.attachments(grant):
            here = bool(self._attacher.links(share, attachment))
            if here and (share.id, attachment.cookie, attachment.mac) in admitted:
                continue
            with self._context.hold(grant.device.lock_names):
                if attachment not in self._attacher.attachments(grant) or self._context.grant(*_key(grant)) is None:
                    continue
                if self._attacher.links(share, attachment):
                    self._machine.admit(share, cookie=attachment.cookie, mac=attachment.mac)
                else:
                    self._forget(grant, share, attachment)

    def _forget(self, grant: Grant, share: port.Share, attachment: sandboxes.Attachment) -> None:
        """The sandbox is gone, which is how most end."""
        if _USED not in self._context.state(grant):
            self._context.set_state(grant, _USED, {})
        self._attacher.undo(grant, share, attachment)
        _log.info("attachment of a deleted sandbox removed", extra=log_keys(grant, attachment, interface=attachment.name))

    def _warn(self, grant: Grant) -> None:
        """Report once that no container attached to a claim for a while, counted from the first check, also by an earlier process."""
        notes, now = self._context.state(grant), self._monotonic()
        if notes.keys() - {_WAITING}:
            return
        since = notes.get(_WAITING, {}).get("since")
        if not isinstance(since, int) or since > now:
            with contextlib.suppress(errors.ClaimError):  # The claim has been unprepared since.
                self._context.set_state(grant, _WAITING, {"since": int(now)})
            return
        if now - since < GRACE:
            return
        self._context.set_state(grant, _WARNED, {})
        message = _NOT_ATTACHED.format(device=grant.device.name, seconds=GRACE)
        self._context.record_event(grant.claim, contexts.Event(reason="ShareNotAttached", message=message))


def _key(grant: Grant) -> tuple[names.ClaimUid, str, names.ShareId | None]:
    return (grant.claim.uid, grant.device.name, grant.share_id)
