"""What the doctor found: one line for each thing that was looked at."""

import dataclasses
import enum
from collections.abc import Callable, Iterable

from drakit import settings as values


class Verdict(enum.StrEnum):
    """How it is. ``UNKNOWN``: it could not be looked at from here."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check, with a fix unless the check passed."""

    topic: str
    subject: str
    verdict: Verdict
    message: str
    fix: str = ""


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
