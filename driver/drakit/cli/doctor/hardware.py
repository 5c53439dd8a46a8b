"""Checks of the devices that each family's driver discovers, and of the claims in its journal."""

from collections.abc import Iterator, Sequence

from drakit import settings as values
from drakit.cli import composition, not_offered, views
from drakit.cli.doctor import claims, finding, gpus
from drakit.cli.doctor.finding import Finding
from drakit.core import advanced, errors, lifecycle
from drakit.journal import quarantine
from drakit.telemetry import plurals

_HOW_TO = "docs/howto/when-the-journal-is-lost.md"
_NOT_READY = (
    "make the hardware's kernel driver and libraries work; the running driver detects that without a restart, and lets pods end meanwhile"
)


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check each family's devices and journal."""
    reasons = composition.unserved(settings)
    if reasons:
        yield finding.warning("devices", "gpu", reasons, "load the NVIDIA kernel driver; on a node without GPUs, set gpu.enabled to false")
    try:
        families = composition.families_to_read(settings)
    except errors.SettingsError as error:
        yield finding.failed("devices", "families", str(error), "enable a family, or add --mock MACHINE")
        return
    for family in families:
        yield from _family(family, settings)


def _family(family: composition.Family, settings: values.Settings) -> Iterator[Finding]:
    name = family.spec.driver_name
    try:
        seen = views.look(family, with_unclaimed=True)
    except errors.DrakitError as error:
        yield finding.failed("journal", name, str(error), "see docs/reference/errors.md")
        return
    if family.is_served or seen.entries or seen.is_lost:
        yield from _devices(name, family.spec.identity.program, seen)
        yield _journal(name, family.spec.identity.program, seen)
        if family.name == "gpu" and settings.mock.machine is None:
            yield from gpus.of_links(seen.entries, settings.gpu.dev_root)
        yield from claims.examine(settings, seen)
        yield from of_unclaimed(name, family.spec.identity.program, seen.unclaimed)


def _devices(name: str, program: str, seen: views.View) -> Iterator[Finding]:
    if isinstance(seen.error, errors.RetryError):
        summary = f"hardware not ready, so no devices are offered: {seen.error}{_claims_held(seen)}"
        yield finding.failed("devices", name, summary, _NOT_READY)
        return
    if seen.error is not None:
        yield finding.failed("devices", name, f"{seen.error}{_claims_held(seen)}", "see docs/reference/errors.md")
        return
    author: object = seen.driver
    if isinstance(author, advanced.Diagnosable):
        yield from author.diagnose()
    devices = seen.offered.flat().devices
    tainted = [device.name for device in devices if device.taints]
    if not devices:
        yield finding.warning(
            "devices",
            name,
            "no device was found",
            "check the hardware and the family's settings; interfaces that are not offered are listed below",
        )
    elif tainted:
        fix = f"to see the taints, run: {program} slices -o yaml"
        summary = f"taints on {len(tainted)} of {plurals.counted(len(devices), 'device')}: {', '.join(tainted[:5])}"
        yield finding.warning("devices", name, summary, fix)
    else:
        yield finding.ok("devices", name, plurals.counted(len(devices), "device"))
    if kept := not_offered.gpus(seen.withheld):
        yield finding.failed("devices", name, kept, "run nvidia-smi -q on this node for details; see docs/howto/gpu-health.md")
    yield from of_interfaces(seen.withheld)


def _claims_held(seen: views.View) -> str:
    """Return a phrase with the claims whose devices the driver cannot release while it cannot use its hardware."""
    if not seen.entries:
        return ""
    return f"; the journal has {plurals.counted(len(seen.entries), 'claim')}, whose devices can be released when this is fixed"


def _journal(name: str, program: str, seen: views.View) -> Finding:
    if seen.trouble:
        return finding.failed("journal", name, seen.trouble, f"restart the driver; for manual steps see {_HOW_TO}")
    if seen.quarantine is not None:
        return _not_restored(name, seen.quarantine, len(seen.missing))
    half = [entry for entry in seen.entries if entry.state is not lifecycle.State.PREPARED]
    if half:
        uids = ", ".join(entry.claim.uid for entry in half[:5])
        return finding.warning(
            "journal",
            name,
            f"{plurals.counted(len(half), 'claim')} partially prepared or partially released: {uids}",
            f"once the pod is gone, run: {program} unprepare UID",
        )
    return finding.ok("journal", name, plurals.counted(len(seen.entries), "prepared claim"))


def _not_restored(name: str, lost: quarantine.Quarantine, missing: int) -> Finding:
    """Return the finding of a journal whose claims the driver restores first. An unverified one is usual for a moment after the first start."""
    kind, make = ("unverified", finding.warning) if lost.is_doubt else ("lost", finding.failed)
    fix = f"the driver restores the claims before it serves; if it does not become ready, see its log and /readyz, or {_HOW_TO}"
    return make("journal", name, f"journal {kind} ({lost.reason}): {plurals.counted(missing, 'claim')} to restore", fix)


def of_unclaimed(name: str, program: str, leftovers: Sequence[advanced.Leftover]) -> Iterator[Finding]:
    """Report hardware state that no claim has. What may be an admin's is no fault."""
    own = [leftover for leftover in leftovers if leftover.is_marked]
    others = [leftover for leftover in leftovers if not leftover.is_marked]
    if own:
        fix = f"after the pods that use it have ended, run: {program} unprepare --unclaimed --yes"
        yield finding.warning("unclaimed", name, f"no claim has {_named(own)}, which this driver made", fix)
    if others:
        why = "unclaimed, maybe an admin's. If drakit made it before its journal was lost, release it by name"
        yield finding.ok("unclaimed", name, f"{_named(others)}: {why}: {program} unprepare --unclaimed NAME --yes")


def _named(leftovers: Sequence[advanced.Leftover]) -> str:
    return ", ".join(
        f"{leftover.kind} {leftover.name} ({'; '.join(filter(None, (leftover.detail, leftover.user)))})" for leftover in leftovers
    )


def of_interfaces(withheld: not_offered.NotOffered) -> Iterator[Finding]:
    """Yield a finding for each reason why interfaces are not offered, and for each caution; expected reasons are no warning."""
    for group in not_offered.groups(withheld):
        named, message = ", ".join(group.names), f"not offered: {group.reason}"
        pronoun = "it" if len(group.names) == 1 else "them"
        if group.expected:
            yield finding.ok(
                "interfaces", named, message if group.change == not_offered.NOTHING else f"{message}; to offer {pronoun}, {group.change}"
            )
        else:
            yield finding.warning("interfaces", named, message, group.change)
    for name, caution in withheld.cautions.items():
        yield finding.warning("interfaces", name, caution.reason, caution.change)
