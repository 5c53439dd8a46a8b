"""The type checker: a type for every node, the overloads of every call (CEL language definition, "Type checking")."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.syntax import parsing, syntax
from drakit_cluster.cel.syntax.syntax import Expr
from drakit_cluster.cel.types import celtypes, declarations, signatures, unify
from drakit_cluster.cel.types.celtypes import Kind, Type


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A tree whose types fit: types and overload ids by the number of the node, names that stand for types or variables."""

    root: Expr
    types: dict[int, Type]
    overloads: dict[int, tuple[str, ...]]
    names: dict[int, str]

    def type_of(self, expr: Expr) -> Type:
        return self.types[expr.number]


def check(source: str, root: Expr, environment: declarations.Environment) -> Checked:
    """Check the tree of `source`. Raises CompileError with every complaint."""
    checker = _Checker(environment)
    checker.check(root)
    if checker.complaints:
        found = sorted(set(checker.complaints))
        raise errors.CompileError("\n".join(parsing.located(source, offset, message) for offset, message in found))
    types = {number: unify.substitute(checker.bindings, value, unbound=celtypes.DYN) for number, value in checker.types.items()}
    return Checked(root=root, types=types, overloads=checker.overloads, names=checker.names)


class _Checker:
    def __init__(self, environment: declarations.Environment) -> None:
        self._environment = environment
        self._scopes: list[dict[str, Type]] = [environment.idents]
        self._fresh = itertools.count()
        self.bindings: unify.Bindings = {}
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[str, ...]] = {}
        self.names: dict[int, str] = {}
        self.complaints: list[tuple[int, str]] = []

    def check(self, expr: Expr) -> Type:
        found = _CHECKS[type(expr)](self, expr)
        self.types[expr.number] = found
        return found

    def complain(self, expr: Expr, message: str) -> Type:
        self.complaints.append((expr.offset, message))
        return celtypes.ERROR

    def literal(self, expr: syntax.Literal) -> Type:
        return _CONSTANTS[type(expr.value).__name__]

    def ident(self, expr: syntax.Ident) -> Type:
        found = self._lookup(expr.name)
        if found is None:
            return self.complain(expr, f"undeclared reference to '{expr.name}' (in container '')")
        self.names[expr.number] = expr.name.removeprefix(".")
        return found

    def _lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            return self._scopes[0].get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def select(self, expr: syntax.Select) -> Type:
        qualified = None if expr.test_only else syntax.qualified_name(expr)
        if qualified is not None and (found := self._lookup(qualified)) is not None:
            self.names[expr.number] = qualified
            return found
        operand = self.check(expr.operand)
        found = self._field(expr, operand, expr.field)
        return celtypes.BOOL if expr.test_only else found

    def _field(self, expr: Expr, operand: Type, field: str) -> Type:
        operand = unify.substitute(self.bindings, operand)
        held = celtypes.unwrap_optional(operand)
        if held is not None:
            return celtypes.optional_of(self._field_of(expr, unify.substitute(self.bindings, held), field))
        return self._field_of(expr, operand, field)

    def _field_of(self, expr: Expr, operand: Type, field: str) -> Type:
        if operand.kind is Kind.MAP:
            return operand.parameters[1]
        if operand == celtypes.DEVICE:
            found = self._environment.fields.get(field)
            return found if found is not None else self.complain(expr, f"undefined field '{field}'")
        if operand.kind is Kind.PARAM:
            self._fits(celtypes.DYN, operand)
            return celtypes.DYN
        if not operand.wild:
            self.complain(expr, f"type '{operand}' does not support field selection")
        return celtypes.DYN

    def call(self, expr: syntax.Call) -> Type:
        if expr.function == "_?._":
            return self._optional_select(expr)
        if expr.function in ("_&&_", "_||_"):
            return self._logical(expr)
        args = self._types_of(expr.args)
        target: Type | None = None
        function = expr.function.removeprefix(".")
        if expr.target is not None:
            qualified = syntax.qualified_name(expr.target)
            joined = f"{qualified}.{function}".removeprefix(".") if qualified else ""
            if joined in self._environment.functions:
                function = joined
                self.names[expr.number] = joined
            else:
                target = self.check(expr.target)
        return self._resolve(expr, function, args, target)

    def _types_of(self, args: tuple[Expr, ...]) -> list[Type]:
        return [self.check(arg) for arg in args]

    def _logical(self, expr: syntax.Call) -> Type:
        name = "logical_and" if expr.function == "_&&_" else "logical_or"
        self.overloads[expr.number] = (name,)
        for arg, found in zip(expr.args, self._types_of(expr.args), strict=True):
            if not self._fits(found, celtypes.BOOL):
                self._no_overload(expr, expr.function, None, [celtypes.BOOL, self._shown(self.types[arg.number])])
        return celtypes.BOOL

    def _optional_select(self, expr: syntax.Call) -> Type:
        operand, field = expr.args
        found = self.check(operand)
        self.check(field)
        name = str(field.value) if isinstance(field, syntax.Literal) else ""
        self.overloads[expr.number] = ("select_optional_field",)
        result = self._field(expr, found, name)
        return result if celtypes.unwrap_optional(result) is not None else celtypes.optional_of(result)

    def _resolve(self, expr: syntax.Call, function: str, args: list[Type], target: Type | None) -> Type:
        overloads = self._environment.functions.get(function)
        if overloads is None:
            return self.complain(expr, f"undeclared reference to '{function}' (in container '')")
        given = args if target is None else [target, *args]
        result: Type | None = None
        matched: list[str] = []
        for overload in overloads:
            if overload.member is (target is None):
                continue
            wanted, produced = self._instance(overload)
            extended = unify.assign_all(self.bindings, given, wanted)
            if extended is None:
                continue
            self.bindings = extended
            matched.append(overload.id)
            produced = unify.substitute(extended, produced)
            result = _merged(result, produced)
        if result is None:
            return self._no_overload(expr, function, target, [self._shown(arg) for arg in args])
        self.overloads[expr.number] = tuple(matched)
        return result

    def _no_overload(self, expr: Expr, function: str, target: Type | None, args: list[Type]) -> Type:
        shown = ", ".join(map(str, args))
        receiver = "" if target is None else f"{self._shown(target)}."
        return self.complain(expr, f"found no matching overload for '{function}' applied to '{receiver}({shown})'")

    def _shown(self, value: Type) -> Type:
        return unify.substitute(self.bindings, value, unbound=celtypes.DYN)

    def _instance(self, overload: signatures.Overload) -> tuple[tuple[Type, ...], Type]:
        """The overload's types with parameters of their own."""
        if not overload.params:
            return overload.args, overload.result
        fresh = {parameter: self._variable() for parameter in overload.params}
        return tuple(unify.substitute(fresh, arg) for arg in overload.args), unify.substitute(fresh, overload.result)

    def _variable(self) -> Type:
        return celtypes.param(f"_var{next(self._fresh)}")

    def _fits(self, given: Type, wanted: Type) -> bool:
        extended = unify.assign_all(self.bindings, (given,), (wanted,))
        if extended is None:
            return False
        self.bindings = extended
        return True

    def _join(self, previous: Type | None, current: Type) -> Type:
        """The type of an aggregate's elements so far; whether they are alike is for the validators to say."""
        if previous is None:
            return current
        if self._fits(previous, current):
            return unify.most_general(previous, current)
        return celtypes.DYN

    def _mismatch(self, expr: Expr, expected: Type, found: Type) -> Type:
        return self.complain(expr, f"expected type '{self._shown(expected)}' but found '{self._shown(found)}'")

    def _held(self, expr: Expr, found: Type) -> Type:
        """The type that an optional element or value contributes."""
        found = unify.substitute(self.bindings, found)
        held = celtypes.unwrap_optional(found)
        if held is not None:
            return held
        return found if found.wild else self._mismatch(expr, celtypes.optional_of(found), found)

    def list(self, expr: syntax.ListExpr) -> Type:
        joined: Type | None = None
        for position, element in enumerate(expr.elements):
            found = self.check(element)
            if position in expr.optional:
                found = self._held(element, found)
            joined = self._join(joined, found)
        return celtypes.list_of(self._variable() if joined is None else joined)

    def map(self, expr: syntax.MapExpr) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in expr.entries:
            key = self._join(key, self.check(entry.key))
            found = self.check(entry.value)
            value = self._join(value, self._held(entry.value, found) if entry.optional else found)
        return celtypes.map_of(key or self._variable(), value or self._variable())

    def struct(self, expr: syntax.StructExpr) -> Type:
        return self.complain(expr, f"undeclared reference to '{expr.name}' (in container '')")

    def comprehension(self, expr: syntax.Comprehension) -> Type:
        over = unify.substitute(self.bindings, self.check(expr.range))
        accu = self.check(expr.init)
        first, second = self._variables(expr, over)
        self._scopes.append({expr.accu: accu})
        self._scopes.append({expr.first: first} | ({expr.second: second} if expr.second is not None else {}))
        self._assert(expr.condition, self.check(expr.condition), celtypes.BOOL)
        self._assert(expr.step, self.check(expr.step), accu)
        self._scopes.pop()
        result = unify.substitute(self.bindings, self.check(expr.result))
        self._scopes.pop()
        return result

    def _assert(self, expr: Expr, found: Type, wanted: Type) -> None:
        if not self._fits(wanted, found):
            self._mismatch(expr, wanted, found)

    def _variables(self, expr: syntax.Comprehension, over: Type) -> tuple[Type, Type]:
        """The types of the loop's variables; the second counts only where the loop has two."""
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


def _merged(result: Type | None, produced: Type) -> Type:
    """The result type of overloads that all fit."""
    if result is None:
        return produced
    return result if result.wild or result == produced else celtypes.DYN


_CONSTANTS: Final = {
    "NoneType": celtypes.NULL,
    "bool": celtypes.BOOL,
    "int": celtypes.INT,
    "Uint": celtypes.UINT,
    "float": celtypes.DOUBLE,
    "str": celtypes.STRING,
    "bytes": celtypes.BYTES,
}
_CHECKS: Final[dict[type[Expr], Callable[[_Checker, Any], Type]]] = {
    syntax.Literal: _Checker.literal,
    syntax.Ident: _Checker.ident,
    syntax.Select: _Checker.select,
    syntax.Call: _Checker.call,
    syntax.ListExpr: _Checker.list,
    syntax.MapExpr: _Checker.map,
    syntax.StructExpr: _Checker.struct,
    syntax.Comprehension: _Checker.comprehension,
}
