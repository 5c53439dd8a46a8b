"""What CDI files say while the journal that knew it is lost: which claims may be running, and what they hold. Pure but for what is read."""

from collections.abc import Callable, Sequence

from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.core import errors, lifecycle, names, ports
from drakit.node import offer, planning, recall, resolution
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]


def is_forgotten(uid: names.ClaimUid, entry: lifecycle.Entry | None, cdi: ports.CdiDirectory, boot_id: str) -> bool:
    """Whether a claim has files that its entry does not answer for: it has none, or one that was begun in this boot and never completed.

    A claim that is begun anew after a loss has its files from before. Whoever died before completing it may have left a running pod, so it is gone
    on with, not undone. One that was begun for the first time has files once its hardware is whole, and then that does no harm.
    """
    begun = entry is None or (entry.state is lifecycle.State.PREPARING and entry.boot_id == boot_id)
    return begun and bool(cdi.of(uid))


def held(journal: ports.Journal, cdi: ports.CdiDirectory, device_of: Callable[[str], devices.Device | None]) -> Sequence[lifecycle.Holding]:
    """What claims hold that the journal does not know; devices that are not there any more are left out.

    Costs a listing of the directory for each such claim, which there are for as long as a rebuild takes.
    """
    found = ((uid, name, device_of(name.device)) for uid in recall.unknown(journal, cdi) for name in cdi.of(uid))
    return tuple(
        lifecycle.Holding(
            claim=claims.ClaimRef(uid=uid, namespace=recall.UNKNOWN, name=recall.UNKNOWN),
            state=lifecycle.State.PREPARED,
            device=device,
            share_id=name.share_id,
            admin_access=bool(name.request),
        )
        for uid, name, device in found
        if device is not None
    )


def left_of(grants: Sequence[Grant], files: recall.Files, driver: str, check: Callable[[Sequence[Grant]], None]) -> tuple[Grant, ...]:
    """What is left to undo of a claim that has ended. Raises what ``check`` raises of a grant that has a CDI file, since two have its device then.

    A grant without one whose device another claim has by now was given back before: whoever is asked again for it has nothing left to undo.
    """
    left = []
    for grant in grants:
        try:
            check([grant])
        except errors.DeviceBusyError as error:
            if resolution.cdi_name(driver, grant.claim, resolution.to_entry(grant)) in files:
                raise
            _log.info("another claim has what a forgotten one had", uid=grant.claim.uid, device=grant.device.name, error=str(error))
        else:
            left.append(grant)
    return tuple(left)


def with_intents(grants: Sequence[Grant], files: recall.Files, author: offer.Author, planner: planning.Planner) -> tuple[Grant, ...]:
    """Grants of a claim in use with their intents: recalled where there is a CDI file, else planned, as the kubelet's next Prepare would.

    Raises what the author raises.
    """
    recalled = recall.with_intents(grants, files, author)
    bare = [grant for grant in recalled if resolution.cdi_name(author.name, grant.claim, resolution.to_entry(grant)) not in files]
    planned = dict(zip(map(id, bare), planner.plan(bare), strict=True))
    return tuple(planned.get(id(grant), grant) for grant in recalled)
