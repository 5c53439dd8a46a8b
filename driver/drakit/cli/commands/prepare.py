"""``drakit prepare`` and ``drakit unprepare``: what a kubelet would ask, asked by hand, with claims from files and no API server."""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer

from drakit import settings as values
from drakit.cdi import host_nodes
from drakit.cli import composition, not_offered, options, output
from drakit.core import advanced, errors, inventory, lifecycle, names
from drakit.core import capacity as capacities
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import driver as drivers
from drakit.journal import inspection
from drakit.kube import file_claims
from drakit.kubelet import health as device_health
from drakit.kubelet import health_client
from drakit.node import local_node
from drakit.telemetry import logs

Row = dict[str, object]
Given = TypeVar("Given")


class Present:
    """A person at a terminal always waits."""

    def is_waiting(self) -> bool:
        """Yes."""
        return True

    def seconds_left(self) -> float | None:
        """As long as it takes."""
        return None


class Nowhere:
    """No claims: unpreparing needs none."""

    def fetch(self, ref: claims.ClaimRef) -> claims.Claim:
        """Always NOT_FOUND."""
        raise errors.ClaimError(errors.ClaimFault.NOT_FOUND, f"claim {ref} is in no file")


Claims = Annotated[
    list[pathlib.Path] | None,
    typer.Option("--file", "-f", metavar="FILE", help="A file with ResourceClaims, - for standard input. May be repeated."),
]


@options.quietly
@options.on_a_node
def prepare(
    settings: values.Settings,
    given: Annotated[
        list[pathlib.Path] | None, typer.Argument(metavar="CLAIM.yaml", help="The same as -f CLAIM.yaml.", show_default=False)
    ] = None,
    files: Claims = None,
    form: options.Output = options.Format.TABLE,
) -> None:
    """Prepare the devices of an allocated claim, without Kubernetes.

    A file holds one or more ResourceClaims as the API server would give them, with status.allocation. What a container would get is written to the
    CDI directory, and shown.

    [bold]Examples[/bold]

      drakit prepare claim.yaml --mock dgx-a100-40gb-2gpu

      kubectl get resourceclaim gpu -o yaml | drakit prepare -f - --node node-1
    """
    source = file_claims.FileClaims(*_some([*(given or []), *(files or [])], "give CLAIM.yaml, or -f CLAIM.yaml"))
    rows: list[Row] = []
    failed: list[str] = []
    wanted = _wanted(source, failed)
    served = {ref.uid for ref in source.refs if ref.uid not in wanted}
    for family in composition.families(settings):
        own = [ref for ref in source.refs if family.spec.driver_name in wanted.get(ref.uid, ())]
        served.update(ref.uid for ref in own)
        with _opened(family, source) as opened:
            if not_restored := _restored(opened, source):
                failed.append(not_restored)
                continue
            for ref in own:
                if wrong := _not_as_scheduled(source.fetch(ref), family.spec.driver_name, opened.offered.device):
                    failed.append(f"{ref}: {wrong}")
                    continue
                answer = opened.engine.prepare([ref], Present())[ref.uid]
                rows += _rows(ref, family, answer)
                output.warn(_missing_node(opened, ref))
                failed += [f"{ref}: {answer.error}"] if answer.error else []
    failed += [f"{ref}: {_foreign(wanted[ref.uid])}" for ref in source.refs if ref.uid not in served]
    _show(rows, form)
    if failed:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, "; ".join(failed))


@options.quietly
@options.on_a_node
def unprepare(
    settings: values.Settings,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="UID|CLAIM.yaml", help="Claim UIDs, or files that hold the claims.", show_default=False),
    ] = None,
    files: Claims = None,
) -> None:
    """Release the devices of claims, also of claims that were never prepared.

    Over a lost journal it ends the restoration of a claim: its devices are released as far as its CDI files name them.

    [bold]Examples[/bold]

      drakit unprepare claim.yaml --mock dgx-a100-40gb-2gpu

      drakit unprepare 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c --mock dgx-a100-40gb-2gpu
    """
    refs = [
        ref for text in _some([*(what or []), *map(str, files or [])], "give a UID, CLAIM.yaml, or -f CLAIM.yaml") for ref in _refs(text)
    ]
    failed: list[str] = []
    uids: set[names.ClaimUid] = set()
    for family in composition.families(settings):
        with _opened(family, Nowhere()) as opened:
            uids.update(ref.uid for ref in refs if _is_known(opened, ref.uid))
            was_lost = opened.is_lost
            failed += [f"{uid}: {error}" for uid, error in opened.unprepare(refs, Present()).items() if error]
            if was_lost:
                output.note(_not_restored(opened, opened.restorer.missing()) or _all_restored(opened))
    if failed:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, "; ".join(failed))
    for ref in refs:
        said = f"unprepared {ref.uid}" if ref.uid in uids else f"{ref.uid} is not prepared; nothing to release"
        output.say(output.prose(), said)


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """What a family offers and does not offer, and what its journal knows.

    ``pool`` is the node's own pool: that of the settings, or where they name no node, that which a driver served here last.
    ``trouble`` says that the journal cannot be read as it is, and what will become of it. ``is_lost`` says that a journal was lost, now or earlier,
    and that claims which are not among ``entries`` may have devices. ``health`` is what the driver reports, by device, while it runs.
    """

    driver: drivers.Driver[Any]
    pool: str
    offered: inventory.Inventory
    entries: Sequence[lifecycle.Entry]
    trouble: str = ""
    is_lost: bool = False
    readings: tuple[advanced.Metric, ...] = ()
    health: Mapping[str, device_health.DeviceHealth] = dataclasses.field(default_factory=dict)
    withheld: not_offered.NotOffered = dataclasses.field(default_factory=not_offered.NotOffered)


