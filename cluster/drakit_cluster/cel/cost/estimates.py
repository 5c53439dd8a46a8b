"""What single calls cost at worst, and how large a device's parts can be.

Source: the cost estimator of k8s.io/apiserver's CEL libraries and of cel-go; the limits of the ResourceSlice API.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from drakit_cluster.cel.cost import bounds, charges
from drakit_cluster.cel.cost.bounds import MOST, ONE, UNKNOWN, Range
from drakit_cluster.cel.functions import lists
from drakit_cluster.cel.syntax import syntax
from drakit_cluster.cel.syntax.syntax import Expr
from drakit_cluster.cel.types import celtypes, declarations
from drakit_cluster.cel.types.celtypes import Kind, Type

Path = tuple[str, ...]
"""The way from a variable to a value: names of fields, `@keys`, `@values`, `@items`, `@indices`."""

DOMAIN_MAX: Final = 63
ID_MAX: Final = 32
DRIVER_MAX: Final = 63
ENTRIES_MAX: Final = 32
ATTRIBUTE_MAX: Final = 64
_FORMAT_REGEX_MAX: Final = 128
_ADDRESS: Final = Range(4, 16)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An argument or receiver: where it comes from, its type, and its size where that is known."""

    path: Path
    type: Type
    expr: Expr | None
    size: Range | None

    @property
    def known(self) -> Range:
        """Its size, or that nothing is known."""
        return UNKNOWN if self.size is None else self.size


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """What a call costs, without its arguments, and the size of its result."""

    cost: Range
    size: Range | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A part of a device: its size at most, and the parts below it."""

    most: int
    keys: "_Shape | None" = None
    held: "_Shape | None" = None


_ATTRIBUTE: Final = _Shape(most=ATTRIBUTE_MAX)
_DOMAIN: Final = _Shape(most=DOMAIN_MAX)
_ID: Final = _Shape(most=ID_MAX)
_ATTRIBUTES: Final = _Shape(most=ENTRIES_MAX, keys=_DOMAIN, held=_Shape(most=ENTRIES_MAX, keys=_ID, held=_ATTRIBUTE))
_CAPACITY: Final = _Shape(most=ENTRIES_MAX, keys=_DOMAIN, held=_Shape(most=ENTRIES_MAX, keys=_ID, held=_Shape(most=0)))
_FIELDS: Final = {
    "driver": _Shape(most=DRIVER_MAX),
    "allowMultipleAllocations": _Shape(most=1),
    "attributes": _ATTRIBUTES,
    "capacity": _CAPACITY,
}


def device_size(path: Path) -> Range | None:
    """How large the value at the path can be, None for what is no part of a device."""
    if not path or path[0] != "device":
        return None
    if len(path) == 1:
        return Range(0, 0)
    shape = _FIELDS.get(path[1])
    for step in path[2:]:
        if shape is None:
            return None
        if step == "@keys":
            shape = shape.keys
        elif step in ("@items", "@values") or shape.held is _ATTRIBUTE:
            shape = shape.held
        else:
            return None
    return None if shape is None else Range(0, shape.most)


Pricer = Callable[[Node | None, Sequence[Node]], Price | None]
"""The price of a call from its receiver and arguments, None where only the default applies."""


def price(function: str, overload: str, target: Node | None, args: Sequence[Node]) -> Price:
    """The price of one overload."""
    for known in (_LISTS.get(overload), _KUBERNETES.get(function), _STANDARD.get(overload)):
        found = known(target, args) if known is not None else None
        if found is not None:
            return found
    return Price(ONE)


def _read(size: Range) -> Range:
    return size.scaled(charges.TRAVERSAL)


def _nominal(_: Node | None, __: Sequence[Node]) -> Price:
    return Price(ONE)


def _parsed(_: Node | None, args: Sequence[Node]) -> Price | None:
    return Price(_read(args[0].known), args[0].known) if len(args) == 1 else None


def _same_size(target: Node | None, _: Sequence[Node]) -> Price | None:
    return None if target is None else Price(_read(target.known), target.known)


def _through(target: Node | None, _: Sequence[Node]) -> Price | None:
    """Every element is looked at once; strings and bytes are read."""
    if target is None:
        return None
    if not target.type.parameters:
        return Price(_read(target.known))
    element = target.type.parameters[0]
    cost = ONE
    if element.kind in (Kind.STRING, Kind.BYTES):
        cost += _read(_element_size(target))
    return Price(target.known.times(cost))


def _element_size(target: Node) -> Range:
    return device_size((*target.path, "@items")) or UNKNOWN


def _replace(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.known, args[0].known, args[1].known
    most = _replaced(size.high, old.low, new.high, grows=new.high > old.low)
    least = _replaced(size.low, old.high, new.low, grows=new.low < old.high)
    result = Range(least[0], most[0]).times(new) + Range(least[1], most[1])
    return Price(size.scaled(2 * charges.TRAVERSAL), result)


def _replaced(size: int, old: int, new: int, *, grows: bool) -> tuple[int, int]:
    """How often something is replaced, and how much stays, at the extreme asked for."""
    del new
    if old == 0:
        return min(size + 1, MOST), size
    if not grows:
        return 0, size
    return math.ceil(size / old), 0


def _split(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None:
        return None
    most = _natural(args[1], target.known.high) if len(args) > 1 else target.known.high
    return Price(target.known.scaled(2 * charges.TRAVERSAL), Range(0, most))


def _natural(node: Node, otherwise: int) -> int:
    """The value of a literal that counts something."""
    if isinstance(node.expr, syntax.Literal) and isinstance(node.expr.value, int) and node.expr.value >= 0:
        return int(node.expr.value)
    return otherwise


def _join(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None:
        return None
    size = target.known.times(_element_size(target))
    if args:
        gaps = Range(max(target.known.low - 1, 0), max(target.known.high - 1, 0))
        size += args[0].known.times(gaps)
    return Price(_read(size), size)


def _find(target: Node | None, args: Sequence[Node]) -> Price | None:
    found = _matches(target, args[:1])
    return None if found is None or target is None else Price(found.cost, Range(0, target.known.high))


def _matches(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None or len(args) != 1:
        return None
    return Price(_read(target.known + ONE).times(args[0].known.scaled(charges.REGEX)))


def _contains_ip(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None or not args:
        return None
    cost = _read(_ADDRESS + _ADDRESS)
    return Price(cost + _read(args[0].known) if args[0].type.kind is Kind.STRING else cost)


def _contains_cidr(target: Node | None, args: Sequence[Node]) -> Price | None:
    found = _contains_ip(target, args)
    return None if found is None else Price(found.cost + _read(_ADDRESS) + ONE)


def _validate(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None:
        return None
    return Price(_read(args[0].known).scaled(_FORMAT_REGEX_MAX * charges.REGEX))


def _equals(_: Node | None, args: Sequence[Node]) -> Price | None:
    """Kubernetes' own values compare at a fixed cost."""
    left, right = (arg.type for arg in args)
    if left != right:
        return None
    if left in (celtypes.QUANTITY, celtypes.SEMVER, celtypes.IP, celtypes.CIDR):
        return Price(ONE)
    return Price(_read(Range(1, 64))) if left == celtypes.FORMAT else None


