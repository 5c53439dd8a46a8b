"""Regular expressions: RE2, the syntax and the linear time of Kubernetes' own."""

import functools
from typing import Final

import re2

from drakit_cluster.cel import errors

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


@functools.lru_cache(maxsize=512)
def pattern(text: str) -> "re2._Regexp[str]":
    """The compiled expression. Raises EvalError."""
    try:
        return re2.compile(text, options=_OPTIONS)
    except re2.error as error:
        raise errors.EvalError(f"error parsing regexp: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def matches(text: str, expression: str) -> bool:
    """Whether the expression matches anywhere in the text."""
    return pattern(expression).search(text) is not None


def find(text: str, expression: str) -> str:
    """The first match, empty if there is none."""
    match = pattern(expression).search(text)
    return "" if match is None else str(match.group())


def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    """The matches from left to right, no more than `limit` unless that is negative.

    An empty match right behind the match before it does not count.
    """
    found: list[str] = []
    last = -1
    for match in pattern(expression).finditer(text):
        if len(found) == limit:
            break
        if match.end() > match.start() or match.start() != last:
            found.append(match.group())
        last = match.end()
    return found
