"""The tree of a CEL expression, after macros are expanded.

A node equals only itself, so that types and overloads can be stored by node. `offset` is its position in the text, in characters.
`&&` and `||` chains are one call with many arguments, so that a long chain is not a deep tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A node."""

    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expr):
    """A constant: None, bool, int, `values.Uint`, float, str or bytes."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Ident(Expr):
    """A name, with its leading dot if it has one."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Select(Expr):
    """`operand.field`, or `has(operand.field)` where `test_only`."""

    operand: Expr
    field: str
    test_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """A function call; operators are functions such as `_+_`. `target` is the receiver of a member call."""

    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ListExpr(Expr):
    """`[a, ?b]`; `optional` holds the positions marked with `?`."""

    elements: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class MapExpr(Expr):
    """`{key: value}`; `optional` holds the positions of entries marked with `?`."""

    keys: tuple[Expr, ...]
    values: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class StructExpr(Expr):
    """`name{field: value}`: parsed, so that the checker can report that no such type exists."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension(Expr):
    """A loop over `range`: `accu` starts as `init` and becomes `step` while `condition` holds; then `result`.

    With `second`, `first` is the index or key and `second` the element or value.
    """

    range: Expr
    first: str
    second: str | None
    accu: str
    init: Expr
    condition: Expr
    step: Expr
    result: Expr

    @property
    def is_bind(self) -> bool:
        """Whether the loop is a `cel.bind`: over an empty list, with a condition that never holds."""
        empty = isinstance(self.range, ListExpr) and not self.range.elements
        return empty and isinstance(self.condition, Literal) and self.condition.value is False


def qualified_name(expr: Expr) -> str | None:
    """Return `a.b.c` as a name if the expression consists only of names and dots."""
    fields: list[str] = []
    while isinstance(expr, Select) and not expr.test_only:
        fields.append(expr.field)
        expr = expr.operand
    return ".".join([expr.name, *reversed(fields)]) if isinstance(expr, Ident) else None


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the nodes directly below."""
    match expr:
        case Select(operand=operand):
            return (operand,)
        case Call(args=args, target=target):
            return args if target is None else (target, *args)
        case ListExpr(elements=elements):
            return elements
        case MapExpr(keys=keys, values=values):
            return tuple(node for entry in zip(keys, values, strict=True) for node in entry)
        case Comprehension():
            return (expr.range, expr.init, expr.condition, expr.step, expr.result)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node, parents first."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))
