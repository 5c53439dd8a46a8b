"""Read fields of JSON that need not be valid: a value of another type counts as absent. The API server reports it."""

from collections.abc import Mapping, Sequence
from typing import Any

from drakit.core import records

Object = Mapping[str, Any]


def at(value: object, *keys: str) -> records.Json:
    """Return the value at a path of keys, None without one."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value  # type: ignore[return-value] # JSON


def mapping(value: object, *keys: str) -> Object:
    """Return the object at a path, an empty one without one."""
    found = at(value, *keys)
    return found if isinstance(found, Mapping) else {}


def text(value: object, *keys: str) -> str:
    """Return the text at a path, an empty one without one."""
    found = at(value, *keys)
    return found if isinstance(found, str) else ""


def objects(value: object, *keys: str) -> Sequence[Object]:
    """Return the objects of a list, with an empty one for each element that is none, so that indexes are those of the list."""
    found = at(value, *keys)
    return [element if isinstance(element, Mapping) else {} for element in found] if isinstance(found, list | tuple) else []


def texts(value: object, *keys: str) -> tuple[str, ...]:
    """Return the texts of a list."""
    found = at(value, *keys)
    return tuple(element for element in found if isinstance(element, str)) if isinstance(found, list | tuple) else ()
