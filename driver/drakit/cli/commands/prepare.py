"""``drakit prepare`` and ``drakit unprepare``: the kubelet's calls by hand, with claims from files and without an API server."""

import contextlib
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, TypeVar

import typer

from drakit import settings as values
from drakit.cdi import host_nodes
from drakit.cli import composition, options, output, views
from drakit.cli.commands import unclaimed
from drakit.core import capacity as capacities
from drakit.core import claim as claims
from drakit.core import device as devices
from drakit.core import errors, names
from drakit.journal import quarantine
from drakit.kube import file_claims
from drakit.node import local_node

Row = dict[str, object]
Given = TypeVar("Given")


class Present:
    """The caller of a command: it waits until the call returns."""

    def is_waiting(self) -> bool:
        """Return True."""
        return True

    def seconds_left(self) -> float | None:
        """Return None: there is no time limit."""
        return None


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

    A file has one or more ResourceClaims as the API server returns them, with status.allocation. The CDI files of the devices are written to the CDI
    directory, and the CDI device names are printed.

    [bold]Examples[/bold]

      drakit prepare claim.yaml --mock dgx-a100-40gb-2gpu

      kubectl get resourceclaim gpu -o yaml | drakit prepare -f - --node node-1
    """
    source = file_claims.FileClaims(*_some([*(given or []), *(files or [])], "add CLAIM.yaml, or -f CLAIM.yaml"))
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
        typer.Argument(
            metavar="UID|CLAIM.yaml|NAME", help="Claim UIDs, files with the claims, or names of --unclaimed.", show_default=False
        ),
    ] = None,
    files: Claims = None,
    families: options.Families = None,
    is_unclaimed: Annotated[
        bool, typer.Option("--unclaimed", help="List hardware state that no claim has, and with --yes release it; NAMEs limit it.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", help="With --unclaimed: release what is listed.")] = False,
    style: Annotated[options.Format, typer.Option("--output", "-o", help="With --unclaimed: table, json or yaml.")] = options.Format.TABLE,
) -> None:
    """Release the devices of claims. A claim that is not prepared is not an error.

    If the journal was lost and the claim is not restored, the command releases the devices that the claim's CDI files name.

    With --unclaimed the command lists shares, MIG instances, interfaces and daemons that no claim of the journal has, and with --yes releases them.
    It may run beside the driver. What a pod or process uses, and what an admin may have made, is released only if you name it.

    [bold]Examples[/bold]

      drakit unprepare claim.yaml --mock dgx-a100-40gb-2gpu

      drakit unprepare 4cf8db2d-06c0-4d70-9a51-e59b25b2c16c --mock dgx-h100

      drakit unprepare --unclaimed

      drakit unprepare --unclaimed gpu-0/gi-7 --yes
    """
    if is_unclaimed:
        unclaimed.release(composition.families(settings, only=families or ()), what or (), is_sure=is_sure, style=style)
        return
    if is_sure:
        raise typer.BadParameter("--yes is only for --unclaimed")
    refs = [
        ref for text in _some([*(what or []), *map(str, files or [])], "add a UID, CLAIM.yaml, or -f CLAIM.yaml") for ref in _refs(text)
    ]
    failed: list[str] = []
    uids: set[names.ClaimUid] = set()
    for family in composition.families_to_read(settings, only=families or ()):
        with contextlib.ExitStack() as stack:
            try:
                opened = stack.enter_context(_opened(family, views.Nowhere()))
            except (errors.HardwareError, errors.SettingsError) as error:
                known = _uids_known(family)
                failed += [f"{ref.uid}: {error}" for ref in refs if ref.uid in known]
                continue
            uids.update(ref.uid for ref in refs if _is_known(opened, ref.uid))
            before = opened.journal.quarantine
            failed += [f"{uid}: {error}" for uid, error in opened.unprepare(refs, Present()).items() if error]
            output.note(_not_restored(opened, dict.fromkeys(opened.restorer.missing(), "")) or _all_restored(opened, before))
    if failed:
        raise errors.ClaimError(errors.ClaimFault.MALFORMED, "; ".join(failed))
    for ref in refs:
        result = f"unprepared {ref.uid}" if ref.uid in uids else f"{ref.uid} is not prepared; nothing to release"
        output.say(output.prose(), result)


@contextlib.contextmanager
def _opened(family: composition.NodeFamily, source: file_claims.FileClaims | views.Nowhere) -> Iterator[local_node.LocalNode]:
    with local_node.LocalNode.open(family.spec, family.folders, source) as opened:
        yield opened


class GivenClaims:
    """The claims of files as a ``ports.ClaimList``. A missing claim that is in no file counts as unreadable, because it may be in use."""

    def __init__(self, source: file_claims.FileClaims, missing: Collection[names.ClaimUid]) -> None:
        self._source = source
        self._missing = missing

    def allocated(self, driver: str, serves: Callable[[str, str], bool]) -> claims.Listed:
        """Return the claims with a device of this driver that ``serves(pool, device)``, and the missing claims that are in no file."""
        given = [self._source.fetch(ref) for ref in self._source.refs if ref.uid in self._missing]
        served = [claim for claim in given if any(serves(result.pool, result.device) for result in claim.results_of(driver))]
        unreadable = frozenset(self._missing).difference(claim.ref.uid for claim in served)
        return claims.Listed(claims=tuple(served), unreadable=unreadable, is_complete=False)


def _restored(opened: local_node.LocalNode, source: file_claims.FileClaims) -> str:
    """Restore a lost journal from the given claims; return a message about the claims that are not restored, or an empty text."""
    before = opened.journal.quarantine
    if before is None:
        return ""
    given = {ref.uid for ref in source.refs}
    failed = opened.restore(GivenClaims(source, opened.restorer.missing()))
    lost = _not_restored(opened, {uid: reason if uid in given else "" for uid, reason in failed.items()})
    if not lost:
        output.note(_all_restored(opened, before))
    return lost


def _not_restored(opened: local_node.LocalNode, missing: Mapping[names.ClaimUid, str]) -> str:
    """Return a message that names the claims that are not restored, with the fix; empty if there are none.

    ``missing`` has the reason of each claim that was tried, and an empty text for a claim that was not given as a file.
    """
    lost, program = opened.journal.quarantine, opened.identity.program
    if lost is None or not missing:
        return ""
    named = "; ".join(f"{uid}: {reason}" if reason else uid for uid, reason in missing.items())
    others = [uid for uid, reason in missing.items() if not reason]
    release = f", and {program} unprepare for the others: {program} unprepare {' '.join(others)}" if others else ""
    return (
        f"the journal of {opened.author.name} was lost ({lost.reason}), and these claims are not restored: {named}. "
        f"A running driver restores them from the API server. Without a driver, run {program} prepare with the files of all claims in "
        f"use{release}"
    )


def _all_restored(opened: local_node.LocalNode, before: quarantine.Quarantine | None) -> str:
    """Return a note about a lost journal without missing claims; empty where the journal was not lost, or only unverified."""
    if before is None or before.is_doubt:
        return ""
    if opened.is_lost:
        return f"all claims with CDI files are restored; the driver asks the API server for other claims of {opened.author.name} before it serves"
    return f"all claims of the lost journal of {opened.author.name} are restored"


def _uids_known(family: composition.NodeFamily) -> frozenset[names.ClaimUid]:
    """Return the claims in the journal or with CDI files of a driver whose hardware cannot be opened."""
    return frozenset({*(entry.claim.uid for entry in views.look(family).entries), *views.claims_with_files(family)})


def _is_known(opened: local_node.LocalNode, uid: names.ClaimUid) -> bool:
    """Return whether the claim is in the journal or has a CDI file, so that there is something to release."""
    return opened.journal.entry(uid) is not None or bool(opened.cdi.of(uid))


def _wanted(source: file_claims.FileClaims, failed: list[str]) -> dict[str, set[str]]:
    """Return the drivers of each claim's devices by UID. The error of a claim that cannot be read is added to ``failed``."""
    wanted: dict[str, set[str]] = {}
    for ref in source.refs:
        try:
            wanted[ref.uid] = {result.driver for result in source.fetch(ref).results}
        except errors.ClaimError as error:
            failed.append(f"{ref}: {error}")
    return wanted


