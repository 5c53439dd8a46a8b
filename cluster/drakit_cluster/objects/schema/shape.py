"""Shapes, which describe the fields of kinds.

A shape is one of: a leaf (string, integer, ...), a list, a map with free keys, or a struct with known fields.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from drakit_cluster.objects.json_types import Json


class Type(enum.StrEnum):
    """The type of a leaf."""

    STRING = "a string"
    INTEGER = "a 64-bit integer"
    BOOLEAN = "true or false"
    QUANTITY = "a quantity such as 500m, 2 or 40Gi"
    TIME = "a time such as 2006-01-02T15:04:05Z"
    ANY = "any JSON"


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A single value. ``plain``: zero and absent mean the same, because the API's own type cannot tell them apart.

    ``atomic`` makes apply treat free JSON as one value, as it does with a RawExtension.
    """

    type: Type
    plain: bool = False
    atomic: bool = False


@dataclass(frozen=True, kw_only=True)
class ListOf:
    """A list, which apply treats as one value by default.

    ``keys`` make it a map-list for apply, ``merge_key`` makes strategic merge patches merge it by that key, ``unique`` makes it a set
    of strings.
    """

    item: "Shape"
    keys: tuple[str, ...] = ()
    merge_key: str = ""
    unique: bool = False


@dataclass(frozen=True, kw_only=True)
class MapOf:
    """An object with free keys."""

    value: "Shape"


@dataclass(frozen=True, kw_only=True)
class Struct:
    """An object with known fields. ``open`` keeps unknown ones; ``atomic`` makes apply treat it as one value.

    ``required`` is what the published schema demands. ``zero`` holds the values of absent fields that are never absent in
    the API's own type: a device's capacity without a value is zero.
    """

    fields: Mapping[str, "Shape"]
    required: tuple[str, ...] = ()
    zero: Mapping[str, Json] = field(default_factory=dict)
    open: bool = False
    atomic: bool = False


Shape: TypeAlias = Leaf | ListOf | MapOf | Struct

STRING = Leaf(type=Type.STRING, plain=True)
INTEGER = Leaf(type=Type.INTEGER)
COUNT = Leaf(type=Type.INTEGER, plain=True)
BOOLEAN = Leaf(type=Type.BOOLEAN)
QUANTITY = Leaf(type=Type.QUANTITY)
TIME = Leaf(type=Type.TIME)
ANY = Leaf(type=Type.ANY)
RAW = Leaf(type=Type.ANY, atomic=True)
"""Free JSON that apply treats as one value: a driver's parameters, or its data on a device."""
STRINGS = ListOf(item=STRING)
_BY_NAME: Mapping[str, Shape] = {
    key: shape
    for name, leaf in (("", STRING), ("int", INTEGER), ("bool", BOOLEAN), ("quantity", QUANTITY), ("time", TIME), ("any", ANY))
    for key, shape in ((name, leaf), (f"[{name}]", ListOf(item=leaf)), (f"{{{name}}}", MapOf(value=leaf)))
} | {"count": COUNT, "raw": RAW}


def struct(fields: str = "", /, **shapes: Shape) -> Struct:
    """Return a struct from a list of its fields, such as ``key! values:[] weight:int``.

    A field is a string unless a type follows it; ``!`` says that it is required. ``shapes`` are the fields of other shapes, which the list
    names only to require them.
    """
    words = fields.split()
    plain = {name: _BY_NAME[kind] for name, _, kind in (word.rstrip("!").partition(":") for word in words) if name not in shapes}
    required = tuple(word.rstrip("!").partition(":")[0] for word in words if word.endswith("!"))
    return Struct(fields=plain | shapes, required=required)


def atomic(fields: str = "", /, **shapes: Shape) -> Struct:
    """Return a struct that apply treats as one value."""
    return replace(struct(fields, **shapes), atomic=True)


def opened(fields: str = "", /, **shapes: Shape) -> Struct:
    """Return a struct that keeps fields it does not know."""
    return replace(struct(fields, **shapes), open=True)


def by_key(key: str, item: Shape) -> ListOf:
    """Return a list that apply and strategic merge patches merge by ``key``."""
    return ListOf(item=item, keys=(key,), merge_key=key)


def field_shape(shape: Shape, field: str) -> Shape:
    """Return the shape of a field; that of an unknown one is free JSON."""
    if isinstance(shape, Struct):
        return shape.fields.get(field, ANY)
    return shape.value if isinstance(shape, MapOf) else ANY
