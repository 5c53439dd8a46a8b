"""Attachment of a sandbox to a share when the container runtime calls for its interface, with rollback and background repair.

Everything runs under the NIC's device lock. Order: record the attachment durably; create the child, down, and mark it; direct its frames to the
share's class; configure it, which sets it up; keep it only if the caller still waits and the claim is still prepared. Every step is idempotent: the
next container of the sandbox, or the next attempt after a crash of the driver, runs the same steps again.
"""

import contextlib
import dataclasses
import errno
from collections.abc import Callable

import drakit
from drakit_nic import config, pod_interfaces, port
from drakit_nic import share as shares
from drakit_nic.addresses import address_leases, dhcp, dhcp_renewal, ip_pools
from drakit_nic.attach import announcer, attachment_records, sandboxes, server
from drakit_nic.netlink import link_requests

_log = drakit.get_logger(__name__)

Grant = drakit.Grant[object]


def log_keys(grant: Grant | None, sandbox: server.Request | attachment_records.Attachment, **more: object) -> dict[str, object]:
    """Return the keys of a log line about a grant, None if it is unknown, and a sandbox that uses it."""
    grant_keys: dict[str, object] = {}
    if grant is not None:
        grant_keys = {"claim": str(grant.claim), "claim_uid": grant.claim.uid, "device": grant.device.name, "share_id": grant.share_id}
    return {**grant_keys, "pod": sandbox.pod, "sandbox": sandbox.sandbox, **more}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call for an interface, with the sandbox's namespace open. The caller owns ``descriptor``. ``terms`` are those of a new DHCP lease."""

    request: server.Request
    grant: Grant
    share: port.Share
    sandbox: sandboxes.Sandbox
    descriptor: int
    terms: address_leases.Terms | None


