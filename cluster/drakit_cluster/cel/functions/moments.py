"""Durations and timestamps: Go's text forms, and the parts of an instant in a time zone."""

import datetime
import re
import zoneinfo
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Timestamp, Value

SECOND: Final = 10**9
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-](?:[01]\d|2[0-4]):[0-5]\d)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d{1,2}):(\d{2})", re.ASCII)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FIRST: Final = -62135596800
_LAST: Final = 253402300799


def duration(text: str) -> Duration:
    """Read Go's notation, such as `1h30m` or `-1.5s`. Raises EvalError."""
    body = text[1:] if text[:1] in ("+", "-") else text
    nanos = position = 0
    while body != "0" and (match := _PART.match(body, position)) is not None:
        integer, fraction, unit = match.group(1), match.group(2) or "", _UNITS[match.group(3)]
        nanos += int(integer or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        position = match.end()
    if not body or (position < len(body) and body != "0"):
        raise errors.EvalError(f'time: invalid duration "{text}"')
    return checked_duration(-nanos if text.startswith("-") else nanos)


def checked_duration(nanos: int) -> Duration:
    """Return a duration of 64 bits of nanoseconds. Raises EvalError on overflow."""
    if not values.INT_MIN <= nanos <= values.INT_MAX:
        raise errors.EvalError("duration overflow")
    return Duration(nanos)


def checked_timestamp(nanos: int) -> Timestamp:
    """Return an instant of the years 1 to 9999. Raises EvalError on overflow."""
    if not _FIRST <= nanos // SECOND <= _LAST:
        raise errors.EvalError("timestamp overflow")
    return Timestamp(nanos)


def timestamp(text: str) -> Timestamp:
    """Read RFC 3339. Raises EvalError."""
    match = _RFC3339.fullmatch(text)
    try:
        day, time, fraction, zone = match.groups() if match is not None else ("",) * 4
        instant = datetime.datetime.fromisoformat(f"{day}T{time}{'+00:00' if zone == 'Z' else zone}")
    except ValueError as error:
        raise errors.EvalError(f'parsing time "{text}" as RFC 3339: cannot parse') from error
    seconds = round((instant - _EPOCH) / datetime.timedelta(seconds=1))
    return checked_timestamp(seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0")))


def text(value: Duration | Timestamp) -> str:
    """Return a duration as decimal seconds, such as `5400s`, and a timestamp as RFC 3339 in UTC, as short as they can be."""
    if isinstance(value, Duration):
        seconds, rest = divmod(abs(value.nanos), SECOND)
        return f"{'-' if value.nanos < 0 else ''}{seconds}{_fraction(rest)}s"
    seconds, rest = divmod(value.nanos, SECOND)
    instant = _EPOCH + datetime.timedelta(seconds=seconds)
    return f"{instant.strftime('%Y').zfill(4)}{instant.strftime('-%m-%dT%H:%M:%S')}{_fraction(rest)}Z"


def _fraction(nanos: int) -> str:
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _zone(name: str) -> datetime.tzinfo:
    match = _OFFSET.fullmatch(name)
    if match is not None:
        minutes = int(match.group(2)) * 60 + int(match.group(3))
        return datetime.timezone(datetime.timedelta(minutes=-minutes if match.group(1) == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise errors.EvalError(f"unknown time zone {name}") from error


_PARTS: Final[dict[str, Callable[[datetime.datetime], int]]] = {
    "getFullYear": lambda when: when.year,
    "getMonth": lambda when: when.month - 1,
    "getDayOfYear": lambda when: when.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda when: when.day - 1,
    "getDate": lambda when: when.day,
    "getDayOfWeek": lambda when: when.isoweekday() % 7,
    "getHours": lambda when: when.hour,
    "getMinutes": lambda when: when.minute,
    "getSeconds": lambda when: when.second,
}
_SPANS: Final = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND, "getMilliseconds": 10**6}


def _part(name: str) -> Callable[..., int]:
    """Return the function of CEL with this name: a part of an instant, or a duration in a unit."""

    def read(value: Duration | Timestamp, zone: str = "UTC") -> int:
        if isinstance(value, Duration):
            count = abs(value.nanos) // _SPANS[name]
            return count if value.nanos >= 0 else -count
        seconds, rest = divmod(value.nanos, SECOND)
        if name == "getMilliseconds":
            return rest // 10**6
        return _PARTS[name]((_EPOCH + datetime.timedelta(seconds=seconds)).astimezone(_zone(zone)))

    return read


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {name: _part(name) for name in (*_PARTS, "getMilliseconds")}
