"""What a claim was granted, put together again after the journal that knew it was lost.

A grant whose CDI file is there was prepared by this driver, in this boot where the CDI directory is emptied by a reboot: only of such a
grant is the author asked for the intent, because the hardware behind it is then ours, and told what the file says. Of a grant without a
file nobody knows whether it was ever prepared: its intent is empty, and ``unprepare`` must do with the device alone. Pure but for what the
author reads.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from drakit.core import advanced, edits, errors, lifecycle, names, ports, records
from drakit.core import claim as claims
from drakit.core import config as configs
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.node import inventory_cache, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]
Files = Mapping[edits.CdiName, edits.Edits | None]
DeviceOf = Callable[[str], devices.Device | None]

UNKNOWN = "unknown"
# What an author says of a grant that cannot be as its CDI file has it; anything else may pass, and is asked again.
_REFUSALS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError)


def with_intents(grants: Sequence[Grant], files: Files, author: inventory_cache.Author) -> tuple[Grant, ...]:
    """Grants of a claim in use, with the intents of those that have a CDI file; raises what the author raises."""
    return tuple(_with_intent(grant, files, author) for grant in grants)


def to_undo(grants: Sequence[Grant], files: Files, author: inventory_cache.Author) -> tuple[Grant, ...]:
    """The same for a claim that has ended: where the author refuses what a file says, the intent is empty, or nobody could ever give it back."""
    return tuple(_to_undo(grant, files, author) for grant in grants)


def by_files(
    uid: names.ClaimUid, files: Collection[edits.CdiName], author: inventory_cache.Author, pool: str, device_of: DeviceOf
) -> tuple[Grant, ...]:
    """Grants by the names of a claim's CDI files alone, for a claim that is gone; devices that are not there any more are left out."""
    ref = _ref(uid)
    found = ((name, device_of(name.device)) for name in files)
    return tuple(_bare(ref, name, device, author, pool) for name, device in found if device is not None)


def file_of(grant: Grant, driver: str) -> edits.CdiName:
    """What a grant's CDI file is named after."""
    return resolution.cdi_name(driver, grant.claim, resolution.to_entry(grant))


class Forgotten:
    """What claims have that the journal does not know, by their CDI files, which are listed anew each time.

    Whether the journal knows a claim is asked only of those whose device is asked for: there may be thousands of others.
    """

    def __init__(
        self,
        author: inventory_cache.Author,
        journal: ports.Journal,
        cdi: ports.CdiDirectory,
        offered: inventory_cache.InventoryCache,
        pool: str,
    ) -> None:
        self.driver = author.name
        self._author = author
        self._journal = journal
        self._cdi = cdi
        self._offered = offered
        self._pool = pool

    def of(self, ref: claims.ClaimRef, source: ports.ClaimSource) -> Sequence[Grant]:
        """The grants of a claim that has ended, by its allocation and its files; none of one that is known. Raises ApiError when nobody can say."""
        if self._journal.entry(ref.uid) is not None:
            return ()
        try:
            grants = resolution.resolve(source.fetch(ref), self._author, self._pool, self._offered.granted)
        except (errors.ClaimError, errors.ConfigError) as error:
            _log.info("a forgotten claim is known by its CDI files alone", claim=str(ref), claim_uid=ref.uid, error=str(error))
            return self.by_files(ref.uid, self._cdi.of(ref.uid))
        return (*grants, *self.beside(ref.uid, grants, self._cdi.of(ref.uid)))

    def by_files(self, uid: names.ClaimUid, files: Collection[edits.CdiName]) -> tuple[Grant, ...]:
        """Grants by the names of a claim's CDI files alone; hardware is asked once more for devices that are not there any more."""
        return by_files(uid, files, self._author, self._pool, self._offered.device)

    def beside(self, uid: names.ClaimUid, grants: Sequence[Grant], files: Collection[edits.CdiName]) -> tuple[Grant, ...]:
        """The same of the files that none of a claim's grants has: it was allocated otherwise when they were written."""
        own = {file_of(grant, self.driver) for grant in grants}
        return self.by_files(uid, [name for name in files if name not in own])

    def planned(self, device: devices.Device) -> Sequence[records.Record]:
        """The intents of a device's grants; what the author refuses is left out, because nobody can be given it back either."""
        files = {name: found for name, found in self._cdi.of_all().items() if name.device == device.name and self._is_unknown(name)}
        grants = (grant for name in files for grant in by_files(name.claim_uid, [name], self._author, self._pool, lambda _: device))
        return [grant.intent for grant in to_undo(tuple(grants), files, self._author) if grant.intent]

    def held(self, wanted: Collection[str], shares: Collection[str] = ()) -> Sequence[lifecycle.Holding]:
        """What is held of these devices, as ``ports.Journal.holdings`` gives it; devices that are not there any more are left out.

        Of the shares that are not asked for, the one that stands for all of a device is anybody's: a device that a known claim has is drawn from too.
        It is none of admin access, which has a request in its name.
        """
        held: dict[edits.CdiName | str, lifecycle.Holding] = {}
        for name in self._cdi.of_all():
            if name.device not in wanted or (device := self._offered.seen(name.device)) is None:
                continue
            stands_for_all = name.share_id is not None and name.share_id not in shares and not name.request
            key = name.device if stands_for_all else name
            if key not in held and (stands_for_all or self._is_unknown(name)):
                held[key] = _holding(name, device)
        return tuple(held.values())

    def _is_unknown(self, name: edits.CdiName) -> bool:
        return self._journal.entry(name.claim_uid) is None


def _holding(name: edits.CdiName, device: devices.Device) -> lifecycle.Holding:
    return lifecycle.Holding(
        claim=_ref(name.claim_uid),
        state=lifecycle.State.PREPARED,
        device=device,
        share_id=name.share_id,
        admin_access=bool(name.request),
    )


def _ref(uid: names.ClaimUid) -> claims.ClaimRef:
    return claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)


def _with_intent(grant: Grant, files: Files, author: inventory_cache.Author) -> Grant:
    name = file_of(grant, author.name)
    if name not in files or not isinstance(author, advanced.IntentRecovery):
        return grant
    return dataclasses.replace(grant, intent=author.recall(dataclasses.replace(grant, found=files[name])))


def _to_undo(grant: Grant, files: Files, author: inventory_cache.Author) -> Grant:
    try:
        return _with_intent(grant, files, author)
    except _REFUSALS as error:
        _log.warning("what a CDI file says cannot be", claim_uid=grant.claim.uid, device=grant.device.name, error=str(error))
        return grant


def _bare(ref: claims.ClaimRef, name: edits.CdiName, device: devices.Device, author: inventory_cache.Author, pool: str) -> Grant:
    try:
        config = configs.default_for(author, device)
    except errors.ConfigError:
        config = drivers.NoConfig()
    return drivers.Grant(
        claim=ref,
        request=name.request or UNKNOWN,
        pool=pool,
        device=device,
        config=config,
        share_id=name.share_id,
        admin_access=bool(name.request),
    )
