"""Strict decoding of JSON into frozen dataclasses.

The schema is the dataclass: field ``time_slice`` is ``timeSlice`` on the wire, a field without a default is required, and an annotation is one
of str, int, float, bool, an Enum, Quantity, a Literal, a dataclass, ``tuple[T, ...]``, ``Mapping[str, T]`` or ``T | None``. Nothing is converted:
true is not 1, "1" is not 1, 1.0 is not 1. A dataclass may declare class attributes ``api_version`` and ``kind``; then both are required on the
wire, and choose among several types. Raises ConfigError for what the user wrote and TypeError for a schema that breaks these rules.


Decoding looks at an annotation only where a user wrote the field, so ``check_types`` looks at all of them when a driver opens.
"""

import dataclasses
import difflib
import enum
import json
import math
import re
import types as python_types
import typing
from collections.abc import Callable, Mapping, Sequence

from drakit.core import errors, quantity, records

SIZE_MAX = 10 * 1024
DEPTH_MAX = 32
_QUOTE_MAX = 64
_KNOWN_MAX = 12
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_IDENTITY = ("apiVersion", "kind")

_Schema = typing.Any  # An annotation: a class, or one of typing's special forms.


def decode(parameters: records.Record, types: Sequence[type[object]], *, root: str, size_max: int = SIZE_MAX) -> object:
    """A value of one of ``types``; errors name the JSON path under ``root``. At most ``size_max`` bytes of compact JSON, 32 levels deep."""
    _check_depth(parameters, root)
    _check_size(parameters, root, size_max)
    known = by_kind(types)
    if None in known:
        return _decode_fields(types[0], parameters, root)
    schema = known[_select(parameters, [one for one in known if one], root)]
    return _decode_fields(schema, {key: value for key, value in parameters.items() if key not in _IDENTITY}, root)


def by_kind(types: Sequence[type[object]]) -> Mapping[tuple[str, str] | None, type[object]]:
    """The types by the apiVersion and kind that tell them apart; raises TypeError where these do not."""
    known = {kind_id(schema): schema for schema in types}
    if len(known) != len(types) or (None in known and len(types) > 1):
        raise TypeError("several configuration types need api_version and kind, each pair once")
    return known


def kind_id(schema: type[object]) -> tuple[str, str] | None:
    """apiVersion and kind that a type declares as class attributes; None when it declares neither. Raises TypeError."""
    if not dataclasses.is_dataclass(schema):
        raise TypeError(f"{schema.__name__} is not a dataclass")
    fields = {field.name for field in dataclasses.fields(schema)}
    declared = [getattr(schema, name, None) if name not in fields else None for name in ("api_version", "kind")]
    match declared:
        case [str(api_version), str(kind)]:
            return api_version, kind
        case [None, None]:
            return None
    raise TypeError(f"{schema.__name__} must declare both api_version and kind, or neither")


def kind_of(schema: type[object]) -> str:
    """What users call a type: its kind, or the class's name."""
    identity = kind_id(schema)
    return identity[1] if identity else schema.__name__


def _select(parameters: records.Record, known: Sequence[tuple[str, str]], root: str) -> tuple[str, str]:
    """The apiVersion and kind written, if they are known."""
    listed = ", ".join(f"{api_version} {kind}" for api_version, kind in known)
    for key in _IDENTITY:
        if not isinstance(parameters.get(key), str):
            raise errors.ConfigError(f"is required, as text; known are {listed}", field=f"{root}.{key}")
    written = (str(parameters["apiVersion"]), str(parameters["kind"]))
    if written in known:
        return written
    wrong = 0 if written[1] in {kind for _, kind in known} else 1
    raise errors.ConfigError(f"{_quoted(written[wrong])} is not known; known are {listed}", field=f"{root}.{_IDENTITY[wrong]}")


def _check_depth(value: records.Json, root: str) -> None:
    level: list[records.Json] = [value]
    for _ in range(DEPTH_MAX):
        level = [child for one in level for child in _children(one)]
        if not level:
            return
    raise errors.ConfigError(f"is nested over {DEPTH_MAX} levels deep", field=root)


def _children(value: records.Json) -> Sequence[records.Json]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _check_size(parameters: records.Record, root: str, size_max: int) -> None:
    text = json.dumps(records.thaw(parameters), ensure_ascii=False, separators=(",", ":"))
    if (size := len(text.encode(errors="surrogatepass"))) > size_max:
        raise errors.ConfigError(f"is {size} bytes of JSON, over the limit of {size_max}", field=root)


@dataclasses.dataclass(frozen=True)
class _Field:
    """One field of a schema as the wire has it."""

    name: str
    schema: _Schema
    required: bool