class Attacher:
    """Attaches sandboxes to the prepared shares of one node."""

    def __init__(
        self,
        machine: port.Port,
        kernel: sandboxes.KernelSandboxes,
        context: drakit.DriverContext,
        *,
        node: str,
        index: address_leases.AddressIndex | None = None,
        announcing: announcer.Announcer | None = None,
        dhcp_client: dhcp.Client | None = None,
    ) -> None:
        self._dhcp = dhcp_client or dhcp.Udhcpc(context.data_dir, kernel.run_inside)
        self._machine, self._kernel, self._context = machine, kernel, context
        self._node, self._announcer = node, announcing or announcer.Announcer(kernel)
        self._leases = address_leases.AddressLeases(context, node=node, is_alive=self._is_alive, survey=self._survey, index=index)

    def attach(
        self, request: server.Request, descriptor: int, is_waited_for: Callable[[], bool], *, just_read: Grant | None = None
    ) -> None:
        """Attach an interface to the sandbox whose namespace is open as ``descriptor``.

        ``just_read`` is the grant where the caller has read it. Raises RefusedError, DrakitError.
        """
        if self._kernel.is_host(descriptor):
            raise server.RefusedError(
                "the pod uses the host's network (hostNetwork), which cannot get a share of a NIC", server.Reason.HOST_NETWORK
            )
        grant = just_read or self._prepared_share(request)[0]
        terms = self._dhcp_terms(request, grant, descriptor, is_waited_for)
        with self._context.hold((*grant.device.lock_names, *address_leases.locks_for(config.of(grant))), is_waited_for):
            grant, share = self._current_grant(request, is_waited_for)
            with self._kernel.opened(descriptor) as sandbox:
                call = Call(request=request, grant=grant, share=share, sandbox=sandbox, descriptor=descriptor, terms=terms)
                self._attach(call, is_waited_for)

    def _dhcp_terms(
        self, request: server.Request, grant: Grant, descriptor: int, is_waited_for: Callable[[], bool]
    ) -> address_leases.Terms | None:
        """Return a new DHCP lease, None without DHCP or where the sandbox has one. It is requested before any lock, because it takes seconds."""
        share = shares.from_record(grant.record)
        if not config.of(grant).dhcp or share is None:
            return None
        with self._kernel.opened(descriptor) as sandbox:
            cookie = sandbox.cookie
        if self._leases.existing(grant, cookie) is not None:
            return None
        pod = request.pod or attachment_records.sandbox_name(request.sandbox, cookie)
        identifier, began = dhcp.identifier_of(self._node, share.id, pod), dhcp.now()
        offer = self._dhcp.request(share.ifindex, identifier, is_waited_for)
        return address_leases.Terms(address=offer.address, identifier=identifier, seconds=offer.seconds, until=int(began + offer.seconds))

    def attachments(self, grant: Grant) -> tuple[attachment_records.Attachment, ...]:
        """Return every recorded attachment of a grant."""
        return attachment_records.attachments_of(self._context.state(grant))

    def links(self, share: port.Share, attachment: attachment_records.Attachment) -> tuple[link_requests.Link, ...]:
        """Return the existing links of an attachment, usually one or none."""
        own = attachment_records.alias(share.id, attachment.sandbox)
        children = self._kernel.children(attachment.nsid, share.ifindex, share.child)
        return tuple(link for link in children if _belongs_to(link, own, attachment))

    def admit(self, grant: Grant, share: port.Share, attachment: attachment_records.Attachment) -> None:
        """Direct the frames of an attachment to its share again. The caller holds the device's lock."""
        self._machine.admit(share, cookie=attachment.cookie, mac=attachment.mac, hosts=self._hosts(grant, attachment))

    def _hosts(self, grant: Grant, attachment: attachment_records.Attachment) -> frozenset[str]:
        """Return the leased IP addresses of an attachment, none where another sandbox has replaced its."""
        leases = [lease for lease in address_leases.leases_of(self._context, grant) if lease.sandbox_id.cookie == attachment.cookie]
        return frozenset(host for lease in leases for host in lease.hosts)

    def undo(self, grant: Grant, share: port.Share, attachment: attachment_records.Attachment) -> None:
        """Remove an attachment if it exists. The caller holds the device's lock."""
        for link in self.links(share, attachment):
            self._kernel.delete(attachment.nsid, link)
        self._machine.dismiss(share, cookie=attachment.cookie, mac=attachment.mac, hosts=self._hosts(grant, attachment))
        with contextlib.suppress(drakit.ClaimError):  # The claim is no longer prepared, so its state is deleted already.
            self._leases.release(grant, _sandbox_id(attachment))
            self._context.set_state(grant, attachment.key, None)

    def renewer(self) -> dhcp_renewal.Renewer:
        """Return a renewer of this node's DHCP leases."""
        return dhcp_renewal.Renewer(self._context, self._dhcp, self._leases)

    def end(self, grant: Grant) -> None:
        """Release the grant's addresses, because it is about to be unprepared."""
        self._leases.end(grant)

    def _undo_after_failure(self, grant: Grant, share: port.Share, attachment: attachment_records.Attachment) -> None:
        """Roll back an attachment. Log a failure without raising it, because unprepare rolls back again and the first error is the one to report."""
        try:
            self.undo(grant, share, attachment)
        except drakit.DrakitError as error:
            _log.warning("attachment rollback failed", **log_keys(grant, attachment, interface=attachment.name, error=str(error)))

    def _prepared_share(self, request: server.Request) -> tuple[Grant, port.Share]:
        """Return the grant of a request with its share. Raises RefusedError where the claim is not prepared."""
        grant = self._context.grant(request.claim, request.device, request.share_id)
        share = None if grant is None else shares.from_record(grant.record)
        if grant is None or share is None:
            raise not_prepared(f"share of {request.device}")
        return grant, share

    def _attach(self, call: Call, is_waited_for: Callable[[], bool]) -> None:
        recorded = attachment_records.from_record(self._context.state(call.grant).get(attachment_records.key_of(call.sandbox.cookie), {}))
        if recorded is not None and recorded.boot_id not in {"", self._context.boot_id}:
            recorded = None  # The kernel gives cookies again after a reboot, so this is the attachment of another sandbox.
        attachment = self._planned(call, recorded)
        link = _own_link(call.sandbox.find(attachment.name), call.share, attachment, is_recorded=recorded is not None)
        if recorded != attachment:
            self._check_mac(call, attachment)
            self._check_only_ipvlan(call, attachment)
            self._context.set_state(call.grant, attachment.key, attachment_records.to_record(attachment))
        try:
            self._complete(call, attachment, link)
            self._current_grant(call.request, is_waited_for)
        except Exception:
            if recorded is None:
                self._undo_after_failure(call.grant, call.share, attachment)
            raise
        if recorded is None:
            _log.info("sandbox attached", **log_keys(call.grant, attachment, interface=attachment.name, mac=attachment.mac))

    def _planned(self, call: Call, recorded: attachment_records.Attachment | None) -> attachment_records.Attachment:
        """Return the recorded attachment with its present nsid, or else a new one."""
        nsid, cookie = call.sandbox.nsid(), call.sandbox.cookie
        if recorded is not None:
            return dataclasses.replace(recorded, nsid=nsid)
        nic_config, sandbox = config.of(call.grant), attachment_records.sandbox_name(call.request.sandbox, cookie)
        return attachment_records.Attachment(
            cookie=cookie,
            nsid=nsid,
            sandbox=sandbox,
            pod=call.request.pod,
            name=attachment_records.interface_name(nic_config, call.share.id),
            mac=attachment_records.mac_address(nic_config, self._node, call.share.id, sandbox),
            boot_id=self._context.boot_id,
        )

    def _check_mac(self, call: Call, attachment: attachment_records.Attachment) -> None:
        """Raise RefusedError where another interface of the NIC has the configured MAC address.

        The search of all claims for its owner runs only where the kernel has the address in another sandbox.
        """
        if not config.of(call.grant).mac or all(member.cookie == attachment.cookie for member in self._machine.members_at(attachment.mac)):
            return
        for grant in self._context.grants():
            share = shares.from_record(grant.record)
            for other in self.attachments(grant) if share is not None else ():
                is_same_mac = other.mac == attachment.mac and other.cookie != attachment.cookie
                if is_same_mac and share is not None and self.links(share, other):
                    raise server.RefusedError(
                        f"the DeviceClass gives the MAC {other.mac}, which another pod has: claim {grant.claim}", server.Reason.MAC_TAKEN
                    )

    def _check_only_ipvlan(self, call: Call, attachment: attachment_records.Attachment) -> None:
        """Raise RefusedError where the pod has another ipvlan of the NIC, because a frame shows only the NIC's address and the pod's namespace."""
        if call.share.child is not port.ChildKind.IPVLAN:
            return
        for link in self._kernel.children(attachment.nsid, call.share.ifindex, call.share.child):
            if link.name != attachment.name:
                raise server.RefusedError(
                    f"the pod has another ipvlan of {call.share.interface}, {link.name}; a pod can have one share of a NIC with ipvlan, "
                    "so request one share with all of the bandwidth",
                    server.Reason.SECOND_IPVLAN,
                )

    def _complete(self, call: Call, attachment: attachment_records.Attachment, link: link_requests.Link | None) -> None:
        """Create and configure the missing parts of an attachment. A MAC address or MTU that the pod changed while the link is up stays."""
        addresses = self._addresses(call, attachment)
        wanted = pod_interfaces.interface_config(config.of(call.grant), name=attachment.name, mac=attachment.mac, addresses=addresses)
        was_up = link is not None and link.up
        if link is None:
            _create_link(call.sandbox, wanted, call.share)
            link = call.sandbox.find(wanted.name)
            if link is None:
                raise drakit.HardwareError("RTM_NEWLINK", f"{wanted.name} was created but does not exist")
        alias = attachment_records.alias(call.share.id, attachment.sandbox)
        if link.alias != alias:
            call.sandbox.mark(link, alias)
        self._machine.admit(call.share, cookie=attachment.cookie, mac=attachment.mac, hosts=ip_pools.hosts(addresses))
        if wanted.mode is config.Mode.BRIDGE and not was_up:
            call.sandbox.limit(link, max(call.share.bandwidth, call.share.ceil))
        if call.share.child is port.ChildKind.IPVLAN:
            wanted = dataclasses.replace(wanted, mac="")
        call.sandbox.configure(dataclasses.replace(wanted, mac="", mtu=0) if was_up else wanted)
        subject = announcer.Subject(
            key=attachment,
            nsid=attachment.nsid,
            ifindex=link.ifindex,
            name=wanted.name,
            mac=link.mac if call.share.child is port.ChildKind.IPVLAN else attachment.mac,
            hosts=ip_pools.hosts(wanted.addresses),
            versions=pod_interfaces.announced_versions(wanted),
            nic=call.share.interface,
            is_router=config.of(call.grant).forwarding,
        )
        self._announcer.announce(subject, call.descriptor)

    def _addresses(self, call: Call, attachment: attachment_records.Attachment) -> tuple[str, ...]:
        """Return the sandbox's addresses. Leases are read only for a configuration that requests addresses."""
        nic_config = config.of(call.grant)
        if not address_leases.locks_for(nic_config):
            return ()
        return self._leases.acquire(call.grant, nic_config, _sandbox_id(attachment), call.terms)

    def _is_alive(self, lease: address_leases.Lease) -> bool:
        """Return whether the sandbox of a lease exists: it is a member of its share, and its interface is in its namespace.

        A member stays until a check of the collector, but a namespace that ended has no links.
        """
        share = shares.from_record(lease.grant.record)
        if share is None or all(member.cookie != lease.sandbox_id.cookie for member in self._machine.members(of=share)):
            return False
        key = attachment_records.key_of(lease.sandbox_id.cookie)
        attachment = attachment_records.from_record(self._context.state(lease.grant).get(key, {}))
        return attachment is not None and bool(self.links(share, attachment))

    def _survey(self) -> address_leases.IsAlive:
        """Return a function that says whether the sandbox of a lease exists, from one read of the kernel.

        A sandbox that removed its mark is read again.
        """
        existing = {(member.share_id, member.cookie) for member in self._machine.members()}
        marked = {link.alias for _, link in self._kernel.marked()}

        def is_alive(lease: address_leases.Lease) -> bool:
            share = shares.from_record(lease.grant.record)
            if share is None or (share.id, lease.sandbox_id.cookie) not in existing:
                return False
            attachment = attachment_records.from_record(
                self._context.state(lease.grant).get(attachment_records.key_of(lease.sandbox_id.cookie), {})
            )
            return attachment is not None and (
                attachment_records.alias(share.id, attachment.sandbox) in marked or bool(self.links(share, attachment))
            )

        return is_alive

    def _current_grant(self, request: server.Request, is_waited_for: Callable[[], bool]) -> tuple[Grant, port.Share]:
        """Return the present grant. Raises RefusedError where the runtime no longer waits, because it would never remove the interface."""
        check_waited_for(is_waited_for)
        return self._prepared_share(request)


