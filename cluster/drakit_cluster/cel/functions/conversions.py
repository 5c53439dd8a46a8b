"""Conversions between CEL's types, each named as the function that does it. All raise EvalError for what they cannot convert."""

import decimal
import math
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Timestamp, Uint, Value
from drakit_cluster.cel.functions import equality, moments

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.ASCII | re.IGNORECASE)
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_PLAIN: Final = range(-4, 6)
"""The exponents of numbers that Go's %g writes without an exponent."""


def to_int(value: Value) -> int:
    """`int(value)`."""
    if isinstance(value, str):
        value = _parsed(value, "int")
    elif isinstance(value, float):
        value = _truncated(value, "integer overflow", values.INT_MIN, values.INT_MAX)
    elif isinstance(value, Duration):
        value = value.nanos
    elif isinstance(value, Timestamp):
        value = value.nanos // moments.SECOND
    return _within(value, values.INT_MIN, values.INT_MAX)


def to_uint(value: Value) -> Uint:
    """`uint(value)`."""
    if isinstance(value, str):
        value = _parsed(value, "uint")
    elif isinstance(value, float):
        value = _truncated(value, "unsigned integer overflow", -1, values.UINT_MAX)
    return Uint(_within(value, 0, values.UINT_MAX))


def _parsed(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text) or (what == "uint" and not text.isdigit()):
        raise errors.EvalError(f'type conversion error from string to {what}: parsing "{text}": invalid syntax')
    return int(text)


def _truncated(value: float, message: str, low: int, high: int) -> int:
    if math.isnan(value) or not float(low) < value < float(high):
        raise errors.EvalError(message)
    return math.trunc(value)


def _within(value: Value, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise errors.no_such_overload()
    if not low <= value <= high:
        raise errors.EvalError("integer overflow")
    return int(value)


def to_double(value: Value) -> float:
    """`double(value)`."""
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value):
            raise errors.EvalError(f'type conversion error from string to double: parsing "{value}": invalid syntax')
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise errors.no_such_overload()
    return float(value)


def to_bool(value: Value) -> bool:
    """`bool(value)`."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise errors.no_such_overload()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise errors.EvalError(f'type conversion error from string to bool: parsing "{value}": invalid syntax')


def to_bytes(value: Value) -> bytes:
    """`bytes(value)`."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise errors.no_such_overload()
    return value.encode()


def to_string(value: Value) -> str:  # noqa: PLR0911 - one return a type
    """`string(value)`."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return double_text(value)
        case bytes():
            return _decoded(value)
        case Duration():
            return moments.duration_text(value)
        case Timestamp():
            return moments.timestamp_text(value)
        case values.Ip():
            return str(value.address)
        case values.Cidr():
            return f"{value.address}/{value.length}"
        case _:
            raise errors.no_such_overload()


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise errors.EvalError("invalid UTF-8 in bytes, cannot convert to string") from error


def double_text(value: float) -> str:
    """The shortest decimal that reads back as the same double, with an exponent where that is shorter (Go's %g)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, power = decimal.Decimal(repr(value)).normalize().as_tuple()
    exponent = len(digits) + int(power) - 1
    if exponent in _PLAIN:
        text = f"{abs(decimal.Decimal(repr(value)).normalize()):f}"
    else:
        head, tail = str(digits[0]), "".join(map(str, digits[1:]))
        text = f"{head}{'.' + tail if tail else ''}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    return f"-{text}" if sign else text


def to_duration(value: Value) -> Duration:
    """`duration(value)`; an int counts nanoseconds."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, str):
        return moments.duration(value)
    if type(value) is int:
        return Duration(value)
    raise errors.no_such_overload()


def to_timestamp(value: Value) -> Timestamp:
    """`timestamp(value)`; an int counts seconds since 1970."""
    if isinstance(value, Timestamp):
        return value
    if isinstance(value, str):
        return moments.timestamp(value)
    if type(value) is int:
        return moments.checked_timestamp(value * moments.SECOND)
    raise errors.no_such_overload()


def to_type(value: Value) -> values.TypeValue:
    """`type(value)`."""
    if isinstance(value, values.TypeValue):
        return values.TypeValue("type")
    return values.TypeValue(equality.type_name(value))


def to_dyn(value: Value) -> Value:
    """`dyn(value)`: the value itself."""
    return value


FUNCTIONS: Final[dict[str, Callable[[Value], Value]]] = {
    "bool": to_bool,
    "bytes": to_bytes,
    "double": to_double,
    "duration": to_duration,
    "dyn": to_dyn,
    "int": to_int,
    "string": to_string,
    "timestamp": to_timestamp,
    "type": to_type,
    "uint": to_uint,
}
