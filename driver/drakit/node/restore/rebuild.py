"""What a lost journal knew, found again: from the API server's claims, the CDI files of the node, and the driver itself.

Every claim that has CDI files here, or that the old file named, and that the new journal does not know, is looked up. One that the API
server still has with devices of this node is remembered as prepared, by preparing it once more, which a driver does without disturbing a
running pod. One that the API server no longer has is remembered as still to be unprepared; the kubelet's next call for it does that, or
``vanished`` once the kubelet has forgotten it. Where its devices are gone too nothing can be unprepared, and after the same wait its files
go.

The kubelet goes on calling meanwhile, and every answer of the API server is old when it arrives: whether a claim is still forgotten is
decided under its lock. One without files, which the old file named, is remembered unless the kubelet's books say that it was given back.
"""

import dataclasses
import threading
from collections.abc import Callable, Collection

from drakit.core import backoff, errors, lifecycle, names, ports
from drakit.core import device as devices
from drakit.node import engine, recovery
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """By claim UID: what is remembered again, what only as still to be unprepared, and what could not be placed or prepared."""

    restored: tuple[names.ClaimUid, ...] = ()
    left: tuple[names.ClaimUid, ...] = ()
    failed: tuple[names.ClaimUid, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lost:
    """Whose memory is lost, and which claims the old file named.

    ``tracked`` gives those that the kubelet remembers, None: nobody can say. ``is_nobodys`` says of a claim that is gone, as are its devices,
    whether its files may go.
    """

    driver: str
    pool: str
    named: Collection[names.ClaimUid] = ()
    tracked: Callable[[], Collection[names.ClaimUid] | None] = lambda: None
    is_nobodys: Callable[[names.ClaimUid], bool] = lambda _: False
    cluster_device: Callable[[str, str], devices.Device | None] = lambda _pool, _name: None

    def serves(self, pool: str, device: str) -> bool:
        """Return whether this node prepares a device: its own pool's, and that of a pool of the cluster in which it has a part."""
        return pool == self.pool or self.cluster_device(pool, device) is not None

    def in_use(self) -> frozenset[names.ClaimUid]:
        """The claims named that the kubelet has not given back, as far as its books can be read."""
        tracked = self.tracked()
        return frozenset(self.named) if tracked is None else frozenset(self.named).intersection(tracked)


def known(journal: ports.Journal) -> frozenset[names.ClaimUid]:
    """The claims that are remembered: one by half, because its process died over it, is to be looked up again. Raises JournalError."""
    return frozenset(entry.claim.uid for entry in journal.entries() if entry.state is not lifecycle.State.PREPARING)


def rebuild(claim_engine: engine.Engine, lost: Lost, journal: ports.Journal, cdi: ports.CdiDirectory, listing: ports.ClaimList) -> Report:
    """Look every forgotten claim up; raises ApiError when the API server does not answer, and then nothing was done."""
    found = listing.allocated(lost.driver, lost.serves)
    listed = {claim.ref.uid: claim for claim in found.claims}
    with_files, in_use = cdi.claims(), lost.in_use()
    restored: list[names.ClaimUid] = []
    left: list[names.ClaimUid] = []
    failed: list[names.ClaimUid] = []
    for uid in sorted((with_files | {uid for uid in in_use if uid in listed}) - known(journal)):
        try:
            if uid in listed:
                claim_engine.adopt(listed[uid], recovery.Deadline(), without_files=uid in in_use)
                restored.append(uid)
            elif uid in found.unreadable:
                _log.warning("claim left as it is: it exists and cannot be read", claim_uid=uid)
                failed.append(uid)
            elif claim_engine.adopt_gone(uid, recovery.Deadline()):
                left.append(uid)
            elif lost.is_nobodys(uid):
                _log.warning("removing the CDI files of a claim whose devices are gone", claim_uid=uid)
                claim_engine.recover(uid, recovery.Deadline())
            else:
                _log.warning("deleted claim waits for its devices", claim_uid=uid, advice=f"if they stay gone: drakit unprepare {uid}")
                failed.append(uid)
        except Exception:  # noqa: BLE001 - one claim's trouble must not keep the others forgotten
            _log.exception("a forgotten claim cannot be remembered", claim_uid=uid)
            failed.append(uid)
    report = Report(restored=tuple(restored), left=tuple(left), failed=tuple(failed))
    _log.warning("memory rebuilt", restored=len(restored), left=len(left), failed=sorted(failed))
    return report


class Rebuilding:
    """Rebuilds in the background until it succeeded; ``done`` is called then."""

    def __init__(self, attempt: Callable[[], Report], done: Callable[[], None], clock: ports.Clock) -> None:
        self._attempt = attempt
        self._done = done
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Try until nothing failed, with growing pauses, or until ``stop`` is set."""
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.is_set():
            try:
                if not self._attempt().failed:
                    self._done()
                    return
            except errors.DrakitError as error:
                _log.warning("restoring the lost journal failed", error=str(error), retry_in_s=pauses.pause)
            self._clock.wait(stop, pauses.next())
