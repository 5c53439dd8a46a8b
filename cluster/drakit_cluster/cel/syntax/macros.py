"""The macros of CEL: calls that are rewritten while parsing.

The standard ones, optional values' `optMap` and `optFlatMap`, `cel.bind`, `sortBy`, and those with two variables, which are the
macros of Kubernetes' base environment.
"""

import itertools
from collections.abc import Callable
from typing import Any, Final, TypedDict

from drakit_cluster.cel.syntax import syntax
from drakit_cluster.cel.syntax.syntax import Expr

ACCU: Final = "@result"
UNUSED: Final = "#unused"
_SORT_INPUT: Final = "@__sortBy_input__"
_INSERT: Final = "cel.@mapInsert"


class MacroError(ValueError):
    """A macro was given something it cannot expand, at `offset`."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Place(TypedDict):
    """What tells a node from the others."""

    number: int
    offset: int


class Maker:
    """Makes nodes with numbers of their own, all at the offset of the call being expanded."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.offset = 0

    def place(self, offset: int | None = None) -> Place:
        """The number and the offset of a new node."""
        return Place(number=next(self._numbers), offset=self.offset if offset is None else offset)

    def literal(self, value: Any) -> Expr:
        return syntax.Literal(**self.place(), value=value)

    def ident(self, name: str) -> Expr:
        return syntax.Ident(**self.place(), name=name)

    def call(self, function: str, *args: Expr, target: Expr | None = None) -> Expr:
        return syntax.Call(**self.place(), function=function, args=args, target=target)

    def list(self, *elements: Expr) -> Expr:
        return syntax.ListExpr(**self.place(), elements=elements)

    def empty_map(self) -> Expr:
        return syntax.MapExpr(**self.place(), entries=())

    def loop(self, over: Expr, variables: tuple[str, str | None], parts: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """A loop; `parts` are init, condition, step and result."""
        init, condition, step, result = parts
        return syntax.Comprehension(
            **self.place(),
            range=over,
            first=variables[0],
            second=variables[1],
            accu=ACCU,
            init=init,
            condition=condition,
            step=step,
            result=result,
        )

    def bind(self, name: str, value: Expr, result: Expr) -> Expr:
        """`cel.bind(name, value, result)`."""
        return syntax.Comprehension(
            **self.place(),
            range=self.list(),
            first=UNUSED,
            second=None,
            accu=name,
            init=value,
            condition=self.literal(False),
            step=self.ident(name),
            result=result,
        )


Args = tuple[Expr, ...]
Expander = Callable[[Maker, Expr, Args], Expr]


def expand(maker: Maker, function: str, target: Expr | None, args: Args) -> Expr | None:
    """What the call is rewritten to, None if it is no macro. Raises MacroError."""
    if target is None:
        return _has(maker, args) if function == "has" and len(args) == 1 else None
    if function == "bind" and len(args) == 3 and _is_cel(target):
        return maker.bind(_name(args[0]), args[1], args[2])
    expander = _MEMBERS.get((function, len(args)))
    return None if expander is None else expander(maker, target, args)


def _is_cel(target: Expr) -> bool:
    return isinstance(target, syntax.Ident) and target.name == "cel"


def _name(argument: Expr) -> str:
    if not isinstance(argument, syntax.Ident) or argument.name.startswith("."):
        raise MacroError("argument must be a simple name", argument.offset)
    return argument.name


def _variables(args: Args, count: int) -> tuple[str, str | None]:
    names = [_name(argument) for argument in args[:count]]
    if ACCU in names:
        raise MacroError("iteration variable overwrites accumulator variable", args[0].offset)
    return names[0], names[1] if count > 1 else None


def _has(maker: Maker, args: Args) -> Expr:
    operand = args[0]
    if not isinstance(operand, syntax.Select) or operand.test_only:
        raise MacroError("invalid argument to has() macro", operand.offset)
    return syntax.Select(**maker.place(), operand=operand.operand, field=operand.field, test_only=True)


def _all(count: int) -> Expander:
    def expander(maker: Maker, target: Expr, args: Args) -> Expr:
        condition = maker.call("@not_strictly_false", maker.ident(ACCU))
        step = maker.call("_&&_", maker.ident(ACCU), args[count])
        parts = (maker.literal(True), condition, step, maker.ident(ACCU))
        return maker.loop(target, _variables(args, count), parts)

    return expander


def _exists(count: int) -> Expander:
    def expander(maker: Maker, target: Expr, args: Args) -> Expr:
        condition = maker.call("@not_strictly_false", maker.call("!_", maker.ident(ACCU)))
        step = maker.call("_||_", maker.ident(ACCU), args[count])
        parts = (maker.literal(False), condition, step, maker.ident(ACCU))
        return maker.loop(target, _variables(args, count), parts)

    return expander


def _exists_one(count: int) -> Expander:
    def expander(maker: Maker, target: Expr, args: Args) -> Expr:
        more = maker.call("_+_", maker.ident(ACCU), maker.literal(1))
        step = maker.call("_?_:_", args[count], more, maker.ident(ACCU))
        result = maker.call("_==_", maker.ident(ACCU), maker.literal(1))
        parts = (maker.literal(0), maker.literal(True), step, result)
        return maker.loop(target, _variables(args, count), parts)

    return expander


def _collect(maker: Maker, target: Expr, args: Args, count: int, *, keep: Expr | None, element: Expr) -> Expr:
    step = maker.call("_+_", maker.ident(ACCU), maker.list(element))
    if keep is not None:
        step = maker.call("_?_:_", keep, step, maker.ident(ACCU))
    parts = (maker.list(), maker.literal(True), step, maker.ident(ACCU))
    return maker.loop(target, _variables(args, count), parts)


def _map(maker: Maker, target: Expr, args: Args) -> Expr:
    keep = args[1] if len(args) > 2 else None
    return _collect(maker, target, args, 1, keep=keep, element=args[-1])


def _filter(maker: Maker, target: Expr, args: Args) -> Expr:
    return _collect(maker, target, args, 1, keep=args[1], element=maker.ident(_name(args[0])))


def _transform_list(maker: Maker, target: Expr, args: Args) -> Expr:
    return _collect(maker, target, args, 2, keep=_filter_of(args), element=args[-1])


def _filter_of(args: Args) -> Expr | None:
    return args[2] if len(args) > 3 else None


def _transform_map(maker: Maker, target: Expr, args: Args) -> Expr:
    return _insert(maker, target, args, (maker.ident(_name(args[0])), args[-1]))


def _transform_entry(maker: Maker, target: Expr, args: Args) -> Expr:
    return _insert(maker, target, args, (args[-1],))


def _insert(maker: Maker, target: Expr, args: Args, what: Args) -> Expr:
    step = maker.call(_INSERT, maker.ident(ACCU), *what)
    if (keep := _filter_of(args)) is not None:
        step = maker.call("_?_:_", keep, step, maker.ident(ACCU))
    parts = (maker.empty_map(), maker.literal(True), step, maker.ident(ACCU))
    return maker.loop(target, _variables(args, 2), parts)


def _opt_map(*, flat: bool) -> Expander:
    def expander(maker: Maker, target: Expr, args: Args) -> Expr:
        # The target is bound to a name first, so that it is evaluated once.
        name = _name(args[0])
        held = f"@{name}#target"
        inner = maker.bind(name, maker.call("value", target=maker.ident(held)), args[1])
        present = inner if flat else maker.call("optional.of", inner)
        chosen = maker.call("_?_:_", maker.call("hasValue", target=maker.ident(held)), present, maker.call("optional.none"))
        return maker.bind(held, target, chosen)

    return expander


def _sort_by(maker: Maker, target: Expr, args: Args) -> Expr:
    keys = _map(maker, maker.ident(_SORT_INPUT), args)
    ordered = maker.call("@sortByAssociatedKeys", keys, target=maker.ident(_SORT_INPUT))
    return maker.bind(_SORT_INPUT, target, ordered)


_MEMBERS: Final[dict[tuple[str, int], Expander]] = {
    ("all", 2): _all(1),
    ("all", 3): _all(2),
    ("exists", 2): _exists(1),
    ("exists", 3): _exists(2),
    ("exists_one", 2): _exists_one(1),
    ("exists_one", 3): _exists_one(2),
    ("existsOne", 3): _exists_one(2),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_entry,
    ("transformMapEntry", 4): _transform_entry,
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("sortBy", 2): _sort_by,
}
