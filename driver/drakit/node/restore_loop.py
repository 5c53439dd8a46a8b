"""Restore the claims of a lost journal until none is missing, with growing pauses between the attempts."""

import threading
from collections.abc import Callable, Mapping

from drakit.core import backoff, errors, names, ports
from drakit.node import restorer
from drakit.telemetry import logs, plurals

_log = logs.get_logger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
SHOWN = 3
"""The number of claims that the status names; the log has all of them."""


class RestoreLoop:
    """A loop that restores until no claim is missing.

    ``status`` says why the driver does not serve yet; ``failed`` is called after each failed attempt. ``state`` may raise a DrakitError.
    """

    def __init__(
        self,
        restorer: restorer.Restorer,
        listing: ports.ClaimList,
        clock: ports.Clock,
        failed: Callable[[], None],
        state: Callable[[], restorer.NodeState] = restorer.NodeState,
    ) -> None:
        self._restorer = restorer
        self._listing = listing
        self._clock = clock
        self._failed = failed
        self._state = state
        self._listed_at: float | None = None
        self.status = f"{restorer.subject}: its claims are being restored"

    def run(self, stop: threading.Event) -> bool:
        """Retry with growing pauses, and return whether all claims are restored; False when ``stop`` is set first.

        The grace of devices begins with the first attempt for which the API server listed the claims.
        """
        pauses = backoff.Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stop.is_set():
            is_late = self._listed_at is not None and self._clock.monotonic() - self._listed_at >= restorer.DEVICE_GRACE
            if self.attempt(lambda: not stop.is_set(), is_late=is_late):
                return True
            _log.warning("restoring the journal failed", error=self.status, retry_in_s=pauses.pause)
            self._failed()
            self._clock.wait(stop, pauses.next())
        return False

    def attempt(self, is_wanted: Callable[[], bool], *, is_late: bool = False) -> bool:
        """Restore once, and return whether all claims are restored; else ``status`` has the reason.

        Another process that restores is waited for while ``is_wanted``.
        """
        try:
            with self._restorer.alone(is_wanted):
                failed = self._restorer.restore(self._listing, without_devices=is_late, state=self._state())
                if self._listed_at is None:
                    self._listed_at = self._clock.monotonic()
        except errors.DrakitError as error:
            self.status = f"{self._restorer.subject}: its claims cannot be restored: {error}"
            return False
        if failed:
            self.status = f"{self._restorer.subject}: {describe(failed, self._restorer.program)}"
        return not failed


def describe(failed: Mapping[names.ClaimUid, str], program: str) -> str:
    """Return a text that says which claims are not restored, why, and how ``program`` releases one."""
    count = plurals.counted(len(failed), "claim")
    named = "; ".join(f"{uid}: {reason}" for uid, reason in list(failed.items())[:SHOWN])
    more = f"; and {len(failed) - SHOWN} more" if len(failed) > SHOWN else ""
    return f"{count} to restore: {named}{more}. To release a claim, delete its pods and run: {program} unprepare UID"
