"""One rule applied to every member of a list or map, with Kubernetes' limits on their number.

A list or map that is too large yields that failure alone: its members are not looked at.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure
from drakit_cluster.objects.validation.failure import Failure

Rule: TypeAlias = Callable[[Json, str], Iterable[Failure]]
NameRule: TypeAlias = Callable[[str, str], Iterable[Failure]]
Key: TypeAlias = Callable[[Json], str | tuple[str, ...]]


def item(values: list[Json], path: str, rule: Rule, *, limit: int = 0, key: Key | None = None) -> Iterator[Failure]:
    """Yield the failures of a list's members, and of members whose ``key`` an earlier one has. ``limit`` 0 is none."""
    if limit and len(values) > limit:
        yield failure.too_many(path, len(values), limit)
        return
    for index, value in enumerate(values):
        yield from rule(value, f"{path}[{index}]")
    if key is not None:
        yield from duplicates([key(value) for value in values], path)


def duplicates(keys: Iterable[str | tuple[str, ...]], path: str) -> Iterator[Failure]:
    """Yield a failure for every key that occurred before."""
    seen = set[str | tuple[str, ...]]()
    for index, one in enumerate(keys):
        if one in seen:
            yield failure.duplicate(f"{path}[{index}]", one if isinstance(one, str) else "/".join(filter(None, one)))
        seen.add(one)


def name(values: list[Json], path: str, rule: NameRule, *, limit: int = 0, unique: bool = False) -> Iterator[Failure]:
    """Yield the failures of a list of strings."""

    def one(value: Json, where: str) -> Iterable[Failure]:
        return rule(_text(value), where)

    return item(values, path, one, limit=limit, key=_text if unique else None)


def entry(fields: Object, path: str, names: NameRule, rule: Rule, *, limit: int = 0, shown: int) -> Iterator[Failure]:
    """Yield the failures of a map: of its keys at the map's own path, of its values under the key, cut to ``shown`` bytes."""
    if limit and len(fields) > limit:
        yield failure.too_many(path, len(fields), limit)
        return
    for key, value in fields.items():
        yield from names(key, path)
        yield from rule(value, f"{path}[{_shortened(key, shown)}]")


def anything(_value: Json, _path: str) -> Iterable[Failure]:
    """Accept every value."""
    return ()


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _shortened(key: str, most: int) -> str:
    """Cut a key in the middle, as Kubernetes does in field paths."""
    raw = key.encode()
    if len(raw) <= most:
        return key
    kept = most - len("...")
    return f"{raw[: (kept + 1) // 2].decode(errors='replace')}...{raw[len(raw) - kept // 2 :].decode(errors='replace')}"
