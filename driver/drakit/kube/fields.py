"""Parse JSON from the API server and read its fields; every error names the path of the field.

Objects may be hostile: the API server stores objects that are nested thousands of levels deep, and numbers of thousands of digits, which Python does
not parse. A value that is nested too deep becomes null, and a number that is too long becomes text, so that its decoder refuses that one object and
the other objects of a list are read.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Self

from drakit.core import errors, quantity, records

DEPTH_MAX = 128
"""Deeper than ``core.records`` takes: what is cut here is refused by the decoder of its object and never taken for the whole."""
DIGITS_MAX = 4000
# Possessive, and with an optional end, so that a string is scanned once: a string without an end is one token too.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)

UNREADABLE = (errors.DrakitError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What decoding one object may raise. Whoever decodes a list catches it item by item, so that one object never hides the others."""


class Field:
    """A JSON value and its path from the object's root; ``value`` is None when the field is absent or null.

    Each accessor raises ConfigError naming the path when the value is of another kind. The path is put together when somebody asks: every claim has
    dozens of fields, and almost none of them an error.
    """

    __slots__ = ("_above", "_step", "value")

    def __init__(self, value: records.Json, path: str = "", above: "Field | None" = None) -> None:
        self.value = value
        self._step = path
        self._above = above

    @property
    def path(self) -> str:
        """Where the field is, such as ``status.allocation.devices.results[0].driver``."""
        return self._step if self._above is None else errors.join_path(self._above.path, self._step)

    def __getitem__(self, key: str) -> "Field":
        """A field of an object; reading from an absent object gives an absent field."""
        inside = self.value
        if inside is None:
            return Field(None, key, self)
        return Field(inside.get(key) if type(inside) is dict else self.object().get(key), key, self)

    def __bool__(self) -> bool:
        """Whether the field is there."""
        return self.value is not None

    def text(self) -> str:
        """Text that is not empty."""
        if isinstance(self.value, str) and self.value:
            return self.value
        raise self._error("is missing" if self.value in (None, "") else f"must be text, not {self._kind()}")

    def text_or_empty(self) -> str:
        """Text, empty when absent."""
        return self.text() if self.value not in (None, "") else ""

    def integer(self) -> int:
        """A whole number."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        raise self._error("is missing" if self.value is None else f"must be a whole number, not {self._kind()}")

    def flag(self) -> bool:
        """A truth value, false when absent."""
        if self.value is None or isinstance(self.value, bool):
            return bool(self.value)
        raise self._error(f"must be true or false, not {self._kind()}")

    def amount(self) -> quantity.Quantity:
        """A quantity, which JSON may carry as text or as a whole number."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return quantity.Quantity.of(self.value)
        try:
            return quantity.Quantity.parse(self.text())
        except errors.QuantityError as error:
            raise self._error(error.reason) from error

    def object(self) -> records.Record:
        """A JSON object."""
        if isinstance(self.value, Mapping):
            return self.value
        raise self._error("is missing" if self.value is None else f"must be an object, not {self._kind()}")

    def items(self) -> Iterator[tuple[str, "Field"]]:
        """The entries of an object; none when absent."""
        if self.value is None:
            return
        for key, value in self.object().items():
            yield key, Field(value, f"[{key}]", self)

    def each(self) -> Iterator["Field"]:
        """The elements of a list; none when absent."""
        if self.value is None:
            return
        if not isinstance(self.value, list | tuple):
            raise self._error(f"must be a list, not {self._kind()}")
        for index, value in enumerate(self.value):
            yield Field(value, f"[{index}]", self)

    def texts(self) -> tuple[str, ...]:
        """A list of texts, none of them empty; an empty tuple when absent."""
        return () if self.value is None else tuple(element.text() for element in self.each())

    def only_in(self, *allowed: str) -> Self:
        """The same field, after checking that it is text and one of those allowed."""
        if self.text() not in allowed:
            raise self._error(f"is {self.value!r}, and must be {' or '.join(allowed)}")
        return self

    def metadata_text(self, key: str) -> str:
        """A text of an object's metadata; empty where there is none, of whatever kind the object is."""
        metadata = self.value.get("metadata") if isinstance(self.value, Mapping) else None
        text = metadata.get(key) if isinstance(metadata, Mapping) else None
        return text if isinstance(text, str) else ""

    def name(self) -> str:
        """What an object is called, for a log: namespace and name as far as its metadata says them."""
        return "/".join(filter(None, map(self.metadata_text, ("namespace", "name")))) or "unknown"

    def error(self, message: str) -> errors.ConfigError:
        """An error about this field."""
        return self._error(message)

    def _error(self, message: str) -> errors.ConfigError:
        return errors.ConfigError(message, field=self.path)

    def _kind(self) -> str:
        kinds = {bool: "a truth value", int: "a number", float: "a number", str: "text", type(None): "null"}
        return kinds.get(type(self.value), "an object" if isinstance(self.value, Mapping) else "a list")


def parse(data: bytes) -> object:
    """The value; raises ValueError for what is not JSON."""
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError):
        text = _without_deep_values(data.decode("utf-8", "replace"))
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _without_deep_values(text: str) -> str:
    """The text with null for every list and object that is nested deeper than ``DEPTH_MAX``."""
    pieces: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if kind in "[{":
            depth += 1
            if depth == DEPTH_MAX + 1:
                pieces += (text[start : token.start()], "null")
        elif kind in "]}":
            if depth == DEPTH_MAX + 1:
                start = token.end()
            depth -= 1
    return "".join((*pieces, text[start:]))
