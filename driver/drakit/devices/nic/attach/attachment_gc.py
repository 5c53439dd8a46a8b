"""Repairs and removes attachments in the background.

At start, children with our mark and an unknown share are removed: a driver died between a claim's end and the child's. A share is known while the
journal plans or has it, or while it is installed, so that pods keep what they have while the journal is incomplete. At intervals, each recorded
attachment is compared with the kernel: it is removed where its sandbox is gone, and its frames are led to the share's class again where they are not.

A claim that no container lists is prepared and never attached. Kubelet and runtime see no error, so an Event reports it: once for a claim, after a
while in which an image may be pulled, and never for a claim that was attached at any time.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from drakit.core import context as contexts
from drakit.core import driver as drivers
from drakit.core import errors, names, records
from drakit.devices.nic import port
from drakit.devices.nic import share as shares
from drakit.devices.nic.attach import attacher, sandboxes

INTERVAL = 30.0
GRACE = 120.0
_USED, _WARNED, _WAITING = "attached", "warned", "waiting"
_NOT_ATTACHED = (
    "no container has attached to the claim's share of {device} in {seconds:.0f} seconds; if containers are running, list the claim in the "
    "resources.claims of one of them, else the pod gets no interface"
)
_log = logging.getLogger(__name__)

Grant = drivers.Grant[object]


class AttachmentCollector:
    """Compares the attachments of one driver with the kernel."""

    def __init__(
        self,
        machine: port.Port,
        kernel: attacher.Sandboxes,
        context: contexts.DriverContext,
        attaching: attacher.Attacher,
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
        known = {share.id for share in self._machine.shares()} | {intent.get("id") for intent in self._intents()}
        for nsid, link in marked:
            if sandboxes.share_of(link.alias) not in known:
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
        _log.info("attachment of a deleted sandbox removed", extra=attacher.log_keys(grant, attachment, interface=attachment.name))

    def _warn(self, grant: Grant) -> None:
        """Report once that no container attached to a claim for a while, counted from the first check, also by an earlier process."""
        notes, now = self._context.state(grant), self._monotonic()
        if notes.keys() - {_WAITING}:
            return
        since = notes.get(_WAITING, {}).get("since")
        if not isinstance(since, int) or since > now:
            with contextlib.suppress(errors.ClaimError):  # It was unprepared meanwhile.
                self._context.set_state(grant, _WAITING, {"since": int(now)})
            return
        if now - since < GRACE:
            return
        self._context.set_state(grant, _WARNED, {})
        message = _NOT_ATTACHED.format(device=grant.device.name, seconds=GRACE)
        self._context.record_event(grant.claim, contexts.Event(reason="ShareNotAttached", message=message))


def _key(grant: Grant) -> tuple[names.ClaimUid, str, names.ShareId | None]:
    return (grant.claim.uid, grant.device.name, grant.share_id)
