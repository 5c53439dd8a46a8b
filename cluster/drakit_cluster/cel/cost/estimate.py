"""The worst-case cost of an expression, as Kubernetes estimates it when an object with a selector is created.

Source: cel-go's cost estimator, with the sizes that a device can have at most.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from drakit_cluster.cel.cost import bounds, charges, estimates
from drakit_cluster.cel.cost.bounds import ONE, UNKNOWN, ZERO, Range
from drakit_cluster.cel.cost.estimates import Node, Path
from drakit_cluster.cel.syntax import syntax
from drakit_cluster.cel.syntax.syntax import Expr
from drakit_cluster.cel.types import celtypes, checker
from drakit_cluster.cel.types.celtypes import Kind, Type

_FIXED_SIZE: Final = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})
_SELECTED: Final = frozenset({Kind.MAP, Kind.STRUCT, Kind.PARAM})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """What a list or map holds: sizes of its keys and of its values."""

    is_list: bool
    key: Range
    value: Range

    def union(self, other: "_Entries") -> "_Entries":
        return _Entries(is_list=self.is_list, key=self.key.union(other.key), value=self.value.union(other.value))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    path: Path
    size: Range | None = None
    entries: _Entries | None = None


def worst_case(checked: checker.Checked) -> int:
    """The most that the expression can cost."""
    return _Coster(checked).cost(checked.root).high


class _Coster:
    def __init__(self, checked: checker.Checked) -> None:
        self._checked = checked
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entries] = {}
        self._scopes: list[dict[str, _Variable]] = []

    def cost(self, expr: Expr) -> Range:
        return _COSTS[type(expr)](self, expr)

    def literal(self, _: syntax.Literal) -> Range:
        return ZERO

    def ident(self, expr: syntax.Ident) -> Range:
        known = self._variable(expr)
        self._paths[expr.number] = known.path if known is not None else (expr.name,)
        return ONE

    def select(self, expr: syntax.Select) -> Range:
        if expr.number in self._checked.names:
            return ONE
        total = self.cost(expr.operand)
        if expr.test_only:
            return total
        self._paths[expr.number] = self._extended(expr.operand, expr.field)
        return total + ONE if self._checked.type_of(expr.operand).kind in _SELECTED else total

    def _extended(self, expr: Expr, step: str) -> Path:
        """The path below an expression; below one without a path the step alone, which leads nowhere known."""
        return (*self._path(expr), step)

    def call(self, expr: syntax.Call) -> Range:
        if expr.function == "dyn" and expr.args:
            total = self.cost(expr.args[0])
            self._copy(expr, expr.args[0])
            return total + ONE
        costs = [self.cost(arg) for arg in expr.args]
        args = [self._node(arg) for arg in expr.args]
        target: Node | None = None
        total = ZERO
        if expr.target is not None and expr.number not in self._checked.names:
            total = self.cost(expr.target)
            target = self._node(expr.target)
        if expr.function in ("_&&_", "_||_"):
            return Range(costs[0].low, sum(costs, ZERO).high)
        overloads = self._checked.overloads[expr.number]
        found = self._overloads(expr, overloads, target, args, costs)
        return total + found

    def _overloads(self, expr: syntax.Call, overloads: tuple[str, ...], target: Node | None, args: list[Node], costs: list[Range]) -> Range:
        """The range that covers every overload that may be called."""
        function = self._checked.names.get(expr.number, expr.function)
        covered: Range | None = None
        size: Range | None = None
        for overload in overloads:
            if overload == "conditional":
                self._choice(expr)
                price = estimates.Price(costs[0] + costs[1].union(costs[2]), args[1].known.union(args[2].known))
            else:
                price = estimates.price(function, overload, target, args)
                price = dataclasses.replace(price, cost=price.cost + sum(costs, ZERO))
            covered = price.cost if covered is None else covered.union(price.cost)
            size = price.size if size is None else size.union(price.size or size)
            size = self._indexed(expr, overload, size)
            if overload in ("add_list", "add_string", "add_bytes"):
                self._join_entries(expr)
            size = self._size(expr) if size is None else size
        if size is not None:
            self._sizes[expr.number] = size
        return covered if covered is not None else ZERO

    def _indexed(self, expr: syntax.Call, overload: str, size: Range | None) -> Range | None:
        """Follow the path into a list or a map."""
        step = {"index_list": "@items", "index_map": "@values"}.get(overload)
        if step is None:
            return size
        self._paths[expr.number] = self._extended(expr.args[0], step)
        entries = self._entries_of(expr.args[0])
        return None if entries is None else entries.value

    def _choice(self, expr: syntax.Call) -> None:
        self._union_entries(expr, expr.args[1], expr.args[2])

    def _join_entries(self, expr: syntax.Call) -> None:
        self._union_entries(expr, expr.args[0], expr.args[1])

    def _union_entries(self, expr: Expr, one: Expr, other: Expr) -> None:
        first, second = self._entries_of(one), self._entries_of(other)
        if first is not None and second is not None:
            self._entries[expr.number] = first.union(second)

    def list(self, expr: syntax.ListExpr) -> Range:
        total = bounds.fixed(charges.LIST)
        held: Range | None = None
        for element in expr.elements:
            total += self.cost(element)
            size = self._size(element) or UNKNOWN
            held = size if held is None else held.union(size)
        self._entries[expr.number] = _Entries(is_list=True, key=ONE, value=held or ZERO)
        return total

    def map(self, expr: syntax.MapExpr) -> Range:
        total = bounds.fixed(charges.MAP)
        keys: Range | None = None
        held: Range | None = None
        for entry in expr.entries:
            total += self.cost(entry.key)
            total += self.cost(entry.value)
            key, value = self._size(entry.key) or UNKNOWN, self._size(entry.value) or UNKNOWN
            keys = key if keys is None else keys.union(key)
            held = value if held is None else held.union(value)
        self._entries[expr.number] = _Entries(is_list=False, key=keys or ZERO, value=held or ZERO)
        return total

    def comprehension(self, expr: syntax.Comprehension) -> Range:
        total = self.cost(expr.range) + self.cost(expr.init)
        bound = _Variable(path=self._path(expr.init), size=self._size(expr.init), entries=self._entries_of(expr.init))
        self._scopes.append({expr.accu: bound})
        if syntax.is_bind(expr):
            total += self.cost(expr.result)
            self._scopes.pop()
            self._copy(expr, expr.result)
            return total
        self._scopes.append(self._loop_variables(expr))
        turn = self.cost(expr.condition) + self.cost(expr.step)
        self._scopes.pop()
        total += self.cost(expr.result)
        self._scopes.pop()
        count = self._size(expr.range) or UNKNOWN
        self._outcome(expr, count)
        return total + count.times(turn)

    def _outcome(self, expr: syntax.Comprehension, count: Range) -> None:
        """The size of what the loop produces."""
        if isinstance(expr.init, syntax.Literal):
            self._sizes[expr.number] = self._size(expr.init) or UNKNOWN
        elif isinstance(expr.init, (syntax.ListExpr, syntax.MapExpr)):
            self._sizes[expr.number] = count
            held = self._entries_of(expr.step)
            if held is not None:
                self._entries[expr.number] = held

    def _loop_variables(self, expr: syntax.Comprehension) -> dict[str, _Variable]:
        entries = self._entries_of(expr.range)
        kind = self._checked.type_of(expr.range).kind
        is_list = entries.is_list if entries is not None else kind is Kind.LIST
        base = self._path(expr.range)
        key = _Variable(path=(*base, "@indices" if is_list else "@keys"), size=entries.key if entries else None)
        value = _Variable(path=(*base, "@items" if is_list else "@values"), size=entries.value if entries else None)
        if expr.second is not None:
            return {expr.first: key, expr.second: value}
        return {expr.first: value if is_list else key}

    def _variable(self, expr: Expr) -> _Variable | None:
        if isinstance(expr, syntax.Ident):
            for scope in reversed(self._scopes):
                if expr.name in scope:
                    return scope[expr.name]
        return None

    def _path(self, expr: Expr) -> Path:
        known = self._variable(expr)
        return known.path if known is not None else self._paths.get(expr.number, ())

    def _node(self, expr: Expr) -> Node:
        return Node(path=self._path(expr), type=self._checked.type_of(expr), expr=expr, size=self._size(expr))

    def _copy(self, expr: Expr, source: Expr) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self._sizes[expr.number] = size
        if entries is not None:
            self._entries[expr.number] = entries

    def _size(self, expr: Expr) -> Range | None:
        known = self._sizes.get(expr.number) or _literal_size(expr)
        if known is not None:
            return known
        known = estimates.device_size(self._path(expr))
        if known is not None:
            self._sizes[expr.number] = known
            return known
        if _fixed_size(self._checked.type_of(expr)):
            return ONE
        variable = self._variable(expr)
        return None if variable is None else variable.size

    def _entries_of(self, expr: Expr) -> _Entries | None:
        known = self._entries.get(expr.number)
        if known is not None:
            return known
        variable = self._variable(expr)
        return None if variable is None else variable.entries


def _literal_size(expr: Expr) -> Range | None:
    match expr:
        case syntax.Literal(value=str() | bytes() as text):
            return bounds.fixed(len(text))
        case syntax.Literal():
            return ONE
        case syntax.ListExpr(elements=held) | syntax.MapExpr(entries=held):
            return bounds.fixed(len(held))
        case _:
            return None


def _fixed_size(found: Type) -> bool:
    held = celtypes.unwrap_optional(found)
    return _fixed_size(held) if held is not None else found.kind in _FIXED_SIZE


_COSTS: Final[dict[type[Expr], Callable[[_Coster, Any], Range]]] = {
    syntax.Literal: _Coster.literal,
    syntax.Ident: _Coster.ident,
    syntax.Select: _Coster.select,
    syntax.Call: _Coster.call,
    syntax.ListExpr: _Coster.list,
    syntax.MapExpr: _Coster.map,
    syntax.Comprehension: _Coster.comprehension,
}
