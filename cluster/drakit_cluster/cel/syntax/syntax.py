"""The tree of a CEL expression, after macros are expanded.

Nodes carry a number that is unique in their tree (types and overloads are kept by it) and the offset of their text.
`&&` and `||` chains are one call with many arguments, so that a long chain is not a deep tree.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Expr:
    """A node: `number` identifies it in its tree, `offset` is its place in the text, in characters."""

    number: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Expr):
    """A constant: None, bool, int, `values.Uint`, float, str or bytes."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ident(Expr):
    """A name; a leading dot is kept."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Select(Expr):
    """`operand.field`, or `has(operand.field)` where `test_only`."""

    operand: Expr
    field: str
    test_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expr):
    """A function call; operators are functions such as `_+_`. `target` is the receiver of a member call."""

    function: str
    args: tuple[Expr, ...]
    target: Expr | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListExpr(Expr):
    """`[a, ?b]`; `optional` holds the positions marked with `?`."""

    elements: tuple[Expr, ...]
    optional: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One `key: value` of a map literal, `?key: value` where `optional`."""

    key: Expr
    value: Expr
    optional: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapExpr(Expr):
    """`{key: value}`."""

    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StructExpr(Expr):
    """`name{field: value}`: parsed, so that the checker can say that no such type is to be had here."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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


def is_bind(expr: Comprehension) -> bool:
    """Whether the loop is a `cel.bind`: over an empty list, with a condition that never holds."""
    return (
        isinstance(expr.range, ListExpr)
        and not expr.range.elements
        and isinstance(expr.condition, Literal)
        and expr.condition.value is False
    )


def qualified_name(expr: Expr) -> str | None:
    """`a.b.c` as a name where the expression is nothing but names and dots."""
    fields: list[str] = []
    while isinstance(expr, Select) and not expr.test_only:
        fields.append(expr.field)
        expr = expr.operand
    if not isinstance(expr, Ident):
        return None
    return ".".join([expr.name, *reversed(fields)])


def children(expr: Expr) -> Iterator[Expr]:
    """The nodes directly below."""
    match expr:
        case Select():
            yield expr.operand
        case Call():
            if expr.target is not None:
                yield expr.target
            yield from expr.args
        case ListExpr():
            yield from expr.elements
        case MapExpr():
            for entry in expr.entries:
                yield entry.key
                yield entry.value
        case Comprehension():
            yield from (expr.range, expr.init, expr.condition, expr.step, expr.result)


def walk(expr: Expr) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """Every node, parents first, each with its ancestors, nearest last."""
    pending: list[tuple[Expr, tuple[Expr, ...]]] = [(expr, ())]
    while pending:
        node, ancestors = pending.pop()
        yield node, ancestors
        below = (*ancestors, node)
        pending.extend((child, below) for child in reversed(list(children(node))))
