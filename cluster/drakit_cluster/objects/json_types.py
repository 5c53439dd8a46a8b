"""JSON as Kubernetes sends it, and typed ways to read it.

Objects stay plain JSON inside the cluster; the accessors below replace chains of ``isinstance``. They never raise on a missing or
wrongly typed field: they return the empty value of the requested type, as Go's zero values would.
"""

import json
from collections.abc import Iterable
from typing import Never, TypeAlias

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Object: TypeAlias = dict[str, Json]


def parse(text: str | bytes) -> Json:
    """Return the value of a JSON document, read as Go does. Raises ValueError for anything else, RecursionError for one nested too deeply.

    NaN and Infinity are not JSON. An unpaired surrogate, which UTF-8 cannot encode, becomes U+FFFD.
    """
    value: Json = json.loads(text, parse_constant=_refuse)
    escaped = b"\\u" in text if isinstance(text, bytes) else "\\u" in text
    return without_unpaired_surrogates(value) if escaped else value


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not a JSON value")


def without_unpaired_surrogates(value: Json) -> Json:
    """Return a copy in which U+FFFD replaces every unpaired surrogate."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_unpaired_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {str(without_unpaired_surrogates(name)): without_unpaired_surrogates(item) for name, item in value.items()}
    return value


def at(value: Json, *path: str | int) -> Json:
    """Return the value under ``path`` (field names and list positions), or None if any step is missing."""
    return _follow(value, path)


def _follow(value: Json, path: tuple[str | int, ...]) -> Json:
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)  # type: ignore[arg-type]  # A position is never a field name, so get() returns None.
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: Json, *path: str | int) -> str:
    """Return the string under ``path``, or ``""``."""
    member = _follow(value, path)
    return member if isinstance(member, str) else ""


def number(value: Json, *path: str | int) -> int:
    """Return the integer under ``path``, or 0."""
    member = _follow(value, path)
    return member if isinstance(member, int) and not isinstance(member, bool) else 0


def mapping(value: Json, *path: str | int) -> Object:
    """Return the object under ``path`` itself (not a copy), or a new empty one."""
    member = _follow(value, path)
    return member if isinstance(member, dict) else {}


def items(value: Json, *path: str | int) -> list[Json]:
    """Return the list under ``path`` itself (not a copy), or a new empty one."""
    member = _follow(value, path)
    return member if isinstance(member, list) else []


def objects(value: Json, *path: str | int) -> list[Object]:
    """Return the objects of the list under ``path``; members of other types are left out."""
    return [element for element in items(value, *path) if isinstance(element, dict)]


def strings(value: Json, *path: str | int) -> list[str]:
    """Return the strings of the list under ``path``; members of other types are left out."""
    return [element for element in items(value, *path) if isinstance(element, str)]


def child(parent: Object, field: str) -> Object:
    """Return the object under ``field``; add an empty one first if the field holds none."""
    member = parent.get(field)
    if not isinstance(member, dict):
        member = {}
        parent[field] = member
    return member


def copy(value: Json) -> Json:
    """Return a deep copy of any JSON value."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def copy_object(value: Object) -> Object:
    """Return a deep copy of an object."""
    return {key: copy(item) for key, item in value.items()}


def from_strings(values: Iterable[str]) -> list[Json]:
    """Return strings as a JSON list (lists are invariant, so ``list[str]`` is not one)."""
    return list(values)


def from_objects(values: Iterable[Object]) -> list[Json]:
    """Return objects as a JSON list."""
    return list(values)
