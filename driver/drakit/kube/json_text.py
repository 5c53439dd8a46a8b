"""Parse JSON of the API server in which one object may be hostile, so that it hides no other object of a list.

The API server stores what Python does not parse: objects nested thousands of levels deep, and numbers of thousands of digits. A value that is nested
too deep becomes null, and a number that is too long becomes text. Whoever decodes that object refuses it for its field; the others are whole.
"""

import json
import re

DEPTH_MAX = 128
"""Deeper than ``core.records`` takes: what is cut here is refused by the decoder of its object and never taken for the whole."""
DIGITS_MAX = 4000
# Possessive, and with an optional end, so that a string is scanned once: a string without an end is one token too.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)


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
