"""What a start owes to the process that ran before: half states undone, lost CDI files rewritten, orphaned ones removed.

One claim that cannot be recovered now does not keep the others from it, nor the driver from starting: it stays in the journal and is tried
again by the next call for it or by the next start.
"""

import dataclasses
import time

from drakit.core import names, ports
from drakit.node import engine
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


PATIENCE_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What was found at start, by claim UID."""

    undone: tuple[names.ClaimUid, ...] = ()
    verified: tuple[names.ClaimUid, ...] = ()
    orphans: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


class Deadline:
    """A ``ports.Caller`` that waits for so many seconds: a start does not hang on hardware that another process is stuck on."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def is_waiting(self) -> bool:
        """Whether the time is not over yet."""
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """What is left of the time."""
        return self._end - time.monotonic()


def recover(claim_engine: engine.Engine, journal: ports.Journal, cdi: ports.CdiDirectory) -> Report:
    """Bring journal, hardware and CDI directory into agreement; not before a lost journal is restored.

    CDI files are listed before the journal is read, and read again under the claim's lock. A file whose claim the journal does not have then is
    an orphan, because a claim is journaled before its first file is written.
    """
    with_files = cdi.claims()
    known = [entry.claim.uid for entry in journal.entries()]
    found: dict[engine.Recovered, list[names.ClaimUid]] = {kind: [] for kind in engine.Recovered}
    failed: list[names.ClaimUid] = []
    patience = Deadline()
    for uid in (*known, *sorted(with_files.difference(known))):
        try:
            found[claim_engine.recover(uid, patience)].append(uid)
        except Exception:  # noqa: BLE001 - one claim's trouble must not keep the node from starting
            _log.exception("could not recover claim", claim_uid=uid)
            failed.append(uid)
    report = Report(
        undone=tuple(found[engine.Recovered.HALF]),
        verified=tuple(found[engine.Recovered.WHOLE]),
        orphans=tuple(found[engine.Recovered.ORPHAN]),
        failed=tuple(failed),
    )
    say = _log.info if report.undone or report.orphans or report.failed else _log.debug
    say("recovered", undone=len(report.undone), verified=len(report.verified), orphans=len(report.orphans), failed=len(failed))
    return report
