"""Findings: the place of a mistake, the mistake, and its fix."""

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.manifests import Document


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
    """Return "write NAME" for the most similar known name, or else all known names; without any, to remove it."""
    names = sorted(known)
    if not names:
        return "remove it: there is none to name"
    close = difflib.get_close_matches(name, names, n=1)
    return f"write {close[0]}" if close else f"known are {', '.join(names)}"
