"""Typed reading of the JSON objects that the journal keeps.

A key that is not known is passed over, because a newer version may have added it. A key that is missing gives its default; one of the wrong type
raises UnreadableError, whose message is the path of the field, for example ``grants[0].snapshot.taints[1].key``.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeVar

from drakit.core import records

Value = TypeVar("Value")
_COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class UnreadableError(Exception):
    """Stored text that does not say what this version can read; names the field."""


class Fields:
    """One JSON object and the path that leads to it."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise UnreadableError(f"{path}: not an object")
        self._value: Mapping[str, object] = value
        self.path = path

    @classmethod
    def parse(cls, text: str, path: str) -> "Fields":
        """The object that JSON text holds."""
        return cls(parse(text, path), path)

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def get(self, key: str) -> object:
        """The value as it is, None when missing."""
        return self._value.get(key)

    def text(self, key: str) -> str:
        """Text, empty when missing."""
        return self._of(str, key, "")

    def flag(self, key: str) -> bool:
        """A truth value, False when missing."""
        return self._of(bool, key, False)

    def whole(self, key: str) -> int | None:
        """A whole number, None when missing."""
        value = self._value.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._refusal(key, "not a whole number")

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty when missing."""
        return self.list_of(str, key)

    def text_map(self, key: str) -> Mapping[str, str]:
        """An object of texts, empty when missing."""
        inner = self.child(key)
        return {name: inner._of(str, name, "") for name in inner}  # noqa: SLF001 - a Fields of our own

    def list_of(self, kind: type[Value], key: str) -> tuple[Value, ...]:
        """A list whose items are all of one type, empty when missing; a truth value is no whole number."""
        items = self._of(list, key, [])
        for item in items:
            if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
                raise self._refusal(key, f"an item is not of type {kind.__name__}")
        return tuple(items)

    def child(self, key: str) -> "Fields":
        """An object, empty when missing."""
        return Fields(self._value.get(key, {}), f"{self.path}.{key}")

    def children(self, key: str) -> tuple["Fields", ...]:
        """A list of objects, empty when missing."""
        return tuple(Fields(item, f"{self.path}.{key}[{number}]") for number, item in enumerate(self._of(list, key, [])))

    def _of(self, kind: type[Value], key: str, default: Value) -> Value:
        value = self._value.get(key, default)
        if isinstance(value, kind):
            return value
        raise self._refusal(key, f"not of type {kind.__name__}")

    def _refusal(self, key: str, reason: str) -> UnreadableError:
        return UnreadableError(f"{self.path}.{key}: {reason}")


def parse(text: str, path: str) -> object:
    """A JSON value; raises UnreadableError for text that is not strict JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not JSON ({error})") from error


def record(text: str, path: str) -> records.Record:
    """A frozen JSON object."""
    value = parse(text, path)
    if not isinstance(value, dict):
        raise UnreadableError(f"{path}: not an object")
    return records.freeze_record(value)


def dump(value: object) -> str:
    """Compact JSON, ASCII only; raises ValueError for NaN and infinities, which JSON cannot express."""
    return _COMPACT.encode(value)


def compact(**values: object) -> dict[str, object]:
    """An object without the keys that would only repeat a default: None, False, empty text, empty lists and objects."""
    return {key: value for key, value in values.items() if value or (isinstance(value, int | float) and value is not False)}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
