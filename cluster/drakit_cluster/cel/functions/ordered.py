"""Quantities and semantic versions in CEL: what Kubernetes compares and adds."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import quantities, semver
from drakit_cluster.cel.functions.quantities import Amount
from drakit_cluster.cel.functions.semver import Semver


def to_quantity(text: Value) -> Amount:
    """`quantity(text)`. Raises EvalError."""
    try:
        return quantities.parse(_text(text))
    except ValueError as error:
        raise errors.EvalError(str(error)) from error


def to_semver(text: Value, normalize: Value = False) -> Semver:  # noqa: FBT002 - an argument of CEL
    """`semver(text, normalize)`. Raises EvalError."""
    if not isinstance(normalize, bool):
        raise errors.no_such_overload()
    try:
        return semver.parse(semver.normalize(_text(text)) if normalize else _text(text))
    except ValueError as error:
        raise errors.EvalError(str(error)) from error


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise errors.no_such_overload()
    return value


def _accepts(parse: Callable[..., Value]) -> Callable[..., bool]:
    def accepted(text: Value, *more: Value) -> bool:
        _text(text)
        try:
            parse(text, *more)
        except errors.EvalError:
            return False
        return True

    return accepted


def _compared(left: Value, right: Value) -> int:
    """-1, 0 or 1 for two quantities or two versions. Raises EvalError for anything else."""
    kind = type(left)
    if kind is not type(right) or kind not in (Amount, Semver):
        raise errors.no_such_overload()
    return int(left > right) - int(left < right)


def _amount(value: Value) -> Amount:
    if type(value) is int:
        return quantities.of_int(value)
    if not isinstance(value, Amount):
        raise errors.no_such_overload()
    return value


def _sum(sign: int) -> Callable[[Value, Value], Amount]:
    def added(left: Value, right: Value) -> Amount:
        if not isinstance(left, Amount):
            raise errors.no_such_overload()
        return left.plus(_amount(right), sign)

    return added


def _integer(value: Value) -> int:
    units = _quantity(value).integer
    if units is None:
        raise errors.EvalError("cannot convert value to integer")
    return units


def _quantity(value: Value) -> Amount:
    if not isinstance(value, Amount):
        raise errors.no_such_overload()
    return value


def _part(name: str) -> Callable[[Value], int]:
    def part(value: Value) -> int:
        if not isinstance(value, Semver):
            raise errors.no_such_overload()
        return int(getattr(value, name))

    return part


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "quantity": to_quantity,
    "isQuantity": _accepts(to_quantity),
    "semver": to_semver,
    "isSemver": _accepts(to_semver),
    "isGreaterThan": lambda left, right: _compared(left, right) > 0,
    "isLessThan": lambda left, right: _compared(left, right) < 0,
    "compareTo": _compared,
    "sign": lambda value: _quantity(value).sign,
    "asInteger": _integer,
    "isInteger": lambda value: _quantity(value).integer is not None,
    "asApproximateFloat": lambda value: _quantity(value).approximate(),
    "add": _sum(1),
    "sub": _sum(-1),
    "major": _part("major"),
    "minor": _part("minor"),
    "patch": _part("patch"),
}
