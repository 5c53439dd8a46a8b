"""What a start owes to the process that ran before: half states undone, lost CDI files rewritten, orphaned ones removed.

One claim that cannot be recovered now does not keep the others from it, nor the driver from starting: it stays in the journal and is tried
again by the next call for it or by the next start.
"""

import dataclasses

from drakit.core import lifecycle, names, ports
from drakit.node import engine
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What was found at start, by claim UID."""

    undone: tuple[names.ClaimUid, ...] = ()
    verified: tuple[names.ClaimUid, ...] = ()
    orphans: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


def recover(carrier: engine.Engine, journal: ports.Journal, cdi: ports.CdiDirectory, *, sweep_orphans: bool) -> Report:
    """Bring journal, hardware and CDI directory into agreement.

    CDI files are listed before the journal is read: a file whose claim the journal does not know then is nobody's, because a claim is journaled
    before its first file is written. ``sweep_orphans`` is False when the journal was lost: then such files may serve running pods and stay.
    """
    with_files = cdi.claims()
    entries = {entry.claim.uid: entry for entry in journal.entries()}
    undone: list[names.ClaimUid] = []
    verified: list[names.ClaimUid] = []
    failed: list[names.ClaimUid] = []
    for uid, entry in entries.items():
        try:
            _recover_one(carrier, entry, undone, verified)
        except Exception:  # noqa: BLE001 - one claim's trouble must not keep the node from starting
            _log.exception("could not recover claim", claim=str(entry.claim), uid=uid, state=entry.state.value)
            failed.append(uid)
    orphans = tuple(sorted(with_files - entries.keys())) if sweep_orphans else ()
    for uid in orphans:
        cdi.remove(uid)
    report = Report(undone=tuple(undone), verified=tuple(verified), orphans=orphans, failed=tuple(failed))
    say = _log.info if undone or orphans or failed else _log.debug
    say("recovered", undone=len(undone), verified=len(verified), orphans=len(orphans), failed=len(failed))
    return report


def _recover_one(carrier: engine.Engine, entry: lifecycle.Entry, undone: list[names.ClaimUid], verified: list[names.ClaimUid]) -> None:
    uid = entry.claim.uid
    if entry.state is lifecycle.State.PREPARED:
        carrier.restore(uid)
        verified.append(uid)
    elif carrier.undo(uid, unless=lifecycle.State.PREPARED):
        undone.append(uid)
