"""Hardware that a driver does not offer, or offers with a caution, with the fix, for ``drakit show`` and ``drakit doctor``.

Only drakit's own families report it: the NIC family reports interfaces, the GPU family GPUs that do not answer or cannot be used.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drakit.core import driver as drivers
from drakit.telemetry import plurals

if TYPE_CHECKING:
    from drakit_gpu.inventory import discovery
    from drakit_nic.discovery import eligibility, offers

COLUMNS = ("INTERFACE", "WHY", "TO OFFER IT")
NOTHING = "cannot be offered"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotOffered:
    """The interfaces and GPUs that a driver does not offer, and the cautions of offered interfaces by name."""

    withheld: "tuple[offers.Withheld, ...]" = ()
    gpus: "tuple[discovery.UnavailableGpu, ...]" = ()
    cautions: "Mapping[str, eligibility.Caution]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Interfaces that are not offered for the same reason, with the fix. ``expected`` is true if the reason needs no warning."""

    names: tuple[str, ...]
    reason: str
    change: str
    expected: bool


def by(author: drivers.Driver[Any]) -> NotOffered:
    """Return what a driver does not offer; raises HardwareError."""
    from drakit_gpu import driver as gpu_driver
    from drakit_nic import driver as nic_driver

    if isinstance(author, gpu_driver.GpuDriver):
        return NotOffered(gpus=tuple(author.unoffered))
    if not isinstance(author, nic_driver.NicDriver):
        return NotOffered()
    surveyed = author.survey()
    return NotOffered(withheld=surveyed.withheld, cautions={nic.interface.name: nic.caution for nic in surveyed.nics if nic.caution})


def gpus(withheld: NotOffered) -> str:
    """Return one line with the GPUs that are not offered and why; empty if all are offered."""
    from drakit_gpu.inventory import discovery

    if not withheld.gpus:
        return ""
    verb = "is" if len(withheld.gpus) == 1 else "are"
    return f"{plurals.counted(len(withheld.gpus), 'GPU')} {verb} not offered: {discovery.describe(withheld.gpus)}"


def gpu_documents(withheld: NotOffered) -> list[dict[str, object]]:
    """Return the GPUs that are not offered as JSON objects."""
    return [{"gpu": gpu.gpu, "reason": gpu.reason} for gpu in withheld.gpus]


def rows(withheld: NotOffered) -> list[tuple[str, ...]]:
    """Return a row of a table with ``COLUMNS`` for each interface that is not offered."""
    return [(interface.name, interface.refusal.reason, interface.refusal.change or NOTHING) for interface in withheld.withheld]


def documents(withheld: NotOffered) -> list[dict[str, object]]:
    """Return the interfaces that are not offered as JSON objects."""
    return [
        {"interface": interface.name, "reason": interface.refusal.reason, "change": interface.refusal.change}
        for interface in withheld.withheld
    ]


def groups(withheld: NotOffered) -> Sequence[Group]:
    """Return the interfaces that are not offered, grouped by reason. A node has a veth interface for each pod, all with the same reason."""
    names_by_refusal: dict[eligibility.Refusal, list[str]] = {}
    for interface in withheld.withheld:
        names_by_refusal.setdefault(interface.refusal, []).append(interface.name)
    return [
        Group(names=tuple(names), reason=refusal.reason, change=refusal.change or NOTHING, expected=refusal.expected)
        for refusal, names in names_by_refusal.items()
    ]
