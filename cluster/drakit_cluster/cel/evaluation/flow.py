"""Closures for calls, logic, literals and loops."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import paths, values
from drakit_cluster.cel.evaluation.paths import Frame, Run
from drakit_cluster.cel.evaluation.values import Optional, Value
from drakit_cluster.cel.functions import operators

_SIZED: frozenset[object] = frozenset({str, bytes, list, tuple, dict})
_CONTAINERS: frozenset[object] = frozenset({list, tuple, dict, values.DomainMap, Optional})
_PLAIN = re.compile(r"(?:_[<>]=?_|\.?[\w@.]+)\((?:(?:int|uint|double|bool|duration|quantity|semver|ip|cidr),?)*\)")
"""An overload that takes the same time for all arguments, because they have no size; but for that of `lists.range`."""
_RANGE = "lists.range"
_COMPARING = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
"""The functions that read no more of either value than the shorter one has."""
SEARCHING = frozenset({"@in", "indexOf", "lastIndexOf", "includes"})
"""The functions that compare every element of a list with a value, or look a key up in a map."""
_QUADRATIC = frozenset({"distinct", "sets.contains", "sets.equivalent", "sets.intersects"})
"""The functions that compare every element with every other one."""
_DEEP = _COMPARING | SEARCHING | _QUADRATIC
"""The functions that read lists in lists. One small list that contains another twice, and so on, stands for millions of elements."""
_UNIT = 10
"""The characters or elements that cost as much as a step."""


class Weight(NamedTuple):
    """The elements or characters of a value, and together with those of all lists and maps in it, each of which costs a step."""

    own: int
    deep: int

    @classmethod
    def of(cls, own: int, inside: int) -> "Weight":
        """Return the weight of a value with a number of elements inside of its own elements."""
        return cls(own, own + _UNIT * inside)


def call(function: str, overloads: tuple[str, ...], do: Callable[..., Value], args: list[Run]) -> Run:
    """Return a call. Arguments and results that have a size are charged by it, so that no expression takes long or grows large."""
    if function != _RANGE and all(map(_PLAIN.fullmatch, overloads)):
        return _plain(do, args)
    return _charged(do, args, charge(function), _weighing(function))


def _weighing(function: str) -> Callable[[Value, int], Weight]:
    if function == _RANGE:
        return _count
    if function in SEARCHING:
        return lambda value, most: _own_weight(value, most) if isinstance(value, dict) else _weight(value, most)
    return _weight if function in _DEEP else _own_weight


def charge(function: str) -> Callable[[list[Weight]], int]:
    """Return what a call costs beside its step, by the weights of its arguments; that of a range is its length."""
    if function == _RANGE:
        return lambda weights: weights[0].own
    if function in _QUADRATIC:
        return _of_pairs
    if function in _COMPARING:
        return lambda weights: min(weight.deep for weight in weights) // _UNIT
    if function in SEARCHING:
        return lambda weights: sum(weight.deep for weight in weights) // _UNIT
    return lambda weights: sum(weight.own for weight in weights) // _UNIT


def _of_pairs(weights: list[Weight]) -> int:
    """Return the number of pairs of elements, and what is read of lists in them: no more for each element than all others have."""
    elements, inside = max(weight.own for weight in weights), max(weight.deep - weight.own for weight in weights)
    return elements**2 + elements * inside // _UNIT


def made(size: int) -> int:
    """Return what a result costs, by its size."""
    return size // _UNIT


def _size(value: Value) -> int:
    return len(value) if value.__class__ in _SIZED else 0


def _own_weight(value: Value, _: int) -> Weight:
    size = _size(value)
    return Weight(size, size)


def _count(value: Value, _: int) -> Weight:
    """Return the number of elements that a range would have."""
    length = max(0, value) if isinstance(value, int) else 0
    return Weight(length, length)


def _weight(value: Value, most: int) -> Weight:
    """Return the weight of a value. Counting ends once it is above ``most``."""
    inside, waiting = 0, _containers_in(value)
    while waiting and inside <= most:
        container = waiting.pop()
        inside += 1 if container.__class__ is Optional else len(container)
        waiting += _containers_in(container)
    return Weight.of(_size(value), inside)


def _containers_in(value: Value) -> list[Value]:
    """Return the lists, maps and optional values directly inside a value."""
    if value.__class__ is Optional:
        content: Iterable[Value] = (value.value,) if value.present else ()
    elif value.__class__ in _CONTAINERS:
        content = value.values() if isinstance(value, dict) else value
    else:
        content = ()
    return [element for element in content if element.__class__ in _CONTAINERS]


def _plain(do: Callable[..., Value], args: list[Run]) -> Run:
    if len(args) == 2:
        left, right = args

        def run_two(frame: Frame) -> Value:
            first, second = left(frame), right(frame)
            frame.cost += 1
            return do(first, second)

        return run_two

    def run(frame: Frame) -> Value:
        arguments = [arg(frame) for arg in args]
        frame.cost += 1
        return do(*arguments)

    return run


def _charged(do: Callable[..., Value], args: list[Run], extra: Callable[[list[Weight]], int], weigh: Callable[[Value, int], Weight]) -> Run:
    def run(frame: Frame) -> Value:
        arguments = [arg(frame) for arg in args]
        most = frame.limit - frame.cost
        frame.cost += 1 + extra([weigh(argument, most) for argument in arguments])
        frame.afford()
        result = do(*arguments)
        frame.cost += made(_size(result))
        return result

    return run


def equals_text(left: Run, text: str) -> Run:
    """Return `left == "text"`, the commonest of all terms."""

    def run(frame: Frame) -> bool:
        value = left(frame)
        frame.cost += 1
        return bool(value == text) if type(value) is str else operators.equal(value, text)

    return run


def logic(terms: list[Run], *, decisive: bool) -> Run:
    """Return `&&` (False is decisive) or `||` (True is decisive). A decisive term decides; else the error of a failed term is raised."""
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
    """Return `condition ? chosen : otherwise`."""

    def run(frame: Frame) -> Value:
        value = condition(frame)
        if value is True:
            return chosen(frame)
        if value is False:
            return otherwise(frame)
        raise errors.no_such_overload()

    return run


def not_strictly_false(operand: Run) -> Run:
    """Return whether a loop of `all` or `exists` continues. Only false ends it; an error does not."""

    def run(frame: Frame) -> bool:
        frame.cost += 1
        try:
            return operand(frame) is not False
        except errors.EvalError:
            return True

    return run


def alternative(target: Run, other: Run, *, unwrap: bool) -> Run:
    """Return `optional.or(other)` and `optional.orValue(other)`; the alternative is evaluated only if needed."""

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
    """Return a list literal."""

    def run(frame: Frame) -> list[Value]:
        frame.cost += 1
        if not optional:
            return [element(frame) for element in elements]
        evaluated = [(element(frame), place in optional) for place, element in enumerate(elements)]
        return [value for pair in evaluated for value in _content(*pair)]

    return run


def _content(value: Value, optional: bool) -> tuple[Value, ...]:  # noqa: FBT001 - as it is marked in the literal
    """Return the content that an element adds: itself, or the value of an optional element."""
    if not optional:
        return (value,)
    if not isinstance(value, Optional):
        raise errors.EvalError("cannot initialize optional list element from non-optional value")
    return (value.value,) if value.present else ()


def make_map(keys: list[Run], value_runs: list[Run], optional: frozenset[int]) -> Run:
    """Return a map literal."""

    def run(frame: Frame) -> dict[Value, Value]:
        frame.cost += 1
        entries: dict[Value, Value] = {}
        for place, (key, value_run) in enumerate(zip(keys, value_runs, strict=True)):
            name, value = key(frame), value_run(frame)
            if not isinstance(name, (str, int)):
                raise errors.EvalError(f"unsupported key type: {operators.type_name(name)}")
            entries.update((name, content) for content in _content(value, place in optional))
        return entries

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop over a list or a map; `condition` is None if it always holds. Variables are numbers of slots."""

    over: Run
    accu: int
    first: int
    second: int | None
    condition: Run | None
    step: Run

    def closure(self, init: Run, result: Run) -> Run:

        def run(frame: Frame) -> Value:
            items = self.over(frame)
            if not isinstance(items, (list, tuple, dict)):
                raise errors.EvalError(f"got '{operators.go_name(items)}', expected iterable type")
            start = init(frame)
            slots = frame.slots
            slots[self.accu] = [] if start == [] else start
            if self.second is None:
                for item in items:
                    slots[self.first] = item
                    if not self._continue(frame):
                        break
            else:
                for key, item in items.items() if isinstance(items, dict) else enumerate(items):
                    slots[self.first], slots[self.second] = key, item
                    if not self._continue(frame):
                        break
            return result(frame)

        return run

    def _continue(self, frame: Frame) -> bool:
        """Take one step; return False once the condition is false. An error becomes the value so far."""
        if self.condition is not None and self.condition(frame) is False:
            return False
        try:
            frame.slots[self.accu] = self.step(frame)
        except errors.EvalError as error:
            frame.slots[self.accu] = error
        frame.afford()
        return True


def grow(accu: int, addition: Run) -> Run:
    """Return `accu + [element]` on a list that belongs to the loop."""
    read = paths.variable(accu)

    def run(frame: Frame) -> list[Value]:
        frame.cost += 1
        items: list[Value] = read(frame)
        items.extend(addition(frame))
        return items

    return run


def bind(slot: int, result: Run) -> Run:
    """Return `cel.bind`: the variable is unset first, so that every iteration of an enclosing loop evaluates it again."""

    def run(frame: Frame) -> Value:
        frame.slots[slot] = paths.UNSET
        return result(frame)

    return run
