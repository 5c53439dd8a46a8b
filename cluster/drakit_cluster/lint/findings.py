"""Findings: the place of a mistake, the mistake, and its fix."""

import difflib
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drakit_cluster.manifests import Document

ADD = "add it to the files"
_ALIKE = 2
"""The most names that a suggestion has."""


class Severity(enum.StrEnum):
    """The certainty of a mistake."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One mistake. ``field`` is a path in ``document``, empty for the whole document."""

    severity: Severity
    document: Document
    field: str
    text: str
    fix: str


def error(document: Document, field: str, text: str, fix: str) -> Finding:
    """Return a mistake that makes the object unusable."""
    return Finding(severity=Severity.ERROR, document=document, field=field, text=text, fix=fix)


def warning(document: Document, field: str, text: str, fix: str) -> Finding:
    """Return a likely mistake."""
    return Finding(severity=Severity.WARNING, document=document, field=field, text=text, fix=fix)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "write NAME" for the most similar known name, two if they are as similar, or else all known names; without any, to remove it.

    Names are most similar if they differ in case alone, and then by difflib. If none is, names of three labels or more are similar by the
    first one, as mig.nvidia.com and mig.drakit.dev are.
    """
    names = sorted(known)
    if not names:
        return "remove it: there is none to name"
    alike = [other for other in names if other.lower() == name.lower()] or _closest(name, names)
    if not alike and name.count(".") > 1:
        alike = [other for other in names if other.count(".") > 1 and other.partition(".")[0] == name.partition(".")[0]]
    return f"write {' or '.join(alike)}" if 0 < len(alike) <= _ALIKE else f"known are {', '.join(names)}"


def suggestion_or_add(name: str, known: Iterable[str]) -> str:
    """Return the most similar known names, or else to add the object of this name to the files, after all known names."""
    names = list(known)
    fix = suggestion(name, names)
    return fix if fix.startswith("write") else f"{fix}; or {ADD}" if names else ADD


def _closest(name: str, names: Sequence[str]) -> list[str]:
    """Return the most similar names, several if they are as similar."""
    close = difflib.get_close_matches(name, names, n=len(names))
    ratio = {other: difflib.SequenceMatcher(None, other, name).ratio() for other in close}
    return [other for other in sorted(close) if ratio[other] == max(ratio.values())]
