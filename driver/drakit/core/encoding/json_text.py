"""JSON text into values: strict for files that drakit wrote, and with limits in place of failure for what the API server stored.

The API server stores objects that are nested thousands of levels deep, and numbers of thousands of digits, which Python does not parse. There a
value that is nested too deep becomes null, and a number that is too long becomes text, so that its decoder refuses that one object and the other
objects of a list are read.
"""

import json
import re
from typing import Any, NoReturn

DEPTH_MAX = 128
"""Deeper than ``records`` takes: what is cut here is refused by the decoder of its object and never taken for the whole."""
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
