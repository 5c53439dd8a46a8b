"""The worst case of an expression, in steps. The API server refuses a new selector above a limit, because loops in loops could take hours.

Each part of an expression is a step, a loop repeats its parts for every element, and calls cost more by the sizes of their arguments, as at
run time. Kubernetes counts other costs for some calls, so an expression near the limit may be judged differently.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from drakit_cluster.cel.evaluation import flow
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr, Literal
from drakit_cluster.cel.types import checker
from drakit_cluster.cel.types.celtypes import Kind

_MOST: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """The most elements or characters of a value, and the sizes of a map's keys, and of the elements of a list or map.

    ``characters`` is what all texts of a list have together, where that is known to be less than each could have: of the parts of a text.
    """

    most: int
    keys: "_Size | None" = None
    elements: "_Size | None" = None
    characters: int | None = None

    @property
    def of_elements(self) -> "_Size":
        return self.elements or _UNKNOWN

    @property
    def inside(self) -> int:
        """The most elements of the lists and maps in a list or map, at any depth."""
        inner = self.elements
        return self.most * (inner.most + inner.inside) if inner is not None and inner.is_container else 0

    @property
    def is_container(self) -> bool:
        return self.elements is not None or self.keys is not None


_UNKNOWN: Final = _Size(most=_MOST)
_NONE: Final = _Size(most=0)
"""A value without a size, or an empty one."""
_TEXT: Final = _Size(most=64)
_VALUE: Final = _Size(most=64, elements=_TEXT)
"""An attribute: a text, or a list of texts."""


def _by_domain(value: _Size) -> _Size:
    return _Size(most=32, keys=_Size(most=63), elements=_Size(most=32, keys=_Size(most=32), elements=value))


_FIELDS: Final = {"driver": _Size(most=63), "attributes": _by_domain(_VALUE), "capacity": _by_domain(_NONE)}
_DEVICE: Final = _Size(most=len(_FIELDS) + 1)
"""The limits of Kubernetes for attributes and capacities of a device, their names and their values."""
_SCALARS: Final = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.NULL, Kind.TYPE, Kind.UINT})
_OBJECTS: Final = frozenset({Kind.OPAQUE, Kind.STRUCT})
"""The kinds of values that cost the same whatever they hold, such as optional values."""
_FREE: Final = frozenset({"_[_]", "_[?_]", "_?._", "_&&_", "_||_", "_?_:_", "@not_strictly_false", "or", "orValue"})
"""The functions that cost a step for values of any size."""

_SEPARATOR: Final = 1
"""The place of the separator among the arguments of `split`, before the most parts."""

_Scope = dict[str, _Size]
"""The sizes of variables."""


def worst_case(checked: checker.Checked) -> int:
    """Return the most steps that the expression can take."""
    return min(_Estimate(checked).steps(checked.root, {}), _MOST)


class _Estimate:
    def __init__(self, checked: checker.Checked) -> None:
        self._checked = checked
        self._sizes: dict[Expr, _Size] = {}

    def steps(self, expr: Expr, scope: _Scope) -> int:
        """Return the steps of a node and those below."""
        if isinstance(expr, tree.Comprehension):
            return self._loop(expr, scope)
        total = (not isinstance(expr, Literal)) + sum(self.steps(child, scope) for child in tree.children(expr))
        return total + (self._charge(expr, scope) if isinstance(expr, tree.Call) and expr.function not in _FREE else 0)

    def _loop(self, expr: tree.Comprehension, scope: _Scope) -> int:
        inner = self._inside(expr, scope)
        total = self.steps(expr.range, scope) + self.steps(expr.init, scope) + self.steps(expr.result, inner)
        if expr.is_bind:
            return total
        once = self.steps(expr.condition, inner) + self.steps(expr.step, inner)
        if isinstance(expr.init, tree.MapExpr):
            # Every iteration copies the map; a list is extended in place.
            once += 1 + 2 * flow.made(self._size(expr, scope).most)
        return total + self._size(expr.range, scope).most * once

    def _charge(self, expr: tree.Call, scope: _Scope) -> int:
        """Return what a call costs beside its step."""
        function, args = self._called(expr)
        made = flow.made(self._weight(expr, scope).own)
        if function == "lists.range":
            return self._size(expr, scope).most + made
        weights = [self._weight(arg, scope) for arg in args]
        if function in flow.SEARCHING:
            looked_up = [self._checked.types[arg].kind is Kind.MAP for arg in args]
            weights = [flow.Weight(weight.own, weight.own) if is_map else weight for weight, is_map in zip(weights, looked_up, strict=True)]
        return flow.charge(function)(weights) + made if args else made

    def _weight(self, expr: Expr, scope: _Scope) -> flow.Weight:
        """Return the most that a value weighs. Optional values have no size of their own, but are compared by what they hold."""
        expr_type, size = self._checked.types[expr], self._size(expr, scope)
        if expr_type.kind in _OBJECTS:
            return flow.Weight.of(0, _limited(1 + size.most + size.inside) if expr_type.optional_value is not None else 0)
        return flow.Weight.of(size.most, _limited(size.inside))

    def _called(self, expr: tree.Call) -> tuple[str, tuple[Expr, ...]]:
        """Return the name of a function and all arguments, of which the receiver is the first."""
        name = self._checked.names.get(expr)
        if name is not None:
            return name, expr.args
        return expr.function.removeprefix("."), expr.args if expr.target is None else (expr.target, *expr.args)

    def _inside(self, expr: tree.Comprehension, scope: _Scope) -> _Scope:
        """Return the sizes of variables inside a bind, or inside a loop, where those of the accumulator are what an iteration adds to."""
        if expr.is_bind:
            return {**scope, expr.accu: self._size(expr.init, scope)}
        over = self._size(expr.range, scope)
        if expr.second is not None:
            return {**scope, expr.accu: _NONE, expr.first: over.keys or _NONE, expr.second: over.of_elements}
        return {**scope, expr.accu: _NONE, expr.first: over.keys or over.of_elements}

    def _size(self, expr: Expr, scope: _Scope) -> _Size:
        """Return the size of a node, which is always in the same scope."""
        size = self._sizes.get(expr)
        if size is None:
            size = self._sizes[expr] = _NONE if self._checked.types[expr].kind in _SCALARS else self._measure(expr, scope)
        return size

    def _measure(self, expr: Expr, scope: _Scope) -> _Size:  # noqa: PLR0911 - one return a kind
        match expr:
            case Literal(value=str() | bytes() as value):
                return _Size(most=len(value))
            case tree.ListExpr(elements=elements):
                return _Size(most=len(elements), elements=self._any(elements, scope))
            case tree.MapExpr(keys=keys, values=values):
                return _Size(most=len(keys), keys=self._any(keys, scope), elements=self._any(values, scope))
            case tree.Ident(name=name):
                return scope.get(name, _DEVICE if name.removeprefix(".") == "device" else _UNKNOWN)
            case tree.Select(operand=operand, field=field):
                over = self._size(operand, scope)
                return _FIELDS.get(field, _NONE) if over is _DEVICE else over.of_elements
            case tree.Comprehension() if expr.is_bind:
                return self._size(expr.result, self._inside(expr, scope))
            case tree.Comprehension():
                added = self._size(expr.step, self._inside(expr, scope))
                return replace(added, most=_limited(added.most * self._size(expr.range, scope).most), characters=None)
            case tree.Call():
                return self._result(expr, scope)
        return _NONE

    def _result(self, expr: tree.Call, scope: _Scope) -> _Size:
        function, args = self._called(expr)
        if function == "lists.range":
            length = args[0].value if isinstance(args[0], Literal) else _MOST
            return _Size(most=max(0, length), elements=_NONE)
        sizes = [self._size(arg, scope) for arg in args]
        if function == "replace" and isinstance(args[1], Literal) and args[1].value:
            return _Size(most=_limited(sizes[0].most * max(1, sizes[2].most)))
        if function == "split" and len(args) > _SEPARATOR + 1 and isinstance(args[-1], Literal) and args[-1].value >= 0:
            return replace(_parts(sizes[0]), most=min(sizes[0].most + 1, args[-1].value))
        if function in _RESULTS:
            result = _RESULTS[function](*sizes)
            return replace(result, most=_limited(result.most))
        return_type = self._checked.types[expr]
        return _NONE if return_type.kind in _OBJECTS and return_type.optional_value is None else _UNKNOWN

    def _any(self, exprs: Iterable[Expr], scope: _Scope) -> _Size:
        return functools.reduce(_either, (self._size(expr, scope) for expr in exprs), _NONE)


def _limited(size: int) -> int:
    return min(size, _MOST)


def _either(left: _Size, right: _Size) -> _Size:
    """Return the size of a value that has one size or the other."""
    if not left.most or not right.most:
        return left if left.most else right
    keys = None if left.keys is None or right.keys is None else _either(left.keys, right.keys)
    elements = None if left.elements is None or right.elements is None else _either(left.elements, right.elements)
    characters = None if left.characters is None or right.characters is None else max(left.characters, right.characters)
    return _Size(most=max(left.most, right.most), keys=keys, elements=elements, characters=characters)


def _sum(left: _Size, right: _Size) -> _Size:
    return replace(_either(left, right), most=left.most + right.most, characters=None)


def _insert(entries: _Size, key: _Size, value: _Size | None = None) -> _Size:
    return _sum(entries, key if value is None else _Size(most=1, keys=key, elements=value))


def _parts(text: _Size, *_: _Size) -> _Size:
    return _Size(most=text.most + 1, elements=_Size(most=text.most), characters=text.most)


def _join(parts: _Size, separator: _Size = _NONE) -> _Size:
    texts = parts.most * parts.of_elements.most if parts.characters is None else parts.characters
    return _Size(most=texts + parts.most * separator.most)


def _flatten(lists: _Size, *depth: _Size) -> _Size:
    inner = lists.of_elements
    return _UNKNOWN if depth else _Size(most=lists.most * max(1, inner.most), elements=inner.of_elements)


def _first(size: _Size, *_: _Size) -> _Size:
    return size


_RESULTS: Final[dict[str, Callable[..., _Size]]] = {
    **dict.fromkeys(
        ["lowerAscii", "upperAscii", "substring", "trim", "find", "charAt", "slice", "reverse", "distinct", "sort", "dyn"], _first
    ),
    **dict.fromkeys(["optional.of", "optional.ofNonZeroValue", "optional.unwrap", "unwrapOpt", "value"], _first),
    **dict.fromkeys(["_[_]", "_[?_]", "_?._", "first", "last", "min", "max"], lambda container, *_: container.of_elements),
    **dict.fromkeys(["or", "orValue"], _either),
    **dict.fromkeys(["split", "findAll"], _parts),
    **dict.fromkeys(["url", "getScheme", "getHost", "getHostname", "getPort"], _first),
    "getEscapedPath": lambda url: _Size(most=12 * url.most),
    "optional.none": lambda: _NONE,
    "@sortByAssociatedKeys": lambda _, items: items,
    "_?_:_": lambda _, chosen, otherwise: _either(chosen, otherwise),
    "_+_": _sum,
    "cel.@mapInsert": _insert,
    "flatten": _flatten,
    "join": _join,
    "replace": lambda text, _, new, *__: _Size(most=(text.most + 1) * (new.most + 1)),
    "bytes": lambda text: _Size(most=4 * text.most),
    "string": lambda value: _Size(most=max(_TEXT.most, value.most)),
    "strings.quote": lambda text: _Size(most=2 * text.most + 2),
}
"""The sizes of what functions return, by those of their arguments. Those of all others are unknown."""
