"""Rules of a device's attributes: one value of one type each."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import each, failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_BYTES = 64
LISTS = ("bools", "ints", "strings", "versions")


def check(attributes: Object, path: str) -> Iterator[Failure]:
    """Yield the failures of a map of attributes."""
    return each.entry(attributes, path, names.qualified, _attribute, shown=names.QUALIFIED_BYTES)


def values(attributes: Object) -> int:
    """Count the values of all attributes: a list has its length, everything else is one."""
    return sum(sum(len(json_types.items(one, field)) for field in LISTS) or 1 for one in attributes.values())


def has_list(attribute: Json) -> bool:
    """Say whether an attribute is a list, an empty one included."""
    return any(json_types.at(attribute, field) is not None for field in LISTS)


def _attribute(attribute: Json, path: str) -> Iterator[Failure]:
    fields = json_types.mapping(attribute)
    for field, rule in (("string", _string), ("version", _version)):
        if field in fields:
            yield from rule(json_types.text(fields, field), f"{path}.{field}")
    for field in LISTS:
        if fields.get(field) == []:
            yield failure.invalid(f"{path}.{field}", [], "must have at least one member, or be left out")
    yield from each.name(json_types.items(fields, "strings"), f"{path}.strings", _string)
    yield from each.name(json_types.items(fields, "versions"), f"{path}.versions", _version)
    if len(fields) != 1:
        yield failure.invalid(path, {**fields}, f"exactly one value must be specified, not {len(fields)}")


def _string(value: str, path: str) -> Iterator[Failure]:
    if len(value.encode()) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)


def _version(value: str, path: str) -> Iterator[Failure]:
    if wrong := formats.semver(value):
        yield failure.invalid(path, value, wrong)
    yield from _string(value, path)
