"""Whether two values mean the same, as Kubernetes compares them before it says "immutable"."""

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Type


def same(shape: Shape, left: Json, right: Json) -> bool:
    """Compare decoded values: what is empty is absent, and quantities are equal when their amounts are."""
    if isinstance(shape, Leaf):
        return left == right or (shape.plain and not (left or right)) or _amounts_equal(shape, left, right)
    if isinstance(shape, ListOf):
        ours, theirs = json_types.items(left), json_types.items(right)
        return len(ours) == len(theirs) and all(same(shape.item, a, b) for a, b in zip(ours, theirs, strict=True))
    ours_by, theirs_by = json_types.mapping(left), json_types.mapping(right)
    if isinstance(shape, MapOf):
        return ours_by.keys() == theirs_by.keys() and all(same(shape.value, item, theirs_by[key]) for key, item in ours_by.items())
    return all(same(field, ours_by.get(name), theirs_by.get(name)) for name, field in shape.fields.items())


def _amounts_equal(shape: Leaf, left: Json, right: Json) -> bool:
    if shape.type is not Type.QUANTITY or left is None or right is None:
        return False
    return quantity.parse(left) == quantity.parse(right)
