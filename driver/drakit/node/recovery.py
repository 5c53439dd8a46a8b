"""Recover half states and CDI files at every start.

``recover`` undoes the half states that an earlier process left, rewrites lost CDI files and removes orphaned ones. A claim that cannot be recovered
blocks neither the others nor the start: it stays in the journal, and ``recovery_retry`` or the next call for it retries it.
"""

import dataclasses
import time
from collections.abc import Collection

from drakit.core import errors, names, ports
from drakit.node import engine
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

PATIENCE_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """The result of a recovery: the UIDs of the claims by outcome."""

    undone: tuple[names.ClaimUid, ...] = ()
    verified: tuple[names.ClaimUid, ...] = ()
    orphans: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


class Deadline:
    """A ``ports.Caller`` that waits for ``seconds``, so that a start does not hang on hardware that another process holds."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def is_waiting(self) -> bool:
        """Return whether time is left."""
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, negative after it."""
        return self._end - time.monotonic()


def recover(claim_engine: engine.Engine, journal: ports.Journal, cdi: ports.CdiDirectory, *, is_new_boot: bool = True) -> Report:
    """Make journal, hardware and CDI directory agree, and return a report. A lost journal must be restored before.

    CDI files are listed before the journal is read, and read again under the claim's lock. A file whose claim is then absent from the journal is an
    orphan in a new boot: a power cut may leave it. In the boot of the files it is none, because a claim is journaled before its first file is
    written: the file is kept, and the next start without another process treats the journal as lost.
    """
    with_files = cdi.claims()
    journaled = [entry.claim.uid for entry in journal.entries(edits=False)]
    if not is_new_boot and (unknown := _without_entry(with_files.difference(journaled), claim_engine)):
        _log.error("CDI files of unknown claims kept: restart the driver to restore the claims", claims=sorted(unknown))
        with_files -= unknown
    by_outcome: dict[engine.Recovered, list[names.ClaimUid]] = {outcome: [] for outcome in engine.Recovered}
    failed: list[names.ClaimUid] = []
    deadline = Deadline()
    for uid in (*journaled, *sorted(with_files.difference(journaled))):
        try:
            by_outcome[claim_engine.recover(uid, deadline)].append(uid)
        except Exception as error:  # noqa: BLE001 - the failure of one claim must not keep the node from starting
            _log.warning("claim recovery failed", claim_uid=uid, error=str(error), exc_info=not isinstance(error, errors.LockedError))
            failed.append(uid)
    report = Report(
        undone=tuple(by_outcome[engine.Recovered.HALF]),
        verified=tuple(by_outcome[engine.Recovered.WHOLE]),
        orphans=tuple(by_outcome[engine.Recovered.ORPHAN]),
        failed=tuple(failed),
    )
    log = _log.info if report.undone or report.orphans or report.failed else _log.debug
    log("claims recovered", undone=len(report.undone), verified=len(report.verified), orphans=len(report.orphans), failed=len(failed))
    return report


def _without_entry(uids: Collection[names.ClaimUid], claim_engine: engine.Engine) -> frozenset[names.ClaimUid]:
    """Return the claims that have CDI files and no entry while no call for them runs."""
    deadline = Deadline()
    return frozenset(uid for uid in uids if claim_engine.has_only_files(uid, deadline))
