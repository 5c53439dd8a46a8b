"""Checks of the devices that each family's driver discovers, and of the claims in its journal."""

from collections.abc import Iterator

from drakit import settings as values
from drakit.cli import composition, not_offered, output
from drakit.cli.commands import prepare
from drakit.cli.doctor import finding, gpus
from drakit.cli.doctor.finding import Finding
from drakit.core import advanced, errors, lifecycle

_NOT_READY = (
    "make the hardware's kernel driver and libraries work; the running driver detects that without a restart, and lets pods end meanwhile"
)


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check each family's devices and journal."""
    reasons = composition.unserved(settings)
    if reasons:
        yield finding.warning("devices", "gpu", reasons, "load the NVIDIA kernel driver; on a node without GPUs, set gpu.enabled to false")
    try:
        families = composition.families(settings)
    except errors.SettingsError as error:
        yield finding.failed("devices", "families", str(error), "enable a family, or add --mock MACHINE")
        return
    for family in families:
        yield from _family(family, settings)


def _family(family: composition.Family, settings: values.Settings) -> Iterator[Finding]:
    name, program = family.spec.driver_name, family.spec.identity.program
    try:
        seen = prepare.look(family)
    except errors.RetryError as error:
        yield finding.failed("devices", name, f"hardware not ready, so no devices are offered: {error}", _NOT_READY)
        return
    except errors.DrakitError as error:
        yield finding.failed("devices", name, str(error), "see docs/reference/errors.md")
        return
    if isinstance(seen.driver, advanced.Diagnosable):
        yield from seen.driver.diagnose()
    devices, entries = seen.offered.flat().devices, seen.entries
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
        summary = f"taints on {len(tainted)} of {output.counted(len(devices), 'device')}: {', '.join(tainted[:5])}"
        yield finding.warning("devices", name, summary, fix)
    else:
        yield finding.ok("devices", name, output.counted(len(devices), "device"))
    if kept := not_offered.gpus(seen.withheld):
        yield finding.failed("devices", name, kept, "run nvidia-smi -q on this node for details; see docs/howto/gpu-health.md")
    yield from of_interfaces(seen.withheld)
    if seen.trouble:
        yield finding.failed("journal", name, seen.trouble, "see docs/howto/when-the-journal-is-lost.md")
        return
    if family.name == "gpu" and settings.mock.machine is None:
        yield from gpus.of_links(entries, settings.gpu.dev_root)
    half = [entry for entry in entries if entry.state is not lifecycle.State.PREPARED]
    if half:
        uids = ", ".join(entry.claim.uid for entry in half[:5])
        yield finding.warning(
            "journal",
            name,
            f"{output.counted(len(half), 'claim')} partially prepared or partially released: {uids}",
            f"once the pod is gone, run: {program} unprepare UID",
        )
    else:
        yield finding.ok("journal", name, output.counted(len(entries), "prepared claim"))


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
