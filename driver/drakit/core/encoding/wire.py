"""Decode JSON into frozen dataclasses, and encode them.

The dataclass is the schema. Field ``time_slice`` is ``timeSlice`` on the wire, and a field without a default is required. An annotation is one of
str, int, float, bool, an Enum, Quantity, a Literal, a dataclass, ``tuple[T, ...]``, ``Mapping[str, T]`` or ``T | None``. No value is converted: true
is not 1, "1" is not 1, 1.0 is not 1. A ``Format`` has the exceptions: unknown fields, empty values, other names and other types. Decoding raises
ConfigError, whose field is the JSON path. A schema that breaks the rules raises TypeError.

The annotations of a class are compiled into functions when its first value is decoded or encoded. Paths are built only for errors.
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

_ANNOTATIONS = (
    "str, int, float, bool, an Enum, drakit.Quantity, a Literal, a dataclass, "
    "tuple[T, ...], Mapping[str, T] (of collections.abc) or T | None"
)

_Schema = Any  # An annotation: a class, or one of typing's special forms.
Value = typing.TypeVar("Value")
UNSET: Any = object()


class Converter(NamedTuple):
    """The functions that decode and encode one value. ``decode`` raises ConfigError or InventoryError, whose field is relative to the value."""

    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """The wire form of one field of a dataclass, where it differs from the rule.

    ``name`` is its name on the wire. A name with dots, such as ``metadata.uid``, is a path into nested objects. ``absent`` is the value where the
    wire has none. An ``inline`` field stands for several fields of the same object: its converter decodes the whole object, and encodes these fields.
    A dataclass can also have it as an annotation: ``uid: Annotated[str, wire.Field(name="metadata.uid")]``.
    """

    name: str = ""
    absent: object = UNSET
    converter: Converter | None = None
    inline: bool = False


class Format:
    """The rules of one family of documents.

    With ``ignore_unknown``, unknown fields are ignored, because a later version may have added them; otherwise they are errors. With
    ``empty_is_absent``, null and empty text count as absent, as in Kubernetes. ``converters`` are by annotation, ``fields`` by class and name.
    Thread-safe.
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
        """Return a value of a dataclass. Raises ConfigError, whose field begins with ``path``."""
        return typing.cast("Value", decode(self._object(schema), value, path))

    def decode_or_none(self, schema: type[Value], value: object) -> Value | None:
        """Return a value of a dataclass; None if the JSON value is invalid."""
        try:
            return self.decode(schema, value)
        except errors.ConfigError:
            return None

    def encode(self, value: object) -> dict[str, Any]:
        """Return the JSON object of a dataclass instance, without fields that are None, False or empty and are so by default."""
        return self._object(type(value)).encode(value)

    def converter(self, annotation: _Schema) -> Converter:
        """Return the converter of an annotation. Raises TypeError, which names class and field, for an annotation that cannot be decoded."""
        with self._lock:
            compiled: dict[type[object], _Object] = {}
            converter = self._compile(annotation, "The format", compiled)
            # Other threads read the table without the lock, so it gets complete converters only.
            self._objects.update(compiled)
        return converter

    def _object(self, schema: type[object]) -> "_Object":
        if schema not in self._objects:
            self.converter(schema)
        return self._objects[schema]

    def _compile_object(self, schema: type[object], made: dict[type[object], "_Object"]) -> "_Object":
        existing = self._objects.get(schema) or made.get(schema)
        if existing is not None:
            return existing
        compiled = made[schema] = _Object(schema, self)
        try:
            hints = typing.get_type_hints(schema, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise TypeError(f"{schema.__name__}: its annotations cannot be evaluated ({error}); import or define what they name") from error
        for field in dataclasses.fields(schema):  # type: ignore[arg-type] # Only dataclasses come here.
            if field.init:
                metadata = getattr(hints[field.name], "__metadata__", ())
                rule = self._fields.get((schema, field.name)) or next((part for part in metadata if isinstance(part, Field)), Field())
                converter = rule.converter or self._compile(hints[field.name], f"{schema.__name__}.{field.name}", made)
                compiled.add(field, rule, converter)
        return compiled

    def _compile(self, schema: _Schema, where: str, made: dict[type[object], "_Object"]) -> Converter:
        """Return the converter of an annotation, and add the converters of its dataclasses to ``made``."""
        own = self._converters.get(schema)
        if own is not None:
            return own
        if hasattr(schema, "__supertype__"):
            return self._compile(schema.__supertype__, where, made)
        if hasattr(schema, "__metadata__"):
            annotated = next((part for part in schema.__metadata__ if isinstance(part, Converter)), None)
            return annotated or self._compile(schema.__origin__, where, made)
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
            return Converter(lambda value: _one_of(arguments, value), _unchanged)
        if origin is tuple and arguments[1:] == (...,):
            return _list_of(self._compile(arguments[0], where, made))
        if origin is Mapping and arguments[0] is str:
            return _map_of(self._compile(arguments[1], where, made), sorted_keys=self._sorted_keys)
        if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
            return _optional(self._compile(next(argument for argument in arguments if argument is not type(None)), where, made))
        written = schema.__qualname__ if isinstance(schema, type) and not arguments else schema
        raise TypeError(f"{where} has the annotation {written}, which cannot be decoded; write {_ANNOTATIONS}")


class _Member(NamedTuple):
    """One field of a dataclass. If the wire lacks it, its value is ``absent``, or the dataclass's default if ``absent`` is UNSET.

    ``encode`` is None if the value is its own JSON. A field that ``is_written`` is on the wire also if it is None, False or empty, because it is
    required or has another default. The name of one that ``is_nested`` has dots.
    """

    name: str
    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any] | None
    is_nested: bool
    is_required: bool
    is_written: bool
    absent: object