def _sandbox_id(attachment: attachment_records.Attachment) -> address_leases.SandboxId:
    return address_leases.SandboxId(cookie=attachment.cookie, pod=attachment.pod)


def _create_link(sandbox: sandboxes.Sandbox, wanted: pod_interfaces.InterfaceConfig, share: port.Share) -> None:
    try:
        sandbox.create(wanted, share.ifindex, share.child)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise OSError(error.errno, _busy(share)) from error
        if error.errno == errno.EOPNOTSUPP:
            reason = f"this kernel has no {share.child.value}; load the module, or change child in the setting nic.rules"
            raise OSError(error.errno, reason) from error
        if error.errno != errno.ENODEV:
            raise
        raise server.RefusedError(
            f"the NIC {share.interface} was replaced or pulled out since the claim was prepared; delete the pod and its claim",
            server.Reason.NIC_REPLACED,
        ) from error


def _busy(share: port.Share) -> str:
    other = next(kind.value for kind in port.ChildKind if kind is not share.child)
    return (
        f"the kernel allows no {share.child.value} on {share.interface}, which has {other}s or a bridge of another program; the kernel allows "
        f"only one kind of interfaces on a NIC: remove the others, or set child: {other} for it in nic.rules"
    )


def _belongs_to(link: link_requests.Link, alias: str, attachment: attachment_records.Attachment) -> bool:
    """Return whether a child belongs to the attachment: by its mark, or where it has no mark by its MAC address, or the name of an ipvlan.

    A pod's root may change either. A child whose mark and address are both changed belongs to no attachment.
    """
    is_alike = link.name == attachment.name if link.kind == port.ChildKind.IPVLAN.value else link.mac == attachment.mac
    return link.alias == alias or (not attachment_records.share_of(link.alias) and is_alike)


