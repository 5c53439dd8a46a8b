"""The operators of CEL. Numbers never wrap around; operands of types without the operator raise EvalError."""

import math
import operator
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Timestamp, Uint, Value
from drakit_cluster.cel.functions import equality, moments

_LIMITS: Final = {int: (values.INT_MIN, values.INT_MAX), Uint: (0, values.UINT_MAX)}
_JOINED: Final = frozenset({str, bytes})


def add(left: Value, right: Value) -> Value:
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is other and kind in _JOINED:
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]
    if kind in (Duration, Timestamp) and other in (Duration, Timestamp):
        return _add_times(left, right)
    return _arithmetic(operator.add, left, right)


def _add_times(left: Value, right: Value) -> Value:
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        raise errors.no_such_overload()
    if isinstance(left, Duration) and isinstance(right, Duration):
        return moments.checked_duration(left.nanos + right.nanos)
    return moments.checked_timestamp(left.nanos + right.nanos)


def subtract(left: Value, right: Value) -> Value:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is Timestamp and other is Duration:
        return moments.checked_timestamp(left.nanos - right.nanos)
    if kind is other and kind in (Duration, Timestamp):
        return moments.checked_duration(left.nanos - right.nanos)
    return _arithmetic(operator.sub, left, right)


def multiply(left: Value, right: Value) -> Value:
    """`left * right`."""
    return _arithmetic(operator.mul, left, right)


def divide(left: Value, right: Value) -> Value:
    """`left / right`; integers are truncated towards zero."""
    if type(left) is float and type(right) is float:
        return _divide_doubles(left, right)
    return _arithmetic(_quotient, left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, math.copysign(1, left) * math.copysign(1, right))


def _quotient(left: int, right: int) -> int:
    if not right:
        raise errors.EvalError("division by zero")
    whole = abs(left) // abs(right)
    return whole if (left < 0) is (right < 0) else -whole


def modulo(left: Value, right: Value) -> Value:
    """`left % right`, with the sign of the left side."""
    if type(left) is float:
        raise errors.no_such_overload()
    return _arithmetic(_remainder, left, right)


def _remainder(left: int, right: int) -> int:
    if not right:
        raise errors.EvalError("modulus by zero")
    if left == values.INT_MIN and right == -1:
        raise errors.EvalError("integer overflow")
    return left - right * _quotient(left, right)


def negate(value: Value) -> Value:
    """`-value`."""
    if type(value) is float:
        return -value
    if type(value) is not int:
        raise errors.no_such_overload()
    return _arithmetic(operator.sub, 0, value)


def _arithmetic(operation: Callable[[Value, Value], Value], left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right):
        raise errors.no_such_overload()
    if kind is float:
        return operation(left, right)
    limits = _LIMITS.get(kind)
    if limits is None:
        raise errors.no_such_overload()
    result = operation(int(left), int(right))
    if not limits[0] <= result <= limits[1]:
        raise errors.EvalError("integer overflow" if kind is int else "unsigned integer overflow")
    return kind(result)


def invert(value: Value) -> bool:
    """`!value`."""
    if not isinstance(value, bool):
        raise errors.no_such_overload()
    return not value


def unequal(left: Value, right: Value) -> bool:
    """`left != right`: true also for values that cannot be compared."""
    return not equality.same(left, right)


def less(left: Value, right: Value) -> bool:
    """`left < right`."""
    return equality.compare(left, right) < 0


def less_or_equal(left: Value, right: Value) -> bool:
    """`left <= right`."""
    return equality.compare(left, right) <= 0


def greater(left: Value, right: Value) -> bool:
    """`left > right`."""
    return equality.compare(left, right) > 0


def greater_or_equal(left: Value, right: Value) -> bool:
    """`left >= right`."""
    return equality.compare(left, right) >= 0


def is_in(element: Value, container: Value) -> bool:
    """`element in container`."""
    return equality.contains(container, element)


def size(value: Value) -> int:
    """`size(value)`."""
    if not isinstance(value, (str, bytes, list, tuple, dict)):
        raise errors.no_such_overload()
    return len(value)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "!_": invert,
    "_==_": equality.equal,
    "_!=_": unequal,
    "_<_": less,
    "_<=_": less_or_equal,
    "_>_": greater,
    "_>=_": greater_or_equal,
    "@in": is_in,
    "size": size,
}
