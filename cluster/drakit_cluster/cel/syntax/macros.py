"""The macros of CEL: calls that are rewritten while parsing.

These are the macros of Kubernetes' base environment: the standard ones, `optMap` and `optFlatMap` of optional values, `cel.bind`, `sortBy`,
and those with two variables.
"""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Call, Expr, Ident, ListExpr, Literal

ACCU: Final = "@result"
_SORT_INPUT: Final = "@__sortBy_input__"

Args = tuple[Expr, ...]
Expander = Callable[[int, Expr, Args], Expr]
"""Rewrites a call at an offset, from its receiver and arguments."""


def expand(offset: int, function: str, target: Expr | None, args: Args) -> Expr | None:
    """Return the expansion of a call; None if it is not a macro. Raises SourceError."""
    if target is None:
        return _has(offset, args[0]) if function == "has" and len(args) == 1 else None
    if function == "bind" and len(args) == 3 and isinstance(target, Ident) and target.name == "cel":
        return _bind(offset, _name(args[0]), args[1], args[2])
    expander = _MEMBERS.get((function, len(args)))
    return None if expander is None else expander(offset, target, args)


def _has(offset: int, operand: Expr) -> Expr:
    if not isinstance(operand, tree.Select) or operand.test_only:
        raise errors.SourceError("invalid argument to has() macro", operand.offset)
    return tree.Select(offset, operand.operand, operand.field, test_only=True)


def _bind(offset: int, name: str, value: Expr, result: Expr) -> Expr:
    """Return `cel.bind(name, value, result)`: a loop over an empty list, whose accumulator is the variable."""
    return tree.Comprehension(
        offset, ListExpr(offset, ()), "#unused", None, name, value, Literal(offset, False), Ident(offset, name), result
    )


def _name(argument: Expr) -> str:
    if not isinstance(argument, Ident) or argument.name.startswith("."):
        raise errors.SourceError("argument must be a simple name", argument.offset)
    return argument.name


def _loop(target: Expr, variables: Args, init: Expr, step: Expr, *, condition: Expr | None = None, result: Expr | None = None) -> Expr:
    """Return a loop over the target with one or two variables; by default it does not end early and returns its accumulator."""
    names = [_name(variable) for variable in variables]
    if ACCU in names:
        raise errors.SourceError("iteration variable overwrites accumulator variable", variables[0].offset)
    at = init.offset
    second = names[1] if len(names) > 1 else None
    return tree.Comprehension(at, target, names[0], second, ACCU, init, condition or Literal(at, True), step, result or Ident(at, ACCU))


def _quantifier(neutral: bool) -> Expander:  # noqa: FBT001 - the value that leaves the result open
    """Return `all` (true leaves the result open) or `exists` (false leaves it open). Both end at the first other value."""

    def expander(offset: int, target: Expr, args: Args) -> Expr:
        accu = Ident(offset, ACCU)
        still_open: Expr = Ident(offset, ACCU) if neutral else Call(offset, "!_", (Ident(offset, ACCU),))
        step = Call(offset, "_&&_" if neutral else "_||_", (accu, args[-1]))
        condition = Call(offset, "@not_strictly_false", (still_open,))
        return _loop(target, args[:-1], Literal(offset, neutral), step, condition=condition)

    return expander


def _exists_one(offset: int, target: Expr, args: Args) -> Expr:
    more = Call(offset, "_+_", (Ident(offset, ACCU), Literal(offset, 1)))
    result = Call(offset, "_==_", (Ident(offset, ACCU), Literal(offset, 1)))
    return _loop(target, args[:-1], Literal(offset, 0), _if(args[-1], more), result=result)


def _if(condition: Expr | None, step: Expr) -> Expr:
    """Return a step that is taken if the condition is true; without a condition, always."""
    offset = step.offset
    return step if condition is None else Call(offset, "_?_:_", (condition, step, Ident(offset, ACCU)))


def _collect(variables: int, *, filtering: bool = False) -> Expander:
    """Return `map`, `filter` or `transformList`: an optional condition comes between the variables and the collected expression."""

    def expander(offset: int, target: Expr, args: Args) -> Expr:
        keep = args[variables] if filtering or len(args) > variables + 1 else None
        element = Ident(offset, _name(args[0])) if filtering else args[-1]
        step = Call(offset, "_+_", (Ident(offset, ACCU), ListExpr(offset, (element,))))
        return _loop(target, args[:variables], ListExpr(offset, ()), _if(keep, step))

    return expander


def _insert(*, entries: bool) -> Expander:
    """Return `transformMap`, or `transformMapEntry` where each iteration returns a map of `entries`."""

    def expander(offset: int, target: Expr, args: Args) -> Expr:
        keep = args[2] if len(args) > 3 else None
        key: Args = () if entries else (Ident(offset, _name(args[0])),)
        step = Call(offset, "cel.@mapInsert", (Ident(offset, ACCU), *key, args[-1]))
        return _loop(target, args[:2], tree.MapExpr(offset, (), ()), _if(keep, step))

    return expander


def _opt_map(*, flat: bool) -> Expander:
    def expander(offset: int, target: Expr, args: Args) -> Expr:
        # The target is bound to a name first, so that it is evaluated once.
        name = _name(args[0])
        held = f"@{name}#target"
        inner = _bind(offset, name, Call(offset, "value", (), Ident(offset, held)), args[1])
        present = inner if flat else Call(offset, "optional.of", (inner,))
        has_value = Call(offset, "hasValue", (), Ident(offset, held))
        return _bind(offset, held, target, Call(offset, "_?_:_", (has_value, present, Call(offset, "optional.none", ()))))

    return expander


def _sort_by(offset: int, target: Expr, args: Args) -> Expr:
    keys = _collect(1)(offset, Ident(offset, _SORT_INPUT), args)
    return _bind(offset, _SORT_INPUT, target, Call(offset, "@sortByAssociatedKeys", (keys,), Ident(offset, _SORT_INPUT)))


_MEMBERS: Final[dict[tuple[str, int], Expander]] = {
    **dict.fromkeys([("all", 2), ("all", 3)], _quantifier(True)),
    **dict.fromkeys([("exists", 2), ("exists", 3)], _quantifier(False)),
    **dict.fromkeys([("exists_one", 2), ("exists_one", 3), ("existsOne", 3)], _exists_one),
    **dict.fromkeys([("map", 2), ("map", 3)], _collect(1)),
    ("filter", 2): _collect(1, filtering=True),
    **dict.fromkeys([("transformList", 3), ("transformList", 4)], _collect(2)),
    **dict.fromkeys([("transformMap", 3), ("transformMap", 4)], _insert(entries=False)),
    **dict.fromkeys([("transformMapEntry", 3), ("transformMapEntry", 4)], _insert(entries=True)),
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("sortBy", 2): _sort_by,
}