class _Object:
    """The converter of one dataclass in one format."""

    def __init__(self, schema: type[object], rules: Format) -> None:
        self._schema = schema
        self._rules = rules
        self._members: dict[str, _Member] = {}
        self._inline: dict[str, Converter] = {}

    def add(self, field: "dataclasses.Field[Any]", rule: Field, converter: Converter) -> None:
        """Add one field."""
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        default = default if rule.absent is UNSET else rule.absent
        is_required = default is dataclasses.MISSING
        if rule.inline:
            self._inline[field.name] = converter
        else:
            key = rule.name or camel(field.name)
            self._members[key] = _Member(
                name=field.name,
                decode=converter.decode,
                encode=None if converter.encode is _unchanged else converter.encode,
                is_nested="." in key,
                is_required=is_required,
                is_written=is_required or bool(default),
                absent=rule.absent,
            )

    def decode(self, value: Any) -> object:
        """Return a value of the dataclass. Raises ConfigError or InventoryError."""
        if not isinstance(value, records.MAPPINGS):
            raise json_errors.wrong("an object", value)
        if not self._rules.ignores_unknown:
            self._check_names(value)
        arguments: dict[str, object] = {}
        empty_is_absent = self._rules.empty_is_absent
        for key, (name, decode_member, _, is_nested, is_required, _, absent) in self._members.items():
            member = _get_nested(value, key) if is_nested else value.get(key, UNSET)
            if member is not UNSET and not (empty_is_absent and member in (None, "")):
                try:
                    arguments[name] = decode_member(member)
                except (errors.ConfigError, errors.InventoryError) as error:
                    raise _with_prefix(key, error) from error
            elif is_required:
                raise errors.ConfigError("is required", field=key)
            elif absent is not UNSET:
                arguments[name] = absent
        for name, converter in self._inline.items():
            arguments[name] = converter.decode(value)
        return self._schema(**arguments)

    def _check_names(self, value: Mapping[str, object]) -> None:
        for key in value:
            if key not in self._members:
                raise json_errors.unknown(key, list(self._members))

    def encode(self, value: object) -> dict[str, Any]:
        """Return the JSON object of a value."""
        members: dict[str, Any] = {}
        for name, converter in self._inline.items():
            members |= converter.encode(getattr(value, name))
        for key, (name, _, encode, is_nested, _, is_written, _) in self._members.items():
            attribute = getattr(value, name)
            if type(attribute) is tuple and not attribute and not is_written:
                continue
            encoded = attribute if encode is None or attribute is None else encode(attribute)
            # The number 0 is not an absent value, and neither is a dataclass whose fields are all defaults.
            if encoded or attribute or is_written or type(encoded) in (int, float):
                if is_nested:
                    _set_nested(members, key, encoded)
                else:
                    members[key] = encoded
        return members


def decode(converter: "Converter | _Object", value: object, path: str) -> Any:
    """Return the decoded value. Raises ConfigError, whose field begins with ``path``."""
    try:
        return converter.decode(value)
    except (errors.ConfigError, errors.InventoryError) as error:
        raise _with_prefix(path, error) from error


