"""A failure: which field breaks which kind of rule, in Kubernetes' words for the kinds; and one rule applied to every member of a list or map.

A list or map that is too large yields that failure alone: its members are not looked at.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from drakit_cluster.objects.json_types import Json, Object


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One broken rule. ``type`` is the reason of the metav1 cause, ``field`` the path, ``message`` what people read."""

    type: str
    field: str
    message: str


def required(field: str, detail: str = "") -> Failure:
    """Return the failure of a field that must be there."""
    return Failure(type="FieldValueRequired", field=field, message=_with("Required value", detail))


def invalid(field: str, value: Json, detail: str) -> Failure:
    """Return the failure of a value that breaks a rule."""
    return Failure(type="FieldValueInvalid", field=field, message=_with(f"Invalid value: {_show(value)}", detail))


def duplicate(field: str, value: Json) -> Failure:
    """Return the failure of a value that may occur only once."""
    return Failure(type="FieldValueDuplicate", field=field, message=f"Duplicate value: {_show(value)}")


def forbidden(field: str, detail: str) -> Failure:
    """Return the failure of a field that must not be set (here, or now)."""
    return Failure(type="FieldValueForbidden", field=field, message=f"Forbidden: {detail}")


def not_found(field: str, value: Json, detail: str) -> Failure:
    """Return the failure of a name that nothing has."""
    return Failure(type="FieldValueNotFound", field=field, message=f"Not found: {_show(value)}: {detail}")


def too_many(field: str, actual: int, limit: int) -> Failure:
    """Return the failure of a list that is too long."""
    message = f"Too many: {actual}: must have at most {limit} items"
    return Failure(type="FieldValueTooMany", field=field, message=message)


def too_long(field: str, limit: int) -> Failure:
    """Return the failure of a text or raw JSON of more than ``limit`` bytes."""
    return Failure(type="FieldValueTooLong", field=field, message=f"Too long: may not be more than {limit} bytes")


def not_supported(field: str, value: Json, allowed: tuple[str, ...]) -> Failure:
    """Return the failure of a word that is not in the set."""
    words = ", ".join(f'"{word}"' for word in allowed)
    message = f"Unsupported value: {_show(value)}: supported values: {words}"
    return Failure(type="FieldValueNotSupported", field=field, message=message)


def immutable(field: str, value: Json) -> Failure:
    """Return the failure of a change where none is allowed."""
    return invalid(field, value, "field is immutable")


def unchanged(field: str, new: Json, old: Json) -> list[Failure]:
    """Return the failure of an immutable field that differs."""
    return [] if new == old else [immutable(field, new)]


def _show(value: Json) -> str:
    return f"{json.dumps(value):.200}"


def _with(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


Rule: TypeAlias = Callable[[Json, str], Iterable[Failure]]
NameRule: TypeAlias = Callable[[str, str], Iterable[Failure]]
Key: TypeAlias = Callable[[Json], str | tuple[str, ...]]


def each_item(values: list[Json], path: str, rule: Rule, *, limit: int = 0, key: Key | None = None) -> Iterator[Failure]:
    """Yield the failures of a list's members, and of members whose ``key`` an earlier one has. ``limit`` 0 is none."""
    if limit and len(values) > limit:
        yield too_many(path, len(values), limit)
        return
    for index, value in enumerate(values):
        yield from rule(value, f"{path}[{index}]")
    if key is not None:
        yield from duplicates([key(value) for value in values], path)


def duplicates(keys: Iterable[str | tuple[str, ...]], path: str) -> Iterator[Failure]:
    """Yield a failure for every key that occurred before."""
    seen = set[str | tuple[str, ...]]()
    for index, one in enumerate(keys):
        if one in seen:
            yield duplicate(f"{path}[{index}]", one if isinstance(one, str) else "/".join(filter(None, one)))
        seen.add(one)


def each_name(values: list[Json], path: str, rule: NameRule, *, limit: int = 0, unique: bool = False) -> Iterator[Failure]:
    """Yield the failures of a list of strings."""

    def one(value: Json, where: str) -> Iterable[Failure]:
        return rule(_text(value), where)

    return each_item(values, path, one, limit=limit, key=_text if unique else None)


def each_entry(fields: Object, path: str, names: NameRule, rule: Rule, *, limit: int = 0, shown: int) -> Iterator[Failure]:
    """Yield the failures of a map: of its keys at the map's own path, of its values under the key, cut to ``shown`` bytes."""
    if limit and len(fields) > limit:
        yield too_many(path, len(fields), limit)
        return
    for key, value in fields.items():
        yield from names(key, path)
        yield from rule(value, f"{path}[{_shortened(key, shown)}]")


def anything(_value: Json, _path: str) -> Iterable[Failure]:
    """Accept every value."""
    return ()


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _shortened(key: str, most: int) -> str:
    """Cut a key in the middle, as Kubernetes does in field paths."""
    raw = key.encode()
    if len(raw) <= most:
        return key
    kept = most - len("...")
    return f"{raw[: (kept + 1) // 2].decode(errors='replace')}...{raw[len(raw) - kept // 2 :].decode(errors='replace')}"
