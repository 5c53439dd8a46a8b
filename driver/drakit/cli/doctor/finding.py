"""Constructors of the findings of the doctor's checks, one for each verdict."""

from collections.abc import Callable, Iterable

from drakit import settings as values
from drakit.core.advanced import Finding, Verdict

__all__ = ["Examination", "Finding", "Verdict", "failed", "ok", "unknown", "warning"]

Examination = Callable[[values.Settings], Iterable[Finding]]


def ok(topic: str, subject: str, message: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.OK, message=message)


def warning(topic: str, subject: str, message: str, fix: str) -> Finding:
    """Return a finding with which the driver works, but with restrictions."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.WARNING, message=message, fix=fix)


def failed(topic: str, subject: str, message: str, fix: str) -> Finding:
    """Return a finding with which the driver cannot work."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.FAILED, message=message, fix=fix)


def unknown(topic: str, subject: str, message: str, fix: str = "") -> Finding:
    """Return the finding of a check that could not be done."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.UNKNOWN, message=message, fix=fix)
