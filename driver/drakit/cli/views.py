"""What a family offers, and what its journal has, for commands that change nothing.

A family whose hardware cannot be opened still has a journal: its view has the claims, and why the hardware cannot be read.
"""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drakit import settings as values
from drakit.cdi import spec
from drakit.cli import composition, not_offered
from drakit.core import advanced, errors, inventory, lifecycle, names
from drakit.core import claim as claims
from drakit.core import driver as drivers
from drakit.journal import inspection
from drakit.journal import journal as journals
from drakit.journal import quarantine as quarantines
from drakit.kubelet import health as device_health
from drakit.kubelet import sockets
from drakit.node import held_devices, local_node
from drakit.telemetry import logs, plurals

_log = logs.get_logger(__name__)

_UID_CHARACTERS = 36


class Nowhere:
    """An empty source of claims, for unprepare, which reads none."""

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Raise ClaimError with NOT_FOUND."""
        raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {ref} is in none of the given files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """The devices that a family offers and does not offer, and the entries of its journal.

    ``pool`` is the node's own pool: that of the settings, or where they name no node, that which a driver served here last.
    ``trouble`` is why the journal is missing or cannot be read, and the fix. ``quarantine`` is the journal's record of a loss, and ``missing`` has
    the claims to restore then. ``health`` is the health by device that a running driver reports. ``error`` is why the hardware cannot be read; then
    there is no ``driver`` and nothing is offered, but ``entries`` has all claims. ``findings`` are the driver's own for ``doctor``. ``was_served`` is
    set if a driver served here once, other than the commands that prepare without one.
    """

    driver: drivers.Driver[Any] | None
    pool: str
    offered: inventory.Inventory
    entries: Sequence[lifecycle.Entry]
    trouble: str = ""
    quarantine: quarantines.Quarantine | None = None
    missing: frozenset[names.ClaimUid] = frozenset()
    readings: tuple[advanced.Metric, ...] = ()
    health: Mapping[str, device_health.DeviceHealth] = dataclasses.field(default_factory=dict)
    withheld: Sequence[advanced.NotOffered] = ()
    displaced: Mapping[str, held_devices.Displaced] = dataclasses.field(default_factory=dict)
    """The devices of claims that changed meanwhile."""
    error: errors.DrakitError | None = None
    unclaimed: Sequence[advanced.Leftover] = ()
    findings: Sequence[advanced.Finding] = ()
    was_served: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether a journal was lost, now or earlier: claims that are not in ``entries`` may have devices."""
        return bool(self.trouble) or self.quarantine is not None


def every(settings: values.Settings, *, only: Sequence[str] = ()) -> Iterator[tuple[composition.NodeFamily, View]]:
    """Yield the view of each family that is served or whose journal has claims. Raises SettingsError, JournalError."""
    for family in composition.families_to_read(settings, only=only):
        seen = look(family)
        if family.is_served or seen.entries or seen.is_lost:
            yield family, seen


def look(family: composition.NodeFamily, *, with_unclaimed: bool = False, with_findings: bool = False) -> View:
    """Return the view of a family. It reads a copy of the journal, so nothing on the node changes. Raises JournalError.

    ``with_unclaimed`` also reads what no claim has; a lost journal does not know that. ``with_findings`` also asks the driver for its own.
    """
    home = family.folders.home
    with contextlib.ExitStack() as stack:
        copy, damage = stack.enter_context(journal_copy(family))
        folders = local_node.Folders(home=copy, cdi=copy.parent / "cdi", is_copy=True)
        try:
            opened = stack.enter_context(local_node.LocalNode(family.spec, folders, Nowhere()))
            opened.offered.refresh()
            withheld = not_offered.by(opened.author)
            findings = _findings(opened.author) if with_findings else ()
            unclaimed = advanced.unclaimed(opened.author) if with_unclaimed and not damage and not opened.is_lost else ()
        except errors.JournalError as error:
            raise errors.JournalError(str(error).replace(str(folders.home), str(home))) from error
        except (errors.HardwareError, errors.RetryError, errors.SettingsError) as error:
            return _without_hardware(family, folders.home, damage, error)
        entries = tuple(opened.journal.entries())
        return View(
            driver=opened.author,
            pool=_pool(opened.journal, opened.identity.pool),
            offered=inventory.with_taints(opened.offered.current.authored, opened.context.taints()),
            entries=entries,
            trouble=trouble(home, damage, readable=len(entries)),
            quarantine=opened.journal.quarantine,
            missing=_to_restore(family, opened.journal.quarantine, entries),
            readings=_measured(opened),
            health=_health(home),
            withheld=withheld,
            displaced=opened.offered.current.displaced,
            unclaimed=unclaimed,
            findings=findings,
            was_served=bool(opened.journal.pool()),
        )


