"""Repair and removal of attachments in the background.

``AttachmentCollector`` repairs and removes attachments in the background. At start, it removes children with the driver's mark and an unknown share.
A driver that dies between the removal of a claim and of its child leaves one. A share is known while the journal plans or has it, or while it is
installed, so pods keep their interfaces while the journal is incomplete. At intervals, the collector compares each recorded attachment with the
kernel. It removes an attachment whose sandbox is gone, and directs frames to the share's class again where the kernel does not. A NIC whose lock
another call holds is skipped, so that it delays no other.

A claim that no container lists is prepared and never attached. Neither the kubelet nor the runtime reports an error, so the driver records one Event
for the claim. It waits first, because an image may still be pulled, and records none for a claim that was ever attached.
"""

import time
from collections.abc import Callable, Iterable

import drakit
from drakit_nic import device_locks, port
from drakit_nic import share as shares
from drakit_nic.attach import attacher, attachment_records, sandboxes

_log = drakit.get_logger(__name__)

Grant = drakit.Grant[object]
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
        context: drakit.DriverContext,
        attaching: attacher.Attacher,
        *,
        intents: Callable[[], Iterable[drakit.Record]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine, self._kernel, self._context = machine, kernel, context
        self._attacher = attaching
        self._locks = device_locks.RoundLocks(context, "attachments", monotonic=monotonic)
        self._intents = intents
        self._monotonic = monotonic

    def remove_orphans(self) -> None:
        """Remove children with the driver's mark whose share is unknown. Raises HardwareError."""
        marked = self._kernel.marked()
        if not marked:
            return
        share_ids = {share.id for share in self._machine.shares()} | {intent.get("id") for intent in self._intents()}
        for nsid, link in marked:
            if attachment_records.share_of(link.alias) not in share_ids:
                _log.warning("removing interface without a claim", interface=link.name, alias=link.alias)
                self._kernel.delete(nsid, link)

    def collect(self) -> None:
        """Compare the attachments of every prepared share with the kernel once. Raises the first DrakitError after all have been compared."""
        admitted = {(member.share_id, member.cookie, member.mac) for member in self._machine.members()}
        grants = [(grant, share) for grant in self._context.grants() if (share := shares.from_record(grant.record)) is not None]
        is_last = self._locks.begin({grant.device.name for grant, _ in grants})
        failures: list[drakit.DrakitError] = []
        for grant, share in sorted(grants, key=lambda pair: is_last(pair[0].device.name)):
            try:
                self._repair(grant, share, admitted)
                self._warn(grant)
            except drakit.ClaimError:  # The claim was unprepared meanwhile.
                continue
            except drakit.DrakitError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _repair(self, grant: Grant, share: port.Share, admitted: set[tuple[str, int, str]]) -> None:
        for attachment in self._attacher.attachments(grant):
            has_link = bool(self._attacher.links(share, attachment))
            if has_link and (share.id, attachment.cookie, attachment.mac) in admitted:
                continue
            with self._locks.hold(grant.device) as is_held:
                is_current = is_held and attachment in self._attacher.attachments(grant)
                if not is_current or self._context.grant(*_key(grant)) is None:
                    continue
                if self._attacher.links(share, attachment):
                    self._attacher.admit(grant, share, attachment)
                else:
                    self._remove_attachment(grant, share, attachment)

    def _remove_attachment(self, grant: Grant, share: port.Share, attachment: attachment_records.Attachment) -> None:
        """Remove the attachment of a deleted sandbox, and record that the claim was attached."""
        if _USED not in self._context.state(grant):
            self._context.set_state(grant, _USED, {})
        self._attacher.undo(grant, share, attachment)
        _log.info("attachment of a deleted sandbox removed", **attacher.log_keys(grant, attachment, interface=attachment.name))

    def _warn(self, grant: Grant) -> None:
        """Record one Event for a claim that no container attached to for a while. Time counts from the first check, also by an earlier process.

        Raises ClaimError where the claim was unprepared meanwhile.
        """
        state, now = self._context.state(grant), self._monotonic()
        if state.keys() - {_WAITING}:
            return
        since = state.get(_WAITING, {}).get("since")
        if not isinstance(since, int) or since > now:
            self._context.set_state(grant, _WAITING, {"since": int(now)})
            return
        if now - since < GRACE:
            return
        self._context.set_state(grant, _WARNED, {})
        message = _NOT_ATTACHED.format(device=grant.device.name, seconds=GRACE)
        self._context.record_event(grant.claim, drakit.Event(reason="ShareNotAttached", message=message))


def _key(grant: Grant) -> tuple[drakit.ClaimUid, str, drakit.ShareId | None]:
    return (grant.claim.uid, grant.device.name, grant.share_id)
