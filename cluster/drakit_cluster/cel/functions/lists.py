"""Functions on lists and maps: cel-go's lists (version 3) and sets extensions, Kubernetes' lists, and what macros call."""

import functools
import itertools
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import equality, operators, strings

INCLUDES_MAX: Final = 48
"""How many values an attribute of a device may list (`ResourceSliceMaxAttributeValuesPerDevice`)."""
_RANGE_MAX: Final = 1_000_000
"""A longer range costs more than any expression may spend."""


def checked(value: Value) -> list[Value]:
    """The value as a list. Raises EvalError if it is none."""
    if not isinstance(value, (list, tuple)):
        raise errors.no_such_overload()
    return value  # type: ignore[return-value]  # A tuple is never changed here.


def is_sorted(value: Value) -> bool:
    """`list.isSorted()`."""
    items = checked(value)
    return all(equality.compare(one, other) <= 0 for one, other in itertools.pairwise(items))


def total(value: Value) -> Value:
    """`list.sum()`, 0 for the empty list."""
    items = checked(value)
    result = items[0] if items else 0
    if items and type(result) not in (int, values.Uint, float, values.Duration):
        raise errors.no_such_overload()
    for item in items[1:]:
        result = operators.add(result, item)
    return result


def _extreme(name: str, sign: int) -> Callable[[Value], Value]:
    def extreme(value: Value) -> Value:
        items = checked(value)
        if not items:
            raise errors.EvalError(f"{name} called on empty list")
        best = items[0]
        for item in items[1:]:
            if equality.compare(item, best) == sign:
                best = item
        return best

    return extreme


def index_of(target: Value, *args: Value) -> int:
    """`list.indexOf(value)` or `string.indexOf(part, start)`."""
    if isinstance(target, str):
        return int(strings.index_of(target, *args))
    return next((place for place, item in enumerate(checked(target)) if equality.same(item, args[0])), -1)


def last_index_of(target: Value, *args: Value) -> int:
    """`list.lastIndexOf(value)` or `string.lastIndexOf(part, start)`."""
    if isinstance(target, str):
        return int(strings.last_index_of(target, *args))
    items = checked(target)
    return next((place for place in reversed(range(len(items))) if equality.same(items[place], args[0])), -1)


def cut(value: Value, start: Value, end: Value) -> list[Value]:
    """`list.slice(start, end)`."""
    items = checked(value)
    if type(start) is not int or type(end) is not int:
        raise errors.no_such_overload()
    if start < 0 or end < 0:
        raise errors.EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise errors.EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise errors.EvalError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(value: Value, depth: Value = 1) -> list[Value]:
    """`list.flatten(depth)`: lists inside the list are replaced by their elements."""
    if type(depth) is not int:
        raise errors.no_such_overload()
    if depth < 0:
        raise errors.EvalError("level must be non-negative")
    flat = list(checked(value))
    for _ in range(depth):
        if not any(isinstance(item, (list, tuple)) for item in flat):
            break
        flat = [inner for item in flat for inner in (item if isinstance(item, (list, tuple)) else (item,))]
    return flat


def count_up(count: Value) -> list[Value]:
    """`lists.range(count)`. Raises BudgetError for a range that nobody may pay for."""
    if type(count) is not int:
        raise errors.no_such_overload()
    if count < 0:
        raise errors.EvalError(f"lists.range: size must be non-negative, got {count}")
    if count > _RANGE_MAX:
        raise errors.BudgetError
    return list(range(count))


def distinct(value: Value) -> list[Value]:
    """`list.distinct()`: the first of equal elements."""
    kept: list[Value] = []
    for item in checked(value):
        if not any(equality.same(item, known) for known in kept):
            kept.append(item)
    return kept


def sort_by(value: Value, keys: Value) -> list[Value]:
    """The elements in the order of their keys, which must be of one type and comparable."""
    items, ranks = checked(value), checked(keys)
    if len(items) != len(ranks):
        raise errors.EvalError("@sortByAssociatedKeys() expected a list of the same size as the associated keys list")
    if any(type(rank) is not type(ranks[0]) for rank in ranks):
        raise errors.EvalError("list elements must have the same type")
    by_rank = functools.cmp_to_key(equality.compare)
    places = sorted(range(len(items)), key=lambda place: by_rank(ranks[place]))
    return [items[place] for place in places]


def sets_contain(value: Value, part: Value) -> bool:
    """`sets.contains(list, part)`: every element of `part` is in the list."""
    items = checked(value)
    return all(equality.contains(items, item) for item in checked(part))


def sets_equivalent(value: Value, other: Value) -> bool:
    """`sets.equivalent(list, other)`: each contains the other."""
    return sets_contain(value, other) and sets_contain(other, value)


def sets_intersect(value: Value, other: Value) -> bool:
    """`sets.intersects(list, other)`: some element is in both."""
    items = checked(other)
    return any(equality.contains(items, item) for item in checked(value))


def includes(target: Value, value: Value) -> bool:
    """`target.includes(value)` for an attribute that is a list or a single value."""
    if not isinstance(target, (list, tuple)):
        return equality.same(target, value)
    for item in target[:INCLUDES_MAX]:
        if equality.same(item, value):
            return True
    if len(target) > INCLUDES_MAX:
        raise errors.EvalError(f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values")
    return False


def insert(mapping: Value, *what: Value) -> dict[Value, Value]:
    """A map with a key and its value more, or with those of another map; a key that is there is an error."""
    if not isinstance(mapping, dict):
        raise errors.no_such_overload()
    new = what[0] if len(what) == 1 else {what[0]: what[1]}
    if not isinstance(new, dict):
        raise errors.no_such_overload()
    for key in new:
        check_key(mapping, key)
    return {**mapping, **new}


def check_key(mapping: dict[Value, Value], key: Value) -> None:
    """Raise EvalError if the key is in the map or cannot be one."""
    if not isinstance(key, (bool, int, str)):
        raise errors.EvalError(f"unsupported key type: {equality.type_name(key)}")
    if not equality.is_missing(equality.find(mapping, key)):
        raise errors.EvalError(f"insert failed: key {key} already exists")


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "isSorted": is_sorted,
    "sum": total,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "slice": cut,
    "flatten": flatten,
    "lists.range": count_up,
    "reverse": lambda value: checked(value)[::-1],
    "distinct": distinct,
    "sort": lambda value: sort_by(value, value),
    "@sortByAssociatedKeys": sort_by,
    "sets.contains": sets_contain,
    "sets.equivalent": sets_equivalent,
    "sets.intersects": sets_intersect,
    "includes": includes,
    "cel.@mapInsert": insert,
}