def _health(home: pathlib.Path) -> Mapping[str, device_health.DeviceHealth]:
    """Return the health that a running driver reports; most commands run beside none and need no gRPC, which takes 30 ms to import."""
    if not any(sockets.services(home)):
        return {}
    from drakit.kubelet import health_client

    return health_client.read(home)


def _findings(author: drivers.Driver[Any]) -> Sequence[advanced.Finding]:
    if not isinstance(author, advanced.Diagnosable):
        return ()
    findings: list[advanced.Finding] = []
    try:
        findings.extend(author.diagnose())
    except errors.JournalError:
        raise
    except Exception as error:  # noqa: BLE001 - an author's code, which must not keep an operator from seeing devices and claims
        message = f"the driver's own checks stopped: {type(error).__name__}: {error}"
        findings.append(advanced.Finding.unknown("devices", author.name, message, "see the driver's log, then run doctor again"))
    return tuple(findings)


@contextlib.contextmanager
def journal_copy(family: composition.NodeFamily) -> Iterator[tuple[pathlib.Path, str]]:
    """Yield the folder of a copy of a family's journal, and why the journal is damaged, behind or gone; empty if it is not.

    The folder and the one around it are temporary. A family without a journal has none to copy. Opening a damaged copy logs nothing. Raise
    JournalError.
    """
    home = family.folders.home
    with tempfile.TemporaryDirectory(prefix="drakit-") as folder:
        copy = pathlib.Path(folder, "home")
        # The mark is read first, because a driver that runs may commit meanwhile.
        last_change = family.folders.mark(family.spec.driver_name, family.spec.identity.boot_id).read()
        if inspection.exists(home):
            inspection.copy(home, copy)
            damage = inspection.damage(copy, last_change)
        else:
            damage = inspection.missing(home, last_change, claims_with_files(family))
        with logs.silenced() if damage else contextlib.nullcontext():
            yield copy, damage


def _without_hardware(family: composition.NodeFamily, copy: pathlib.Path, damage: str, error: errors.DrakitError) -> View:
    """Return the view of a family whose driver cannot be made or cannot read its hardware: what the copy of its journal has."""
    home, identity = family.folders.home, family.spec.identity
    with journals.Journal.open(copy, driver=family.spec.driver_name, boot_id=identity.boot_id) as journal:
        entries = tuple(journal.entries())
        return View(
            driver=None,
            pool=_pool(journal, identity.pool),
            offered=inventory.Inventory(),
            entries=entries,
            trouble=trouble(home, damage, readable=len(entries)),
            quarantine=journal.quarantine,
            missing=_to_restore(family, journal.quarantine, entries),
            health=_health(home),
            error=error,
        )


def _pool(journal: journals.Journal, own: str) -> str:
    return (journal.pool() or own) if own == composition.LOCAL_NODE else own


def _measured(opened: local_node.LocalNode) -> tuple[advanced.Metric, ...]:
    """Return the driver's own metrics; none if it cannot read them, for example because it is not started here."""
    try:
        return tuple(advanced.metrics_of(opened.author))
    except Exception as error:  # noqa: BLE001 - an author's code, which must not keep an operator from seeing claims
        _log.debug("reading metrics failed", driver=opened.author.name, error=f"{type(error).__name__}: {error}")
        return ()


def _to_restore(
    family: composition.NodeFamily, lost: quarantines.Quarantine | None, entries: Sequence[lifecycle.Entry]
) -> frozenset[names.ClaimUid]:
    """Return the claims that a lost journal named or that have CDI files, and that are not restored; none where no journal is lost."""
    if lost is None:
        return frozenset()
    restored = {entry.claim.uid for entry in entries if entry.state is not lifecycle.State.PREPARING}
    return claims_with_files(family).union(lost.lost) - restored


def claims_with_files(family: composition.NodeFamily) -> frozenset[names.ClaimUid]:
    """Return the claims that have CDI files. It only reads: ``cdi.directory`` would create the folder and remove temporary files."""
    prefix = spec.file_prefix(family.spec.driver_name)
    paths = [path for path in family.folders.cdi.glob(f"{prefix}*.json") if not path.is_dir()]
    uids = (path.name.removeprefix(prefix)[:_UID_CHARACTERS] for path in paths)
    return frozenset(names.ClaimUid(uid) for uid in uids if names.is_uid(uid))


def trouble(home: pathlib.Path, damage: str, *, readable: int) -> str:
    """Return why a journal is missing or cannot be read, and the fix; empty without damage. ``readable`` is the number of claims in its copy."""
    path = home / inspection.DATABASE
    if not damage:
        return ""
    if not path.exists():
        return f"{path} is lost ({damage}); restart the driver: it restores the claims"
    read = f"{plurals.counted(readable, 'claim')} can be read from it" if readable else "no claim can be read from it"
    return f"{path} cannot be read ({damage}); {read}; the driver sets it aside and rebuilds it when it starts"