def _get_nested(value: Mapping[str, Any], path: str) -> Any:
    """Return the member at a path with dots, UNSET if there is none."""
    *parents, last = path.split(".")
    parent: Any = value
    for number, key in enumerate(parents, start=1):
        parent = parent.get(key)
        if parent is None:
            return UNSET
        if not isinstance(parent, records.MAPPINGS):
            raise _with_prefix(".".join(parents[:number]), json_errors.wrong("an object", parent))
    return parent.get(last, UNSET)


def _set_nested(members: dict[str, Any], path: str, encoded: object) -> None:
    """Set the member at a path with dots."""
    *parents, last = path.split(".")
    for key in parents:
        members = members.setdefault(key, {})
    members[last] = encoded


def _with_prefix(path: str, error: errors.ConfigError | errors.InventoryError) -> errors.ConfigError:
    """Return the error as a ConfigError whose field begins with ``path``."""
    if isinstance(error, errors.ConfigError):
        return error.with_prefix(path)
    return errors.ConfigError(error.reason, field=errors.join_path(path, error.field))


def camel(name: str) -> str:
    """Return a Python name in the notation of the wire: ``time_slice`` becomes ``timeSlice``."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


def checked(is_good: Callable[[str], bool], what: str) -> Converter:
    """Return a converter for texts that pass a check, for ``Annotated[str, ...]`` or a ``Field``."""

    def decode(value: object) -> str:
        text = _filled(value)
        if is_good(text):
            return text
        raise errors.ConfigError(f"{text!r} is not {what}")

    return Converter(decode, _unchanged)


def _unchanged(value: Any) -> Any:
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise json_errors.wrong("text", value)


def _filled(value: object) -> str:
    if text := _text(value):
        return text
    raise errors.ConfigError("must not be empty")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise json_errors.wrong("true or false", value)


def _integer(value: object) -> int:
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


TEXT = Converter(_text, _unchanged)
WHOLE = Converter(_integer, _unchanged)
_SCALARS: Mapping[_Schema, Converter] = {
    str: TEXT,
    bool: Converter(_boolean, _unchanged),
    int: WHOLE,
    float: Converter(_number, _unchanged),
    quantity.Quantity: Converter(_quantity, str),
}
_FILLED = Converter(_filled, _unchanged)
ANYTHING = Converter(_unchanged, _unchanged)
"""The converter that returns any JSON value unchanged."""


def _optional(inner: Converter) -> Converter:
    def decode(value: object) -> object:
        return None if value is None else inner.decode(value)

    return Converter(decode, inner.encode)


def _list_of(converter: Converter) -> Converter:
    decode_element, encode = converter

    def decode(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise json_errors.wrong("a list", value)
        decoded: list[object] = []
        try:
            for element in value:
                decoded.append(decode_element(element))  # noqa: PERF401 - the list's length is the index of an element that fails
        except (errors.ConfigError, errors.InventoryError) as error:
            raise _with_prefix(json_errors.step(len(decoded)), error) from error
        return tuple(decoded)

    return Converter(decode, list if encode is _unchanged else lambda values: [encode(element) for element in values])


def _map_of(converter: Converter, *, sorted_keys: bool) -> Converter:
    decode_member, encode_member = converter

    def decode(value: object) -> Mapping[str, object]:
        if not isinstance(value, records.MAPPINGS):
            raise json_errors.wrong("an object", value)
        decoded: dict[str, object] = {}
        key = ""
        try:
            for key, member in value.items():
                decoded[key] = decode_member(member)
        except (errors.ConfigError, errors.InventoryError) as error:
            raise _with_prefix(json_errors.step(key), error) from error
        return types.MappingProxyType(decoded)

    def encode(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: encode_member(values[key]) for key in (sorted(values) if sorted_keys else values)}

    return Converter(decode, encode)


def _one_of(options: Iterable[Any], value: object) -> object:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise json_errors.wrong(f"one of {', '.join(map(json_errors.quoted, options))}", value)


def _check_options(options: Iterable[object], where: str) -> None:
    for option in options:
        if not isinstance(option, records.SCALARS):
            raise TypeError(f"{where} can be {option!r}, which JSON cannot express; use text, numbers, true or false")


def _origin(schema: _Schema) -> _Schema:
    """Return the special form or class of an annotation. It is typed loosely, because no stub knows all special forms."""
    return typing.get_origin(schema)
