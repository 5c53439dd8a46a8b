"""Keep the claims that were read or written a moment ago, so that a status or an Event of the same call needs no second read.

A kept claim may be outdated. So a status that is based on one is written to that version only, and the writer reads the claim again after a conflict.
"""

import collections
import threading

from drakit.core import names, ports
from drakit.kube import transport

KEPT_SECONDS = 10.0
KEPT_MAX = 128


class RecentClaims:
    """The objects of claims by UID, at most ``KEPT_MAX`` and each for ``KEPT_SECONDS``. Thread-safe."""

    def __init__(self, clock: ports.Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[str, tuple[float, transport.Object]] = collections.OrderedDict()

    def put(self, uid: names.ClaimUid, claim: transport.Object) -> None:
        """Keep a claim as the API server just answered it."""
        with self._lock:
            self._kept.pop(uid, None)
            now = self._clock.monotonic()
            self._kept[uid] = now, claim
            while len(self._kept) > KEPT_MAX or now - next(iter(self._kept.values()))[0] >= KEPT_SECONDS:
                self._kept.popitem(last=False)

    def get(self, uid: names.ClaimUid) -> transport.Object | None:
        """Return a kept claim, or None."""
        with self._lock:
            since, claim = self._kept.get(uid, (0.0, None))
        return claim if self._clock.monotonic() - since < KEPT_SECONDS else None

    def drop(self, uid: names.ClaimUid) -> None:
        """Drop a claim that is known to be outdated."""
        with self._lock:
            self._kept.pop(uid, None)
