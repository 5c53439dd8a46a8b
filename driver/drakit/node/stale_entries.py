"""Entries of a lost journal whose claims ended, or were allocated again, after the journal's content was written.

They are in an older copy of a journal, and in one that lost its last changes. Their devices may belong to other claims by now. A claim's CDI files
tell: they are written before a claim is prepared, and removed before its hardware is released.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from drakit.core import advanced, errors, lifecycle, names, ports
from drakit.core import claim as claims
from drakit.node import inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stale:
    """The stale entries: ``ended`` claims have no CDI files, ``replaced`` ones have files of other devices than the entry."""

    ended: Mapping[names.ClaimUid, lifecycle.Entry]
    replaced: Mapping[names.ClaimUid, lifecycle.Entry]


def find(
    entries: Sequence[lifecycle.Entry], listed: claims.Listed, cdi: ports.CdiDirectory, author: inventory_cache.Author, boot_id: str
) -> Stale:
    """Return the stale entries of this boot. Only a complete list shows that a claim ended; a claim that cannot be read did not."""
    by_uid = {claim.ref.uid: claim for claim in listed.claims}
    ended, replaced = {}, {}
    for entry in entries:
        uid = entry.claim.uid
        if entry.boot_id != boot_id:
            continue
        files = cdi.of(uid).keys()
        if files:
            if not files <= {resolution.cdi_name(author.name, entry.claim, grant) for grant in entry.grants}:
                replaced[uid] = entry
        elif listed.is_complete and uid not in listed.unreadable:
            claim = by_uid.get(uid)
            if claim is None or not resolution.is_same(entry, claim, author):
                ended[uid] = entry
    return Stale(ended=ended, replaced=replaced)


class Remover:
    """Removes stale entries from a journal: at once where another claim needs the devices, else by an ordinary unprepare after the restoration."""

    def __init__(self, journal: ports.Journal, resolver: resolution.Resolver, author: inventory_cache.Author) -> None:
        self._journal = journal
        self._resolver = resolver
        self._author = author
        self._ended: dict[names.ClaimUid, lifecycle.Entry] = {}

    def begin(self, stale: Stale) -> None:
        """Remove the replaced entries, and remember the ended ones."""
        for entry in stale.replaced.values():
            self._drop(entry)
        self._ended = dict(stale.ended)

    def check_free(self, uid: names.ClaimUid, grants: resolution.Grants) -> None:
        """Raise DeviceBusyError unless the devices of a claim are free. Ended claims do not hold devices that another claim has."""
        try:
            self._resolver.check_free(uid, grants)
        except errors.DeviceBusyError:
            rivals = [entry for entry in self._ended.values() if self._is_rival(entry, grants)]
            if not rivals:
                raise
            for entry in rivals:
                self._drop(entry)
                del self._ended[entry.claim.uid]
            self._resolver.check_free(uid, grants)

    def _is_rival(self, entry: lifecycle.Entry, grants: resolution.Grants) -> bool:
        """Return whether an entry may hold hardware of the grants: the same device, of the same counters, or in another form."""
        if resolution.lock_names(grants) & resolution.lock_names(entry.grants):
            return True
        return any(advanced.overlap(self._author, grant.device, held.device) for grant in grants for held in entry.grants)

    def finish(self) -> None:
        """Begin to unprepare the ended claims that hold no device of another claim; the recovery that follows undoes them."""
        for entry in self._ended.values():
            _log.warning("claim ended while its entry was lost", claim=str(entry.claim), claim_uid=entry.claim.uid)
            self._journal.begin_unprepare(entry.claim.uid)
        self._ended = {}

    def _drop(self, entry: lifecycle.Entry) -> None:
        _log.warning("stale journal entry removed: its devices belong to another claim", claim=str(entry.claim), claim_uid=entry.claim.uid)
        self._journal.forget(entry.claim.uid)