def look(family: composition.Family) -> View:
    """Look at a family, and change nothing: what is opened is a copy of the journal, and where there is none, none is made."""
    home = family.folders.home
    with contextlib.ExitStack() as stack:
        nowhere = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drakit-")))
        trouble = ""
        if inspection.exists(home):
            inspection.copy(home, nowhere / "home")
            trouble = inspection.damage(nowhere / "home")
        stack.enter_context(logs.silenced() if trouble else contextlib.nullcontext())
        folders = local_node.Folders(home=nowhere / "home", cdi=nowhere / "cdi")
        try:
            opened = stack.enter_context(local_node.LocalNode(family.spec, folders, Nowhere()))
        except errors.JournalError as error:
            raise errors.JournalError(str(error).replace(str(folders.home), str(home))) from error
        opened.offered.refresh()
        entries = tuple(opened.journal.entries())
        return View(
            driver=opened.author,
            pool=_pool(opened),
            offered=inventory.with_taints(opened.offered.inventory, opened.context.taints()),
            entries=entries,
            trouble=_trouble(home, trouble, len(entries)),
            is_lost=opened.journal.quarantine is not None,
            readings=_measured(opened),
            health=health_client.ask(home),
            withheld=not_offered.by(opened.author),
        )


def _pool(opened: local_node.LocalNode) -> str:
    own = opened.identity.pool
    return (opened.journal.pool() or own) if own == composition.LOCAL_NODE else own


def _measured(opened: local_node.LocalNode) -> tuple[advanced.Metric, ...]:
    """The driver's own numbers; none where it cannot read them now."""
    try:
        return tuple(advanced.metrics_of(opened.author))
    except errors.HardwareError:
        return ()


def _trouble(home: pathlib.Path, trouble: str, readable: int) -> str:
    if not trouble:
        return ""
    read = f"{readable} of its claims can be" if readable else "none of its claims can be"
    path, then = home / inspection.DATABASE, "it stays as it is until the driver starts, which sets it aside and rebuilds it"
    return f"{path} cannot be read ({trouble}), {read}; {then}"


@contextlib.contextmanager
def _opened(family: composition.Family, source: file_claims.FileClaims | Nowhere) -> Iterator[local_node.LocalNode]:
    with local_node.LocalNode.open(family.spec, family.folders, source) as opened:
        yield opened


