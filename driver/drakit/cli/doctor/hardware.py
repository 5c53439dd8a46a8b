"""The hardware, as each family's driver sees it, and what was left of claims."""

from collections.abc import Iterator

from drakit import settings as values
from drakit.cli import composition, not_offered, output
from drakit.cli.commands import prepare
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import advanced, errors, lifecycle


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Each family's discovery and journal."""
    reasons = composition.unserved(settings)
    if reasons:
        yield finding.warning("devices", "gpu", reasons, "load the driver, or set gpu.enabled to false where there are no GPUs")
    try:
        families = composition.families(settings)
    except errors.SettingsError as error:
        yield finding.failed("devices", "families", str(error), "enable a family, or name a mock machine")
        return
    for family in families:
        yield from _family(family)


def _family(family: composition.Family) -> Iterator[Finding]:
    name, program = family.spec.driver_name, family.spec.identity.program
    try:
        seen = prepare.look(family)
    except errors.DrakitError as error:
        yield finding.failed("devices", name, str(error), "see docs/reference/errors.md")
        return
    if isinstance(seen.driver, advanced.Diagnosable):
        yield from seen.driver.diagnose()
    devices, entries = seen.offered.flat().devices, seen.entries
    tainted = [device.name for device in devices if device.taints]
    if not devices:
        yield finding.warning("devices", name, "no device was found", "see what is not offered, and what enabled says")
    elif tainted:
        fix = f"see the taints in: {program} slices -o yaml"
        summary = f"taints on {len(tainted)} of {output.counted(len(devices), 'device')}: {', '.join(tainted[:5])}"
        yield finding.warning("devices", name, summary, fix)
    else:
        yield finding.ok("devices", name, output.counted(len(devices), "device"))
    if kept := not_offered.gpus(seen.withheld):
        yield finding.failed("devices", name, kept, "nvidia-smi -q on this node says more; see docs/howto/gpu-health.md")
    yield from of_interfaces(seen.withheld)
    if seen.trouble:
        yield finding.failed("journal", name, seen.trouble, "see docs/howto/when-the-journal-is-lost.md")
        return
    half = [entry for entry in entries if entry.state is not lifecycle.State.PREPARED]
    if half:
        uids = ", ".join(entry.claim.uid for entry in half[:5])
        yield finding.warning(
            "journal",
            name,
            f"{output.counted(len(half), 'claim')} half prepared or half undone: {uids}",
            f"{program} unprepare UID, once its pod is gone",
        )
    else:
        yield finding.ok("journal", name, output.counted(len(entries), "prepared claim"))


def of_interfaces(withheld: not_offered.NotOffered) -> Iterator[Finding]:
    """Each reason for which interfaces are not offered, with how to offer them, and each caution. What most nodes have passes."""
    for group in not_offered.groups(withheld):
        named, message = ", ".join(group.names), f"not offered: {group.reason}"
        if group.expected:
            yield finding.ok(
                "interfaces", named, message if group.change == not_offered.NOTHING else f"{message}; to offer it: {group.change}"
            )
        else:
            yield finding.warning("interfaces", named, message, group.change)
    for name, caution in withheld.cautions.items():
        yield finding.warning("interfaces", name, caution.reason, caution.change)
