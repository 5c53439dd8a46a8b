"""What the shapes of the core kinds state for single fields: what must be there, and which items must differ."""

import json
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema.shape import ListOf, Shape, Struct
from drakit_cluster.objects.validation import each, failure
from drakit_cluster.objects.validation.failure import Failure


def check(shape: Shape, value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``value`` (already decoded by ``shape``) under ``path``."""
    if isinstance(shape, Struct):
        yield from _struct(shape, value, path)
    elif isinstance(shape, ListOf):
        values = json_types.items(value)
        yield from each.item(values, path, lambda item, where: check(shape.item, item, where))
        if shape.keys:
            yield from each.duplicates([_identity(shape, item) for item in values], path)


def _struct(shape: Struct, value: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(value)
    for name in shape.required:
        if fields.get(name) in (None, ""):
            yield failure.required(_join(path, name))
    for name, item in fields.items():
        if (known := shape.fields.get(name)) is not None:
            yield from check(known, item, _join(path, name))


def _identity(shape: ListOf, item: Json) -> str:
    """Return what must be unique about an item of a map-list."""
    found = [json_types.at(item, key) for key in shape.keys]
    only = found[0]
    return only if len(found) == 1 and isinstance(only, str) else json.dumps(found)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
