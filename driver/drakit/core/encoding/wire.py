"""JSON into frozen dataclasses, and back: the one way in which drakit reads what it did not write.

The schema is the dataclass: field ``time_slice`` is ``timeSlice`` on the wire, a field without a default is required, and an annotation is one
of str, int, float, bool, an Enum, Quantity, a Literal, a dataclass, ``tuple[T, ...]``, ``Mapping[str, T]`` or ``T | None``. Nothing is converted:
true is not 1, "1" is not 1, 1.0 is not 1. What differs from that is a property of a ``Format``: unknown fields, empty values, other names and other
types. Decoding raises ConfigError, whose field is the JSON path; a schema that breaks the rules raises TypeError.

The annotations of a class are read once, when the first value of it is met, and become functions. A path is put together only for an error.
"""

import dataclasses
import enum
import math
import threading
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from drakit.core import errors, quantity, records
from drakit.core.encoding import json_errors

_TAKEN = (
    "str, int, float, bool, an Enum, drakit.Quantity, a Literal, a dataclass, "
    "tuple[T, ...], Mapping[str, T] (of collections.abc) or T | None"
)

_Schema = Any  # An annotation: a class, or one of typing's special forms.
Value = typing.TypeVar("Value")


class Converter(NamedTuple):
    """How a value is read from JSON and written. ``decode`` raises ConfigError or InventoryError, whose field is relative to the value."""

    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]


UNSET: Any = object()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """What a format says of one field of a dataclass where the dataclass does not say it.

    ``name`` is its name on the wire; one with dots, such as ``metadata.uid``, leads into objects inside. ``absent`` is its value where the wire has
    none. An ``inline`` field is several fields of the same object: its converter reads the whole object and gives the fields to write. A dataclass
    that mirrors the wire says it itself: ``uid: Annotated[str, wire.Field(name="metadata.uid")]``.
    """

    name: str = ""
    absent: object = UNSET
    converter: Converter | None = None
    inline: bool = False


