"""Durations in Go's text form, such as `1h30m`, `1.5s` or `-500ms`, as selectors and schedules write them."""

import re
from typing import Final

SECOND: Final = 10**9
UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def nanoseconds(text: str) -> int:
    """Return the nanoseconds of a duration, of any size. Raises ValueError for a text that is none."""
    body = text[1:] if text[:1] in ("+", "-") else text
    nanos = position = 0
    while body != "0" and (match := _PART.match(body, position)) is not None:
        integer, fraction, unit = match.group(1), match.group(2) or "", UNITS[match.group(3)]
        nanos += int(integer or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = match.end()
    if not body or (position < len(body) and body != "0"):
        raise ValueError(f'time: invalid duration "{text}"')
    return -nanos if text.startswith("-") else nanos
