"""Class numbers for new shares: never one that an installed share has, the journal promises, or an earlier plan of this process was given.

The shares of one claim are all planned before the journal hears of the first, so the journal alone would promise them one number. A number given
here is forgotten when the journal knows it, or its share is planned again.
"""

import threading
from collections.abc import Iterable

from drakit.core import errors, records
from drakit.devices.nic import port, shaping


class Numbering:
    """The numbers that plans were given and the journal may not know yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}

    def choose(self, share_id: str, installed: Iterable[port.Share], intents: Iterable[records.Record]) -> int:
        """A number for a share that has none; raises DeviceBusyError where there is none left."""
        with self._lock:
            promised = {str(intent.get("id")): minor for intent in intents for minor in [intent.get("minor")] if isinstance(minor, int)}
            self._given = {known: minor for known, minor in self._given.items() if known not in promised and known != share_id}
            taken = {share.minor for share in installed} | set(promised.values()) | set(self._given.values())
            free = shaping.free_share(taken)
            if free is None:
                raise errors.DeviceBusyError("this node has no class number left for one more share")
            self._given[share_id] = free
            return free
