"""Findings: where a mistake is, what is wrong, and how to fix it."""

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.manifests import Document


class Severity(enum.StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One mistake. ``field`` is a path in ``document``, empty where the whole is meant."""

    severity: Severity
    document: Document
    field: str
    text: str
    fix: str


def error(document: Document, field: str, text: str, fix: str) -> Finding:
    """Return a mistake with which it cannot work."""
    return Finding(severity=Severity.ERROR, document=document, field=field, text=text, fix=fix)


def warning(document: Document, field: str, text: str, fix: str) -> Finding:
    """Return what is likely a mistake."""
    return Finding(severity=Severity.WARNING, document=document, field=field, text=text, fix=fix)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "write NAME" for the known name that looks most like it, else all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"write {close[0]}" if close else f"known are {', '.join(names) or 'none'}"
