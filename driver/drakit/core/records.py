"""JSON values as drakit keeps them: read from text, typed, and frozen all the way down.

A ``Record`` is the small JSON object a driver may remember about a grant (a MIG UUID, a class id). ``freeze`` makes one from anything
JSON-like; ``thaw`` gives back plain dicts and lists for an encoder.

Text is parsed strictly where drakit wrote it, and with limits in place of failure where the API server stored it: that holds objects nested thousands
of levels deep and numbers of thousands of digits, which Python does not parse. ``parse_limited`` makes a value that is nested too deep null, and a
number that is too long text, so that its decoder refuses that one object and the other objects of a list are read.
"""

import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_TYPE_ERROR = "only None, bool, int, float, str, lists and mappings with text keys can be remembered"
_PATH_MAX = 80

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Record = Mapping[str, Json]

DEPTH_MAX = 64
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
SCALARS = (str, int, float, type(None))
# What is met most comes first, because to ask whether something is a Mapping of any other kind costs much more.
MAPPINGS = (dict, types.MappingProxyType, Mapping)

EMPTY: Record = types.MappingProxyType({})


def empty() -> Record:
    """The empty record, as a default of dataclass fields (a read-only mapping is not hashable before Python 3.12)."""
    return EMPTY


class _UnfitError(TypeError):
    """What cannot be remembered. The path to it, such as ``.paths[0]``, grows on the way out, so that what fits pays nothing for it."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self._reason = reason
        self._path = path

    def __str__(self) -> str:
        path = self._path if len(self._path) <= _PATH_MAX else f"{self._path[:_PATH_MAX]}..."
        return f"{path} {self._reason}".lstrip()

    def under(self, key: object) -> "_UnfitError":
        """The same, seen from the mapping or list that has it at ``key``."""
        step = f".{key}" if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) else f"[{key!r}]"
        return _UnfitError(self._reason, step + self._path)


def freeze(value: object, *, depth: int = DEPTH_MAX) -> Json:
    """An immutable copy of a JSON value: mappings become read-only, lists become tuples.

    Raises TypeError for anything JSON cannot express, and for what is nested deeper than ``depth``. Its text begins with the path, such as
    ``.paths[0]``, so that whoever knows the name of the whole can put it before.
    """
    if not depth:
        raise _UnfitError(f"is nested deeper than {DEPTH_MAX} and cannot be remembered")
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        return _frozen_object(value, depth - 1)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return _frozen_list(value, depth - 1)
    raise _UnfitError(f"is {type(value).__name__}; {_TYPE_ERROR}")


def freeze_record(value: Mapping[str, object]) -> Record:
    """An immutable copy of a JSON object; raises TypeError as ``freeze`` does."""
    return _frozen_object(value, DEPTH_MAX)


def _frozen_object(value: Mapping[str, object], depth: int) -> Record:
    made: dict[str, Json] = {}
    key: object = None
    try:
        for key, item in value.items():
            made[_key(key)] = freeze(item, depth=depth)
    except _UnfitError as unfit:
        raise unfit.under(key) from None
    return types.MappingProxyType(made)


def _frozen_list(value: Sequence[object], depth: int) -> Sequence[Json]:
    made: list[Json] = []
    try:
        for item in value:
            made.append(freeze(item, depth=depth))  # noqa: PERF401 - how many there are says where the one that is refused stands
    except _UnfitError as unfit:
        raise unfit.under(len(made)) from None
    return tuple(made)


def thaw(value: Json) -> object:
    """Plain dicts and lists for an encoder."""
    if isinstance(value, SCALARS):
        return value
    if isinstance(value, MAPPINGS):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value]


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise _UnfitError(f"is a key of type {type(key).__name__}; {_TYPE_ERROR}")


TEXT_DEPTH_MAX = 128
"""Deeper than ``DEPTH_MAX``: what is cut here is refused by the decoder of its object and never taken for the whole."""
DIGITS_MAX = 4000
# Possessive, and with an optional end, so that a string is scanned once: a string without an end is one token too.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)


def parse_strict(text: str | bytes) -> Any:
    """Return the value; raises ValueError for anything else than standard JSON, for a key given twice, and for nesting beyond reason."""
    try:
        content = text if isinstance(text, str) else text.decode()
        return json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def parse_limited(data: bytes) -> object:
    """Return the value, without what is nested too deep; raises ValueError for what is not JSON."""
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


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice")
    return made


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= DIGITS_MAX else digits


def _without_deep_values(text: str) -> str:
    """The text with null for every list and object that is nested deeper than ``TEXT_DEPTH_MAX``."""
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
