"""JSON as Kubernetes sends it, and typed ways to read it.

Objects stay plain JSON inside the cluster; the accessors below replace chains of ``isinstance``. They never raise on a missing or
wrongly typed field: they return the empty value of the type asked for, as Go's zero values would.
"""

from collections.abc import Iterable
from typing import TypeAlias

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Object: TypeAlias = dict[str, Json]


def at(value: Json, *path: str | int) -> Json:
    """Return the value under ``path`` (field names and list positions), or None where any step is missing."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: Json, *path: str | int) -> str:
    """Return the string under ``path``, or ``""``."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Json, *path: str | int) -> int:
    """Return the integer under ``path``, or 0."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def mapping(value: Json, *path: str | int) -> Object:
    """Return the object under ``path`` itself (not a copy), or a new empty one."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def items(value: Json, *path: str | int) -> list[Json]:
    """Return the list under ``path`` itself (not a copy), or a new empty one."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def objects(value: Json, *path: str | int) -> list[Object]:
    """Return the objects of the list under ``path``; members of other types are left out."""
    return [item for item in items(value, *path) if isinstance(item, dict)]


def strings(value: Json, *path: str | int) -> list[str]:
    """Return the strings of the list under ``path``; members of other types are left out."""
    return [item for item in items(value, *path) if isinstance(item, str)]


def child(parent: Object, field: str) -> Object:
    """Return the object under ``field``, first putting an empty one there if there is none."""
    found = parent.get(field)
    if not isinstance(found, dict):
        found = {}
        parent[field] = found
    return found


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
