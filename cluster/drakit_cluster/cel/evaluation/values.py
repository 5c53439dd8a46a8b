"""The values of CEL in Python.

null None, bool bool, int int, uint `Uint`, double float, string str, bytes bytes, list list or tuple, map dict; the other types
are classes of this package. Map keys are bool, int, uint or string, as in the language; `operators.find` distinguishes
True from 1. `DomainMap` is Kubernetes' map from domain to attributes, where an unknown domain is an empty map.
"""

import dataclasses
import ipaddress
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from drakit_cluster.cel import errors

Value: TypeAlias = Any
"""Any CEL value as described above; an alias that makes signatures readable."""
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
EMPTY: Final[dict[str, Value]] = {}


class Uint(int):
    """An unsigned integer of 64 bits; equal to the int of the same value, but of another type."""

    __slots__ = ()


class DomainMap(dict[str, Value]):
    """Indexing an unknown domain gives an empty map; `in`, iteration and size see only existing domains."""

    __slots__ = ()

    def __missing__(self, key: str) -> dict[str, Value]:
        return EMPTY


@dataclasses.dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, the result of `type(x)`; two are equal when their names are."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Value = None

    @classmethod
    def of(cls, value: Value) -> "Optional":
        return cls(present=True, value=value)


NONE: Final = Optional(present=False)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds."""

    nanos: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ip:
    """An IP address."""

    address: Address


@dataclasses.dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of its prefix; bits after the prefix are kept."""

    address: Address
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL; `text` identifies it, the other fields are those that CEL can read."""

    text: str
    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFormat:
    """One of Kubernetes' named string formats: `validate` returns the complaints."""

    name: str
    validate: Callable[[str], list[str]] = dataclasses.field(compare=False)


def is_accepted(parse: Callable[..., Value], *args: Value) -> bool:
    """Return whether a conversion accepts its arguments, for functions such as `isIP`."""
    try:
        parse(*args)
    except errors.EvalError:
        return False
    return True