def _includes(target: Node | None, _: Sequence[Node]) -> Price | None:
    return None if target is None else Price(Range(0, lists.INCLUDES_MAX))


_KUBERNETES: Final[dict[str, Pricer]] = {
    **dict.fromkeys(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"], _through),
    "url": _parsed,
    **dict.fromkeys(["lowerAscii", "upperAscii", "substring", "trim"], _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(["find", "findAll"], _find),
    **dict.fromkeys(["masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isGlobalUnicast"], _nominal),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equals,
    "includes": _includes,
}


def _read_first(_: Node | None, args: Sequence[Node]) -> Price | None:
    return Price(_read(args[0].known)) if len(args) == 1 else None


def _to_bytes(_: Node | None, args: Sequence[Node]) -> Price:
    size = args[0].known
    return Price(_read(size), Range(size.low, min(size.high * 4, MOST)))


def _to_string(_: Node | None, args: Sequence[Node]) -> Price:
    return Price(_read(args[0].known), Range(args[0].known.low // 4, args[0].known.high))


def _quote(_: Node | None, args: Sequence[Node]) -> Price:
    size = args[0].known
    return Price(_read(size), Range(min(size.low + 2, MOST), min(size.high * 2 + 2, MOST)))


def _format(target: Node | None, _: Sequence[Node]) -> Price | None:
    return None if target is None else Price(_read(target.known))


def _in_list(_: Node | None, args: Sequence[Node]) -> Price:
    return Price(args[1].known)


def _contains(target: Node | None, args: Sequence[Node]) -> Price | None:
    return None if target is None else Price(_read(target.known).times(_read(args[0].known)))


def _concatenated(_: Node | None, args: Sequence[Node]) -> Price:
    size = args[0].known + args[1].known
    return Price(_read(size), size)


def _appended(_: Node | None, args: Sequence[Node]) -> Price:
    return Price(ONE, args[0].known + args[1].known)


def _compared(_: Node | None, args: Sequence[Node]) -> Price:
    most = min(args[0].known.high, args[1].known.high)
    return Price(_read(Range(min(most, 1), most)))


_STANDARD: Final[dict[str, Pricer]] = {
    **dict.fromkeys(["starts_with_string", "ends_with_string"], _read_first),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "string_format": _format,
    "in_list": _in_list,
    "matches_string": _matches,
    "contains_string": _contains,
    **dict.fromkeys(["add_string", "add_bytes"], _concatenated),
    "add_list": _appended,
    **dict.fromkeys(["equals", "not_equals"], _compared),
    **{f"{name}_{kind}": _compared for name in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")},
}


def _allocated(factor: float, size: Range) -> Price:
    return Price(size.scaled(factor) + ONE + bounds.fixed(charges.LIST), size)


def _slice(target: Node | None, args: Sequence[Node]) -> Price | None:
    if target is None:
        return None
    count = _natural(args[1], target.known.high) - _natural(args[0], 0)
    return _allocated(1, bounds.fixed(count if count >= 0 else MOST))


def _range(_: Node | None, args: Sequence[Node]) -> Price:
    return _allocated(1, bounds.fixed(_natural(args[0], MOST)))


def _reverse(target: Node | None, _: Sequence[Node]) -> Price | None:
    return None if target is None else _allocated(1, target.known)


def _flatten(target: Node | None, args: Sequence[Node]) -> Price | None:
    depth = _natural(args[0], MOST) if args else 1
    return None if target is None else _allocated(depth, target.known)


def _distinct(target: Node | None, _: Sequence[Node]) -> Price | None:
    return None if target is None else _allocated(2, target.known.times(target.known))


def _sort(kind: str) -> Pricer:
    factor = 2 + charges.TRAVERSAL * (kind in ("string", "bytes"))

    def sort(target: Node | None, args: Sequence[Node]) -> Price | None:
        keys = args[0] if args else target
        return None if keys is None else _allocated(factor, keys.known.times(keys.known))

    return sort


def _sets(factor: int) -> Pricer:
    return lambda _, args: Price(args[0].known.times(args[1].known).scaled(factor) + ONE)


_LISTS: Final[dict[str, Pricer]] = {
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reverse,
    **dict.fromkeys(["list_flatten", "list_flatten_int"], _flatten),
    "list_distinct": _distinct,
    **{f"list_{kind}_sort": _sort(kind) for kind in declarations.COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _sort(kind) for kind in declarations.COMPARABLE},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
