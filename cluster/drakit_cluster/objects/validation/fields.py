"""Validation of single fields by the shapes of the core kinds: required fields and unique items.

Also the comparison of two values that Kubernetes makes before it reports "field is immutable".
"""

import json
from collections.abc import Iterator

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type
from drakit_cluster.objects.validation import failure, rules
from drakit_cluster.objects.validation.failure import Failure


def check(shape: Shape, value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``value`` (already decoded by ``shape``) under ``path``."""
    if isinstance(shape, Struct):
        yield from _struct(shape, value, path)
    elif isinstance(shape, ListOf):
        values = json_types.items(value)
        yield from rules.each(values, path, lambda item, where: check(shape.item, item, where))
        if shape.keys:
            yield from rules.duplicates([_identity(shape, value_) for value_ in values], path)


def _struct(shape: Struct, value: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(value)
    for name in shape.required:
        if fields.get(name) in (None, ""):
            yield failure.required(_join(path, name))
    for name, item in fields.items():
        if (field_shape := shape.fields.get(name)) is not None:
            yield from check(field_shape, item, _join(path, name))


def _identity(shape: ListOf, item: Json) -> str:
    keys = [json_types.at(item, key) for key in shape.keys]
    only = keys[0]
    return only if len(keys) == 1 and isinstance(only, str) else json.dumps(keys)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def same(shape: Shape, left: Json, right: Json) -> bool:
    """Return whether decoded values are equal. Empty and absent are equal, and so are quantities of the same amount."""
    if isinstance(shape, Leaf):
        return left == right or (shape.plain and not (left or right)) or _amounts_equal(shape, left, right)
    if isinstance(shape, ListOf):
        left_items, right_items = json_types.items(left), json_types.items(right)
        return len(left_items) == len(right_items) and all(same(shape.item, a, b) for a, b in zip(left_items, right_items, strict=True))
    left_fields, right_fields = json_types.mapping(left), json_types.mapping(right)
    if isinstance(shape, MapOf):
        return left_fields.keys() == right_fields.keys() and all(
            same(shape.value, item, right_fields[key]) for key, item in left_fields.items()
        )
    return all(same(field, left_fields.get(name), right_fields.get(name)) for name, field in shape.fields.items())


def _amounts_equal(shape: Leaf, left: Json, right: Json) -> bool:
    if shape.type is not Type.QUANTITY or left is None or right is None:
        return False
    return quantity.parse(left) == quantity.parse(right)
