"""What CDI files say while the journal that knew it is lost: which claims may be running, and what they hold. Pure but for what is read."""

from collections.abc import Callable, Sequence

from drakit.core import driver as drivers
from drakit.core import errors, lifecycle, names, ports
from drakit.node import inventory_cache, resolution
from drakit.node.restore import recall
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

Grant = drivers.Grant[object]
Check = Callable[[Sequence[Grant]], None]


def is_forgotten(uid: names.ClaimUid, entry: lifecycle.Entry | None, cdi: ports.CdiDirectory, boot_id: str) -> bool:
    """Whether a claim has files that its entry does not answer for: it has none, or one that was begun in this boot and never completed.

    A claim that is begun anew after a loss has its files from before. Whoever died before completing it may have left a running pod, so it is gone
    on with, not undone. One that was begun for the first time has files once its hardware is whole, and then that does no harm.
    """
    begun = entry is None or (entry.state is lifecycle.State.PREPARING and entry.boot_id == boot_id)
    return begun and bool(cdi.of(uid))


def earlier(grants: Sequence[Grant], files: recall.Files, forgotten: recall.Forgotten, check: Check) -> tuple[Grant, ...]:
    """What is to be undone of a claim that was allocated anew: what its files name and its ``grants`` do not, and those of these that have files.

    Nothing where all of its grants have files: a pod may run with them, so only ``unprepare`` may touch them. What another claim has by now was given
    back before.
    """
    if not grants or not files:
        return ()
    uid, driver = grants[0].claim.uid, forgotten.driver
    with_files = [grant for grant in grants if recall.file_of(grant, driver) in files]
    left = left_of(forgotten.beside(uid, grants, files), {}, driver, check) if len(with_files) < len(grants) else ()
    if left:
        _log.warning("undoing the former allocation of an unknown claim", claim_uid=uid, devices=[one.device.name for one in left])
    return (*left, *with_files) if left else ()


def left_of(grants: Sequence[Grant], files: recall.Files, driver: str, check: Check) -> tuple[Grant, ...]:
    """What is left to undo of a claim that has ended. Raises what ``check`` raises of a grant that has a CDI file, since two have its device then.

    A grant without one whose device another claim has by now was given back before: whoever is asked again for it has nothing left to undo.
    """
    left = []
    for grant in grants:
        try:
            check([grant])
        except errors.DeviceBusyError as error:
            if recall.file_of(grant, driver) in files:
                raise
            _log.info("another claim has what a forgotten one had", claim_uid=grant.claim.uid, device=grant.device.name, error=str(error))
        else:
            left.append(grant)
    return tuple(left)


def without_files(grants: Sequence[Grant], files: recall.Files, driver: str) -> Sequence[Grant]:
    """The grants of a claim that no file speaks for: nobody knows whether they were ever prepared."""
    return [grant for grant in grants if recall.file_of(grant, driver) not in files]


def with_intents(
    grants: Sequence[Grant], files: recall.Files, author: inventory_cache.Author, planner: resolution.Planner
) -> tuple[Grant, ...]:
    """Grants of a claim in use with their intents: recalled where there is a CDI file, else planned, as the kubelet's next Prepare would.

    Raises what the author raises.
    """
    recalled = recall.with_intents(grants, files, author)
    bare = without_files(recalled, files, author.name)
    planned = dict(zip(map(id, bare), planner.plan(bare), strict=True))
    return tuple(planned.get(id(grant), grant) for grant in recalled)
