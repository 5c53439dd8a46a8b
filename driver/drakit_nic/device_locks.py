"""Device locks for the background checks: a device whose lock is held elsewhere is skipped, so that it delays no other.

The holder may be another process that hangs. All devices of one round share a short time for waiting, and those skipped last time come last.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import drakit

ROUND_SECONDS = 0.5
WARN_SECONDS = 30.0
"""The time after which a device that is skipped in each round is logged."""

_log = drakit.get_logger(__name__)


class RoundLocks:
    """The device locks of one check, which one thread runs in rounds."""

    def __init__(self, context: drakit.DriverContext, check: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._context, self._check, self._monotonic = context, check, monotonic
        self._deadline = float("-inf")
        self._skipped: dict[str, float] = {}
        self._logged: set[str] = set()

    @property
    def has_skipped(self) -> bool:
        """Return whether a device was skipped when it was last checked."""
        return bool(self._skipped)

    def begin(self, present: Iterable[str]) -> Callable[[str], bool]:
        """Begin a round over devices of these names. Return a key that sorts skipped devices last."""
        self._deadline = self._monotonic() + ROUND_SECONDS
        self._skipped = {name: self._skipped[name] for name in present if name in self._skipped}
        self._logged &= self._skipped.keys()
        return frozenset(self._skipped).__contains__

    @contextlib.contextmanager
    def hold(self, device: drakit.Device) -> Iterator[bool]:
        """Hold the locks of a device, and yield True; yield False where they are held elsewhere. Raises JournalError."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._context.hold(device.lock_names, lambda: self._monotonic() < self._deadline))
            except drakit.CallerGoneError:
                self._skip(device.name)
                yield False
                return
            self._skipped.pop(device.name, None)
            if device.name in self._logged:
                self._logged.remove(device.name)
                _log.info("device checked again", device=device.name, part=self._check)
            yield True

    def _skip(self, name: str) -> None:
        now = self._monotonic()
        since = self._skipped.setdefault(name, now)
        if now - since >= WARN_SECONDS and name not in self._logged:
            self._logged.add(name)
            reason = "its lock is held; find the process that holds the lock file (fuser) in the driver's folder"
            _log.warning(
                "device check skipped",
                device=name,
                part=self._check,
                duration_ms=round((now - since) * 1000),
                error=reason,
            )
