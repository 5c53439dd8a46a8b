"""Negative amounts, wherever an object has a quantity: Kubernetes validates none of them, and its allocator then counts backwards."""

from collections.abc import Iterable, Iterator

from drakit_cluster.lint import findings
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted
from drakit_cluster.objects import quantity
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type


def check(objects: Iterable[Accepted]) -> Iterator[Finding]:
    """Yield an error for each negative quantity."""
    for one in objects:
        if one.document.resource is None:
            continue
        for field, value in _quantities(table.shape_of(one.document.resource), one.object, ""):
            if quantity.parse(value).nanos < 0:
                text = f"{value} is negative: the API server stores it, and the scheduler then gives out more than there is"
                yield findings.error(one.document, field, text, "write an amount of zero or more")


def _quantities(shape: Shape, value: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Yield path and value of each quantity in an object of a shape."""
    match shape, value:
        case Leaf(type=Type.QUANTITY), str() | int() | float():
            yield path, value
        case Struct(fields=fields), dict():
            for name, below in fields.items():
                if name in value:
                    yield from _quantities(below, value[name], f"{path}.{name}" if path else name)
        case ListOf(item=item), list():
            for place, entry in enumerate(value):
                yield from _quantities(item, entry, f"{path}[{place}]")
        case MapOf(value=below), dict():
            for name, entry in value.items():
                yield from _quantities(below, entry, f"{path}[{name}]")
        case _:
            return
