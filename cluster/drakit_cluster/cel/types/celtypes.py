"""The types of CEL, and the rules of assignment between them (language definition, "Type checking")."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """The kind of a type: scalar kinds are their own type, the others have a name or parameters."""

    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    DYN = "dyn"
    ERROR = "!error!"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    PARAM = "param"
    STRING = "string"
    STRUCT = "struct"
    TYPE = "type"
    UINT = "uint"


@dataclass(frozen=True, slots=True)
class Type:
    """A type; `name` for opaque types, structs and type parameters, `parameters` for lists, maps and opaque types."""

    kind: Kind
    name: str = ""
    parameters: tuple["Type", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        label = self.name or self.kind.value
        return f"{label}({inner})" if inner else label

    @property
    def wild(self) -> bool:
        """Whether the type is unknown: everything is assignable to it, and it to everything."""
        return self.kind in _WILD

    @property
    def optional_value(self) -> "Type | None":
        """The type inside an optional type; None for any other type."""
        return self.parameters[0] if self.name == OPTIONAL_NAME else None


_WILD: Final = frozenset({Kind.ANY, Kind.DYN, Kind.ERROR})
_NULLABLE: Final = frozenset({Kind.NULL, Kind.DURATION, Kind.OPAQUE, Kind.STRUCT})
_COMPOUND: Final = frozenset({Kind.LIST, Kind.MAP, Kind.OPAQUE})
OPTIONAL_NAME: Final = "optional_type"

ANY: Final = Type(Kind.ANY)
BOOL: Final = Type(Kind.BOOL)
BYTES: Final = Type(Kind.BYTES)
DOUBLE: Final = Type(Kind.DOUBLE)
DURATION: Final = Type(Kind.DURATION)
DYN: Final = Type(Kind.DYN)
ERROR: Final = Type(Kind.ERROR)
INT: Final = Type(Kind.INT)
NULL: Final = Type(Kind.NULL)
STRING: Final = Type(Kind.STRING)
UINT: Final = Type(Kind.UINT)
QUANTITY: Final = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(Kind.STRUCT, "kubernetes.Semver")
URL: Final = Type(Kind.STRUCT, "kubernetes.URL")
FORMAT: Final = Type(Kind.STRUCT, "kubernetes.NamedFormat")
DEVICE: Final = Type(Kind.STRUCT, "kubernetes.DRADevice")
IP: Final = Type(Kind.OPAQUE, "net.IP")
CIDR: Final = Type(Kind.OPAQUE, "net.CIDR")


def list_of(element: Type) -> Type:
    """Return `list(element)`."""
    return Type(Kind.LIST, "", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return `map(key, value)`."""
    return Type(Kind.MAP, "", (key, value))


def optional_of(value: Type) -> Type:
    """Return `optional_type(value)`."""
    return Type(Kind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of(value: Type) -> Type:
    """Return `type(value)`, the type of a type."""
    return Type(Kind.TYPE, "", (value,))


def param(name: str) -> Type:
    """Return a type parameter."""
    return Type(Kind.PARAM, name)


Bindings = dict[Type, Type]
"""The types bound to type parameters so far."""


def assign_all(bindings: Bindings, sources: Iterable[Type], targets: Iterable[Type]) -> Bindings | None:
    """Return the bindings under which each source is assignable to its target; None if there are none."""
    extended = dict(bindings)
    sources, targets = tuple(sources), tuple(targets)
    fit = len(sources) == len(targets) and all(
        _assignable(extended, source, target) for source, target in zip(sources, targets, strict=True)
    )
    return extended if fit else None


def most_general(first: Type, second: Type) -> Type:
    """Return the less specific of two types that unify."""
    return first if _less_specific(first, second) else second


def substitute(bindings: Bindings, value: Type, *, unbound: Type | None = None) -> Type:
    """Return the type with its parameters replaced. Parameters without a binding become `unbound`, if that is given."""
    if value in bindings:
        return substitute(bindings, bindings[value], unbound=unbound)
    if value.kind is Kind.PARAM:
        return value if unbound is None else unbound
    if not value.parameters:
        return value
    inner = tuple(substitute(bindings, parameter, unbound=unbound) for parameter in value.parameters)
    return Type(value.kind, value.name, inner)


def _assignable(bindings: Bindings, source: Type, target: Type) -> bool:
    if source == target:
        return True
    if target.kind is Kind.PARAM and (verdict := _bind(bindings, target, source)) is not None:
        return verdict
    if source.kind is Kind.PARAM:
        return _bind(bindings, source, target) is True
    if source.wild or target.wild or (source.kind is Kind.NULL and target.kind in _NULLABLE):
        return True
    if source.kind is not target.kind or source.name != target.name:
        return False
    pairs = zip(source.parameters, target.parameters, strict=True) if source.kind in _COMPOUND else ()
    return all(_assignable(bindings, source_part, target_part) for source_part, target_part in pairs)


def _bind(bindings: Bindings, parameter: Type, value: Type) -> bool | None:
    """Bind the parameter to the value: True if possible, False if it is bound to something else, None if undecided."""
    bound = bindings.get(parameter)
    if bound == value:
        return True
    if bound is not None:
        if not _assignable(bindings, value, bound):
            return False
        bindings[parameter] = most_general(value, bound)
        return True
    if _occurs(bindings, parameter, value):
        return None
    bindings[parameter] = value
    return True


def _occurs(bindings: Bindings, parameter: Type, value: Type) -> bool:
    if parameter == value:
        return True
    if value.kind is Kind.PARAM:
        return value in bindings and _occurs(bindings, parameter, bindings[value])
    return any(_occurs(bindings, parameter, inner) for inner in value.parameters)


def _less_specific(first: Type, second: Type) -> bool:
    if first.wild or first.kind is Kind.PARAM:
        return first is not ERROR
    if second.wild or second.kind is Kind.PARAM or first.kind is not second.kind or first.name != second.name:
        return False
    if first.kind is Kind.TYPE:
        return True
    return all(_less_specific(left, right) for left, right in zip(first.parameters, second.parameters, strict=True))