def _not_as_scheduled(claim: claims.Claim, driver: str, device_named: Callable[[str], devices.Device | None]) -> str:
    """Return the error of a consumed capacity that no scheduler writes: an unknown name, or an amount that the request policy does not allow."""
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
                return f"{field}: {amount} is not allowed by the request policy; {_largest(capacity)}"
            if given != amount:
                return f"{field}: {amount} is not allowed by the request policy; the next larger allowed amount is {given}"
    return ""


def _largest(capacity: capacities.Capacity) -> str:
    """Return a phrase with the largest amount, or all amounts, that one claim may consume of a capacity."""
    policy = capacity.policy
    if policy is not None and policy.valid_values:
        return f"the allowed amounts are {', '.join(map(str, policy.valid_values))}"
    if policy is not None and policy.valid_range is not None and policy.valid_range.max is not None:
        return f"the largest allowed amount is {policy.valid_range.max}"
    return f"the device has {capacity.value}"


def _missing_node(opened: local_node.LocalNode, ref: claims.ClaimRef) -> str:
    """Return a warning for the first device node of a prepared claim that does not exist on this host, or an empty text."""
    entry = opened.journal.entry(ref.uid)
    problems = [host_nodes.problem(grant.edits) for grant in (entry.grants if entry else ()) if grant.edits]
    return next((f"warning: {ref}: {problem}" for problem in problems if problem), "")


def _some(given: Sequence[Given], advice: str) -> Sequence[Given]:
    """Return the given arguments; raises BadParameter with the advice if there are none."""
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


def _rows(ref: claims.ClaimRef, family: composition.NodeFamily, answer: claims.Outcome) -> list[Row]:
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
    return f"status.allocation.devices.results: no device of a driver of this node (the claim's drivers: {', '.join(sorted(drivers)) or 'none'})"


def _show(rows: list[Row], form: options.Format) -> None:
    if form is not options.Format.TABLE:
        output.document(rows, form)
    elif rows:
        cells = [(row["claim"], row["request"], row["device"], row["shareID"] or "", *_listed(row["cdiDevices"])) for row in rows]
        output.put(output.console(), output.table("", ["CLAIM", "REQUEST", "DEVICE", "SHARE", "CDI DEVICE"], cells))
        output.prose().print()
        output.say(output.prose(), f"CDI files are in {rows[0]['cdiDirectory']}")


def _listed(ids: object) -> tuple[str, ...]:
    return (", ".join(ids),) if isinstance(ids, list) else ()
