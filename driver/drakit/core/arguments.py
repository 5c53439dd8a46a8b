"""Name the wrong argument of an author's call, with the fix: ``Device.consumes is CounterConsumption; give a tuple of CounterConsumption``.

Without it a wrong type fails somewhere else, in a line that the author did not write, or only once an object is encoded.
"""

import collections.abc
import dataclasses
import enum
import functools
import itertools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from drakit.core import errors

Class = TypeVar("Class", bound=type[Any])
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None"}
_CONVERTED = frozenset({"Quantity", "Capacity"})
"""Classes that a field converts other values to."""
_ELEMENTS_SHOWN = 8


class _Field(NamedTuple):
    """The classes that a field accepts, those of its elements if it is a list, and both in words."""

    classes: tuple[type[Any], ...]
    elements: tuple[type[Any], ...]
    wanted: str
    exact: frozenset[type[Any]] = frozenset()


def checked(kind: Class) -> Class:
    """Decorate a dataclass, so that its construction raises TypeError, with field and fix, for an argument of the wrong type.

    Errors of the class itself come first. Fields with an annotation that says nothing at run time are not checked: an amount, a protocol, a function.
    """
    construct = kind.__init__
    expected: dict[str, _Field] = {}

    @functools.wraps(construct)
    def init(self: object, *positional: object, **given: object) -> None:
        failure: Exception | None = None
        try:
            construct(self, *positional, **given)
        except errors.DrakitError:
            raise
        except (TypeError, AttributeError, ValueError) as error:
            failure = error
        if not expected:
            expected.update(_expected(kind))
        for name, value in given.items():
            field = expected.get(name)
            # Most values are of exactly an expected class, and this runs for each device of a node.
            if field is not None and type(value) not in field.exact and value != () and not _accepts(field, value):
                raise TypeError(f"{kind.__name__}.{name} is {_described(value)}; give {field.wanted}") from failure
        if failure is not None:
            raise failure

    kind.__init__ = init
    return kind


def _accepts(field: _Field, value: object) -> bool:
    if not isinstance(value, field.classes):
        return False
    if not field.elements or type(value) not in {tuple, list}:
        return not isinstance(value, str | bytes) or str in field.classes
    return all(isinstance(element, field.elements) for element in typing.cast("Sequence[object]", value))


def _expected(kind: type[Any]) -> Mapping[str, _Field]:
    found = ((field.name, _field(field.type)) for field in dataclasses.fields(kind) if field.init)
    return {name: field._replace(exact=frozenset(() if field.elements else field.classes)) for name, field in found if field is not None}


def _field(hint: Any) -> _Field | None:
    """Return what an annotation accepts; None if it says nothing at run time."""
    hint = getattr(hint, "__supertype__", hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        fields = [field for part in parts if (field := _field(part)) is not None]
        if len(fields) < len(parts):
            return None
        return _Field(
            classes=tuple(itertools.chain.from_iterable(field.classes for field in fields)),
            elements=tuple(itertools.chain.from_iterable(field.elements for field in fields)),
            wanted=" or ".join(field.wanted for field in fields),
        )
    if origin in {tuple, collections.abc.Sequence}:
        element = _field(parts[0])
        wanted = f"a tuple of {element.wanted}" if element else "a tuple"
        return _Field((tuple, list, Sequence), element.classes if element else (), f"{wanted}, such as (x,) for one")
    if origin is collections.abc.Mapping:
        return _Field((dict, types.MappingProxyType, Mapping), (), "a mapping with text keys")
    return _class(hint) if isinstance(hint, type) else None


def _class(hint: type[Any]) -> _Field | None:
    if getattr(hint, "_is_protocol", False) or hint is object or hint.__name__ in _CONVERTED:
        return None
    if issubclass(hint, enum.Enum):
        return _Field((hint,), (), f"one of {', '.join(map(str, hint))}")
    return _Field((int, float) if hint is float else (hint,), (), _WORDS.get(hint, hint.__name__))


def _described(value: object) -> str:
    """Return the type of a value; for a list the types of its elements too."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, list | tuple):
        kinds = ", ".join(sorted({type(element).__name__ for element in value[:_ELEMENTS_SHOWN]})) or "nothing"
        return f"a {type(value).__name__} of {kinds}"
    return "None" if value is None else type(value).__name__
