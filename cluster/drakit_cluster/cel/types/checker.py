"""The type checker: a type for every node, the overloads of every call (CEL language definition, "Type checking")."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.syntax import tree
from drakit_cluster.cel.syntax.tree import Expr
from drakit_cluster.cel.types import celtypes, declarations
from drakit_cluster.cel.types.celtypes import Kind, Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A tree that passed the type check: types and overload ids by node, and the names of types or variables."""

    root: Expr
    types: dict[Expr, Type]
    overloads: dict[Expr, tuple[str, ...]]
    names: dict[Expr, str]


def check(source: str, root: Expr, environment: declarations.Environment) -> Checked:
    """Check the tree of `source`. Raises CompileError with every complaint."""
    checker = _Checker(environment)
    checker.check(root)
    if checker.complaints:
        raise errors.at_places(source, checker.complaints)
    types = {node: celtypes.substitute(checker.bindings, value, unbound=celtypes.DYN) for node, value in checker.types.items()}
    return Checked(root=root, types=types, overloads=checker.overloads, names=checker.names)


class _Checker:
    def __init__(self, environment: declarations.Environment) -> None:
        self._environment = environment
        self._scopes: list[dict[str, Type]] = [environment.idents]
        self._fresh = itertools.count()
        self.bindings: celtypes.Bindings = {}
        self.types: dict[Expr, Type] = {}
        self.overloads: dict[Expr, tuple[str, ...]] = {}
        self.names: dict[Expr, str] = {}
        self.complaints: list[tuple[int, str]] = []

    def check(self, expr: Expr) -> Type:
        inferred = _CHECKS[type(expr)](self, expr)
        self.types[expr] = inferred
        return inferred

    def complain(self, expr: Expr, message: str) -> Type:
        self.complaints.append((expr.offset, message))
        return celtypes.ERROR

    def _undeclared(self, expr: Expr, name: str) -> Type:
        return self.complain(expr, f"undeclared reference to '{name}' (in container '')")

    def literal(self, expr: tree.Literal) -> Type:
        return _CONSTANTS[type(expr.value)]

    def ident(self, expr: tree.Ident) -> Type:
        declared = self._lookup(expr.name)
        if declared is None:
            return self._undeclared(expr, expr.name)
        self.names[expr] = expr.name.removeprefix(".")
        return declared

    def _lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            return self._scopes[0].get(name[1:])
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def select(self, expr: tree.Select) -> Type:
        qualified = None if expr.test_only else tree.qualified_name(expr)
        if qualified is not None and (selected := self._lookup(qualified)) is not None:
            self.names[expr] = qualified
            return selected
        operand = self.check(expr.operand)
        selected = self._field(expr, operand, expr.field)
        return celtypes.BOOL if expr.test_only else selected

    def _field(self, expr: Expr, operand: Type, field: str) -> Type:
        operand = celtypes.substitute(self.bindings, operand)
        inner = operand.optional_value
        if inner is not None:
            return celtypes.optional_of(self._field_of(expr, celtypes.substitute(self.bindings, inner), field))
        return self._field_of(expr, operand, field)

    def _field_of(self, expr: Expr, operand: Type, field: str) -> Type:
        if operand.kind is Kind.MAP:
            return operand.parameters[1]
        if operand == celtypes.DEVICE:
            return self._environment.fields.get(field) or self.complain(expr, f"undefined field '{field}'")
        if operand.kind is Kind.PARAM:
            self._fits(celtypes.DYN, operand)
            return celtypes.DYN
        if not operand.wild:
            self.complain(expr, f"type '{operand}' does not support field selection")
        return celtypes.DYN

    def call(self, expr: tree.Call) -> Type:
        if expr.function == "_?._":
            return self._optional_select(expr)
        if expr.function in ("_&&_", "_||_"):
            return self._logical(expr)
        args = [self.check(arg) for arg in expr.args]
        target: Type | None = None
        function = expr.function.removeprefix(".")
        if expr.target is not None:
            qualified = tree.qualified_name(expr.target)
            joined = f"{qualified}.{function}".removeprefix(".") if qualified else ""
            if joined in self._environment.functions:
                function = joined
                self.names[expr] = joined
            else:
                target = self.check(expr.target)
        return self._resolve(expr, function, args, target)

    def _logical(self, expr: tree.Call) -> Type:
        for arg in [self.check(arg) for arg in expr.args]:
            if not self._fits(arg, celtypes.BOOL):
                self._no_overload(expr, expr.function, None, [celtypes.BOOL, arg])
        return celtypes.BOOL

    def _optional_select(self, expr: tree.Call) -> Type:
        operand, field = expr.args
        operand_type = self.check(operand)
        self.check(field)
        name = str(field.value) if isinstance(field, tree.Literal) else ""
        result = self._field(expr, operand_type, name)
        return result if result.optional_value is not None else celtypes.optional_of(result)

    def _resolve(self, expr: tree.Call, function: str, args: list[Type], target: Type | None) -> Type:
        overloads = self._environment.functions.get(function)
        if overloads is None:
            return self._undeclared(expr, function)
        arg_types = args if target is None else [target, *args]
        result: Type | None = None
        matched: list[str] = []
        for overload in overloads:
            if overload.member is (target is None):
                continue
            param_types, produced = self._instance(overload)
            extended = celtypes.assign_all(self.bindings, arg_types, param_types)
            if extended is None:
                continue
            self.bindings = extended
            matched.append(overload.id)
            produced = celtypes.substitute(extended, produced)
            # If several overloads match, the result is their common type, or dyn.
            result = produced if result is None else result if result.wild or result == produced else celtypes.DYN
        if result is None:
            return self._no_overload(expr, function, target, args)
        self.overloads[expr] = tuple(matched)
        return result

    def _no_overload(self, expr: Expr, function: str, target: Type | None, args: list[Type]) -> Type:
        shown = ", ".join(str(self._shown(arg)) for arg in args)
        receiver = "" if target is None else f"{self._shown(target)}."
        return self.complain(expr, f"found no matching overload for '{function}' applied to '{receiver}({shown})'")

    def _shown(self, value: Type) -> Type:
        return celtypes.substitute(self.bindings, value, unbound=celtypes.DYN)

    def _instance(self, overload: declarations.Overload) -> tuple[tuple[Type, ...], Type]:
        """Return the overload's types with fresh type parameters."""
        if not overload.params:
            return overload.args, overload.result
        fresh = {parameter: self._variable() for parameter in overload.params}
        return tuple(celtypes.substitute(fresh, arg) for arg in overload.args), celtypes.substitute(fresh, overload.result)

    def _variable(self) -> Type:
        return celtypes.param(f"_var{next(self._fresh)}")

    def _fits(self, source: Type, target: Type) -> bool:
        extended = celtypes.assign_all(self.bindings, (source,), (target,))
        if extended is None:
            return False
        self.bindings = extended
        return True

    def _join(self, previous: Type | None, current: Type) -> Type:
        """Return the type of an aggregate's elements so far; the validators check whether they have one type."""
        if previous is None:
            return current
        if self._fits(previous, current):
            return celtypes.most_general(previous, current)
        return celtypes.DYN

    def _mismatch(self, expr: Expr, expected: Type, actual: Type) -> Type:
        return self.complain(expr, f"expected type '{self._shown(expected)}' but found '{self._shown(actual)}'")

    def _optional_content(self, expr: Expr, actual: Type) -> Type:
        """Return the type that an optional element or value contributes."""
        actual = celtypes.substitute(self.bindings, actual)
        if actual.optional_value is not None:
            return actual.optional_value
        return actual if actual.wild else self._mismatch(expr, celtypes.optional_of(actual), actual)

    def list(self, expr: tree.ListExpr) -> Type:
        joined: Type | None = None
        for position, element in enumerate(expr.elements):
            element_type = self.check(element)
            if position in expr.optional:
                element_type = self._optional_content(element, element_type)
            joined = self._join(joined, element_type)
        return celtypes.list_of(self._variable() if joined is None else joined)

    def map(self, expr: tree.MapExpr) -> Type:
        key: Type | None = None
        value: Type | None = None
        for position, (key_expr, value_expr) in enumerate(zip(expr.keys, expr.values, strict=True)):
            key = self._join(key, self.check(key_expr))
            value_type = self.check(value_expr)
            value = self._join(value, self._optional_content(value_expr, value_type) if position in expr.optional else value_type)
        return celtypes.map_of(key or self._variable(), value or self._variable())

    def struct(self, expr: tree.StructExpr) -> Type:
        return self._undeclared(expr, expr.name)

    def comprehension(self, expr: tree.Comprehension) -> Type:
        over = celtypes.substitute(self.bindings, self.check(expr.range))
        accu = self.check(expr.init)
        first, second = self._variables(expr, over)
        self._scopes.append({expr.accu: accu})
        self._scopes.append({expr.first: first} | ({expr.second: second} if expr.second is not None else {}))
        self._assert(expr.condition, self.check(expr.condition), celtypes.BOOL)
        self._assert(expr.step, self.check(expr.step), accu)
        self._scopes.pop()
        result = celtypes.substitute(self.bindings, self.check(expr.result))
        self._scopes.pop()
        return result

    def _assert(self, expr: Expr, actual: Type, expected: Type) -> None:
        if not self._fits(expected, actual):
            self._mismatch(expr, expected, actual)

    def _variables(self, expr: tree.Comprehension, over: Type) -> tuple[Type, Type]:
        """Return the types of the loop's variables; the second counts only where the loop has two."""
        two = expr.second is not None
        if over.kind is Kind.LIST:
            return (celtypes.INT, over.parameters[0]) if two else (over.parameters[0], celtypes.DYN)
        if over.kind is Kind.MAP:
            return over.parameters[0], over.parameters[1]
        if over.kind is Kind.PARAM:
            self._fits(celtypes.DYN, over)
        elif over.kind not in (Kind.DYN, Kind.ERROR):
            message = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
            return self.complain(expr.range, message), celtypes.ERROR
        return celtypes.DYN, celtypes.DYN


_CONSTANTS: Final = {
    type(None): celtypes.NULL,
    bool: celtypes.BOOL,
    int: celtypes.INT,
    values.Uint: celtypes.UINT,
    float: celtypes.DOUBLE,
    str: celtypes.STRING,
    bytes: celtypes.BYTES,
}
_CHECKS: Final[dict[type[Expr], Callable[[_Checker, Any], Type]]] = {
    tree.Literal: _Checker.literal,
    tree.Ident: _Checker.ident,
    tree.Select: _Checker.select,
    tree.Call: _Checker.call,
    tree.ListExpr: _Checker.list,
    tree.MapExpr: _Checker.map,
    tree.StructExpr: _Checker.struct,
    tree.Comprehension: _Checker.comprehension,
}
