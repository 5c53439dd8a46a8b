"""What a claim was granted, put together again after the journal that knew it was lost.

A grant whose CDI file is there was prepared by this driver, in this boot where the CDI directory is emptied by a reboot: only of such a grant is the
author asked for the intent, because the hardware behind it is then ours. Of a grant without a file nobody knows whether it was ever prepared: its
intent is empty, and ``unprepare`` must do with the device alone. Pure but for what the author reads.
"""

import dataclasses
from collections.abc import Callable, Sequence

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import edits, errors, names
from drakit.node import offer

Grant = drivers.Grant[object]

UNKNOWN = "unknown"


def with_intents(grants: Sequence[Grant], files: Sequence[edits.CdiName], author: offer.Author) -> tuple[Grant, ...]:
    """Grants resolved from the claim, with the intents of those that have a CDI file."""
    present = {(name.device, name.share_id) for name in files}
    return tuple(
        dataclasses.replace(grant, intent=author.recall(grant)) if (grant.device.name, grant.share_id) in present else grant
        for grant in grants
    )


def from_files(
    uid: names.ClaimUid,
    files: Sequence[edits.CdiName],
    author: offer.Author,
    pool: str,
    device_of: Callable[[str], devices.Device | None],
) -> tuple[Grant, ...]:
    """Grants by the names of a claim's CDI files alone, for a claim that is gone; devices that are not there any more are left out."""
    ref = claims.ClaimRef(uid=uid, namespace=UNKNOWN, name=UNKNOWN)
    found = ((name, device_of(name.device)) for name in files)
    grants = [_bare(ref, name, device, author, pool) for name, device in found if device is not None]
    return tuple(dataclasses.replace(grant, intent=author.recall(grant)) for grant in grants)


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
