"""Functions on optional values; `or` and `orValue` also stand in the evaluator, which need not evaluate the alternative."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import lists

_ZEROS: Final[tuple[Value, ...]] = (None, False, 0, 0.0, "", b"", [], (), {}, NONE, values.Duration(0))


def checked(value: Value) -> Optional:
    """The value as an optional one. Raises EvalError if it is none."""
    if not isinstance(value, Optional):
        raise errors.no_such_overload()
    return value


def of_non_zero(value: Value) -> Optional:
    """`optional.ofNonZeroValue(value)`."""
    return NONE if any(type(value) is type(zero) and value == zero for zero in (*_ZEROS, values.Uint(0))) else Optional.of(value)


def value_of(value: Value) -> Value:
    """`optional.value()`."""
    if not checked(value).present:
        raise errors.EvalError("optional.none() dereference")
    return value.value


def unwrap(value: Value) -> list[Value]:
    """`optional.unwrap(list)`: the values of those that are present."""
    return [item.value for item in lists.checked(value) if checked(item).present]


def at_end(place: int) -> Callable[[Value], Optional]:
    """`list.first()` or `list.last()`."""

    def end(value: Value) -> Optional:
        items = lists.checked(value)
        return Optional.of(items[place]) if items else NONE

    return end


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "optional.of": Optional.of,
    "optional.ofNonZeroValue": of_non_zero,
    "optional.none": lambda: NONE,
    "optional.unwrap": unwrap,
    "unwrapOpt": unwrap,
    "hasValue": lambda value: checked(value).present,
    "value": value_of,
    "first": at_end(0),
    "last": at_end(-1),
}
