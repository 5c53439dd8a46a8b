"""Print hardware that a driver does not offer, or offers with a caution, with the fix, for ``drakit show`` and ``drakit doctor``."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from drakit.core import advanced
from drakit.core import driver as drivers
from drakit.telemetry import plurals

NOTHING = "cannot be offered"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Hardware that is not offered for the same reason, with the fix. ``is_expected`` is true if the reason needs no warning."""

    names: tuple[str, ...]
    reason: str
    change: str
    is_expected: bool


def by(author: drivers.Driver[Any]) -> Sequence[advanced.NotOffered]:
    """Return what a driver does not offer; raises HardwareError."""
    return author.not_offered() if isinstance(author, advanced.Selective) else ()


def faults(items: Sequence[advanced.NotOffered]) -> str:
    """Return one line with the faulty hardware and what is wrong with it, grouped by reason; empty if there is none."""
    faulty = [item for item in items if item.is_faulty]
    if not faulty:
        return ""
    grouped: dict[str, list[str]] = {}
    for item in faulty:
        grouped.setdefault(item.reason, []).append(item.name)
    described = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in grouped.items())
    verb = "is" if len(faulty) == 1 else "are"
    return f"{plurals.counted(len(faulty), faulty[0].kind)} {verb} not offered: {described}"


def rows(items: Sequence[advanced.NotOffered]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and the rows of a table of what is not offered, without faulty hardware."""
    listed = [item for item in items if not item.is_faulty and not item.is_caution]
    kinds = {item.kind for item in listed}
    columns = (kinds.pop().upper() if len(kinds) == 1 else "NAME", "WHY", "TO OFFER IT")
    return columns, [(item.name, item.reason, item.change or NOTHING) for item in listed]


def documents(items: Sequence[advanced.NotOffered]) -> list[dict[str, object]]:
    """Return what is not offered as JSON objects, such as ``{"interface": "eth0", "reason": ..., "change": ...}``."""
    return [{item.kind: item.name, "reason": item.reason, "change": item.change} for item in items if not item.is_caution]


def groups(items: Sequence[advanced.NotOffered]) -> Sequence[Group]:
    """Return what is not offered, without faulty hardware, grouped by reason. A node has a veth interface for each pod, all with the same reason."""
    grouped: dict[tuple[str, str, bool], list[str]] = {}
    for item in items:
        if not item.is_faulty and not item.is_caution:
            grouped.setdefault((item.reason, item.change, item.is_expected), []).append(item.name)
    return [
        Group(names=tuple(names), reason=reason, change=change or NOTHING, is_expected=is_expected)
        for (reason, change, is_expected), names in grouped.items()
    ]
