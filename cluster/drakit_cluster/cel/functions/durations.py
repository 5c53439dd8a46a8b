"""Durations: Go's text form, and their length in a unit."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Value
from drakit_cluster.objects import go_durations


def parse(text: str) -> Duration:
    """Read Go's notation, such as `1h30m` or `-1.5s`. Raises EvalError."""
    try:
        return checked(go_durations.nanoseconds(text))
    except ValueError as error:
        raise errors.EvalError(str(error)) from error


def checked(nanos: int) -> Duration:
    """Return a duration of 64 bits of nanoseconds. Raises EvalError on overflow."""
    if not values.INT_MIN <= nanos <= values.INT_MAX:
        raise errors.EvalError("duration overflow")
    return Duration(nanos)


def text(value: Duration) -> str:
    """Return a duration as decimal seconds, such as `5400s`, as short as it can be."""
    seconds, rest = divmod(abs(value.nanos), go_durations.SECOND)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{'-' if value.nanos < 0 else ''}{seconds}{fraction}s"


def _whole(unit: str) -> Callable[[Duration], int]:
    """Return the function that gives the whole units of a duration, cut towards zero."""

    def count(value: Duration) -> int:
        whole = abs(value.nanos) // go_durations.UNITS[unit]
        return whole if value.nanos >= 0 else -whole

    return count


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "getHours": _whole("h"),
    "getMinutes": _whole("m"),
    "getSeconds": _whole("s"),
    "getMilliseconds": _whole("ms"),
}
