"""One evaluation: what it may spend, the device it looks at, and the variables of its loops."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import equality

MISSING: Final = object()


class Frame:
    """The state of one evaluation, used by one thread."""

    __slots__ = ("cost", "device", "limit", "slots")

    def __init__(self, device: dict[str, Value], slots: int, limit: int) -> None:
        self.cost = 0
        self.device = device
        self.limit = limit
        self.slots: list[Value] = [None] * slots

    def afford(self) -> None:
        """Raise BudgetError once more is spent than allowed."""
        if self.cost > self.limit:
            raise errors.BudgetError


Run = Callable[[Frame], Value]
"""A compiled expression. Raises EvalError for CEL's errors and BudgetError."""


def qualify(value: Value, key: Value) -> Value:
    """`value[key]` or `value.key`. Raises EvalError when there is no such thing."""
    found = look_up(value, key)
    if found is not MISSING:
        return found
    if isinstance(value, (list, tuple)):
        raise errors.EvalError(f"index out of bounds: {key}")
    raise errors.EvalError(f"no such key: {key}")


def look_up(value: Value, key: Value) -> Value:
    """`value[key]`, MISSING if the value has nothing there."""
    if isinstance(value, values.DomainMap) and isinstance(key, str):
        return value[key]
    if isinstance(value, dict):
        found = equality.find(value, key)
        return MISSING if equality.is_missing(found) else found
    if isinstance(value, (list, tuple)):
        return _element(value, key)
    return MISSING


def _element(items: "list[Value] | tuple[Value, ...]", key: Value) -> Value:
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise errors.EvalError(f"unsupported index type '{equality.type_name(key)}' in list")
    return items[key] if 0 <= key < len(items) else MISSING


def has(value: Value, field: str) -> bool:
    """`has(value.field)`."""
    if isinstance(value, Optional):
        return value.present and has(value.value, field)
    return look_up(value, field) is not MISSING


def iterable(value: Value) -> "list[Value] | tuple[Value, ...] | dict[Value, Value]":
    """What a loop may go over. Raises EvalError for anything but lists and maps."""
    if isinstance(value, (list, tuple, dict)):
        return value
    raise errors.EvalError(f"got '{equality.go_name(value)}', expected iterable type")


def opened(value: Value) -> tuple[Value, bool]:
    """What an optional value holds (MISSING if nothing), and whether it was one."""
    if isinstance(value, Optional):
        return (value.value if value.present else MISSING), True
    return value, False


__all__ = ["MISSING", "NONE", "Frame", "Run", "has", "iterable", "look_up", "opened", "qualify"]
