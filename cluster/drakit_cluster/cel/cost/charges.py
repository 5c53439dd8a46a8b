"""What calls cost at run time, as Kubernetes charges them: by the sizes of arguments or results.

Source: the cost estimator of k8s.io/apiserver's CEL libraries, the lists and sets extensions and the defaults of cel-go.
"""

import math
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value, size
from drakit_cluster.cel.functions import quantities, semver
from drakit_cluster.cel.types import declarations

TRAVERSAL: Final = 0.1
"""The cost of reading one character."""
REGEX: Final = 0.25
"""The cost factor of one character of a regular expression."""
LIST: Final = 10
MAP: Final = 30

Charge = Callable[..., int]
"""The cost of a call from its arguments; of a charge by result, from the result and then the arguments."""

_FIXED: Final = (values.Ip, values.Cidr, values.Url, values.NamedFormat, quantities.Amount, semver.Semver)
_READ: Final = tuple(math.ceil(count * TRAVERSAL) for count in range(129))


def reading(count: int) -> int:
    """The cost of reading that many characters."""
    return _READ[count] if count < len(_READ) else math.ceil(count * TRAVERSAL)


def one(*_: Value) -> int:
    """The cost of a call that has none of its own."""
    return 1


def _twice(count: int) -> int:
    return math.ceil(count * 2 * TRAVERSAL)


def _first(*args: Value) -> int:
    return reading(size(args[0]))


def _first_twice(*args: Value) -> int:
    return _twice(size(args[0]))


def _traversal(value: Value) -> int:
    if isinstance(value, (str, bytes)):
        return int(len(value.encode() if isinstance(value, str) else value) * TRAVERSAL)
    if isinstance(value, (list, tuple)):
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(held) for key, held in value.items())
    return 1


def _regex(*args: Value) -> int:
    return math.ceil((1 + size(args[0])) * TRAVERSAL) * math.ceil(size(args[1]) * REGEX)


def _validate(*args: Value) -> int:
    longest = args[0].regex_size if isinstance(args[0], values.NamedFormat) else 0
    return math.ceil((1 + size(args[1])) * TRAVERSAL) * math.ceil(longest * REGEX)


def _ip(*args: Value) -> int:
    return 1 if isinstance(args[0], values.Cidr) else _first(*args)


def _contains(*args: Value) -> int:
    parsed = reading(size(args[1])) if isinstance(args[1], str) else 0
    return reading(2 * size(args[0])) + parsed


def _contains_cidr(*args: Value) -> int:
    return _contains(*args) + reading(size(args[0])) + 1


def equality(left: Value, right: Value) -> int:
    """The cost of `==`."""
    return 1 if isinstance(left, _FIXED) else smaller(left, right)


def smaller(left: Value, right: Value) -> int:
    """The cost of going through two values until the shorter ends."""
    return reading(min(size(left), size(right)))


def _both(left: Value, right: Value) -> int:
    return reading(size(left) + size(right))


def _product(left: Value, right: Value) -> int:
    return reading(size(left)) * reading(size(right))


def _sets(factor: int) -> Charge:
    return lambda left, right: 1 + size(left) * size(right) * factor


def _square(*args: Value) -> int:
    count = size(args[-1])
    text = count and isinstance(args[-1][0], (str, bytes))
    return 1 + LIST + math.ceil((2 + TRAVERSAL * bool(text)) * count * count)


def _distinct(*args: Value) -> int:
    return 1 + LIST + 2 * size(args[0]) ** 2


def _flatten(*args: Value) -> int:
    depth = args[1] if len(args) > 1 and type(args[1]) is int else 1
    return 1 + LIST + max(depth, 0) * size(args[0])


_BY_FUNCTION: Final[dict[str, Charge]] = {
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"], lambda *args: _traversal(args[0])),
    **dict.fromkeys(["url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR"], _first),
    **dict.fromkeys(["quantity", "isQuantity", "semver", "isSemver"], _first),
    **dict.fromkeys(["replace", "split", "ip.isCanonical"], _first_twice),
    **dict.fromkeys(["find", "findAll"], _regex),
    "ip": _ip,
    "containsIP": _contains,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
}
_BY_OVERLOAD: Final[dict[str, Charge]] = {
    **dict.fromkeys(["starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"], _first),
    **dict.fromkeys(["strings_quote", "string_format"], _first),
    "in_list": lambda _, container: size(container),
    **dict.fromkeys(["add_string", "add_bytes"], _both),
    "matches_string": _regex,
    "contains_string": _product,
    **{f"{name}_{kind}": smaller for name in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")},
    "not_equals": smaller,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_distinct": _distinct,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    **{f"list_{kind}_sort": _square for kind in declarations.COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _square for kind in declarations.COMPARABLE},
}
_BY_RESULT: Final[dict[str, Charge]] = {
    "list_join": lambda result, *_: _twice(size(result)),
    "list_join_string": lambda result, *_: _twice(size(result)),
    "list_slice": lambda result, *_: 1 + LIST + size(result),
    "lists_range": lambda result, *_: 1 + LIST + size(result),
    "list_reverse": lambda result, *_: 1 + LIST + size(result),
}


def before(function: str, overloads: tuple[str, ...]) -> Charge:
    """What a call costs by its arguments."""
    overload = overloads[0] if len(overloads) == 1 else ""
    return _BY_FUNCTION.get(function) or _BY_OVERLOAD.get(overload) or one


def after(overloads: tuple[str, ...]) -> Charge | None:
    """What a call costs by its result, None for the calls that are charged by their arguments."""
    return _BY_RESULT.get(overloads[0]) if len(overloads) == 1 else None
