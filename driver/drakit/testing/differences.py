"""Short descriptions of the differences between two states of hardware, because a whole state may be kilobytes long.

A state is any comparable value. Mappings, sets, lists and dataclasses are compared part by part; other values are shown before and after.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

SHOWN_MOST = 8
_WIDTH = 120
_CONTEXT = 20


def describe(before: object, after: object) -> str:
    """Return what was added, what is missing and what changed: at most ``SHOWN_MOST`` differences, each cut to a short text."""
    # Two values with equal parts may still be unequal, because of their own ``__eq__``.
    found = list(_differences(before, after, "")) or [_changed("", before, after)]
    more = [f"and {len(found) - SHOWN_MOST} more"] if len(found) > SHOWN_MOST else []
    return "; ".join([*found[:SHOWN_MOST], *more])


def _differences(before: object, after: object, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_mappings(before, after, path)
    elif isinstance(before, AbstractSet) and isinstance(after, AbstractSet):
        yield from _listed([one for one in after if one not in before], [one for one in before if one not in after], path)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        yield from _of_lists(before, after, path)
    elif dataclasses.is_dataclass(before) and type(before) is type(after):
        fields = [field.name for field in dataclasses.fields(before) if field.compare]
        for name in fields:
            yield from _of_parts(getattr(before, name), getattr(after, name), f"{path}.{name}")
    else:
        yield _changed(path, before, after)


def _of_parts(before: object, after: object, path: str) -> Iterator[str]:
    if before != after:
        yield from _differences(before, after, path)


def _of_mappings(before: Mapping[object, object], after: Mapping[object, object], path: str) -> Iterator[str]:
    yield from (f"{_at(path, key)} is there that was not: {_cut(after[key])}" for key in after if key not in before)
    yield from (f"{_at(path, key)} is missing: {_cut(before[key])}" for key in before if key not in after)
    for key in before:
        if key in after:
            yield from _of_parts(before[key], after[key], _at(path, key))


def _of_lists(before: Sequence[object], after: Sequence[object], path: str) -> Iterator[str]:
    if len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _of_parts(one, other, _at(path, number))
        return
    missing, added = list(before), []
    for one in after:
        if one in missing:
            missing.remove(one)
        else:
            added.append(one)
    yield from _listed(added, missing, path)


def _listed(added: Sequence[object], missing: Sequence[object], path: str) -> Iterator[str]:
    place = f"{path}: " if path else ""
    yield from (f"{place}{_cut(one)} is there that was not" for one in added)
    yield from (f"{place}{_cut(one)} is missing" for one in missing)


def _changed(path: str, before: object, after: object) -> str:
    was, now = repr(before), repr(after)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(was, now, strict=False)))
    return f"{path or 'it'} was {_from(was, same)} and is {_from(now, same)}"


def _from(text: str, start: int) -> str:
    """Return the text from shortly before its first difference."""
    if len(text) <= _WIDTH:
        return text
    first = max(0, start - _CONTEXT)
    return f"{'...' if first else ''}{text[first : first + _WIDTH]}{'...' if first + _WIDTH < len(text) else ''}"


def _at(path: str, key: object) -> str:
    return f"{path}[{_cut(key)}]"


def _cut(value: object) -> str:
    return _from(repr(value), 0)
