"""Strict reading of nested plain values (YAML, JSON): every field is read by name and type, and an unread field is an error.

Used for mock machines and for their state. Errors are SettingsError with the path of the field, such as
``dgx-a100-40gb: gpus.boards[3].pciBusID``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from drakit.core import errors
from drakit.inputs import documents

Value = TypeVar("Value")

_WORDS: Mapping[type, str] = {str: "text", int: "a whole number", bool: "true or false", dict: "a mapping", list: "a list"}


class Table:
    """A mapping; ``path`` is its place in the document. ``close`` raises SettingsError for fields that were not read."""

    def __init__(self, values: object, path: str) -> None:
        if not isinstance(values, Mapping):
            raise errors.SettingsError(f"expected a mapping, got {_kind(values)}", key=path)
        self._values: dict[object, object] = dict(values)
        self.path = path

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def text(self, field: str) -> str:
        """Return a text that is not empty."""
        value = self._take(field, str)
        if not value:
            raise errors.SettingsError("must not be empty", key=self.at(field))
        return value

    def maybe_empty(self, field: str) -> str:
        """Return a text that may be empty."""
        return self._take(field, str)

    def integer(self, field: str, *, least: int = 0) -> int:
        """Return a whole number of at least ``least``."""
        value = self._take(field, int)
        if value < least:
            raise errors.SettingsError(f"{value} is below {least}", key=self.at(field))
        return value

    def flag(self, field: str) -> bool:
        """Return a truth value."""
        return self._take(field, bool)

    def choice(self, field: str, choices: Sequence[str]) -> str:
        """Return one of the known texts."""
        value = self._take(field, str)
        if value not in choices:
            raise errors.SettingsError(f"{value!r} is not one of {', '.join(choices)}", key=self.at(field))
        return value

    def table(self, field: str) -> "Table":
        """Return a nested mapping."""
        return Table(self._take(field, dict), self.at(field))

    def rows(self, field: str) -> tuple["Table", ...]:
        """Return a list of mappings."""
        values = self._take(field, list)
        return tuple(Table(row, f"{self.at(field)}[{index}]") for index, row in enumerate(values))

    def integers(self, field: str) -> tuple[int, ...]:
        """Return a list of whole numbers of at least 0."""
        values = self._take(field, list)
        for index, value in enumerate(values):
            if type(value) is not int or value < 0:
                raise errors.SettingsError(f"{value!r} is not a whole number of at least 0", key=f"{self.at(field)}[{index}]")
        return tuple(values)

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts that are not empty."""
        values = self._take(field, list)
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value:
                raise errors.SettingsError(f"{value!r} is not a text", key=f"{self.at(field)}[{index}]")
        return tuple(values)

    def anything(self, field: str) -> object:
        """Return a value of any kind, to be read by someone else."""
        return self._take(field, object)

    def optional(self, field: str, read: Callable[[str], Value]) -> Value | None:
        """Return what ``read`` gives for the field, or None when it is absent: ``row.optional("numaNode", row.integer)``."""
        return read(field) if field in self._values else None

    def close(self) -> None:
        """Raise SettingsError for a field that was not read."""
        for field in self._values:
            raise errors.SettingsError("unknown field", key=self.at(str(field)))

    def at(self, field: str) -> str:
        """Return the path of a field of this table."""
        return f"{self.path}{'' if self.path.endswith(': ') else '.'}{field}"

    def _take(self, field: str, kind: type[Value]) -> Value:
        if field not in self._values:
            raise errors.SettingsError("is missing", key=self.at(field))
        value = self._values.pop(field)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise errors.SettingsError(f"expected {_WORDS[kind]}, got {_kind(value)}", key=self.at(field))
        return value


def from_yaml(text: str, origin: str) -> Table:
    """Return the mapping that a YAML document holds, ``origin`` at the beginning of every path; raises SettingsError."""
    try:
        return Table(documents.load(text), f"{origin}: ")
    except documents.DocumentError as error:
        raise errors.SettingsError(f"is not YAML: {error}", key=origin) from error


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"[:80]
