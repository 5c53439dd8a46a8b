"""Checked tree to closures: compiled once, run for every device.

Constants are folded as Kubernetes folds them: literals of constants, conversions of constants, and `in` on constant lists. An
error during folding is a compile error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import flow, paths, values
from drakit_cluster.cel.evaluation.paths import Run
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions, library, strings
from drakit_cluster.cel.syntax import macros, tree
from drakit_cluster.cel.syntax.tree import Expr
from drakit_cluster.cel.types import checker

_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_INDEXING: Final = {"_[_]": False, "_[?_]": True, "_?._": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A closure, and its value if that is constant."""

    run: Run
    constant: bool = False
    value: Value = None


def constant(value: Value) -> Plan:
    """Return the plan of a constant, at no cost."""
    return Plan(run=lambda _: value, constant=True, value=value)


def build(checked: checker.Checked) -> tuple[Run, int]:
    """Return the closure of the whole tree, and the number of variables that it needs. Raises CompileError."""
    builder = _Builder(checked)
    try:
        plan = builder.plan(checked.root)
    except errors.EvalError as error:
        raise errors.CompileError(f"program instantiation failed: {error}") from error
    return plan.run, builder.slots


class _Builder:
    def __init__(self, checked: checker.Checked) -> None:
        self._checked = checked
        self._scopes: list[dict[str, Run]] = []
        self._lists: list[int | None] = []
        self.slots = 0

    def plan(self, expr: Expr) -> Plan:
        return _PLANS[type(expr)](self, expr)

    def run(self, expr: Expr) -> Run:
        return self.plan(expr).run

    def runs(self, exprs: tuple[Expr, ...]) -> list[Run]:
        return [self.plan(expr).run for expr in exprs]

    def literal(self, expr: tree.Literal) -> Plan:
        return constant(expr.value)

    def name(self, expr: Expr) -> Plan:
        """Return a plain name: `device`, a variable or a type."""
        base = self._named(expr)
        return base if base.constant else Plan(run=paths.charged(base.run))

    def _named(self, expr: Expr) -> Plan:
        name = self._checked.names[expr]
        for scope in reversed(self._scopes):
            if name in scope:
                return Plan(run=scope[name])
        if name == "device":
            return Plan(run=lambda frame: frame.device)
        return constant(values.TypeValue(name))

    def select(self, expr: tree.Select) -> Plan:
        if expr in self._checked.names:
            return self.name(expr)
        if expr.test_only:
            return Plan(run=paths.has(self.run(expr.operand), expr.field))
        return self._path(expr)

    def _path(self, expr: Expr) -> Plan:
        """Return one closure for a path of fields and indices, from the name or value that it starts with."""
        steps: list[paths.Step] = []
        while expr not in self._checked.names:
            if isinstance(expr, tree.Select) and not expr.test_only:
                steps.append(paths.Step(key=expr.field))
                expr = expr.operand
            elif isinstance(expr, tree.Call) and expr.function in _INDEXING:
                steps.append(self._step(expr))
                expr = expr.args[0]
            else:
                return Plan(run=paths.follow(self.run(expr), steps[::-1]))
        if self._checked.names[expr] == "device" and not self._shadowed("device"):
            return Plan(run=paths.device(steps[::-1]))
        return Plan(run=paths.follow(self._named(expr).run, steps[::-1]))

    def _shadowed(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _step(self, expr: tree.Call) -> paths.Step:
        key = self.plan(expr.args[1])
        optional = _INDEXING[expr.function]
        if key.constant:
            return paths.Step(key=key.value, optional=optional)
        return paths.Step(run=key.run, optional=optional)

    def call(self, expr: tree.Call) -> Plan:
        if expr.function in _INDEXING:
            return self._path(expr)
        special = _SPECIAL.get(expr.function)
        if special is not None:
            return special(self, expr)
        growth = self._growth(expr)
        if growth is not None:
            return Plan(run=growth)
        function = self._checked.names.get(expr, expr.function.removeprefix("."))
        args: list[Plan] = []
        if expr.target is not None and expr not in self._checked.names:
            args.append(self.plan(expr.target))
        args += [self.plan(arg) for arg in expr.args]
        return self._call(expr, function, args)

    def _call(self, expr: tree.Call, function: str, args: list[Plan]) -> Plan:
        if function in conversions.FUNCTIONS and args[0].constant:
            return constant(library.FUNCTIONS[function](args[0].value))
        if function in _PATTERNS and args[1].constant and isinstance(args[1].value, str):
            strings.pattern(args[1].value)
        overloads = self._checked.overloads[expr]
        if function == "_==_" and args[1].constant and isinstance(args[1].value, str):
            return Plan(run=flow.equals_text(args[0].run, args[1].value))
        return Plan(run=flow.call(function, overloads, library.FUNCTIONS[function], [arg.run for arg in args]))

    def membership(self, expr: tree.Call) -> Plan:
        element, container = self.plan(expr.args[0]), self.plan(expr.args[1])
        overloads = self._checked.overloads[expr]
        if overloads == ("@in(A,list(A))",) and container.constant:
            if not container.value:
                return constant(False)
            if all(isinstance(item, (bool, int, float, str, bytes)) for item in container.value):
                return Plan(run=paths.membership(element.run, container.value))
        return self._call(expr, expr.function, [element, container])

    def logic(self, expr: tree.Call) -> Plan:
        return Plan(run=flow.logic(self.runs(expr.args), decisive=expr.function == "_||_"))

    def conditional(self, expr: tree.Call) -> Plan:
        return Plan(run=flow.conditional(*self.runs(expr.args)))

    def not_strictly_false(self, expr: tree.Call) -> Plan:
        return Plan(run=flow.not_strictly_false(self.run(expr.args[0])))

    def alternative(self, expr: tree.Call) -> Plan:
        target = expr.target if expr.target is not None else expr.args[0]
        unwrap = expr.function == "orValue"
        return Plan(run=flow.alternative(self.run(target), self.run(expr.args[-1]), unwrap=unwrap))

    def list(self, expr: tree.ListExpr) -> Plan:
        plans = [self.plan(element) for element in expr.elements]
        if all(plan.constant for plan in plans) and not expr.optional:
            return constant([plan.value for plan in plans])
        return Plan(run=flow.make_list([plan.run for plan in plans], expr.optional))

    def map(self, expr: tree.MapExpr) -> Plan:
        keys, value_plans = [self.plan(key) for key in expr.keys], [self.plan(value) for value in expr.values]
        run = flow.make_map([plan.run for plan in keys], [plan.run for plan in value_plans], expr.optional)
        if all(plan.constant for plan in (*keys, *value_plans)) and not expr.optional:
            return constant(run(paths.Frame({}, 0, 0)))
        return Plan(run=run)

    def comprehension(self, expr: tree.Comprehension) -> Plan:
        if expr.is_bind:
            return self._bind(expr)
        over, init = self.run(expr.range), self.run(expr.init)
        accu, first = self._slot(), self._slot()
        self._scopes.append({expr.accu: paths.variable(accu)})
        inner = {expr.first: paths.variable(first)}
        second = self._slot() if expr.second is not None else None
        if expr.second is not None and second is not None:
            inner[expr.second] = paths.variable(second)
        self._scopes.append(inner)
        condition = None if isinstance(expr.condition, tree.Literal) else self.run(expr.condition)
        self._lists.append(accu if isinstance(expr.init, tree.ListExpr) else None)
        step = self.run(expr.step)
        self._lists.pop()
        self._scopes.pop()
        result = self.run(expr.result)
        self._scopes.pop()
        loop = flow.Loop(over=over, accu=accu, first=first, second=second, condition=condition, step=step)
        return Plan(run=loop.closure(init, result))

    def _growth(self, expr: tree.Call) -> Run | None:
        """Return the step of `map` and `filter`, which grows the loop's own list in place instead of copying it; None for other calls."""
        if expr.function != "_+_" or not self._lists or self._lists[-1] is None:
            return None
        left, right = expr.args
        if isinstance(left, tree.Ident) and left.name == macros.ACCU and isinstance(right, tree.ListExpr):
            return flow.grow(self._lists[-1], self.run(right))
        return None

    def _bind(self, expr: tree.Comprehension) -> Plan:
        slot = self._slot()
        init = self.run(expr.init)
        self._scopes.append({expr.accu: paths.bound(slot, init)})
        result = self.run(expr.result)
        self._scopes.pop()
        return Plan(run=flow.bind(slot, result))

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1


_PLANS: Final[dict[type[Expr], Callable[[_Builder, Any], Plan]]] = {
    tree.Literal: _Builder.literal,
    tree.Ident: _Builder.name,
    tree.Select: _Builder.select,
    tree.Call: _Builder.call,
    tree.ListExpr: _Builder.list,
    tree.MapExpr: _Builder.map,
    tree.Comprehension: _Builder.comprehension,
}
_SPECIAL: Final = {
    "_&&_": _Builder.logic,
    "_||_": _Builder.logic,
    "_?_:_": _Builder.conditional,
    "@not_strictly_false": _Builder.not_strictly_false,
    "@in": _Builder.membership,
    "or": _Builder.alternative,
    "orValue": _Builder.alternative,
}
