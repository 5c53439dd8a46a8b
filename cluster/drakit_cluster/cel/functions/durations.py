"""Durations: Go's text form, and their length in a unit."""

import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Value

_SECOND: Final = 10**9
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND}
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def parse(text: str) -> Duration:
    """Read Go's notation, such as `1h30m` or `-1.5s`. Raises EvalError."""
    body = text[1:] if text[:1] in ("+", "-") else text
    nanos = position = 0
    while body != "0" and (match := _PART.match(body, position)) is not None:
        integer, fraction, unit = match.group(1), match.group(2) or "", _UNITS[match.group(3)]
        nanos += int(integer or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = match.end()
    if not body or (position < len(body) and body != "0"):
        raise errors.EvalError(f'time: invalid duration "{text}"')
    return checked(-nanos if text.startswith("-") else nanos)


def checked(nanos: int) -> Duration:
    """Return a duration of 64 bits of nanoseconds. Raises EvalError on overflow."""
    if not values.INT_MIN <= nanos <= values.INT_MAX:
        raise errors.EvalError("duration overflow")
    return Duration(nanos)


def text(value: Duration) -> str:
    """Return a duration as decimal seconds, such as `5400s`, as short as it can be."""
    seconds, rest = divmod(abs(value.nanos), _SECOND)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


def _whole(unit: str) -> Callable[[Duration], int]:
    """Return the function that gives the whole units of a duration, cut towards zero."""

    def count(value: Duration) -> int:
        whole = abs(value.nanos) // _UNITS[unit]
        return whole if value.nanos >= 0 else -whole

    return count


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "getHours": _whole("h"),
    "getMinutes": _whole("m"),
    "getSeconds": _whole("s"),
    "getMilliseconds": _whole("ms"),
}
