"""Name the wrong argument of an author's call, with the fix: ``Device.consumes is CounterConsumption; give a tuple of CounterConsumption``.

Without it a wrong type fails somewhere else, in a line that the author did not write, or only once an object is encoded.
"""

import collections.abc
import dataclasses
import difflib
import enum
import functools
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from drakit.core import errors

Class = TypeVar("Class", bound=type[Any])
Function = TypeVar("Function", bound=Callable[..., Any])
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None"}
_CONVERTED = frozenset({"Quantity", "Capacity"})
"""Classes that a field converts other values to."""
_ELEMENTS_SHOWN = 8
_FOR_ONE = ", such as (x,) for one"


class _Field(NamedTuple):
    """The classes that a field accepts, those of its elements if it is a list, and both in words."""

    classes: tuple[type[Any], ...]
    elements: tuple[type[Any], ...]
    wanted: str
    exact: frozenset[type[Any]] = frozenset()


def checked(kind: Class) -> Class:
    """Decorate a dataclass, so that its construction raises TypeError, with field and fix, for an argument of the wrong type.

    Errors of the class itself come first. Fields with an annotation that says nothing at run time are not checked: an amount, a function, a protocol.
    """
    construct = kind.__init__
    fields = functools.cache(lambda: _expected(kind))  # Annotations may name classes that are defined later.

    @functools.wraps(construct)
    def init(self: object, *positional: object, **given: object) -> None:
        if positional:
            raise TypeError(
                f"{kind.__name__} takes keyword arguments only, such as {kind.__name__}({next(iter(kind.__dataclass_fields__))}=...)"
            )
        failure: Exception | None = None
        try:
            construct(self, **given)
        except errors.DrakitError:
            raise
        except (TypeError, AttributeError, ValueError) as error:
            failure = error
            _check_names(kind.__name__, "field", given, kind.__dataclass_fields__)
        expected = fields()
        for name, value in given.items():
            field = expected.get(name)
            # Most values are of exactly an expected class, and this runs for each device of a node.
            if field is not None and type(value) not in field.exact and value != () and not _accepts(field, value):
                raise TypeError(f"{kind.__name__}.{name} is {_described(value)}; give {field.wanted}") from failure
            if failure is not None and field is not None and (key := _wrong_key(field, value)) is not None:
                raise TypeError(f"{kind.__name__}.{name} has the key {key!r}; give {field.wanted}") from failure
        if failure is not None:
            raise failure

    kind.__init__ = init
    return kind


def checked_call(function: Function) -> Function:
    """Decorate a function of the public API, so that a call raises TypeError, with parameter and fix, for an argument of the wrong type.

    Parameters with an annotation that says nothing at run time are not checked: an amount, a protocol, a type variable, a text.
    """
    parameters = inspect.signature(function).parameters
    names = [parameter.name for parameter in parameters.values() if parameter.kind is not parameter.KEYWORD_ONLY]
    rest = next((parameter.name for parameter in parameters.values() if parameter.kind is parameter.VAR_POSITIONAL), None)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    label = function.__qualname__.removesuffix(".__init__")
    expected: dict[str, _Field | None] = {}

    @functools.wraps(function)
    def call(*positional: object, **given: object) -> object:
        __tracebackhide__ = True  # pytest shows the author's own line
        if not expected:
            expected.update((parameter.name, _field(parameter.annotation)) for parameter in parameters.values())
        _check_names(label, "parameter", given, given if takes_any else parameters)
        if twice := given.keys() & names[: len(positional)]:
            raise TypeError(f"{label}: {min(twice)} is given twice, by its place and by its name; give it once")
        for name, value in (*itertools.zip_longest(names[: len(positional)], positional, fillvalue=rest), *given.items()):
            field = expected.get(str(name))
            if field is not None and type(value) not in field.classes and value != () and not _accepts(field, value):
                raise TypeError(f"{label}: {name} is {_described(value)}; give {field.wanted}")
        return function(*positional, **given)

    return typing.cast("Function", call)


def checked_methods(kind: Class) -> Class:
    """Decorate a class of the public API, so that its construction and its public methods check their arguments as ``checked_call`` does."""
    for name, member in tuple(vars(kind).items()):
        if isinstance(member, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, checked_call(member))
    return kind


def _check_names(owner: str, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for a given name that the owner does not have, with those that it has, the closest first."""
    ours = [name for name in known if name != "self"]
    for name in given:
        if name not in ours:
            near = difflib.get_close_matches(name, ours, n=1)
            raise TypeError(f"{owner} has no {what} {name!r}; known are {', '.join([*near, *(one for one in ours if one not in near)])}")


def _accepts(field: _Field, value: object) -> bool:
    if not isinstance(value, field.classes):
        return False
    if not field.elements or type(value) not in {tuple, list}:
        return not isinstance(value, str | bytes) or str in field.classes
    return all(isinstance(element, field.elements) for element in typing.cast("Sequence[object]", value))


def _expected(kind: type[Any]) -> Mapping[str, _Field]:
    fields = ((field.name, _field(field.type)) for field in dataclasses.fields(kind) if field.init)
    return {name: field._replace(exact=frozenset(() if field.elements else field.classes)) for name, field in fields if field is not None}


def _field(hint: Any) -> _Field | None:  # noqa: PLR0911 - one for each form of annotation
    """Return what an annotation accepts; None if it says nothing at run time."""
    if hint is inspect.Parameter.empty:
        return None
    hint = getattr(hint, "__supertype__", hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(origin, type) and origin.__module__ not in {"builtins", "types", "collections.abc", "typing"}:
        return _class(origin)
    if origin is collections.abc.Callable:
        return _Field((collections.abc.Callable,), (), "a function")
    if type in {hint, origin}:
        return _Field((type,), (), "a class")
    if origin in {types.UnionType, typing.Union}:
        fields = [field for part in parts if (field := _field(part)) is not None]
        if len(fields) < len(parts):
            return None
        return _Field(
            classes=tuple(itertools.chain.from_iterable(field.classes for field in fields)),
            elements=tuple(itertools.chain.from_iterable(field.elements for field in fields)),
            wanted=" or ".join(field.wanted for field in fields),
        )
    if origin in {tuple, collections.abc.Sequence, collections.abc.Iterable}:
        element = _field(parts[0])
        wanted = f"a tuple of {element.wanted.removesuffix(_FOR_ONE)}" if element else "a tuple"
        accepted = (tuple, list, Iterable if origin is collections.abc.Iterable else Sequence)
        return _Field(accepted, element.classes if element else (), f"{wanted}{_FOR_ONE}")
    if origin in {collections.abc.Mapping, dict}:
        return _Field((dict, types.MappingProxyType, Mapping), (), "a mapping with text keys")
    return _class(hint) if isinstance(hint, type) else None


def _wrong_key(field: _Field, value: object) -> object:
    """Return the first key of a mapping that is no text, None if there is none."""
    return (
        next((key for key in value if not isinstance(key, str)), None) if isinstance(value, Mapping) and Mapping in field.classes else None
    )


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
