"""The cost of calls at run time, as Kubernetes computes it: by the sizes of arguments or results.

Source: the cost estimator of k8s.io/apiserver's CEL libraries, the lists and sets extensions and the defaults of cel-go.
"""

import math
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value, size
from drakit_cluster.cel.functions import quantities, semver
from drakit_cluster.cel.types import declarations

MOST: Final = 2**64 - 1
"""An unknown size, and the highest cost."""
TRAVERSAL: Final = 0.1
"""The cost of reading one character."""
REGEX: Final = 0.25
"""The cost factor of one character of a regular expression."""
LIST: Final = 10
MAP: Final = 30

Charge = Callable[..., int]
"""The cost of a call from its arguments, or from the sizes of its arguments; the receiver is the first."""

_FIXED: Final = (values.Ip, values.Cidr, values.Url, values.NamedFormat, quantities.Amount, semver.Semver)
_READ: Final = tuple(math.ceil(count * TRAVERSAL) for count in range(129))


def reading(count: int) -> int:
    """Return the cost of reading that many characters."""
    return _READ[count] if count < len(_READ) else math.ceil(min(count, MOST) * TRAVERSAL)


def allocating(count: float) -> int:
    """Return the cost of a call that makes a list, for `count` steps."""
    return 1 + LIST + math.ceil(count)


def regex(text: int, pattern: int, *_: int) -> int:
    """Return the cost of a match, by the sizes of text and pattern."""
    return reading(1 + text) * math.ceil(min(pattern, MOST) * REGEX)


def smaller(left: int, right: int) -> int:
    """Return the cost of comparing two values up to the end of the shorter, by their sizes."""
    return reading(min(left, right))


BY_SIZES: Final[dict[str, Charge]] = {
    **dict.fromkeys(["url", "lowerAscii", "upperAscii", "substring", "trim", "strings.quote", "format"], lambda text, *_: reading(text)),
    **dict.fromkeys(["bytes(string)", "string(bytes)"], reading),
    **dict.fromkeys(["replace", "split"], lambda text, *_: reading(2 * text)),
    **dict.fromkeys(["find", "findAll", ".matches(string,string)"], regex),
    **{f"{sign}({kind},{kind})": smaller for sign in ("_<_", "_<=_", "_>_", "_>=_") for kind in ("string", "bytes")},
    "_!=_": smaller,
    "@in(A,list(A))": lambda _, container: container,
    **dict.fromkeys(["_+_(string,string)", "_+_(bytes,bytes)"], lambda left, right: reading(left + right)),
    "contains": lambda text, part: reading(text) * reading(part),
    **dict.fromkeys(["sets.contains", "sets.intersects"], lambda left, right: 1 + left * right),
    "sets.equivalent": lambda left, right: 1 + 2 * left * right,
    "distinct": lambda items: allocating(2 * items**2),
}
"""Charges by sizes, used at run time and in the worst-case estimate. A name stands for all overloads of a function."""


def _traversal(value: Value) -> int:
    if isinstance(value, (str, bytes)):
        return int(len(value.encode() if isinstance(value, str) else value) * TRAVERSAL)
    if isinstance(value, (list, tuple)):
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(item) for key, item in value.items())
    return 1


def _first(*args: Value) -> int:
    return reading(size(args[0]))


def _validate(form: Value, text: Value) -> int:
    return reading(1 + size(text)) * math.ceil((form.regex_size if isinstance(form, values.NamedFormat) else 0) * REGEX)


def _contains(network: Value, other: Value) -> int:
    return reading(2 * size(network)) + (reading(size(other)) if isinstance(other, str) else 0)


def _sort(*args: Value) -> int:
    keys = args[-1] if isinstance(args[-1], (list, tuple)) else []
    text = bool(keys) and isinstance(keys[0], (str, bytes))
    return allocating((2 + TRAVERSAL * text) * size(args[-1]) ** 2)


def _flatten(items: Value, depth: Value = 1) -> int:
    return allocating(max(depth if type(depth) is int else 1, 0) * size(items))


def equality(left: Value, right: Value) -> int:
    """Return the cost of `==`."""
    return 1 if isinstance(left, _FIXED) else smaller(size(left), size(right))


_BY_VALUES: Final[dict[str, Charge]] = {
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"], lambda *args: _traversal(args[0])),
    **dict.fromkeys(["cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver", "startsWith", "endsWith"], _first),
    "ip": lambda value: 1 if isinstance(value, values.Cidr) else _first(value),
    "ip.isCanonical": lambda text: reading(2 * size(text)),
    "containsIP": _contains,
    "containsCIDR": lambda network, other: _contains(network, other) + _first(network) + 1,
    "validate": _validate,
    **{f".sort(list({kind}))": _sort for kind in declarations.ORDERED},
    **{f".@sortByAssociatedKeys(list(T),list({kind}))": _sort for kind in declarations.ORDERED},
    **dict.fromkeys([".flatten(list(list(T)))", ".flatten(list(dyn),int)"], _flatten),
    "_==_": equality,
}
_BY_RESULT: Final[dict[str, Charge]] = {
    "join": lambda result: reading(2 * result),
    **dict.fromkeys(["slice", "lists.range", "reverse"], allocating),
}


def before(function: str, overloads: tuple[str, ...]) -> Charge | None:
    """Return the charge of a call by its arguments; None means a cost of 1."""
    for name in (function, overloads[0] if len(overloads) == 1 else ""):
        if name in _BY_VALUES:
            return _BY_VALUES[name]
        if name in BY_SIZES:
            by_sizes = BY_SIZES[name]
            return lambda *args: by_sizes(*map(size, args))
    return None


def after(function: str) -> Charge | None:
    """Return the charge of a call by the size of its result; None for calls that are charged by their arguments."""
    return _BY_RESULT.get(function)
