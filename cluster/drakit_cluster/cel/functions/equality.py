"""Equality, order, lookup and type names of CEL values.

Equality across types is false, not an error, except that Kubernetes' own values (quantities, versions, addresses, URLs) on the left
refuse to be compared with anything else.
"""

import math
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import quantities, semver

_NUMERIC: Final = frozenset({int, float, values.Uint})
_STRICT: Final = frozenset({quantities.Amount, semver.Semver, values.Ip, values.Cidr, values.Url})
_COMPOUND: Final = frozenset({list, tuple, dict, values.DomainMap, values.Optional})
_ORDERED: Final = frozenset({bool, str, bytes, values.Duration, values.Timestamp})
_MISSING: Final = object()

TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    values.Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    values.DomainMap: "map",
    values.Optional: "optional_type",
    values.Duration: "google.protobuf.Duration",
    values.Timestamp: "google.protobuf.Timestamp",
    values.TypeValue: "type",
    values.Ip: "net.IP",
    values.Cidr: "net.CIDR",
    values.Url: "kubernetes.URL",
    values.NamedFormat: "kubernetes.NamedFormat",
    quantities.Amount: "kubernetes.Quantity",
    semver.Semver: "kubernetes.Semver",
}


GO_NAMES: Final[dict[str, str]] = {
    "null_type": "types.Null",
    "optional_type": "*types.Optional",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "net.IP": "cel.IP",
    "net.CIDR": "cel.CIDR",
    "kubernetes.URL": "cel.URL",
    "kubernetes.NamedFormat": "*cel.Format",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver",
}


def equal(left: Value, right: Value) -> bool:
    """Whether two values are equal. Raises EvalError when the left one cannot be compared with the right one."""
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
        return isinstance(right, dict) and _same_map(left, right)
    if isinstance(left, values.Optional):
        return isinstance(right, values.Optional) and _same_optional(left, right)
    return isinstance(right, (list, tuple)) and _same_list(left, right)


def same(left: Value, right: Value) -> bool:
    """Whether two values are equal, where a comparison that cannot be made counts as unequal."""
    try:
        return equal(left, right)
    except errors.EvalError:
        return False


def _not_different(left: Value, right: Value) -> bool:
    """Inside lists and maps only a comparison that comes out false makes a difference."""
    try:
        return equal(left, right)
    except errors.EvalError:
        return True


def _same_list(left: Value, right: Value) -> bool:
    return len(left) == len(right) and all(_not_different(one, other) for one, other in zip(left, right, strict=True))


def _same_map(left: Value, right: Value) -> bool:
    if len(left) != len(right):
        return False
    for key, value in left.items():
        other = find(right, key)
        if other is _MISSING or not _not_different(value, other):
            return False
    return True


def _same_optional(left: values.Optional, right: values.Optional) -> bool:
    if left.present and right.present:
        return equal(left.value, right.value)
    return left.present is right.present


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises EvalError for values without an order between them."""
    kind, other = type(left), type(right)
    if kind in _NUMERIC and other in _NUMERIC:
        if (kind is float and math.isnan(left)) or (other is float and math.isnan(right)):
            raise errors.EvalError("NaN values cannot be ordered")
    elif kind is not other or kind not in _ORDERED:
        raise errors.no_such_overload()
    return int(left > right) - int(left < right)


def find(mapping: dict[Value, Value], key: Value) -> Value:
    """The value under the key as stored, or a value that `is_missing`. Numbers of equal value are one key; True is not 1."""
    kind = type(key)
    if kind is str:
        return mapping.get(key, _MISSING)
    if kind is bool:
        return next((value for known, value in mapping.items() if known is key), _MISSING)
    if kind not in _NUMERIC:
        return _MISSING
    found = mapping.get(key, _MISSING)
    if found is not _MISSING and key in (0, 1):
        return next((value for known, value in mapping.items() if known == key and type(known) is not bool), _MISSING)
    return found


def is_missing(value: Value) -> bool:
    """Whether `find` found nothing."""
    return value is _MISSING


def contains(container: Value, element: Value) -> bool:
    """`element in container`."""
    if isinstance(container, dict):
        return find(container, element) is not _MISSING
    if isinstance(container, (list, tuple)):
        return any(same(element, one) for one in container)
    raise errors.no_such_overload()


def go_name(value: Value) -> str:
    """The name by which Kubernetes' messages call the value's type."""
    name = type_name(value)
    return GO_NAMES.get(name, f"types.{name.capitalize()}")


def type_name(value: Value) -> str:
    """The name of the value's type, as `type(value)` shows it."""
    return TYPE_NAMES[type(value)]
