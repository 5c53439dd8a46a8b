"""Immutable JSON values, and their parsers.

A ``Record`` is the small JSON object that a driver may store for a grant (a MIG UUID, a class id). ``freeze`` returns an immutable copy of a JSON
value, ``thaw`` plain dicts and lists for an encoder.

Text that drakit wrote is parsed strictly. Text from the API server is parsed with limits, because the server stores objects nested thousands of
levels deep and numbers of thousands of digits, which Python cannot parse. ``parse_limited`` replaces a value that is nested too deep by null, and a
number that is too long by its text. The decoder of that object then rejects it, and the other objects of a list are read.
"""

import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_TYPE_ERROR = "only None, bool, int, float, str, lists and mappings with text keys can be stored"
_PATH_MAX = 80

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Record = Mapping[str, Json]

DEPTH_MAX = 64
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
SCALARS = (str, int, float, type(None))
# The most frequent types come first, because isinstance() with the abstract Mapping is slow.
MAPPINGS = (dict, types.MappingProxyType, Mapping)

TEXT_DEPTH_MAX = 128
"""The nesting limit of ``parse_limited``. It is above ``DEPTH_MAX``, so that the decoder rejects an object whose deep values were replaced."""
DIGITS_MAX = 4000
# Possessive quantifiers and the optional closing quote keep the scan linear, even for a string without an end.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
EMPTY: Record = types.MappingProxyType({})


def empty() -> Record:
    """Return the empty record. Dataclass fields need a default factory, because a read-only mapping is not hashable before Python 3.12."""
    return EMPTY


class _NotJsonError(TypeError):
    """A value that JSON cannot express. Each caller prepends its part of the path, such as ``.paths[0]``, so that valid values need no path."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self._reason = reason
        self._path = path

    def __str__(self) -> str:
        path = self._path if len(self._path) <= _PATH_MAX else f"{self._path[:_PATH_MAX]}..."
        return f"{path} {self._reason}".lstrip()

    def with_prefix(self, key: object) -> "_NotJsonError":
        """Return the error with the path from the mapping or list that has the value at ``key``."""
        step = f".{key}" if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) else f"[{key!r}]"
        return _NotJsonError(self._reason, step + self._path)


def freeze(value: object, *, depth: int = DEPTH_MAX) -> Json:
    """Return an immutable copy of a JSON value: mappings become read-only, lists become tuples.

    Raises TypeError for a value that JSON cannot express or that is nested deeper than ``depth``. Its text begins with the path, such as
    ``.paths[0]``, so that the caller can put a field name before it.
    """
    if not depth:
        raise _NotJsonError(f"is nested deeper than {DEPTH_MAX} and cannot be stored")
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        return _frozen_object(value, depth - 1)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return _frozen_list(value, depth - 1)
    raise _NotJsonError(f"is {type(value).__name__}; {_TYPE_ERROR}")


def freeze_record(value: Mapping[str, object]) -> Record:
    """Return an immutable copy of a JSON object. Raises TypeError as ``freeze`` does."""
    if not isinstance(value, Mapping):
        raise _NotJsonError(f"is {type(value).__name__}; give a mapping with text keys")
    return _frozen_object(value, DEPTH_MAX)


def _frozen_object(value: Mapping[str, object], depth: int) -> Record:
    frozen: dict[str, Json] = {}
    key: object = None
    try:
        for key, member in value.items():
            if not isinstance(key, str):
                raise _NotJsonError(f"is a key of type {type(key).__name__}; {_TYPE_ERROR}")  # noqa: TRY301 - the key's place is added below
            frozen[key] = freeze(member, depth=depth)
    except _NotJsonError as error:
        raise error.with_prefix(key) from None
    return types.MappingProxyType(frozen)


def _frozen_list(value: Sequence[object], depth: int) -> Sequence[Json]:
    frozen: list[Json] = []
    try:
        for element in value:
            frozen.append(freeze(element, depth=depth))  # noqa: PERF401 - the list's length is the index of an element that fails
    except _NotJsonError as error:
        raise error.with_prefix(len(frozen)) from None
    return tuple(frozen)


def thaw(value: Json) -> object:
    """Return plain dicts and lists for an encoder."""
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        return {key: thaw(member) for key, member in value.items()}
    return [thaw(element) for element in value]


def parse_strict(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError for text that is not standard JSON, a duplicate key, and too deep nesting."""
    try:
        content = text if isinstance(text, str) else text.decode()
        return json.loads(content, parse_constant=_reject_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def parse_limited(data: bytes) -> object:
    """Return the value of a JSON text, within the limits of this module. Raises ValueError for text that is not JSON."""
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


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is given twice")
    return members


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _without_deep_values(text: str) -> str:
    """Return the text with null for every list and object that is nested deeper than ``TEXT_DEPTH_MAX``."""
    pieces: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        kind = text[token.start()]
        if kind in "[{":
            depth += 1
            if depth == TEXT_DEPTH_MAX + 1:
                pieces += (text[start : token.start()], "null")
        elif kind in "]}":
            if depth == TEXT_DEPTH_MAX + 1:
                start = token.end()
            depth -= 1
    return "".join((*pieces, text[start:]))
