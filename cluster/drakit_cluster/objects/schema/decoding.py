"""Decoding of objects by their shapes, as Go's decoder does for a real API server.

Unknown fields are dropped (and reported), null means absent, a wrong type refuses the request.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from drakit_cluster.objects import errors, quantity
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema.shape import ANY, Leaf, ListOf, MapOf, Shape, Struct, Type

_INT64 = 1 << 63


@dataclass(kw_only=True)
class Decoder:
    """One decoding. ``unknown`` collects the paths of fields that no shape has."""

    unknown: list[str] = field(default_factory=list)

    def decode(self, shape: Shape, value: Json, path: str) -> Json:
        """Return ``value`` pruned to ``shape`` as new JSON; raise BadRequestError at a wrong type."""
        if isinstance(shape, Leaf):
            return _leaf(shape, value, path)
        if isinstance(shape, ListOf):
            return self._list(shape, value, path)
        if not isinstance(value, dict):
            raise _type_error(path, "an object", value)
        if isinstance(shape, MapOf):
            return {key: self.decode(shape.value, item, f"{path}[{key}]") for key, item in value.items()}
        return self._struct(shape, value, path)

    def _list(self, shape: ListOf, value: Json, path: str) -> Json:
        if not isinstance(value, list):
            raise _type_error(path, "a list", value)
        return [self.decode(shape.item, item, f"{path}[{index}]") for index, item in enumerate(value)]

    def _struct(self, shape: Struct, value: dict[str, Json], path: str) -> Json:
        decoded: dict[str, Json] = dict(shape.zero)
        for name, item in value.items():
            member_shape = shape.fields.get(name, ANY if shape.open else None)
            if item is not None and isinstance(member_shape, Leaf):
                # Most fields are leaves, whose paths are needed only in errors.
                made = _LEAVES[member_shape.type](item)
                decoded[name] = _leaf(member_shape, item, _below(path, name)) if made is None else made
            elif member_shape is None:
                self.unknown.append(_below(path, name))
            elif item is not None:
                decoded[name] = self.decode(member_shape, item, _below(path, name))
        return decoded


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_error(path: str, expected: str, value: Json) -> errors.BadRequestError:
    return errors.BadRequestError(f"{path or 'body'}: want {expected}, got {value!r:.100}")


def _leaf(shape: Leaf, value: Json, path: str) -> Json:
    decoded = _LEAVES[shape.type](value)
    if decoded is None and shape.type is not Type.ANY:
        raise _type_error(path, shape.type.value, value)
    return decoded


def _integer(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    return value if fits else None


def _quantity(value: Json) -> Json:
    """Return a quantity in canonical form, as a server returns it: ``1024Mi`` becomes ``1Gi``."""
    try:
        return quantity.canonical(value)
    except quantity.QuantityError:
        return None


def _time(value: Json) -> Json:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return value if moment.tzinfo is not None else None


_LEAVES: dict[Type, Callable[[Json], Json]] = {
    Type.STRING: lambda value: value if isinstance(value, str) else None,
    Type.INTEGER: _integer,
    Type.BOOLEAN: lambda value: value if isinstance(value, bool) else None,
    Type.QUANTITY: _quantity,
    Type.TIME: _time,
    Type.ANY: lambda value: value,
}
