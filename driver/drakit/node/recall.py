"""What a claim was granted, put together again after the journal that knew it was lost.

A grant whose CDI file is there was prepared by this driver, in this boot where the CDI directory is emptied by a reboot: only of such a grant is the
author asked for the intent, because the hardware behind it is then ours, and told what the file says. Of a grant without a file nobody knows whether
it was ever prepared: its intent is empty, and ``unprepare`` must do with the device alone. Pure but for what the author reads.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, names, ports, records
from drakit.node import offer, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]
Files = Mapping[edits.CdiName, edits.Edits | None]
DeviceOf = Callable[[str], devices.Device | None]

UNKNOWN = "unknown"
# What an author says of a grant that cannot be as its CDI file has it; anything else may pass, and is asked again.
_REFUSALS = (errors.ConfigError, errors.DeviceGoneError, errors.DeviceBusyError)


def with_intents(grants: Sequence[Grant], files: Files, author: offer.Author) -> tuple[Grant, ...]:
    """Grants of a claim in use, with the intents of those that have a CDI file; raises what the author raises."""
    return tuple(_with_intent(grant, files, author) for grant in grants)


def to_undo(grants: Sequence[Grant], files: Files, author: offer.Author) -> tuple[Grant, ...]:
    """The same for a claim that has ended: where the author refuses what a file says, the intent is empty, or nobody could ever give it back."""
    return tuple(_to_undo(grant, files, author) for grant in grants)


def by_files(
    uid: names.ClaimUid, files: Collection[edits.CdiName], author: offer.Author, pool: str, device_of: DeviceOf
) -> tuple[Grant, ...]:
    """Grants by the names of a claim's CDI files alone, for a claim that is gone; devices that are not there any more are left out."""
    ref = claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)
    found = ((name, device_of(name.device)) for name in files)
    return tuple(_bare(ref, name, device, author, pool) for name, device in found if device is not None)


def unknown(journal: ports.Journal, cdi: ports.CdiDirectory) -> Sequence[names.ClaimUid]:
    """The claims that have CDI files and that the journal does not know."""
    return [uid for uid in sorted(cdi.claims()) if journal.entry(uid) is None]


class Forgotten:
    """What claims must have been promised that the journal does not know, by their CDI files; looked up anew each time."""

    def __init__(self, author: offer.Author, journal: ports.Journal, cdi: ports.CdiDirectory, pool: str) -> None:
        self._author = author
        self._journal = journal
        self._cdi = cdi
        self._pool = pool

    def promised(self, device: devices.Device) -> Sequence[records.Record]:
        """The intents of a device's grants; what the author refuses is left out, because nobody can be given it back either."""
        return [intent for uid in unknown(self._journal, self._cdi) for intent in self._of(uid, device)]

    def _of(self, uid: names.ClaimUid, device: devices.Device) -> Iterator[records.Record]:
        files = {name: found for name, found in self._cdi.of(uid).items() if name.device == device.name}
        for grant in to_undo(by_files(uid, files, self._author, self._pool, lambda _: device), files, self._author):
            if grant.intent:
                yield grant.intent


def _with_intent(grant: Grant, files: Files, author: offer.Author) -> Grant:
    name = resolution.cdi_name(author.name, grant.claim, resolution.to_entry(grant))
    if name not in files:
        return grant
    return dataclasses.replace(grant, intent=author.recall(dataclasses.replace(grant, found=files[name])))


def _to_undo(grant: Grant, files: Files, author: offer.Author) -> Grant:
    try:
        return _with_intent(grant, files, author)
    except _REFUSALS as error:
        _log.warning("what a CDI file says cannot be", uid=grant.claim.uid, device=grant.device.name, error=str(error))
        return grant


def _bare(ref: claims.ClaimRef, name: edits.CdiName, device: devices.Device, author: offer.Author, pool: str) -> Grant:
    try:
        config = author.default_config(device)
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
