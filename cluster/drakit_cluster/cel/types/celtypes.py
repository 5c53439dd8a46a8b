"""The types of CEL as the checker sees them."""

import dataclasses
import enum
from typing import Final


class Kind(enum.Enum):
    """What sort of type: scalar kinds are their own type, the others have a name or parameters."""

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
    TIMESTAMP = "timestamp"
    TYPE = "type"
    UINT = "uint"


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """A type; `name` for opaque types, structs and type parameters, `parameters` for lists, maps and opaque types."""

    kind: Kind
    name: str = ""
    parameters: tuple["Type", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(str(parameter) for parameter in self.parameters)
        label = self.name or self.kind.value
        return f"{label}({inner})" if inner else label

    @property
    def wild(self) -> bool:
        """Whether the type says nothing: everything is assignable to it, and it to everything."""
        return self.kind in _WILD


_WILD: Final = frozenset({Kind.ANY, Kind.DYN, Kind.ERROR})

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
TIMESTAMP: Final = Type(Kind.TIMESTAMP)
UINT: Final = Type(Kind.UINT)

QUANTITY: Final = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(Kind.STRUCT, "kubernetes.Semver")
URL: Final = Type(Kind.STRUCT, "kubernetes.URL")
FORMAT: Final = Type(Kind.STRUCT, "kubernetes.NamedFormat")
DEVICE: Final = Type(Kind.STRUCT, "kubernetes.DRADevice")
IP: Final = Type(Kind.OPAQUE, "net.IP")
CIDR: Final = Type(Kind.OPAQUE, "net.CIDR")

OPTIONAL_NAME: Final = "optional_type"


def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type(Kind.LIST, "", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(Kind.MAP, "", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type(Kind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of(value: Type) -> Type:
    """`type(value)`, the type of a type."""
    return Type(Kind.TYPE, "", (value,))


def param(name: str) -> Type:
    """A type parameter."""
    return Type(Kind.PARAM, name)


def unwrap_optional(value: Type) -> Type | None:
    """What an optional type holds, None for any other type."""
    return value.parameters[0] if value.kind is Kind.OPAQUE and value.name == OPTIONAL_NAME else None
