"""What is done when a runtime asks for a share's interface in a sandbox, and how it is undone.

All of it is under the NIC's device lock, so no verb is half-way. Order: what is going to be made is noted durably; the child is made, down; it is
marked and addressed; its frames are led to the share's class; it is set up; and only if the caller still waits and the claim is still prepared does
it stay. Any step may be repeated: the next container of the sandbox, or the next try after a driver died half-way, goes through the same steps and
finds them done.
"""

import contextlib
import errno
import logging
from collections.abc import Callable
from typing import Protocol

from drakit.core import driver as drivers
from drakit.core import errors
from drakit.core import site as sites
from drakit.devices.nic import config, port
from drakit.devices.nic import share as shares
from drakit.devices.nic.attach import messages, plans, sandboxes

_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


class RefusedError(Exception):
    """A sandbox that gets no interface; the message is for the pod's owner."""


class Sandboxes(Protocol):
    """The kernel's side; see ``sandboxes.KernelSandboxes``."""

    def is_host(self, descriptor: int) -> bool: ...

    def opened(self, descriptor: int) -> contextlib.AbstractContextManager[sandboxes.Sandbox]: ...

    def children(self, nsid: int, nic: int) -> tuple[sandboxes.Link, ...]: ...

    def marked(self) -> tuple[tuple[int, sandboxes.Link], ...]: ...

    def delete(self, nsid: int, link: sandboxes.Link) -> None: ...


