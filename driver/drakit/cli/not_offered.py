"""What a family does not offer, or offers with a caution, and what an admin can do about it: told by ``drakit show`` and ``drakit doctor``.

drakit's own NIC family knows of interfaces that it does not offer, its GPU family of GPUs, mostly because they do not answer; the drivers of other
families, and of other authors, tell of neither.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drakit.cli import output
from drakit.core import driver as drivers

if TYPE_CHECKING:
    from drakit.devices.gpu.inventory import discovery
    from drakit.devices.nic.discovery import eligibility, offers

COLUMNS = ("INTERFACE", "WHY", "TO OFFER IT")
NOTHING = "cannot be offered"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What is withheld, by name, and the cautions of what is offered, by interface name. ``gpus`` are GPUs that are not offered."""

    withheld: "tuple[offers.Withheld, ...]" = ()
    gpus: "tuple[discovery.UnavailableGpu, ...]" = ()
    cautions: "Mapping[str, eligibility.Caution]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The interfaces that are not offered for one reason, and how to offer them; ``expected`` says that it needs no warning."""

    names: tuple[str, ...]
    reason: str
    change: str
    expected: bool


def by(author: drivers.Driver[Any]) -> Told:
    """What a driver tells; raises HardwareError."""
    from drakit.devices.gpu import driver as gpu_driver
    from drakit.devices.nic import driver as nic_driver

    if isinstance(author, gpu_driver.GpuDriver):
        return Told(gpus=tuple(author.unoffered))
    if not isinstance(author, nic_driver.NicDriver):
        return Told()
    found = author.survey()
    return Told(withheld=found.withheld, cautions={nic.interface.name: nic.caution for nic in found.nics if nic.caution})


def gpus(told: Told) -> str:
    """The GPUs that are not offered, each with the reason, in one line; empty where all are."""
    from drakit.devices.gpu.inventory import discovery

    if not told.gpus:
        return ""
    return f"{output.counted(len(told.gpus), 'GPU')} {'is' if len(told.gpus) == 1 else 'are'} not offered: {discovery.describe(told.gpus)}"


def gpu_documents(told: Told) -> list[dict[str, object]]:
    """The GPUs that are not offered, for a program."""
    return [{"gpu": one.gpu, "reason": one.reason} for one in told.gpus]


def rows(told: Told) -> list[tuple[str, ...]]:
    """A row for each withheld interface, for a table with ``COLUMNS``."""
    return [(item.name, item.refusal.reason, item.refusal.change or NOTHING) for item in told.withheld]


def documents(told: Told) -> list[dict[str, object]]:
    """The same for a program."""
    return [{"interface": item.name, "reason": item.refusal.reason, "change": item.refusal.change} for item in told.withheld]


def groups(told: Told) -> Sequence[Group]:
    """The withheld interfaces by reason, in order of their first name: a node has one end of a pair for each pod, all for one reason."""
    found: dict[eligibility.Refusal, list[str]] = {}
    for item in told.withheld:
        found.setdefault(item.refusal, []).append(item.name)
    return [
        Group(names=tuple(names), reason=refusal.reason, change=refusal.change or NOTHING, expected=refusal.expected)
        for refusal, names in found.items()
    ]