def _own_link(
    link: link_requests.Link | None, share: port.Share, attachment: attachment_records.Attachment, *, is_recorded: bool
) -> link_requests.Link | None:
    """Return the link of the attachment, None if there is none. Raises RefusedError where another interface has the name.

    An ipvlan without a mark is the attachment's only if the attachment was recorded before.
    """
    if link is None:
        return None
    alias = attachment_records.alias(share.id, attachment.sandbox)
    is_known = is_recorded or link.alias == alias or link.kind != port.ChildKind.IPVLAN.value
    is_own = is_known and sandboxes.is_child_of(link, share.ifindex) and _belongs_to(link, alias, attachment)
    if not is_own or link.name != attachment.name:
        raise name_taken(link, attachment.name)
    return link


def not_prepared(what: str) -> server.RefusedError:
    """Return the refusal of a share or device whose claim is not prepared."""
    reason = f"the claim's {what} is not prepared on this node; the kubelet retries after it has prepared the claim"
    return server.RefusedError(reason, server.Reason.NOT_PREPARED)


def check_waited_for(is_waited_for: Callable[[], bool]) -> None:
    """Raise RefusedError where the runtime no longer waits, because it would never remove the interface."""
    if not is_waited_for():
        raise server.RefusedError("the container runtime no longer waits for the interface", server.Reason.TOO_LATE)


def name_taken(link: link_requests.Link, name: str) -> server.RefusedError:
    """Return the refusal of a name that another interface of the pod has, also as an alternative name."""
    altname = "" if link.name == name else f" ({link.name!r} with the alternative name {name!r})"
    reason = f"the pod has another interface named {name!r}{altname}; choose a different NicConfig.interfaceName"
    return server.RefusedError(reason, server.Reason.NAME_TAKEN)
