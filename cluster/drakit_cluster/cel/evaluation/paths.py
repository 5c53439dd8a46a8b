"""Closures for paths: names, fields and indices, such as `device.attributes["d"].?model`."""

import dataclasses
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import evaluation
from drakit_cluster.cel.evaluation.evaluation import MISSING, Frame, Run
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import equality

UNSET: Final = object()
"""A variable of `cel.bind` that nobody has asked for yet."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One field or index: a constant, or computed where `run` is given. Optional with `?`.

    `cost` is 0 for an index that is itself a path, which is charged for as one already.
    """

    key: Value = None
    run: Run | None = None
    optional: bool = False
    cost: int = 1


def device(steps: list[Step]) -> Run:
    """A path from `device`."""
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
            return _slowly(frame.device, keys)
        return value

    return run


def _slowly(value: Value, keys: tuple[str, ...]) -> Value:
    for key in keys:
        value = evaluation.qualify(value, key)
    return value


def follow(base: Run, steps: list[Step]) -> Run:
    """A path from any value. After an optional step, or from an optional value, what is missing makes the whole absent."""

    def run(frame: Frame) -> Value:
        frame.cost += 1
        value, optional = evaluation.opened(base(frame))
        if value is MISSING:
            return NONE
        for step in steps:
            key = step.key if step.run is None else step.run(frame)
            optional = optional or step.optional
            value = evaluation.look_up(value, key) if optional else evaluation.qualify(value, key)
            if value is MISSING:
                return NONE
            frame.cost += step.cost
        return Optional.of(value) if optional else value

    return run


def has(operand: Run, field: str) -> Run:
    """`has(operand.field)`; the test itself is free."""
    return lambda frame: evaluation.has(operand(frame), field)


def variable(slot: int) -> Run:
    """A variable of a loop."""

    def run(frame: Frame) -> Value:
        value = frame.slots[slot]
        if type(value) is errors.EvalError:
            raise value
        return value

    return run


def bound(slot: int, init: Run) -> Run:
    """A variable of `cel.bind`, evaluated when it is first asked for."""

    def run(frame: Frame) -> Value:
        value = frame.slots[slot]
        if value is UNSET:
            try:
                value = init(frame)
            except errors.EvalError as error:
                value = error
            frame.slots[slot] = value
        if type(value) is errors.EvalError:
            raise value
        return value

    return run


def charged(run: Run) -> Run:
    """A name alone: one unit."""

    def named(frame: Frame) -> Value:
        frame.cost += 1
        return run(frame)

    return named


def membership(element: Run, items: list[Value]) -> Run:
    """`element in [constants]`; the search is free."""
    if all(isinstance(item, str) for item in items):
        words = frozenset(items)

        def among(frame: Frame) -> bool:
            value = element(frame)
            return isinstance(value, str) and value in words

        return among
    return lambda frame: equality.contains(items, element(frame))
