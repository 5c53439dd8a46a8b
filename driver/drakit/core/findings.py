"""What a check of the doctor found: one line for each thing that was looked at."""

import dataclasses
import enum


class Verdict(enum.Enum):
    """How it is. ``UNKNOWN``: it could not be looked at from here."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check, with a fix unless the check passed. ``topic`` is the heading that it stands under."""

    topic: str
    subject: str
    verdict: Verdict
    message: str
    fix: str = ""