class Attacher:
    """Attaches sandboxes to the prepared shares of one node."""

    def __init__(self, machine: port.Port, kernel: Sandboxes, site: sites.Site, *, node: str) -> None:
        self._machine, self._kernel, self._site = machine, kernel, site
        self._node = node

    def attach(self, request: messages.Request, descriptor: int, is_waited_for: Callable[[], bool]) -> None:
        """Give the sandbox whose namespace is open as ``descriptor`` its interface; raises RefusedError, DrakitError. Afterwards nothing is held."""
        if self._kernel.is_host(descriptor):
            raise RefusedError("the pod uses the host's network (hostNetwork), into which no share of a NIC can be put")
        grant, _ = self._prepared(request)
        with self._site.hold(grant.device.lock_names):
            grant, share = self._prepared(request)
            if not is_waited_for():
                raise RefusedError("nobody waits for the interface any more")
            with self._kernel.opened(descriptor) as sandbox:
                self._attach(request, grant, share, sandbox, is_waited_for)

    def attachments(self, grant: Grant) -> tuple[plans.Attachment, ...]:
        """Every attachment that is noted of a grant."""
        notes = self._site.notes(grant)
        found = (plans.from_record(record) for key, record in notes.items() if plans.is_key(key))
        return tuple(attachment for attachment in found if attachment is not None)

    def links(self, share: port.Share, attachment: plans.Attachment) -> tuple[sandboxes.Link, ...]:
        """The links of an attachment that are there now, usually one or none."""
        own = plans.alias(share.id, attachment.sandbox)
        return tuple(link for link in self._kernel.children(attachment.nsid, share.ifindex) if _is_of(link, own, attachment.mac))

    def undo(self, grant: Grant, share: port.Share, attachment: plans.Attachment) -> None:
        """Take an attachment back; the caller holds the device's lock. What is gone already is success."""
        for link in self.links(share, attachment):
            self._kernel.delete(attachment.nsid, link)
        self._machine.dismiss(share, cookie=attachment.cookie, mac=attachment.mac)
        with contextlib.suppress(errors.ClaimError):  # The notes of a claim that is prepared no more are gone with it, or about to be.
            self._site.note(grant, attachment.key, None)

    def _undo_after_failure(self, grant: Grant, share: port.Share, attachment: plans.Attachment) -> None:
        """Undo at once; what cannot be undone now is noted, and undone with the claim. The first error is the one to report."""
        try:
            self.undo(grant, share, attachment)
        except errors.DrakitError as error:
            _log.warning("an attachment could not be undone: share=%s sandbox=%s error=%s", share.id, attachment.sandbox, error)

    def _prepared(self, request: messages.Request) -> tuple[Grant, port.Share]:
        grant = self._site.grant(request.claim, request.device, request.share_id)
        share = None if grant is None else shares.from_record(grant.record)
        if grant is None or share is None:
            raise RefusedError(f"the claim's share of {request.device} is not prepared on this node; it is tried again when the claim is")
        return grant, share

    def _attach(
        self,
        request: messages.Request,
        grant: Grant,
        share: port.Share,
        sandbox: sandboxes.Sandbox,
        is_waited_for: Callable[[], bool],
    ) -> None:
        known = plans.from_record(self._site.notes(grant).get(plans.key_of(sandbox.cookie), {}))
        name = known.sandbox if known is not None else plans.sandbox_name(request.sandbox, sandbox.cookie)
        wanted = grant.config if isinstance(grant.config, config.NicConfig) else config.NicConfig()
        plan = plans.child(wanted, self._node, share, name)
        attachment = plans.Attachment(
            cookie=sandbox.cookie, nsid=sandbox.nsid(), sandbox=name, pod=request.pod, name=plan.name, mac=plan.mac
        )
        found = _own(sandbox.find(plan.name), share, attachment)
        if known is None or known.nsid != attachment.nsid:
            self._site.note(grant, attachment.key, plans.to_record(attachment))
        try:
            self._complete(share, sandbox, plan, attachment, found)
            self._check_wanted(request, is_waited_for)
        except Exception:
            if known is None:
                self._undo_after_failure(grant, share, attachment)
            raise
        if known is None:
            told = (share.id, name, request.pod, plan.name, plan.mac)
            _log.info("sandbox attached: share=%s sandbox=%s pod=%s interface=%s mac=%s", *told)

    def _complete(
        self,
        share: port.Share,
        sandbox: sandboxes.Sandbox,
        plan: plans.ChildPlan,
        attachment: plans.Attachment,
        link: sandboxes.Link | None,
    ) -> None:
        """Make what is not there yet."""
        if link is None:
            _make(sandbox, plan, share)
            link = sandbox.find(plan.name)
            if link is None:
                raise errors.HardwareError("RTM_NEWLINK", f"{plan.name} was made and is not there")
        alias = plans.alias(share.id, attachment.sandbox)
        if link.alias != alias:
            sandbox.mark(link, alias)
        if not link.up:
            sandbox.address(link, plan.addresses)
        self._machine.admit(share, cookie=attachment.cookie, mac=attachment.mac)
        if not link.up:
            sandbox.up(link)

    def _check_wanted(self, request: messages.Request, is_waited_for: Callable[[], bool]) -> None:
        """Raise RefusedError where the interface came too late to be used: a runtime that has given up never takes it back."""
        if not is_waited_for():
            raise RefusedError("nobody waits for the interface any more")
        self._prepared(request)


def _make(sandbox: sandboxes.Sandbox, plan: plans.ChildPlan, share: port.Share) -> None:
    try:
        sandbox.make(plan, share.ifindex)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        raise RefusedError(f"the NIC {share.interface} was replaced since the claim was prepared; delete the pod and its claim") from error


def _is_of(link: sandboxes.Link, alias: str, mac: str) -> bool:
    """Whether a child is the attachment's. A pod may change its address, and what has lost its mark is still a child of the NIC."""
    return link.alias == alias or link.mac == mac or not plans.share_of(link.alias)


def _own(link: sandboxes.Link | None, share: port.Share, attachment: plans.Attachment) -> sandboxes.Link | None:
    """The link where it is the attachment's; raises RefusedError where the name is another's."""
    if link is None:
        return None
    alias = plans.alias(share.id, attachment.sandbox)
    if link.parent != share.ifindex or (link.alias != alias and link.mac != attachment.mac):
        raise RefusedError(f"the pod has another interface named {link.name!r}; choose a different NicConfig.interfaceName")
    return link
