"""The operators of CEL, equality, order and lookup, and the names of types.

Equality across types is false, not an error, except that Kubernetes' own values (quantities, versions, addresses, URLs) on the left
cannot be compared with other types. Integer overflow is an error.
"""

import math
import operator
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Duration, Uint, Value
from drakit_cluster.cel.functions import durations, quantities, semver

_NUMERIC: Final = frozenset({int, float, Uint})
_STRICT: Final = frozenset({quantities.Amount, semver.Semver, values.Ip, values.Cidr, values.Url})
_COMPOUND: Final = frozenset({list, tuple, dict, values.DomainMap, values.Optional})
_ORDERED: Final = frozenset({bool, str, bytes, Duration})
_LIMITS: Final = {int: (values.INT_MIN, values.INT_MAX), Uint: (0, values.UINT_MAX)}
MISSING: Final = object()
"""What `find` returns for a key that is not in the map."""

TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    values.DomainMap: "map",
    values.Optional: "optional_type",
    values.TypeValue: "type",
    Duration: "google.protobuf.Duration",
    values.Ip: "net.IP",
    values.Cidr: "net.CIDR",
    values.Url: "kubernetes.URL",
    values.NamedFormat: "kubernetes.NamedFormat",
    quantities.Amount: "kubernetes.Quantity",
    semver.Semver: "kubernetes.Semver",
}
_GO_NAMES: Final[dict[str, str]] = {
    "null_type": "types.Null",
    "optional_type": "*types.Optional",
    "google.protobuf.Duration": "types.Duration",
    "net.IP": "cel.IP",
    "net.CIDR": "cel.CIDR",
    "kubernetes.URL": "cel.URL",
    "kubernetes.NamedFormat": "*cel.Format",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
}


def type_name(value: Value) -> str:
    """Return the name of the value's type, as `type(value)` shows it."""
    return TYPE_NAMES[type(value)]


def go_name(value: Value) -> str:
    """Return the name of the value's type in Kubernetes' messages."""
    name = type_name(value)
    return _GO_NAMES.get(name, f"types.{name.capitalize()}")


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are equal. Raises EvalError if the left value refuses the comparison."""
    kind, other = type(left), type(right)
    if kind in _NUMERIC:
        return other in _NUMERIC and bool(left == right)
    if left is None or right is None:
        return left is right
    if kind in _COMPOUND:
        return _same_parts(left, right)
    if kind is other:
        return bool(left == right)
    if kind in _STRICT:
        raise errors.no_such_overload()
    return False


def _same_parts(left: Value, right: Value) -> bool:
    if isinstance(left, dict):
        pairs = [(value, find(right, key)) for key, value in left.items()] if isinstance(right, dict) else []
        return isinstance(right, dict) and len(left) == len(right) and all(_not_different(item, counterpart) for item, counterpart in pairs)
    if isinstance(left, values.Optional):
        both = isinstance(right, values.Optional) and left.present is right.present
        return both and (not left.present or equal(left.value, right.value))
    if not isinstance(right, (list, tuple)) or len(left) != len(right):
        return False
    return all(_not_different(item, counterpart) for item, counterpart in zip(left, right, strict=True))


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal; a comparison that fails counts as unequal."""
    try:
        return equal(left, right)
    except errors.EvalError:
        return False


def _not_different(left: Value, right: Value) -> bool:
    """Return whether two parts of lists or maps do not differ. A comparison that fails makes no difference."""
    try:
        return right is not MISSING and equal(left, right)
    except errors.EvalError:
        return True


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1. Raises EvalError for values that have no order."""
    kind, other = type(left), type(right)
    if kind in _NUMERIC and other in _NUMERIC:
        if (kind is float and math.isnan(left)) or (other is float and math.isnan(right)):
            raise errors.EvalError("NaN values cannot be ordered")
    elif kind is not other or kind not in _ORDERED:
        raise errors.no_such_overload()
    return int(left > right) - int(left < right)


def find(mapping: dict[Value, Value], key: Value) -> Value:
    """Return the value under the key as stored, or MISSING. Numbers of equal value are one key; True is not 1."""
    kind = type(key)
    if kind is str:
        return mapping.get(key, MISSING)
    if kind is bool:
        return next((value for stored_key, value in mapping.items() if stored_key is key), MISSING)
    if kind not in _NUMERIC:
        return MISSING
    if key in (0, 1):
        return next((value for stored_key, value in mapping.items() if stored_key == key and type(stored_key) is not bool), MISSING)
    return mapping.get(key, MISSING)


def contains(container: Value, element: Value) -> bool:
    """Return `element in container`."""
    if isinstance(container, dict):
        return find(container, element) is not MISSING
    if isinstance(container, (list, tuple)):
        return any(same(element, item) for item in container)
    raise errors.no_such_overload()


def add(left: Value, right: Value) -> Value:
    """Return `left + right`."""
    kind, other = type(left), type(right)
    if kind is other and kind in (str, bytes):
        return left + right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return [*left, *right]
    if kind is other is Duration:
        return durations.checked(left.nanos + right.nanos)
    return _arithmetic(operator.add, left, right)


def _subtract(left: Value, right: Value) -> Value:
    if type(left) is type(right) is Duration:
        return durations.checked(left.nanos - right.nanos)
    return _arithmetic(operator.sub, left, right)


def divide(left: Value, right: Value) -> Value:
    """Return `left / right`; integers are truncated towards zero."""
    if type(left) is not float or type(right) is not float:
        return _arithmetic(_quotient, left, right)
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, math.copysign(1, left) * math.copysign(1, right))


def _quotient(left: int, right: int) -> int:
    if not right:
        raise errors.EvalError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def modulo(left: Value, right: Value) -> Value:
    """Return `left % right`, with the sign of the left side."""
    if type(left) is float:
        raise errors.no_such_overload()
    return _arithmetic(_remainder, left, right)


def _remainder(left: int, right: int) -> int:
    if not right:
        raise errors.EvalError("modulus by zero")
    if left == values.INT_MIN and right == -1:
        raise errors.EvalError("integer overflow")
    return left - right * _quotient(left, right)


def _negate(value: Value) -> Value:
    if type(value) is float:
        return -value
    if type(value) is not int:
        raise errors.no_such_overload()
    return _arithmetic(operator.sub, 0, value)


def _invert(value: Value) -> bool:
    if not isinstance(value, bool):
        raise errors.no_such_overload()
    return not value


def _arithmetic(operation: Callable[[Value, Value], Value], left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is not type(right) or (kind is not float and kind not in _LIMITS):
        raise errors.no_such_overload()
    if kind is float:
        return operation(left, right)
    low, high = _LIMITS[kind]
    result = operation(int(left), int(right))
    if not low <= result <= high:
        raise errors.EvalError("integer overflow" if kind is int else "unsigned integer overflow")
    return kind(result)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "_+_": add,
    "_-_": _subtract,
    "_*_": lambda left, right: _arithmetic(operator.mul, left, right),
    "_/_": divide,
    "_%_": modulo,
    "-_": _negate,
    "!_": _invert,
    "_==_": equal,
    "_!=_": lambda left, right: not same(left, right),
    "_<_": lambda left, right: compare(left, right) < 0,
    "_<=_": lambda left, right: compare(left, right) <= 0,
    "_>_": lambda left, right: compare(left, right) > 0,
    "_>=_": lambda left, right: compare(left, right) >= 0,
    "@in": lambda element, container: contains(container, element),
}
"""These functions check the types of their operands themselves."""
