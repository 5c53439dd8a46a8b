"""Function declarations, and the short notation they are written in.

A line declares an overload: its id, the function (`.f` is called on its first argument), the argument types and the result:
`contains_string .contains string,string -> bool`. One capital letter is a type parameter.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Final

from drakit_cluster.cel.types import celtypes
from drakit_cluster.cel.types.celtypes import Kind, Type

_WORD: Final = re.compile(r"[A-Za-z_]+|[(),]")
_NAMED: Final = {
    **{kind.value: Type(kind) for kind in Kind if kind not in (Kind.OPAQUE, Kind.STRUCT, Kind.PARAM)},
    "quantity": celtypes.QUANTITY,
    "semver": celtypes.SEMVER,
    "url": celtypes.URL,
    "named_format": celtypes.FORMAT,
    "ip": celtypes.IP,
    "cidr": celtypes.CIDR,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One way to call a function; a member overload's first argument is the receiver."""

    id: str
    function: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    params: frozenset[Type]


Functions = dict[str, tuple[Overload, ...]]


def functions(*tables: str) -> Functions:
    """The overloads of the tables by function, in order."""
    grouped: dict[str, list[Overload]] = {}
    for line in "\n".join(tables).splitlines():
        if line.strip():
            overload = _overload(line)
            grouped.setdefault(overload.function, []).append(overload)
    return {function: tuple(overloads) for function, overloads in grouped.items()}


def _overload(line: str) -> Overload:
    name, function, rest = line.split(maxsplit=2)
    given, _, result = rest.partition("->")
    args = tuple(_types(given))
    return Overload(
        id=name,
        function=function.removeprefix("."),
        member=function.startswith("."),
        args=args,
        result=_types(result)[0],
        params=frozenset(_params((*args, *_types(result)))),
    )


@functools.cache
def _types(text: str) -> tuple[Type, ...]:
    """The types of a comma-separated list."""
    words = _WORD.findall(text)
    return tuple(_read(words, [0])) if words else ()


def _read(words: list[str], position: list[int]) -> list[Type]:
    found: list[Type] = []
    while position[0] < len(words) and words[position[0]] != ")":
        name = words[position[0]]
        position[0] += 1
        if name == ",":
            continue
        inner: tuple[Type, ...] = ()
        if position[0] < len(words) and words[position[0]] == "(":
            position[0] += 1
            inner = tuple(_read(words, position))
            position[0] += 1
        found.append(_named(name, inner))
    return found


def _named(name: str, inner: tuple[Type, ...]) -> Type:
    if len(name) == 1:
        return celtypes.param(name)
    if name == "optional":
        return celtypes.optional_of(inner[0])
    known = _NAMED[name]
    return Type(known.kind, known.name, inner)


def _params(types: Iterable[Type]) -> Iterable[Type]:
    for one in types:
        if one.kind is Kind.PARAM:
            yield one
        yield from _params(one.parameters)
