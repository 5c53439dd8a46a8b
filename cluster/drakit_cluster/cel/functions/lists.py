"""Functions on lists and maps: cel-go's lists (version 3) and sets extensions, Kubernetes' lists, and functions that macros call; also
functions on optional values. `or` and `orValue` are in the evaluator, because it need not evaluate the alternative.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import NONE, Optional, Value
from drakit_cluster.cel.functions import operators, strings

INCLUDES_MAX: Final = 48
"""The maximum number of values in a list attribute of a device (`ResourceSliceMaxAttributeValuesPerDevice`)."""
_SIZE_MAX: Final = 1_000_000
"""A longer list costs more than any expression may spend."""


def total(items: list[Value]) -> Value:
    """Return `list.sum()`, 0 for the empty list."""
    if items and type(items[0]) not in (int, values.Uint, float, values.Duration):
        raise errors.no_such_overload()
    return functools.reduce(operators.add, items) if items else 0


def _extreme(name: str, sign: int) -> Callable[[list[Value]], Value]:
    def extreme(items: list[Value]) -> Value:
        if not items:
            raise errors.EvalError(f"{name} called on empty list")
        return functools.reduce(lambda best, item: item if operators.compare(item, best) == sign else best, items)

    return extreme


def index_of(target: Value, *args: Value) -> int:
    """Return `list.indexOf(value)` or `string.indexOf(part, start)`."""
    if isinstance(target, str):
        return strings.index_of(target, *args)
    return next((place for place, item in enumerate(target) if operators.same(item, args[0])), -1)


def last_index_of(target: Value, *args: Value) -> int:
    """Return `list.lastIndexOf(value)` or `string.lastIndexOf(part, start)`."""
    if isinstance(target, str):
        return strings.last_index_of(target, *args)
    return next((place for place in reversed(range(len(target))) if operators.same(target[place], args[0])), -1)


def _slice(items: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise errors.EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise errors.EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise errors.EvalError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def flatten(items: list[Value], depth: int = 1) -> list[Value]:
    """Return `list.flatten(depth)`: lists inside the list are replaced by their elements."""
    if depth < 0:
        raise errors.EvalError("level must be non-negative")
    flat = list(items)
    for _ in range(depth):
        if not any(isinstance(item, (list, tuple)) for item in flat):
            break
        if sum(len(item) if isinstance(item, (list, tuple)) else 1 for item in flat) > _SIZE_MAX:
            raise errors.BudgetError
        flat = [inner for item in flat for inner in (item if isinstance(item, (list, tuple)) else (item,))]
    return flat


def count_up(count: int) -> list[Value]:
    """Return `lists.range(count)`. Raises BudgetError for a range that costs more than any limit."""
    if count < 0:
        raise errors.EvalError(f"lists.range: size must be non-negative, got {count}")
    if count > _SIZE_MAX:
        raise errors.BudgetError
    return list(range(count))


def distinct(items: list[Value]) -> list[Value]:
    """Return `list.distinct()`: the first of equal elements."""
    first_items: list[Value] = []
    for item in items:
        if not operators.contains(first_items, item):
            first_items.append(item)
    return first_items


def sort_by(items: list[Value], keys: list[Value]) -> list[Value]:
    """Return the elements in the order of their keys, which must be of one type and comparable."""
    if len(items) != len(keys):
        raise errors.EvalError("@sortByAssociatedKeys() expected a list of the same size as the associated keys list")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise errors.EvalError("list elements must have the same type")
    by_key = functools.cmp_to_key(operators.compare)
    return [items[place] for place in sorted(range(len(items)), key=lambda place: by_key(keys[place]))]


def _sets_contain(items: list[Value], part: list[Value]) -> bool:
    return all(operators.contains(items, item) for item in part)


def includes(target: Value, value: Value) -> bool:
    """Return `target.includes(value)` for an attribute that is a list or a single value."""
    if not isinstance(target, (list, tuple)):
        return operators.same(target, value)
    if operators.contains(target[:INCLUDES_MAX], value):
        return True
    if len(target) > INCLUDES_MAX:
        raise errors.EvalError(f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values")
    return False


def insert(mapping: dict[Value, Value], *what: Value) -> dict[Value, Value]:
    """Return the map with one more key and value, or with those of another map. An existing key is an error."""
    new = what[0] if len(what) == 1 else {what[0]: what[1]}
    for key in new:
        if not isinstance(key, (bool, int, str)):
            raise errors.EvalError(f"unsupported key type: {operators.type_name(key)}")
        if operators.find(mapping, key) is not operators.MISSING:
            raise errors.EvalError(f"insert failed: key {key} already exists")
    return {**mapping, **new}


_ZEROS: Final[tuple[Value, ...]] = (None, False, 0, values.Uint(0), 0.0, "", b"", [], (), {}, NONE, values.Duration(0))


def _of_non_zero(value: Value) -> Optional:
    return NONE if any(type(value) is type(zero) and value == zero for zero in _ZEROS) else Optional.of(value)


def _value_of(value: Optional) -> Value:
    if not value.present:
        raise errors.EvalError("optional.none() dereference")
    return value.value


def unwrap(items: list[Value]) -> list[Value]:
    """Return `optional.unwrap(list)`: the values of those that are present."""
    if not all(isinstance(element, Optional) for element in items):
        raise errors.no_such_overload()
    return [element.value for element in items if element.present]


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "isSorted": lambda items: all(operators.compare(left, right) <= 0 for left, right in itertools.pairwise(items)),
    "sum": total,
    "min": _extreme("min", -1),
    "max": _extreme("max", 1),
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "slice": _slice,
    "flatten": flatten,
    "lists.range": count_up,
    "reverse": lambda items: items[::-1],
    "distinct": distinct,
    "sort": lambda items: sort_by(items, items),
    "@sortByAssociatedKeys": sort_by,
    "sets.contains": _sets_contain,
    "sets.equivalent": lambda items, other: _sets_contain(items, other) and _sets_contain(other, items),
    "sets.intersects": lambda items, other: any(operators.contains(other, element) for element in items),
    "includes": includes,
    "cel.@mapInsert": insert,
    "optional.of": Optional.of,
    "optional.ofNonZeroValue": _of_non_zero,
    "optional.none": lambda: NONE,
    "optional.unwrap": unwrap,
    "unwrapOpt": unwrap,
    "hasValue": lambda value: value.present,
    "value": _value_of,
    "first": lambda items: Optional.of(items[0]) if items else NONE,
    "last": lambda items: Optional.of(items[-1]) if items else NONE,
}
