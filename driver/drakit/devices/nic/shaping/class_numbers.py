"""Class numbers for new shares: never one that an installed share has, an intent names, or an earlier plan of this process got.

Installed shares and intents are read once, and again by the reconciler, which passes them on (``learn``). In between, plans and removals keep the
numbers current, so that a number costs the same with one share and with thousands. Another process may have assigned a number meanwhile, so a number
is looked up in the kernel before it is used; another process installs what it plans under the same device's lock.

All shares of one claim are planned before the journal has the first, so the journal alone would give them one number. A number assigned here is
dropped when the journal has it, or its share is planned again or ends.
"""

import threading
from collections.abc import Callable, Iterable

from drakit.core import errors, records
from drakit.devices.nic import port
from drakit.devices.nic.shaping import htb

Snapshot = tuple[Iterable[port.Share], Iterable[records.Record]]


class NumberPool:
    """The numbers of a range that are known to be taken; the lowest other one is found without going through them."""

    def __init__(self, whole: range, taken: Iterable[int] = ()) -> None:
        self._whole, self._taken, self._from = whole, set(taken), whole.start

    def lowest(self) -> int | None:
        """The lowest number that is not taken, None where all are."""
        while self._from in self._taken:
            self._from += 1
        return self._from if self._from in self._whole else None

    def take(self, number: int) -> None:
        """Mark a number as taken."""
        self._taken.add(number)

    def release(self, number: int) -> None:
        """Mark a number as free."""
        self._taken.discard(number)
        self._from = min(self._from, max(number, self._whole.start))


class ShareNumbers:
    """The numbers of shares as far as this process knows them. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}
        self._known: dict[str, int] | None = None
        self._numbers = NumberPool(htb.SHARES)

    def learn(self, installed: Iterable[port.Share], intents: Iterable[records.Record]) -> None:
        """Replace what is known by the installed shares and the intents that were just read."""
        with self._lock:
            self._learn(installed, intents)

    def choose(self, share_id: str, *, snapshot: Callable[[], Snapshot], at: Callable[[int], port.Share | None]) -> int:
        """A number for a share that is to be planned: the one it is installed with, else a free one.

        ``snapshot`` reads what is installed and promised; it is called at first, and where no number seems to be left. ``at`` is the share that the
        kernel has with a number. Raises DeviceBusyError where no number is left, and what the two raise.
        """
        with self._lock:
            if self._known is None:
                self._learn(*snapshot())
            kept = (self._known or {}).get(share_id)
            if kept is not None and _is(at(kept), share_id):
                return kept
            self._forget(share_id)
            free = self._free(share_id, at)
            if free is None:
                self._learn(*snapshot())
                free = self._free(share_id, at)
            if free is None:
                raise errors.DeviceBusyError("this node has no class number left for one more share")
            self._given[share_id] = free
            self._numbers.take(free)
            return free

    def forget(self, share_id: str) -> None:
        """The share has ended, and its number is free."""
        with self._lock:
            self._forget(share_id)

    def _learn(self, installed: Iterable[port.Share], intents: Iterable[records.Record]) -> None:
        promised = {str(intent.get("id")): minor for intent in intents for minor in [intent.get("minor")] if isinstance(minor, int)}
        self._known = {**promised, **{share.id: share.minor for share in installed}}
        self._given = {share_id: minor for share_id, minor in self._given.items() if share_id not in promised}
        self._numbers = NumberPool(htb.SHARES, (*promised.values(), *self._known.values(), *self._given.values()))

    def _forget(self, share_id: str) -> None:
        known = self._known if self._known is not None else {}
        for minor in (known.pop(share_id, None), self._given.pop(share_id, None)):
            if minor is not None:
                self._numbers.release(minor)

    def _free(self, share_id: str, at: Callable[[int], port.Share | None]) -> int | None:
        while (minor := self._numbers.lowest()) is not None:
            found = at(minor)
            if found is None or found.id == share_id:
                return minor
            self._numbers.take(minor)
        return None


def _is(found: port.Share | None, share_id: str) -> bool:
    return found is not None and found.id == share_id
