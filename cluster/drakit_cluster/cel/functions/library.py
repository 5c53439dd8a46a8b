"""The functions that expressions can call, by name."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import conversions, durations, formats, lists, network, operators, quantities, semver, strings
from drakit_cluster.cel.types import declarations
from drakit_cluster.cel.types.celtypes import Kind, Type

Function = Callable[..., Value]
_UNCHECKED: Final[dict[str, Function]] = {
    "size": len,
    "isGreaterThan": lambda left, right: left > right,
    "isLessThan": lambda left, right: left < right,
    "compareTo": lambda left, right: int(left > right) - int(left < right),
    **conversions.FUNCTIONS,
    **durations.FUNCTIONS,
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **quantities.FUNCTIONS,
    **semver.FUNCTIONS,
    **network.FUNCTIONS,
    **formats.FUNCTIONS,
}
_TYPE_NAMES: Final = {
    Kind.NULL: "null_type",
    Kind.DURATION: "google.protobuf.Duration",
    **dict.fromkeys((Kind.PARAM, Kind.DYN, Kind.ANY), ""),
}


def _name(declared: Type) -> str:
    """Return the type name of values of a declared type; "" for a type that every value has."""
    return _TYPE_NAMES.get(declared.kind, declared.name or declared.kind.value)


def _checked(name: str, function: Function) -> Function:
    """Return the function with a check that raises EvalError for values whose types no overload takes."""
    overloads = [tuple(map(_name, overload.args)) for overload in declarations.functions()[name]]
    accepted_by_kinds: dict[tuple[type, ...], bool] = {}

    def fits(kinds: tuple[type, ...]) -> bool:
        names = [next(operators.TYPE_NAMES[base] for base in kind.__mro__ if base in operators.TYPE_NAMES) for kind in kinds]
        return any(
            len(names) == len(params) and all(param in ("", name) for param, name in zip(params, names, strict=True))
            for params in overloads
        )

    def checked(*args: Value) -> Value:
        kinds = tuple(map(type, args))
        accepted = accepted_by_kinds.get(kinds)
        if accepted is None:
            accepted = accepted_by_kinds[kinds] = fits(kinds)
        if not accepted:
            raise errors.no_such_overload()
        return function(*args)

    return checked


FUNCTIONS: Final[dict[str, Function]] = {name: _checked(name, function) for name, function in _UNCHECKED.items()} | operators.FUNCTIONS
