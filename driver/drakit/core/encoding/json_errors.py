"""The texts of errors about JSON values: paths, and values as the user wrote them. Long values are cut."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence

from drakit.core import errors

QUOTE_MAX = 64
_KNOWN_MAX = 12
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def step(key: str | int) -> str:
    """Return a key or an index as a part of a JSON path: ``name``, ``["any text"]``, ``[0]``."""
    return key if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) else f"[{quoted(key)}]"


def wrong(wanted: str, value: object) -> errors.ConfigError:
    """Return the error for a value of the wrong type."""
    return errors.ConfigError(f"must be {wanted}, not {_described(value)}")


def quoted(value: object) -> str:
    """Return a JSON scalar as the user would write it. A long one is cut."""
    text = json.dumps(value)
    return text if len(text) <= QUOTE_MAX else f"{text[:QUOTE_MAX]}..."


def _described(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    return quoted(value)


def unknown(key: str, known: list[str]) -> errors.ConfigError:
    """Return the error for an unknown field, with the known fields: similar ones first."""
    if not known:
        return errors.ConfigError("is not a known field; no field is allowed here", field=step(key))
    near = difflib.get_close_matches(key[:QUOTE_MAX], known, n=_KNOWN_MAX)
    listed = [*near, *sorted(set(known) - set(near))]
    more = ", ..." if len(listed) > _KNOWN_MAX else ""
    return errors.ConfigError(f"is not a known field; known are {', '.join(listed[:_KNOWN_MAX])}{more}", field=step(key))