def _fields(schema: type[object]) -> Mapping[str, _Field]:
    """The fields of a dataclass by their names on the wire; worked out once, because the annotations of a type take a millisecond to evaluate."""
    if schema not in _FIELDS:
        _FIELDS[schema] = _read_fields(schema)
    return _FIELDS[schema]


_FIELDS: dict[type[object], Mapping[str, _Field]] = {}


def _read_fields(schema: type[object]) -> Mapping[str, _Field]:
    hints = typing.get_type_hints(schema)
    return {
        camel(field.name): _Field(
            field.name, hints[field.name], required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        for field in dataclasses.fields(schema)  # type: ignore[arg-type] # Only dataclasses come here.
        if field.init
    }


def camel(name: str) -> str:
    """``time_slice`` as the wire writes it: ``timeSlice``."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


def _decode_fields(schema: type[object], value: records.Json, path: str) -> object:
    if not isinstance(value, Mapping):
        raise _wrong("an object", value, path)
    fields = _fields(schema)
    for key in value:
        if key not in fields:
            raise errors.ConfigError(f"is not a known field; {_closest(key, list(fields))}", field=_member(path, key))
    for key, field in fields.items():
        if field.required and key not in value:
            raise errors.ConfigError("is required", field=_member(path, key))
    decoded = {fields[key].name: _decode_value(fields[key].schema, item, _member(path, key)) for key, item in value.items()}
    try:
        return schema(**decoded)
    except errors.ConfigError as error:
        raise error.with_prefix(path) from error
    except errors.InventoryError as error:
        raise errors.ConfigError(error.reason, field=errors.join_path(path, error.field)) from error


def _decode_value(schema: _Schema, value: records.Json, path: str) -> object:
    while hasattr(schema, "__supertype__"):
        schema = schema.__supertype__
    origin = typing.get_origin(schema)
    decoder = _BY_TYPE.get(schema) or _BY_ORIGIN.get(origin)
    if decoder is not None:
        return decoder(schema, value, path)
    if isinstance(schema, type) and issubclass(schema, enum.Enum):
        return schema(_one_of([member.value for member in schema], value, path))
    if dataclasses.is_dataclass(schema) and isinstance(schema, type):
        return _decode_fields(schema, value, path)
    raise TypeError(f"{path} has the annotation {schema}, which cannot be decoded")


def _text(_: _Schema, value: records.Json, path: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong("text", value, path)


def _truth(_: _Schema, value: records.Json, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong("true or false", value, path)


def _whole(_: _Schema, value: records.Json, path: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong("a whole number", value, path)


def _number(_: _Schema, value: records.Json, path: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise _wrong("a number", value, path)


def _quantity(_: _Schema, value: records.Json, path: str) -> quantity.Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _wrong("a quantity such as 40Gi or 500m", value, path)
    try:
        return quantity.Quantity.of(value)
    except errors.QuantityError as error:
        raise error.with_prefix(path) from error


def _optional(schema: _Schema, value: records.Json, path: str) -> object:
    options = [one for one in typing.get_args(schema) if one is not type(None)]
    if len(options) != 1 or len(typing.get_args(schema)) == len(options):
        raise TypeError(f"{path} has the annotation {schema}; of unions only T | None can be decoded")
    return None if value is None else _decode_value(options[0], value, path)


def _literal(schema: _Schema, value: records.Json, path: str) -> object:
    return _one_of(list(typing.get_args(schema)), value, path)


def _list(schema: _Schema, value: records.Json, path: str) -> tuple[object, ...]:
    arguments = typing.get_args(schema)
    if arguments[1:] != (...,):
        raise TypeError(f"{path} has the annotation {schema}; of tuples only tuple[T, ...] can be decoded")
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _wrong("a list", value, path)
    return tuple(_decode_value(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))


def _map(schema: _Schema, value: records.Json, path: str) -> Mapping[str, object]:
    key_schema, item_schema = typing.get_args(schema)
    if key_schema is not str:
        raise TypeError(f"{path} has the annotation {schema}; of mappings only Mapping[str, T] can be decoded")
    if not isinstance(value, Mapping):
        raise _wrong("an object", value, path)
    return python_types.MappingProxyType({key: _decode_value(item_schema, item, _member(path, key)) for key, item in value.items()})


_Decoder = Callable[[_Schema, records.Json, str], object]
_BY_TYPE: Mapping[_Schema, _Decoder] = {
    str: _text,
    bool: _truth,
    int: _whole,
    float: _number,
    quantity.Quantity: _quantity,
}
_BY_ORIGIN: Mapping[_Schema, _Decoder] = {
    typing.Union: _optional,
    python_types.UnionType: _optional,
    typing.Literal: _literal,
    tuple: _list,
    Mapping: _map,
}


def _one_of(options: Sequence[object], value: records.Json, path: str) -> object:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise _wrong(f"one of {', '.join(map(_quoted, options))}", value, path)


def _wrong(wanted: str, value: records.Json, path: str) -> errors.ConfigError:
    return errors.ConfigError(f"must be {wanted}, not {_described(value)}", field=path)


def _described(value: records.Json) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    return _quoted(value)


def _quoted(value: object) -> str:
    """A JSON scalar as the user would write it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= _QUOTE_MAX else f"{text[:_QUOTE_MAX]}..."


def _member(path: str, key: str) -> str:
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{_quoted(key)}]"


