"""What shapes state for single fields: required fields, list sizes, uniqueness, formats and allowed words."""

import itertools
import json
from collections.abc import Iterable, Iterator

from drakit.cluster import json_types
from drakit.cluster.json_types import Json
from drakit.cluster.schema.shape import Leaf, ListOf, MapOf, Shape, Struct
from drakit.cluster.validation import failure
from drakit.cluster.validation.failure import Failure


def check(shape: Shape, value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``value`` (already decoded by ``shape``) under ``path``."""
    if isinstance(shape, Struct):
        yield from _struct(shape, value, path)
    elif isinstance(shape, ListOf):
        yield from _list(shape, json_types.items(value), path)
    elif isinstance(shape, MapOf):
        yield from _map(shape, value, path)
    elif isinstance(value, str):
        yield from _string(shape, value, path)


def _struct(shape: Struct, value: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(value)
    for name in shape.required:
        if fields.get(name) in (None, ""):
            yield failure.required(_join(path, name))
    for name, item in fields.items():
        known = shape.fields.get(name)
        if known is not None and item != "":
            yield from check(known, item, _join(path, name))


def _list(shape: ListOf, values: list[Json], path: str) -> Iterator[Failure]:
    if shape.limit and len(values) > shape.limit:
        yield failure.too_many(path, len(values), shape.limit)
    seen = set()
    for index, item in enumerate(values):
        where = f"{path}[{index}]"
        identity = _identity(shape, item)
        if identity and identity in seen:
            yield failure.duplicate(_join(where, shape.name_key) if shape.name_key else where, json.loads(identity))
        seen.add(identity)
        yield from check(shape.item, item, where)


def _identity(shape: ListOf, item: Json) -> str:
    """Return what must be unique about an item, as JSON; empty for lists without such a rule."""
    if shape.unique:
        return json.dumps(item)
    if shape.name_key:
        name = json_types.text(item, shape.name_key)
        return json.dumps(name) if name else ""
    return json.dumps({key: json_types.at(item, key) for key in shape.keys}) if shape.keys else ""


def _map(shape: MapOf, value: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(value)
    if shape.limit and len(fields) > shape.limit:
        yield failure.too_many(path, len(fields), shape.limit)
    for key, item in fields.items():
        if shape.format and (wrong := shape.format(key)):
            yield failure.invalid(f"{path}[{key}]" if key else path, key, wrong)
        yield from check(shape.value, item, f"{path}[{key}]")


def _string(shape: Leaf, value: str, path: str) -> Iterator[Failure]:
    if shape.format and (wrong := shape.format(value)):
        yield failure.invalid(path, value, wrong)
    if shape.allowed and value not in shape.allowed:
        yield failure.not_supported(path, value, shape.allowed)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def chain(*checks: Iterable[Failure]) -> list[Failure]:
    """Return the failures of several checks as one list."""
    return list(itertools.chain(*checks))
