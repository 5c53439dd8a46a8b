"""Closures for calls, logic, literals and loops."""

import dataclasses
from collections.abc import Callable
from typing import NoReturn

from drakit_cluster.cel import errors
from drakit_cluster.cel.cost import charges
from drakit_cluster.cel.evaluation import evaluation, paths
from drakit_cluster.cel.evaluation.evaluation import Frame, Run
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import equality, lists


def call(function: str, overloads: tuple[str, ...], do: Callable[..., Value], args: list[Run]) -> Run:
    """A call, charged before it is made, so that one that fails costs as much; or after it, by its result."""
    by_result = charges.after(overloads)
    if by_result is not None:
        return _charged_by_result(do, args, by_result)
    charge = charges.equality if function == "_==_" else charges.before(function, overloads)
    if charge is charges.one:
        return _cheap(do, args)
    return _charged(do, args, charge)


def _cheap(do: Callable[..., Value], args: list[Run]) -> Run:
    if len(args) == 2:
        left, right = args

        def run_two(frame: Frame) -> Value:
            one, other = left(frame), right(frame)
            frame.cost += 1
            return do(one, other)

        return run_two

    def run(frame: Frame) -> Value:
        given = [arg(frame) for arg in args]
        frame.cost += 1
        return do(*given)

    return run


def _charged(do: Callable[..., Value], args: list[Run], charge: charges.Charge) -> Run:
    def run(frame: Frame) -> Value:
        given = [arg(frame) for arg in args]
        frame.cost += charge(*given)
        frame.afford()
        return do(*given)

    return run


def _charged_by_result(do: Callable[..., Value], args: list[Run], charge: charges.Charge) -> Run:
    def run(frame: Frame) -> Value:
        given = [arg(frame) for arg in args]
        result = do(*given)
        frame.cost += charge(result, *given)
        frame.afford()
        return result

    return run


def equals_text(left: Run, text: str) -> Run:
    """`left == "text"`, the commonest of all terms."""
    length = len(text)

    def run(frame: Frame) -> bool:
        value = left(frame)
        if type(value) is str:
            frame.cost += charges.reading(min(len(value), length))
            return bool(value == text)
        frame.cost += charges.equality(value, text)
        return equality.equal(value, text)

    return run


def conjunction(terms: list[Run]) -> Run:
    """`&&`: false if any term is, else an error if any term fails."""
    return _logic(terms, False)


def disjunction(terms: list[Run]) -> Run:
    """`||`: true if any term is, else an error if any term fails."""
    return _logic(terms, True)


def _logic(terms: list[Run], decisive: bool) -> Run:  # noqa: FBT001 - the value that decides
    neutral = not decisive

    def run(frame: Frame) -> bool:
        failure: errors.EvalError | None = None
        for term in terms:
            try:
                value = term(frame)
            except errors.EvalError as error:
                failure = failure or error
                continue
            if value is decisive:
                return not neutral
            if value is not neutral:
                failure = failure or errors.no_such_overload()
        if failure is not None:
            raise failure
        return neutral

    return run


def conditional(condition: Run, chosen: Run, otherwise: Run) -> Run:
    """`condition ? chosen : otherwise`."""

    def run(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return chosen(frame)
        if value is False:
            return otherwise(frame)
        raise errors.no_such_overload()

    return run


def not_strictly_false(operand: Run) -> Run:
    """Whether a loop of `all` or `exists` goes on: unless the value is false; an error does not end it."""

    def run(frame: Frame) -> bool:
        frame.cost += 1
        try:
            return operand(frame) is not False
        except errors.EvalError:
            return True

    return run


def alternative(target: Run, other: Run, *, unwrap: bool) -> Run:
    """`optional.or(other)` and `optional.orValue(other)`; the other one is evaluated only if needed."""

    def run(frame: Frame) -> Value:
        value = target(frame)
        if not isinstance(value, Optional):
            raise errors.no_such_overload()
        frame.cost += 1
        if value.present:
            return value.value if unwrap else value
        return other(frame)

    return run


def make_list(elements: list[Run], optional: frozenset[int]) -> Run:
    """A list literal."""

    def run(frame: Frame) -> list[Value]:
        frame.cost += charges.LIST
        if not optional:
            return [element(frame) for element in elements]
        made: list[Value] = []
        for place, element in enumerate(elements):
            value = element(frame)
            if place not in optional:
                made.append(value)
            elif not isinstance(value, Optional):
                _not_optional()
            elif value.present:
                made.append(value.value)
        return made

    return run


def _not_optional() -> NoReturn:
    raise errors.EvalError("cannot initialize optional list element from non-optional value")


def make_map(keys: list[Run], held: list[Run], optional: frozenset[int]) -> Run:
    """A map literal."""

    def run(frame: Frame) -> dict[Value, Value]:
        frame.cost += charges.MAP
        made: dict[Value, Value] = {}
        for place, (key, hold) in enumerate(zip(keys, held, strict=True)):
            name, value = key(frame), hold(frame)
            if not isinstance(name, (str, int)):
                raise errors.EvalError(f"unsupported key type: {equality.type_name(name)}")
            if place not in optional:
                made[name] = value
            elif not isinstance(value, Optional):
                _not_optional()
            elif value.present:
                made[name] = value.value
        return made

    return run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop over a list or a map; `condition` is None where it always holds. Variables are numbers of slots."""

    over: Run
    accu: int
    first: int
    second: int | None
    condition: Run | None
    step: Run

    def closure(self, init: Run, result: Run) -> Run:
        """The loop as a closure."""

        def run(frame: Frame) -> Value:
            items = evaluation.iterable(self.over(frame))
            start = init(frame)
            frame.slots[self.accu] = [] if start == [] else start
            if self.second is None:
                self._single(frame, items)
            else:
                self._double(frame, items, self.second)
            return result(frame)

        return run

    def _single(self, frame: Frame, items: "list[Value] | tuple[Value, ...] | dict[Value, Value]") -> None:
        for item in items:
            frame.slots[self.first] = item
            if not self._continue(frame):
                return

    def _double(self, frame: Frame, items: "list[Value] | tuple[Value, ...] | dict[Value, Value]", second: int) -> None:
        for key, value in items.items() if isinstance(items, dict) else enumerate(items):
            frame.slots[self.first] = key
            frame.slots[second] = value
            if not self._continue(frame):
                return

    def _continue(self, frame: Frame) -> bool:
        """Take one step; False once the condition says that the result stands. An error is kept as the value so far."""
        if self.condition is not None and self.condition(frame) is False:
            return False
        try:
            frame.slots[self.accu] = self.step(frame)
        except errors.EvalError as error:
            frame.slots[self.accu] = error
        if frame.cost > frame.limit:
            raise errors.BudgetError
        return True


def grow(accu: int, addition: Run) -> Run:
    """`accu + [element]` on a list that belongs to the loop."""
    read = paths.variable(accu)

    def run(frame: Frame) -> list[Value]:
        frame.cost += 2
        items = lists.checked(read(frame))
        items.extend(addition(frame))
        return items

    return run


def bind(slot: int, result: Run) -> Run:
    """`cel.bind`: the variable is forgotten first, so that it is evaluated anew in every turn of a loop around it."""

    def run(frame: Frame) -> Value:
        frame.slots[slot] = paths.UNSET
        return result(frame)

    return run


__all__ = [
    "NONE",
    "Loop",
    "alternative",
    "bind",
    "call",
    "conditional",
    "conjunction",
    "disjunction",
    "equals_text",
    "grow",
    "make_list",
    "make_map",
    "not_strictly_false",
]
