"""Rules as values: a rule takes a value and its path, and yields failures. These functions build rules for objects from rules for their fields.

A list or map that is too large yields that failure alone: its members are not checked.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

Rule: TypeAlias = Callable[[Json, str], Iterator[Failure]]
NameRule: TypeAlias = Callable[[str, str], Iterator[Failure]]
Key: TypeAlias = Callable[[Json], str | tuple[str, ...]]


def by(*fields: str) -> Key:
    """Return the key function that gives the text of one field, or a tuple of the texts of several."""
    if len(fields) == 1:
        return lambda value: json_types.text(value, fields[0])
    return lambda value: tuple(json_types.text(value, field) for field in fields)


def any_name(_name: str, _path: str) -> Iterator[Failure]:
    """Accept every name."""
    return iter(())


def anything(_value: Json, _path: str) -> Iterator[Failure]:
    """Accept every value."""
    return iter(())


def all_of(*rules: Rule) -> Rule:
    """Return the rule that applies each of ``rules`` to the same object."""
    return lambda holder, path: (failed for rule in rules for failed in rule(holder, path))


def text(rule: NameRule, *fields: str) -> Rule:
    """Return the rule for fields that hold text; one that is absent is empty text."""
    return lambda holder, path: (failed for field in fields for failed in rule(json_types.text(holder, field), f"{path}.{field}"))


def if_set(rule: Rule, *fields: str) -> Rule:
    """Return the rule for fields that are checked only where they are set."""
    return lambda holder, path: (
        failed for field in fields if (value := json_types.at(holder, field)) is not None for failed in rule(value, f"{path}.{field}")
    )


def items(field: str, rule: Rule, *, limit: int = 0, key: Key | None = None) -> Rule:
    """Return the rule for the members of a list, of which no two may have the same ``key``. ``limit`` 0 is none."""
    return lambda holder, path: each(json_types.items(holder, field), f"{path}.{field}", rule, limit=limit, key=key)


def texts(field: str, rule: NameRule, *, limit: int = 0, unique: bool = False) -> Rule:
    """Return the rule for a list of strings."""
    return items(field, of_text(rule), limit=limit, key=_text if unique else None)


def entries(field: str, names: NameRule, rule: Rule = anything, *, limit: int = 0, shown: int) -> Rule:
    """Return the rule for a map: its keys fail at the map's own path, its values under the key, cut to ``shown`` bytes."""

    def check(holder: Json, path: str) -> Iterator[Failure]:
        fields, where = json_types.mapping(holder, field), f"{path}.{field}"
        if limit and len(fields) > limit:
            yield failure.too_many(where, len(fields), limit)
            return
        for key, value in fields.items():
            yield from names(key, where)
            yield from rule(value, f"{where}[{_shortened(key, shown)}]")

    return check


def word(field: str, allowed: tuple[str, ...], *, optional: bool = False) -> Rule:
    """Return the rule for a field that holds one of a set of words."""

    def check(holder: Json, path: str) -> Iterator[Failure]:
        value = json_types.text(holder, field)
        if not value and not optional:
            yield failure.required(f"{path}.{field}", f"one of {', '.join(allowed)}")
        elif value and value not in allowed:
            yield failure.not_supported(f"{path}.{field}", value, allowed)

    return check


def number(least: int, detail: str, *fields: str) -> Rule:
    """Return the rule for whole numbers that must be ``least`` or more; one that is absent is 0."""
    return lambda holder, path: (
        failure.invalid(f"{path}.{field}", value, detail) for field in fields if (value := json_types.number(holder, field)) < least
    )


def size(limit: int, *fields: str) -> Rule:
    """Return the rule for texts of at most ``limit`` bytes."""
    return lambda holder, path: (
        failure.too_long(f"{path}.{field}", limit) for field in fields if len(json_types.text(holder, field).encode()) > limit
    )


def of_text(rule: NameRule) -> Rule:
    """Return the rule for a value that is text; another value is empty text."""
    return lambda value, path: rule(_text(value), path)


def each(values: list[Json], path: str, rule: Rule, *, limit: int = 0, key: Key | None = None) -> Iterator[Failure]:
    """Yield the failures of a list's members, and of members whose ``key`` an earlier one has."""
    if limit and len(values) > limit:
        yield failure.too_many(path, len(values), limit)
        return
    for index, value in enumerate(values):
        yield from rule(value, f"{path}[{index}]")
    if key is not None:
        yield from duplicates([key(value) for value in values], path)


def duplicates(keys: Iterable[str | tuple[str, ...]], path: str) -> Iterator[Failure]:
    """Yield a failure for every key that occurred before."""
    seen = set[str | tuple[str, ...]]()
    for index, key in enumerate(keys):
        if key in seen:
            yield failure.duplicate(f"{path}[{index}]", key if isinstance(key, str) else "/".join(filter(None, key)))
        seen.add(key)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _shortened(key: str, limit: int) -> str:
    """Cut a key in the middle, as Kubernetes does in field paths."""
    raw = key.encode()
    if len(raw) <= limit:
        return key
    kept_bytes = limit - len("...")
    return f"{raw[: (kept_bytes + 1) // 2].decode(errors='replace')}...{raw[len(raw) - kept_bytes // 2 :].decode(errors='replace')}"
