"""The findings of the doctor's checks, by verdict."""

from collections.abc import Callable, Iterable

from drakit import settings as values
from drakit.core.advanced import Finding, Verdict

__all__ = ["Examination", "Finding", "Verdict", "failed", "ok", "unknown", "warning"]

Examination = Callable[[values.Settings], Iterable[Finding]]


def ok(topic: str, subject: str, message: str) -> Finding:
    """All is well."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.OK, message=message)


def warning(topic: str, subject: str, message: str, fix: str) -> Finding:
    """It works, but less than it could."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.WARNING, message=message, fix=fix)


def failed(topic: str, subject: str, message: str, fix: str) -> Finding:
    """The driver will not work."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.FAILED, message=message, fix=fix)


def unknown(topic: str, subject: str, message: str, fix: str = "") -> Finding:
    """Nobody can tell from here."""
    return Finding(topic=topic, subject=subject, verdict=Verdict.UNKNOWN, message=message, fix=fix)