def _closest(key: str, known: list[str]) -> str:
    """The known fields for an error, those that look like ``key`` first."""
    if not known:
        return "none is taken here"
    near = difflib.get_close_matches(key[:_QUOTE_MAX], known, n=_KNOWN_MAX)
    listed = [*near, *sorted(set(known) - set(near))]
    more = ", ..." if len(listed) > _KNOWN_MAX else ""
    return f"known are {', '.join(listed[:_KNOWN_MAX])}{more}"


_SCALARS = (str, int, float, bool, quantity.Quantity)
_UNIONS = (typing.Union, python_types.UnionType)
_PAIR = 2
_TAKEN = (
    "str, int, float, bool, an Enum, drakit.Quantity, a Literal, a dataclass, "
    "tuple[T, ...], Mapping[str, T] (of collections.abc) or T | None"
)


def check_types(types: object, owner: str) -> None:
    """Raise TypeError unless ``types`` is a tuple of dataclasses that can be decoded; it names class, field and fix, and ``owner`` whose they are."""
    if not isinstance(types, tuple) or not types:
        raise TypeError(f"{owner} is {_described_type(types)}; give a tuple of dataclasses, such as (MyConfig,)")
    for number, schema in enumerate(types):
        if not isinstance(schema, type):
            raise TypeError(f"{owner}[{number}] is {_described_type(schema)}; give a dataclass, the class itself")
        if not dataclasses.is_dataclass(schema):
            raise TypeError(f"{owner}[{number}]: {schema.__name__} is no dataclass; write @dataclasses.dataclass(frozen=True) above it")
    try:
        by_kind(types)
    except TypeError as error:
        raise TypeError(f"{owner}: {error}") from error
    seen: set[type[object]] = set()
    for schema in types:
        _check_fields(schema, seen)


def _check_fields(schema: type[object], seen: set[type[object]]) -> None:
    if schema in seen:
        return
    seen.add(schema)
    try:
        hints = typing.get_type_hints(schema)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise TypeError(f"{schema.__name__}: its annotations cannot be evaluated ({error}); import or define what they name") from error
    for field in dataclasses.fields(schema):  # type: ignore[arg-type] # Only dataclasses come here.
        if field.init:
            _check_schema(hints[field.name], f"{schema.__name__}.{field.name}", seen)


def _check_schema(schema: _Schema, where: str, seen: set[type[object]]) -> None:
    while hasattr(schema, "__supertype__"):
        schema = schema.__supertype__
    if schema in _SCALARS:
        return
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        _check_fields(schema, seen)
    elif isinstance(schema, type) and issubclass(schema, enum.Enum):
        _check_options([member.value for member in schema], where)
    elif _origin(schema) is typing.Literal:
        _check_options(typing.get_args(schema), where)
    else:
        _check_schema(_inner_schema(schema, where), where, seen)


def _inner_schema(schema: _Schema, where: str) -> _Schema:
    """The type within a tuple, a mapping or a union that can be decoded."""
    origin, arguments = _origin(schema), typing.get_args(schema)
    if origin is tuple and arguments[1:] == (...,):
        return arguments[0]
    if origin is Mapping and arguments[0] is str:
        return arguments[1]
    if origin in _UNIONS and len(arguments) == _PAIR and type(None) in arguments:
        return next(one for one in arguments if one is not type(None))
    written = schema.__qualname__ if isinstance(schema, type) and not arguments else schema
    raise TypeError(f"{where} has the annotation {written}, which cannot be decoded; write {_TAKEN}")


def _origin(schema: _Schema) -> _Schema:
    """The special form or class of which an annotation is one, None of a plain class; typed loosely, because no stub knows them all."""
    return typing.get_origin(schema)


def _check_options(options: Sequence[object], where: str) -> None:
    for option in options:
        if not isinstance(option, records.SCALARS):
            raise TypeError(f"{where} can be {option!r}, which JSON cannot express; take text, numbers, true or false")


def _described_type(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else "an empty tuple" if value == () else repr(value)[:_QUOTE_MAX]
