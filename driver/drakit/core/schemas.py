"""Whether types can be decoded at all (``core.decoding``), asked when a driver is opened and not when the first user's claim comes.

Decoding looks at an annotation only where a user wrote the field, so one that cannot be decoded could lie hidden for months.
"""

import dataclasses
import enum
import types as python_types
import typing
from collections.abc import Mapping, Sequence

from drakit.core import decoding, quantity, records

_SCALARS = (str, int, float, bool, quantity.Quantity)
_UNIONS = (typing.Union, python_types.UnionType)
_PAIR = 2
_QUOTE_MAX = 64
_TAKEN = (
    "str, int, float, bool, an Enum, drakit.Quantity, a Literal, a dataclass, "
    "tuple[T, ...], Mapping[str, T] (of collections.abc) or T | None"
)

_Schema = typing.Any  # An annotation: a class, or one of typing's special forms.


def check(types: object, owner: str) -> None:
    """Raise TypeError unless ``types`` is a tuple of dataclasses that can be decoded; it names class, field and fix, and ``owner`` whose they are."""
    if not isinstance(types, tuple) or not types:
        raise TypeError(f"{owner} is {_named(types)}; give a tuple of dataclasses, such as (MyConfig,)")
    for number, schema in enumerate(types):
        if not isinstance(schema, type):
            raise TypeError(f"{owner}[{number}] is {_named(schema)}; give a dataclass, the class itself")
        if not dataclasses.is_dataclass(schema):
            raise TypeError(f"{owner}[{number}]: {schema.__name__} is no dataclass; write @dataclasses.dataclass(frozen=True) above it")
    try:
        decoding.by_kind(types)
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
        _check_schema(_part(schema, where), where, seen)


def _part(schema: _Schema, where: str) -> _Schema:
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


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else "an empty tuple" if value == () else repr(value)[:_QUOTE_MAX]
