"""One evaluation, and closures for paths: names, fields and indices, such as `device.attributes["d"].?model`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import operators
from drakit_cluster.cel.functions.operators import MISSING


class Frame:
    """The state of one evaluation, used by one thread: the device, the cost so far, and the variables of loops."""

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
UNSET: Final = object()
"""A variable of `cel.bind` that is not evaluated yet."""


def qualify(value: Value, key: Value) -> Value:
    """Return `value[key]` or `value.key`. Raises EvalError if there is no such element."""
    element = look_up(value, key)
    if element is MISSING:
        raise errors.EvalError(f"index out of bounds: {key}" if isinstance(value, (list, tuple)) else f"no such key: {key}")
    return element


def look_up(value: Value, key: Value) -> Value:
    """Return `value[key]`, MISSING if the value has no such element."""
    if isinstance(value, values.DomainMap) and isinstance(key, str):
        return value[key]
    if isinstance(value, dict):
        return operators.find(value, key)
    if not isinstance(value, (list, tuple)):
        return MISSING
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise errors.EvalError(f"unsupported index type '{operators.type_name(key)}' in list")
    return value[key] if 0 <= key < len(value) else MISSING


def _has(value: Value, field: str) -> bool:
    if isinstance(value, Optional):
        return value.present and _has(value.value, field)
    return look_up(value, field) is not MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One field or index: a constant, or computed where `run` is given. Optional with `?`."""

    key: Value = None
    run: Run | None = None
    optional: bool = False


def device(steps: list[Step]) -> Run:
    """Return a path from `device`."""
    if all(step.run is None and not step.optional and isinstance(step.key, str) for step in steps):
        return _plain(tuple(step.key for step in steps))
    return follow(lambda frame: frame.device, steps)


def _plain(keys: tuple[str, ...]) -> Run:
    cost = 1 + len(keys)

    def run(frame: Frame) -> Value:
        frame.cost += cost
        value: Value = frame.device
        try:
            for key in keys:
                value = value[key]
        except (KeyError, TypeError):
            value = frame.device
            for key in keys:
                value = qualify(value, key)
        return value

    return run


def follow(base: Run, steps: list[Step]) -> Run:
    """Return a path from any value. After an optional step, or from an optional value, a missing element makes the result absent."""
    cost = 1 + len(steps)

    def run(frame: Frame) -> Value:
        frame.cost += cost
        value = base(frame)
        optional = isinstance(value, Optional)
        if optional:
            if not value.present:
                return NONE
            value = value.value
        for step in steps:
            key = step.key if step.run is None else step.run(frame)
            optional = optional or step.optional
            value = look_up(value, key) if optional else qualify(value, key)
            if value is MISSING:
                return NONE
        return Optional.of(value) if optional else value

    return run


def has(operand: Run, field: str) -> Run:
    """Return `has(operand.field)`; the test itself is free."""
    return lambda frame: _has(operand(frame), field)


def variable(slot: int) -> Run:
    """Return a variable of a loop."""

    def run(frame: Frame) -> Value:
        value = frame.slots[slot]
        if type(value) is errors.EvalError:
            raise value
        return value

    return run


def bound(slot: int, init: Run) -> Run:
    """Return a variable of `cel.bind`, evaluated on first use."""
    read = variable(slot)

    def run(frame: Frame) -> Value:
        if frame.slots[slot] is UNSET:
            try:
                frame.slots[slot] = init(frame)
            except errors.EvalError as error:
                frame.slots[slot] = error
        return read(frame)

    return run


def charged(run: Run) -> Run:
    """Return a plain name, charged with one unit."""

    def named(frame: Frame) -> Value:
        frame.cost += 1
        return run(frame)

    return named


def membership(element: Run, items: list[Value]) -> Run:
    """Return `element in [constants]`; the search is free."""
    if all(isinstance(key, str) for key in items):
        words = frozenset(items)

        def among(frame: Frame) -> bool:
            value = element(frame)
            return isinstance(value, str) and value in words

        return among
    return lambda frame: operators.contains(items, element(frame))