class GivenClaims:
    """The claims of files as a ``ports.ClaimList``; a missing claim that is in no file may be in use, and counts as unreadable."""

    def __init__(self, source: file_claims.FileClaims, missing: Collection[names.ClaimUid]) -> None:
        self._source = source
        self._missing = missing

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Return the claims with a device of this driver that ``serves(pool, device)``, and the missing claims that are in no file."""
        given = [self._source.fetch(ref) for ref in self._source.refs if ref.uid in self._missing]
        served = [claim for claim in given if any(serves(result.pool, result.device) for result in claim.results_of(driver))]
        return claims.Listed(claims=tuple(served), unreadable=frozenset(self._missing).difference(claim.ref.uid for claim in served))


def _restored(opened: local_node.LocalNode, source: file_claims.FileClaims) -> str:
    """Restore a lost journal from the claims that were given; say which claims are not restored, and what to do."""
    if not opened.is_lost:
        return ""
    lost = _not_restored(opened, opened.restore(GivenClaims(source, opened.restorer.missing())))
    if not lost:
        output.note(_all_restored(opened))
    return lost


def _not_restored(opened: local_node.LocalNode, missing: Collection[names.ClaimUid]) -> str:
    """Name the claims that are not restored, and what to do where no driver runs that restores them from the API server."""
    lost, program = opened.journal.quarantine, opened.identity.program
    if lost is None or not missing:
        return ""
    return (
        f"the journal of {opened.author.name} was lost ({lost.reason}), and these claims are not restored: {', '.join(missing)}. "
        f"A driver that runs here restores them from the API server. Without one, give {program} prepare the files of all claims that are in "
        f"use, and call {program} unprepare for the others: {program} unprepare {' '.join(missing)}"
    )


def _all_restored(opened: local_node.LocalNode) -> str:
    return f"all claims of the lost journal of {opened.author.name} are restored"


def _is_known(opened: local_node.LocalNode, uid: names.ClaimUid) -> bool:
    """Whether there is something to release, by the journal or, where it is lost, by CDI files."""
    return opened.journal.entry(uid) is not None or bool(opened.cdi.of(uid))


def _wanted(source: file_claims.FileClaims, failed: list[str]) -> dict[str, set[str]]:
    """The drivers that each claim asks for, by UID; claims that cannot be read are left out, and their errors added to ``failed``."""
    wanted: dict[str, set[str]] = {}
    for ref in source.refs:
        try:
            wanted[ref.uid] = {result.driver for result in source.fetch(ref).results}
        except errors.ClaimError as error:
            failed.append(f"{ref}: {error}")
    return wanted


def _not_as_scheduled(claim: claims.Claim, driver: str, device_named: Callable[[str], devices.Device | None]) -> str:
    """Say which consumed capacity no scheduler writes: of a capacity that the device has not, or an amount its request policy does not give."""
    for index, result in enumerate(claim.results):
        device = device_named(result.device) if result.driver == driver else None
        if device is None:
            continue
        for name, amount in result.consumed_capacity.items():
            field = f"status.allocation.devices.results[{index}].consumedCapacity[{name}]"
            capacity = device.capacity.get(name)
            if capacity is None:
                return f"{field}: device {result.device} has no such capacity; it has {', '.join(sorted(device.capacity)) or 'none'}"
            given = capacity.consumed_by(amount)
            if given is None:
                return f"{field}: {amount} is no amount of its request policy; {_largest(capacity)}"
            if given != amount:
                return f"{field}: {amount} is no amount of its request policy; the next amount that the device gives is {given}"
    return ""


def _largest(capacity: capacities.Capacity) -> str:
    """Say the most that one claim may take of a capacity."""
    policy = capacity.policy
    if policy is not None and policy.valid_values:
        return f"one claim may take {', '.join(map(str, policy.valid_values))}"
    if policy is not None and policy.valid_range is not None and policy.valid_range.max is not None:
        return f"one claim may take at most {policy.valid_range.max}"
    return f"the device gives at most {capacity.value}"


def _missing_node(opened: local_node.LocalNode, ref: claims.ClaimRef) -> str:
    """Say which device node of a prepared claim is not on this host."""
    entry = opened.journal.entry(ref.uid)
    problems = [host_nodes.problem(grant.edits) for grant in (entry.grants if entry else ()) if grant.edits]
    return next((f"warning: {ref}: {problem}" for problem in problems if problem), "")


def _some(given: Sequence[Given], advice: str) -> Sequence[Given]:
    """What was given, in one way or the other; raises BadParameter when nothing was."""
    if not given:
        raise typer.BadParameter(advice)
    return given


def _refs(text: str) -> Sequence[claims.ClaimRef]:
    if names.is_uid(text):
        return [claims.ClaimRef(uid=names.ClaimUid(text), namespace="unknown", name="unknown")]
    path = pathlib.Path(text)
    if path != file_claims.STANDARD_INPUT and not path.exists():
        raise errors.ConfigError(f"{text!r} is neither a claim UID nor a file")
    return file_claims.FileClaims(path).refs


def _rows(ref: claims.ClaimRef, family: composition.Family, answer: claims.Outcome) -> list[Row]:
    return [
        {
            "claim": str(ref),
            "uid": ref.uid,
            "driver": family.spec.driver_name,
            "request": device.request,
            "pool": device.pool,
            "device": device.device,
            "shareID": device.share_id,
            "cdiDevices": list(device.cdi_ids),
            "cdiDirectory": str(family.folders.cdi),
        }
        for device in answer.devices
    ]


def _foreign(drivers: set[str]) -> str:
    return f"status.allocation.devices.results: no device of a driver served here (drivers: {', '.join(sorted(drivers)) or 'none'})"


def _show(rows: list[Row], form: options.Format) -> None:
    if form is not options.Format.TABLE:
        output.document(rows, form)
    elif rows:
        cells = [(row["claim"], row["request"], row["device"], row["shareID"] or "", *_listed(row["cdiDevices"])) for row in rows]
        output.put(output.console(), output.table("", ["CLAIM", "REQUEST", "DEVICE", "SHARE", "CDI DEVICE"], cells))
        output.console().print()
        output.say(output.console(), f"CDI files are in {rows[0]['cdiDirectory']}")


def _listed(ids: object) -> tuple[str, ...]:
    return (", ".join(ids),) if isinstance(ids, list) else ()
