"""Conversions between CEL's types, by the name of the function. All raise EvalError for a value that cannot be converted."""

import decimal
import math
import re
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Uint, Value
from drakit_cluster.cel.functions import durations, operators

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.ASCII | re.IGNORECASE)
_BOOLS: Final = {
    **dict.fromkeys(["1", "t", "T", "TRUE", "true", "True"], True),
    **dict.fromkeys(["0", "f", "F", "FALSE", "false", "False"], False),
}
_PLAIN: Final = range(-4, 6)
"""The exponents of numbers that Go's %g writes without an exponent."""


def _to_int(value: Value) -> int:
    if isinstance(value, str):
        value = _parsed(value, "int")
    elif isinstance(value, float):
        value = _truncated(value, "integer overflow", values.INT_MIN, values.INT_MAX)
    elif isinstance(value, Duration):
        value = value.nanos
    return _within(value, values.INT_MIN, values.INT_MAX)


def _to_uint(value: Value) -> Uint:
    if isinstance(value, str):
        value = _parsed(value, "uint")
    elif isinstance(value, float):
        value = _truncated(value, "unsigned integer overflow", -1, values.UINT_MAX)
    return Uint(_within(value, 0, values.UINT_MAX))


def _parsed(text: str, what: str) -> int:
    if not _INTEGER.fullmatch(text) or (what == "uint" and not text.isdigit()):
        raise _unreadable(text, what)
    return int(text)


def _unreadable(text: str, what: str) -> errors.EvalError:
    return errors.EvalError(f'type conversion error from string to {what}: parsing "{text}": invalid syntax')


def _truncated(value: float, message: str, low: int, high: int) -> int:
    if math.isnan(value) or not float(low) < value < float(high):
        raise errors.EvalError(message)
    return math.trunc(value)


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise errors.EvalError("integer overflow")
    return int(value)


def _to_double(value: Value) -> float:
    if isinstance(value, str) and not _FLOAT.fullmatch(value):
        raise _unreadable(value, "double")
    return float(value)


def _to_bool(value: Value) -> bool:
    if isinstance(value, str) and value not in _BOOLS:
        raise _unreadable(value, "bool")
    return _BOOLS[value] if isinstance(value, str) else bool(value)


def to_bytes(value: Value) -> bytes:
    """Return `bytes(value)`."""
    return value if isinstance(value, bytes) else str(value).encode()


def to_string(value: Value) -> str:  # noqa: PLR0911 - one return a type
    """Return `string(value)`."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int():
            return str(value)
        case float():
            return double_text(value)
        case Duration():
            return durations.text(value)
        case values.Ip():
            return str(value.address)
        case values.Cidr():
            return f"{value.address}/{value.length}"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise errors.EvalError("invalid UTF-8 in bytes, cannot convert to string") from error
    raise errors.no_such_overload()


def double_text(value: float) -> str:
    """Return the shortest decimal that reads back as the same double, with an exponent where that is shorter (Go's %g)."""
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
    """Return `duration(value)`; an int counts nanoseconds."""
    if isinstance(value, Duration):
        return value
    return durations.parse(value) if isinstance(value, str) else Duration(value)


def _to_type(value: Value) -> values.TypeValue:
    return values.TypeValue(operators.type_name(value))


FUNCTIONS: Final[dict[str, Callable[[Value], Value]]] = {
    "bool": _to_bool,
    "bytes": to_bytes,
    "double": _to_double,
    "duration": to_duration,
    "dyn": lambda value: value,
    "int": _to_int,
    "string": to_string,
    "type": _to_type,
    "uint": _to_uint,
}
