"""Functions on strings: the standard ones, cel-go's strings extension, version 2, and Kubernetes' `find`.

Positions count characters. All raise EvalError for arguments of the wrong type or out of range.
"""

from collections.abc import Callable
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import formatting, regexes

SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TO_LOWER: Final = str.maketrans(_UPPER, _UPPER.lower())
_TO_UPPER: Final = str.maketrans(_UPPER.lower(), _UPPER)
_QUOTED: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)


def _typed(*kinds: type) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Let a function be called only with values of these types."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        def guarded(*args: Value) -> Value:
            for arg, kind in zip(args, kinds, strict=False):
                if type(arg) is not kind:
                    raise errors.no_such_overload()
            return function(*args)

        return guarded

    return decorate


_two: Final = _typed(str, str)


@_typed(str, int)
def char_at(text: str, position: int) -> str:
    """`text.charAt(position)`, empty at the end."""
    _in_range(position, len(text))
    return text[position : position + 1]


def _in_range(position: int, length: int) -> None:
    if not 0 <= position <= length:
        raise errors.EvalError(f"index out of range: {position}")


@_typed(str, str, int)
def index_of(text: str, part: str, start: int = 0) -> int:
    """`text.indexOf(part, start)`, -1 if it is not there."""
    if not part:
        return start
    if start < 0:
        raise errors.EvalError(f"index out of range: {start}")
    return text.find(part, start)


@_typed(str, str, int)
def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """`text.lastIndexOf(part, start)`: the last place not after `start`, -1 if there is none."""
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise errors.EvalError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


@_typed(str, str, str, int)
def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace(old, new, count)`, all of them where the count is negative."""
    return text.replace(old, new, max(count, -1))


@_typed(str, str, int)
def split(text: str, separator: str, count: int = -1) -> list[str]:
    """`text.split(separator, count)`, into no more than `count` parts unless that is negative."""
    if count == 0:
        return []
    if separator:
        return text.split(separator, -1 if count < 0 else count - 1)
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return [*text]


@_typed(str, int, int)
def substring(text: str, start: int, end: int | None = None) -> str:
    """`text.substring(start, end)`."""
    end = len(text) if end is None else end
    if start > end:
        raise errors.EvalError(f"invalid substring range. start: {start}, end: {end}")
    _in_range(start, len(text))
    _in_range(end, len(text))
    return text[start:end]


def join(parts: Value, separator: Value = "") -> str:
    """`parts.join(separator)`."""
    if not isinstance(parts, (list, tuple)) or not isinstance(separator, str):
        raise errors.no_such_overload()
    if not all(isinstance(part, str) for part in parts):
        raise errors.no_such_overload()
    return separator.join(parts)


@_typed(str, str, int)
def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    """`text.findAll(expression, limit)`."""
    return regexes.find_all(text, expression, limit)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "charAt": char_at,
    "lowerAscii": _typed(str)(lambda text: text.translate(_TO_LOWER)),
    "upperAscii": _typed(str)(lambda text: text.translate(_TO_UPPER)),
    "trim": _typed(str)(lambda text: text.strip(SPACES)),
    "strings.quote": _typed(str)(lambda text: f'"{text.translate(_QUOTED)}"'),
    "contains": _two(lambda text, part: part in text),
    "startsWith": _two(lambda text, part: text.startswith(part)),
    "endsWith": _two(lambda text, part: text.endswith(part)),
    "matches": _two(regexes.matches),
    "find": _two(regexes.find),
    "findAll": find_all,
    "replace": replace,
    "split": split,
    "substring": substring,
    "join": join,
    "format": formatting.render,
}
