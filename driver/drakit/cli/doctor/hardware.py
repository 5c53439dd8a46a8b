"""Checks of the devices that each family's driver discovers, and of the claims in its journal."""

import functools
from collections.abc import Iterator, Sequence

from drakit import settings as values
from drakit.cli import composition, not_offered, views
from drakit.cli.doctor import claims
from drakit.core import advanced, errors, lifecycle
from drakit.core.advanced import Finding, Verdict
from drakit.journal import quarantine
from drakit.telemetry import plurals

_HOW_TO = "docs/howto/when-the-journal-is-lost.md"
_NOT_READY = (
    "make the hardware's kernel driver and libraries work; the running driver detects that without a restart, and lets pods end meanwhile"
)


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check each family's devices and journal."""
    for name, reason in composition.unserved(settings).items():
        yield Finding.warning(
            "devices", name, reason, f"load its kernel driver; on a node without such hardware, set {name}.enabled to false"
        )
    try:
        families = composition.families_to_read(settings)
    except errors.SettingsError as error:
        yield Finding.failed("devices", "families", str(error), "enable a family, or add --mock MACHINE")
        return
    for family in families:
        yield from _family(family, settings)


def _family(family: composition.NodeFamily, settings: values.Settings) -> Iterator[Finding]:
    name = family.spec.driver_name
    try:
        seen = views.look(family, with_unclaimed=True, with_findings=True)
    except errors.DrakitError as error:
        yield Finding.failed("journal", name, str(error), "see docs/reference/errors.md")
        return
    if family.is_served or seen.entries or seen.is_lost:
        yield from _devices(name, family.spec.identity.program, seen)
        yield _journal(name, family.spec.identity.program, seen)
        if settings.mock.machine is None:
            handed_out = [grant.edits for entry in seen.entries for grant in entry.grants if grant.edits]
            yield from family.kind.check_claims(family.options, handed_out)
        yield from claims.examine(settings, seen, functools.partial(family.kind.local_path, family.options))
        yield from of_unclaimed(name, family.spec.identity.program, seen.unclaimed)


def _devices(name: str, program: str, seen: views.View) -> Iterator[Finding]:
    if isinstance(seen.error, errors.RetryError):
        summary = f"hardware not ready, so no devices are offered: {seen.error}{_claims_held(seen)}"
        yield Finding.failed("devices", name, summary, _NOT_READY)
        return
    if seen.error is not None:
        yield Finding.failed("devices", name, f"{seen.error}{_claims_held(seen)}", "see docs/reference/errors.md")
        return
    yield from seen.findings
    devices = seen.offered.flat().devices
    tainted = [device.name for device in devices if device.taints]
    kept = not_offered.faults(seen.withheld)
    if not devices:
        # A failure has the cause, and its fix.
        if not kept and all(finding.verdict is not Verdict.FAILED for finding in seen.findings):
            kinds = dict.fromkeys(f"{item.kind}s" for item in seen.withheld)
            listed = f"; {' and '.join(kinds)} that are not offered are listed below" if kinds else ""
            yield Finding.warning("devices", name, "no device was found", f"check the hardware and the family's settings{listed}")
    elif tainted:
        fix = f"to see the taints, run: {program} slices -o yaml"
        summary = f"taints on {len(tainted)} of {plurals.counted(len(devices), 'device')}: {', '.join(tainted[:5])}"
        yield Finding.warning("devices", name, summary, fix)
    else:
        yield Finding.ok("devices", name, plurals.counted(len(devices), "device"))
    if kept:
        fixes = dict.fromkeys(item.change for item in seen.withheld if item.is_faulty)
        yield Finding.failed("devices", name, kept, "; ".join(filter(None, fixes)))
    yield from of_not_offered(seen.withheld)


def _claims_held(seen: views.View) -> str:
    """Return a phrase with the claims whose devices the driver cannot release while it cannot use its hardware."""
    if not seen.entries:
        return ""
    return f"; the journal has {plurals.counted(len(seen.entries), 'claim')}, whose devices can be released when this is fixed"


def _journal(name: str, program: str, seen: views.View) -> Finding:
    if seen.trouble:
        return Finding.failed("journal", name, seen.trouble, f"restart the driver; for manual steps see {_HOW_TO}")
    if seen.quarantine is not None:
        return _not_restored(name, seen.quarantine, len(seen.missing))
    half = [entry for entry in seen.entries if entry.state is not lifecycle.State.PREPARED]
    if half:
        uids = ", ".join(entry.claim.uid for entry in half[:5])
        return Finding.warning(
            "journal",
            name,
            f"{plurals.counted(len(half), 'claim')} partially prepared or partially released: {uids}",
            f"once the pod is gone, run: {program} unprepare UID",
        )
    return Finding.ok("journal", name, plurals.counted(len(seen.entries), "prepared claim"))


def _not_restored(name: str, lost: quarantine.Quarantine, missing: int) -> Finding:
    """Return the finding of a journal whose claims the driver restores first. An unverified one is usual for a moment after the first start."""
    kind, make = ("unverified", Finding.warning) if lost.is_doubt else ("lost", Finding.failed)
    fix = f"the driver restores the claims before it serves; if it does not become ready, see its log and /readyz, or {_HOW_TO}"
    return make("journal", name, f"journal {kind} ({lost.reason}): {plurals.counted(missing, 'claim')} to restore", fix)


def of_unclaimed(name: str, program: str, leftovers: Sequence[advanced.Leftover]) -> Iterator[Finding]:
    """Report hardware state that no claim has. What may be an admin's is no fault."""
    own = [leftover for leftover in leftovers if leftover.is_marked]
    others = [leftover for leftover in leftovers if not leftover.is_marked]
    if own:
        fix = f"after the pods that use it have ended, run: {program} unprepare --unclaimed --yes"
        yield Finding.warning("unclaimed", name, f"no claim has {_named(own)}, which this driver made", fix)
    if others:
        why = "unclaimed, maybe an admin's. If drakit made it before its journal was lost, release it by name"
        yield Finding.ok("unclaimed", name, f"{_named(others)}: {why}: {program} unprepare --unclaimed NAME --yes")


def _named(leftovers: Sequence[advanced.Leftover]) -> str:
    return ", ".join(
        f"{leftover.kind} {leftover.name} ({'; '.join(filter(None, (leftover.detail, leftover.user)))})" for leftover in leftovers
    )


def of_not_offered(items: Sequence[advanced.NotOffered]) -> Iterator[Finding]:
    """Yield a finding for each reason why hardware is not offered, and for each caution; expected reasons are no warning."""
    topics = {item.name: f"{item.kind}s" for item in items}
    for group in not_offered.groups(items):
        topic, named, message = topics[group.names[0]], ", ".join(group.names), f"not offered: {group.reason}"
        pronoun = "it" if len(group.names) == 1 else "them"
        if group.is_expected:
            yield Finding.ok(
                topic, named, message if group.change == not_offered.NOTHING else f"{message}; to offer {pronoun}, {group.change}"
            )
        else:
            yield Finding.warning(topic, named, message, group.change)
    for item in items:
        if item.is_caution:
            yield Finding.warning(topics[item.name], item.name, item.reason, item.change)