class Format:
    """The rules of one family of documents.

    With ``ignore_unknown``, fields that a later version added are ignored; else they are errors. Where ``empty_is_absent``, null and empty
    text are no values, as Kubernetes writes them. ``converters`` are by annotation, ``fields`` by class and name. Safe between threads.
    """

    def __init__(
        self,
        *,
        ignore_unknown: bool = False,
        empty_is_absent: bool = False,
        sorted_keys: bool = False,
        converters: Mapping[_Schema, Converter] = types.MappingProxyType({}),
        fields: Mapping[tuple[type[object], str], Field] = types.MappingProxyType({}),
    ) -> None:
        self.ignores_unknown = ignore_unknown
        self.empty_is_absent = empty_is_absent
        self._sorted_keys = sorted_keys
        self._converters = {**_SCALARS, **({str: _FILLED} if empty_is_absent else {}), **converters}
        self._fields = fields
        self._objects: dict[type[object], _Object] = {}
        self._lock = threading.Lock()

    def decode(self, schema: type[Value], value: object, path: str = "") -> Value:
        """Return a value of a dataclass; raises ConfigError, whose field begins with ``path``."""
        return typing.cast("Value", decode(self._object(schema), value, path))

    def decode_or_none(self, schema: type[Value], value: object) -> Value | None:
        """Return a value of a dataclass; None for what is none."""
        try:
            return self.decode(schema, value)
        except errors.ConfigError:
            return None

    def encode(self, value: object) -> dict[str, Any]:
        """Return the JSON object of a dataclass's value, without optional fields that are None, False or empty."""
        return self._object(type(value)).encode(value)

    def converter(self, annotation: _Schema) -> Converter:
        """Return how values of an annotation are read and written; raises TypeError that names class and field where one cannot be decoded."""
        with self._lock:
            made: dict[type[object], _Object] = {}
            converter = self._compile(annotation, "The format", made)
            # Not before all are complete, because another thread takes no lock to use them.
            self._objects.update(made)
        return converter

    def _object(self, schema: type[object]) -> "_Object":
        if schema not in self._objects:
            self.converter(schema)
        return self._objects[schema]

    def _compile_object(self, schema: type[object], made: dict[type[object], "_Object"]) -> "_Object":
        known = self._objects.get(schema) or made.get(schema)
        if known is not None:
            return known
        compiled = made[schema] = _Object(schema, self)
        try:
            hints = typing.get_type_hints(schema, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise TypeError(f"{schema.__name__}: its annotations cannot be evaluated ({error}); import or define what they name") from error
        for field in dataclasses.fields(schema):  # type: ignore[arg-type] # Only dataclasses come here.
            if field.init:
                notes = getattr(hints[field.name], "__metadata__", ())
                rule = self._fields.get((schema, field.name)) or next((note for note in notes if isinstance(note, Field)), Field())
                converter = rule.converter or self._compile(hints[field.name], f"{schema.__name__}.{field.name}", made)
                compiled.add(field, rule, converter)
        return compiled

    def _compile(self, schema: _Schema, where: str, made: dict[type[object], "_Object"]) -> Converter:
        """Return how values of an annotation are read and written."""
        given = self._converters.get(schema)
        if given is not None:
            return given
        if hasattr(schema, "__supertype__"):
            return self._compile(schema.__supertype__, where, made)
        if hasattr(schema, "__metadata__"):
            own = next((note for note in schema.__metadata__ if isinstance(note, Converter)), None)
            return own or self._compile(schema.__origin__, where, made)
        if isinstance(schema, type) and dataclasses.is_dataclass(schema):
            compiled = self._compile_object(schema, made)
            return Converter(compiled.decode, compiled.encode)
        if isinstance(schema, type) and issubclass(schema, enum.Enum):
            _check_options([member.value for member in schema], where)
            return Converter(lambda value: schema(_one_of([member.value for member in schema], value)), lambda member: member.value)
        return self._compile_form(schema, where, made)

    def _compile_form(self, schema: _Schema, where: str, made: dict[type[object], "_Object"]) -> Converter:
        origin, arguments = _origin(schema), typing.get_args(schema)
        if origin is typing.Literal:
            _check_options(arguments, where)
            return Converter(lambda value: _one_of(arguments, value), _same)
        if origin is tuple and arguments[1:] == (...,):
            return _list_of(self._compile(arguments[0], where, made))
        if origin is Mapping and arguments[0] is str:
            return _map_of(self._compile(arguments[1], where, made), sorted_keys=self._sorted_keys)
        if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
            return _optional(self._compile(next(one for one in arguments if one is not type(None)), where, made))
        written = schema.__qualname__ if isinstance(schema, type) and not arguments else schema
        raise TypeError(f"{where} has the annotation {written}, which cannot be decoded; write {_TAKEN}")


class _Member(NamedTuple):
    """One field of a dataclass. Where the wire has none its value is ``absent``, or the dataclass's default where that is UNSET."""

    name: str
    converter: Converter
    is_required: bool
    absent: object


class _Object:
    """A converter: how one dataclass is read and written in one format."""

    def __init__(self, schema: type[object], rules: Format) -> None:
        self._schema = schema
        self._rules = rules
        self._members: dict[str, _Member] = {}
        self._nested: frozenset[str] = frozenset()
        self._inline: dict[str, Converter] = {}

    def add(self, field: "dataclasses.Field[Any]", rule: Field, converter: Converter) -> None:
        """Take one more field."""
        is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING and rule.absent is UNSET
        if rule.inline:
            self._inline[field.name] = converter
        else:
            self._members[rule.name or camel(field.name)] = _Member(field.name, converter, is_required, rule.absent)
            self._nested = frozenset(key for key in self._members if "." in key)

    def decode(self, value: Any) -> object:
        """Return a value of the dataclass; raises ConfigError or InventoryError."""
        if not isinstance(value, records.MAPPINGS):
            raise json_errors.wrong("an object", value)
        if not self._rules.ignores_unknown:
            self._check_names(value)
        made: dict[str, object] = {}
        empty_is_absent = self._rules.empty_is_absent
        for key, (name, converter, is_required, absent) in self._members.items():
            item = value.get(key, UNSET) if key not in self._nested else _follow(value, key)
            if item is not UNSET and not (empty_is_absent and item in (None, "")):
                made[name] = decode(converter, item, key)
            elif is_required:
                raise errors.ConfigError("is required", field=key)
            elif absent is not UNSET:
                made[name] = absent
        for name, converter in self._inline.items():
            made[name] = converter.decode(value)
        return self._schema(**made)

    def _check_names(self, value: Mapping[str, object]) -> None:
        for key in value:
            if key not in self._members:
                raise json_errors.unknown(key, list(self._members))

    def encode(self, value: object) -> dict[str, Any]:
        """Return the JSON object."""
        made: dict[str, Any] = {}
        for name, converter in self._inline.items():
            made |= converter.encode(getattr(value, name))
        for key, (name, converter, is_required, _) in self._members.items():
            item = getattr(value, name)
            encoded = None if item is None else converter.encode(item)
            # A number that is 0 says something, and so does an empty object of a dataclass that is not empty itself.
            if encoded or item or is_required or type(encoded) in (int, float):
                if key in self._nested:
                    _put(made, key, encoded)
                else:
                    made[key] = encoded
        return made


def decode(converter: "Converter | _Object", value: object, path: str) -> Any:
    """Return what a converter makes of a value; raises ConfigError, whose field begins with ``path``."""
    try:
        return converter.decode(value)
    except (errors.ConfigError, errors.InventoryError) as error:
        raise _under(path, error) from error


def _follow(value: Mapping[str, Any], path: str) -> Any:
    """Return what is at a path with dots, UNSET where nothing is."""
    *parents, last = path.split(".")
    inside: Any = value
    for number, parent in enumerate(parents, start=1):
        inside = inside.get(parent)
        if inside is None:
            return UNSET
        if not isinstance(inside, records.MAPPINGS):
            raise _under(".".join(parents[:number]), json_errors.wrong("an object", inside))
    return inside.get(last, UNSET)


def _put(made: dict[str, Any], path: str, encoded: object) -> None:
    """Set what is at a path with dots."""
    *parents, last = path.split(".")
    for parent in parents:
        made = made.setdefault(parent, {})
    made[last] = encoded


def _at(key: str | int, converter: Converter, value: object) -> Any:
    """Decode what an object or a list has at ``key``; an error gains the key on its way out."""
    try:
        return converter.decode(value)
    except (errors.ConfigError, errors.InventoryError) as error:
        raise _under(json_errors.step(key), error) from error


def _under(path: str, error: errors.ConfigError | errors.InventoryError) -> errors.ConfigError:
    """Return the error as a ConfigError whose field begins with ``path``."""
    if isinstance(error, errors.ConfigError):
        return error.with_prefix(path)
    return errors.ConfigError(error.reason, field=errors.join_path(path, error.field))


def camel(name: str) -> str:
    """``time_slice`` as the wire writes it: ``timeSlice``."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


def checked(is_good: Callable[[str], bool], what: str) -> Converter:
    """Return a converter of texts that pass a check, for ``Annotated[str, ...]`` or a ``Field``."""

    def decode(value: object) -> str:
        text = _filled(value)
        if is_good(text):
            return text
        raise errors.ConfigError(f"{text!r} is not {what}")

    return Converter(decode, _same)


def _same(value: Any) -> Any:
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise json_errors.wrong("text", value)


def _filled(value: object) -> str:
    if text := _text(value):
        return text
    raise errors.ConfigError("must not be empty")


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise json_errors.wrong("true or false", value)


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise json_errors.wrong("a whole number", value)


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise json_errors.wrong("a number", value)


def _quantity(value: object) -> quantity.Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise json_errors.wrong("a quantity such as 40Gi or 500m", value)
    return quantity.Quantity.of(value)


TEXT = Converter(_text, _same)
WHOLE = Converter(_whole, _same)
_SCALARS: Mapping[_Schema, Converter] = {
    str: TEXT,
    bool: Converter(_truth, _same),
    int: WHOLE,
    float: Converter(_number, _same),
    quantity.Quantity: Converter(_quantity, str),
}
_FILLED = Converter(_filled, _same)
ANYTHING = Converter(_same, _same)
"""Any JSON value, as it is."""


def _optional(inner: Converter) -> Converter:
    def decode(value: object) -> object:
        return None if value is None else inner.decode(value)

    return Converter(decode, inner.encode)


def _list_of(item: Converter) -> Converter:
    def decode(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise json_errors.wrong("a list", value)
        return tuple([_at(index, item, element) for index, element in enumerate(value)])

    return Converter(decode, lambda values: [item.encode(element) for element in values])


def _map_of(item: Converter, *, sorted_keys: bool) -> Converter:
    def decode(value: object) -> Mapping[str, object]:
        if not isinstance(value, records.MAPPINGS):
            raise json_errors.wrong("an object", value)
        return types.MappingProxyType({key: _at(key, item, inner) for key, inner in value.items()})

    def encode(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: item.encode(values[key]) for key in (sorted(values) if sorted_keys else values)}

    return Converter(decode, encode)


def _one_of(options: Iterable[Any], value: object) -> object:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise json_errors.wrong(f"one of {', '.join(map(json_errors.quoted, options))}", value)


def _check_options(options: Iterable[object], where: str) -> None:
    for option in options:
        if not isinstance(option, records.SCALARS):
            raise TypeError(f"{where} can be {option!r}, which JSON cannot express; take text, numbers, true or false")


def _origin(schema: _Schema) -> _Schema:
    """The special form or class of an annotation; typed loosely, because no stub knows them all."""
    return typing.get_origin(schema)
