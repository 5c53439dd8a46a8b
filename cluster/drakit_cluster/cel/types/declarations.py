"""The functions and variables of a device selector: Kubernetes' base environment 1.36 and the variable `device`.

Sources: the CEL language definition (standard functions), cel-go's extensions (strings 2, lists 3, sets, optional types, bindings 0,
two-variable comprehensions), Kubernetes' own libraries, and the device environment of dynamic resource allocation.
"""

import enum
import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from drakit_cluster.cel.types import celtypes
from drakit_cluster.cel.types.celtypes import Kind, Type
from drakit_cluster.objects import features


class EnvType(enum.Enum):
    """The origin of an expression: a new one may use only what the gates allow, a stored one everything."""

    NEW = "NewExpressions"
    STORED = "StoredExpressions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The feature gates that selectors depend on."""

    consumable_capacity: bool = True
    list_type_attributes: bool = False

    @classmethod
    def of(cls, gates: features.FeatureGates) -> "Gates":
        return cls(
            consumable_capacity=gates.on(features.Gate.CONSUMABLE_CAPACITY),
            list_type_attributes=gates.on(features.Gate.LIST_TYPE_ATTRIBUTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """One way to call a function; a member overload's first argument is the receiver."""

    id: str
    """The function with its argument types: `_+_(int,int)`; a dot before it for a member."""
    member: bool
    args: tuple[Type, ...]
    result: Type
    params: frozenset[Type]


Functions = dict[str, tuple[Overload, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Names, functions and fields that an expression may use, and the type of an attribute."""

    functions: Functions
    idents: dict[str, Type]
    fields: dict[str, Type]
    attribute: Type


FORMATS: Final = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix"),
    *("dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)
ORDERED: Final = ("int", "uint", "double", "bool", "duration", "string", "bytes")
_TABLE: Final = """
!_ bool -> bool
-_ double -> double; int -> int
_?_:_ bool,A,A -> A
@not_strictly_false bool -> bool
_==_ A,A -> bool
_!=_ A,A -> bool
@in A,list(A) -> bool; A,map(A,B) -> bool
_[_] list(A),int -> A; map(A,B),A -> B; optional(list(V)),int -> optional(V); optional(map(K,V)),K -> optional(V)
_[?_] list(V),int -> optional(V); optional(list(V)),int -> optional(V); map(K,V),K -> optional(V); optional(map(K,V)),K -> optional(V)
_+_ bytes,bytes -> bytes; double,double -> double; duration,duration -> duration
_+_ int,int -> int; list(A),list(A) -> list(A); string,string -> string; uint,uint -> uint
_-_ double,double -> double; duration,duration -> duration; int,int -> int; uint,uint -> uint
_*_ double,double -> double; int,int -> int; uint,uint -> uint
_/_ double,double -> double; int,int -> int; uint,uint -> uint
_%_ int,int -> int; uint,uint -> uint
bool bool/string -> bool
bytes bytes/string -> bytes
double double/int/string/uint -> double
duration duration/int/string -> duration
dyn A -> dyn
int int/double/duration/string/uint -> int
string string/bool/bytes/double/duration/int/uint/ip/cidr -> string
type A -> type(A)
uint uint/double/int/string -> uint
size bytes/list(A)/map(A,B)/string -> int
.size bytes/list(A)/map(A,B)/string -> int

.contains string,string -> bool
.endsWith string,string -> bool
.startsWith string,string -> bool
matches string,string -> bool
.matches string,string -> bool
.charAt string,int -> string
.indexOf string,string -> int; string,string,int -> int; list(A),A -> int
.lastIndexOf string,string -> int; string,string,int -> int; list(A),A -> int
.lowerAscii string -> string
.upperAscii string -> string
.replace string,string,string -> string; string,string,string,int -> string
.split string,string -> list(string); string,string,int -> list(string)
.substring string,int -> string; string,int,int -> string
.trim string -> string
.join list(string) -> string; list(string),string -> string
strings.quote string -> string
.find string,string -> string
.findAll string,string -> list(string); string,string,int -> list(string)

.getHours duration -> int
.getMinutes duration -> int
.getSeconds duration -> int
.getMilliseconds duration -> int

optional.of V -> optional(V)
optional.ofNonZeroValue V -> optional(V)
optional.none -> optional(V)
optional.unwrap list(optional(V)) -> list(V)
.unwrapOpt list(optional(V)) -> list(V)
.value optional(V) -> V
.hasValue optional(V) -> bool
.or optional(V),optional(V) -> optional(V)
.orValue optional(V),V -> V
.first list(V) -> optional(V)
.last list(V) -> optional(V)

.slice list(T),int,int -> list(T)
.flatten list(list(T)) -> list(T); list(dyn),int -> list(dyn)
lists.range int -> list(int)
.reverse list(T) -> list(T)
.distinct list(T) -> list(T)
sets.contains list(T),list(T) -> bool
sets.equivalent list(T),list(T) -> bool
sets.intersects list(T),list(T) -> bool
cel.@mapInsert map(K,V),K,V -> map(K,V); map(K,V),map(K,V) -> map(K,V)

quantity string -> quantity
isQuantity string -> bool
sign quantity -> int
.isGreaterThan quantity,quantity -> bool; semver,semver -> bool
.isLessThan quantity,quantity -> bool; semver,semver -> bool
.compareTo quantity,quantity -> int; semver,semver -> int
.asApproximateFloat quantity -> double
.asInteger quantity -> int
.isInteger quantity -> bool
.add quantity,quantity/int -> quantity
.sub quantity,quantity/int -> quantity
semver string -> semver; string,bool -> semver
isSemver string -> bool; string,bool -> bool
.major semver -> int
.minor semver -> int
.patch semver -> int

url string -> url
isURL string -> bool
.getScheme url -> string
.getHost url -> string
.getHostname url -> string
.getPort url -> string
.getEscapedPath url -> string
.getQuery url -> map(string,list(string))
ip string -> ip
isIP string -> bool
ip.isCanonical string -> bool
.family ip -> int
.isUnspecified ip -> bool
.isLoopback ip -> bool
.isLinkLocalMulticast ip -> bool
.isLinkLocalUnicast ip -> bool
.isGlobalUnicast ip -> bool
cidr string -> cidr
isCIDR string -> bool
.containsIP cidr,string/ip -> bool
.containsCIDR cidr,string/cidr -> bool
.ip cidr -> ip
.prefixLength cidr -> int
.masked cidr -> cidr
.validate named_format,string -> optional(list(string))
format.named string -> optional(named_format)
"""
"""Each line names a function (`.f` is a member function) and its overloads: argument types and result.

One capital letter is a type parameter; `int/string` stands for one overload with each type.
"""
_INCLUDES: Final = ".includes dyn,dyn -> bool"
_WORD: Final = re.compile(r"[A-Za-z_]+|[(),]")
_NAMED: Final = {
    **{kind.value: Type(kind) for kind in Kind if kind not in (Kind.OPAQUE, Kind.STRUCT, Kind.PARAM)},
    "quantity": celtypes.QUANTITY,
    "semver": celtypes.SEMVER,
    "url": celtypes.URL,
    "named_format": celtypes.FORMAT,
    "ip": celtypes.IP,
    "cidr": celtypes.CIDR,
    "optional": celtypes.optional_of(celtypes.DYN),
}


def _lines() -> Iterable[str]:
    """Yield the table with the overloads that exist for every type of a family."""
    numbers = ("int", "uint", "double")
    for operator in ("_<_", "_<=_", "_>_", "_>=_"):
        for kind in ORDERED:
            yield f"{operator} {kind},{kind} -> bool"
            yield from (f"{operator} {kind},{other} -> bool" for other in numbers if kind in numbers and other != kind)
    for kind in ORDERED:
        yield f".isSorted list({kind}) -> bool"
        yield f".min list({kind}) -> {kind}"
        yield f".max list({kind}) -> {kind}"
        yield f".sort list({kind}) -> list({kind})"
        yield f".@sortByAssociatedKeys list(T),list({kind}) -> list(T)"
    yield from (f".sum list({kind}) -> {kind}" for kind in (*numbers, "duration"))
    yield from (f"format.{name} -> named_format" for name in FORMATS)
    yield from filter(None, _TABLE.splitlines())


def _overloads(line: str) -> Iterable[tuple[str, Overload]]:
    """Yield the overloads of one line, each with its function."""
    function, _, rest = line.partition(" ")
    for signature in rest.split(";"):
        argument_types, _, result = signature.partition("->")
        for words in itertools.product(*(alternatives.split("/") for alternatives in re.split(r",(?![^(]*\))", argument_types.strip()))):
            types_text = ",".join(words)
            args, (result_type,) = _types(types_text), _types(result)
            params = frozenset(_params((*args, result_type)))
            yield (
                function.removeprefix("."),
                Overload(id=f"{function}({types_text})", member=function[0] == ".", args=args, result=result_type, params=params),
            )


@functools.cache
def _types(text: str) -> tuple[Type, ...]:
    """Return the types of a comma-separated list."""
    return tuple(_read(iter(_WORD.findall(text))))


def _read(words: Iterable[str]) -> list[Type]:
    types: list[Type] = []
    for word in words:
        if word == ")":
            break
        if word == "(":
            last = types.pop()
            types.append(Type(last.kind, last.name, tuple(_read(words))))
        elif word != ",":
            types.append(celtypes.param(word) if len(word) == 1 else _NAMED[word])
    return types


def _params(types: Iterable[Type]) -> Iterable[Type]:
    for type_ in types:
        if type_.kind is Kind.PARAM:
            yield type_
        yield from _params(type_.parameters)


@functools.cache
def functions(*, includes: bool = True) -> Functions:
    """Return every function; `includes` of lists is behind a gate."""
    grouped: dict[str, tuple[Overload, ...]] = {}
    for line in (*_lines(), *([_INCLUDES] if includes else [])):
        for function, overload in _overloads(line):
            grouped[function] = (*grouped.get(function, ()), overload)
    return grouped


_TYPE_NAMES: Final = {
    **{str(kind): kind for kind in (celtypes.BOOL, celtypes.BYTES, celtypes.DOUBLE, celtypes.INT, celtypes.STRING, celtypes.UINT)},
    **{str(kind): kind for kind in (celtypes.IP, celtypes.CIDR)},
    "list": celtypes.list_of(celtypes.param("A")),
    "map": celtypes.map_of(celtypes.param("A"), celtypes.param("B")),
    "null_type": celtypes.NULL,
    "type": celtypes.type_of(celtypes.param("A")),
    "optional_type": celtypes.optional_of(celtypes.param("V")),
    "google.protobuf.Duration": celtypes.DURATION,
}


def environment(gates: Gates, kind: EnvType) -> Environment:
    """Return what an expression of this kind may use under these gates."""
    stored = kind is EnvType.STORED
    attribute = celtypes.DYN if gates.list_type_attributes else celtypes.ANY
    fields = {
        "driver": celtypes.STRING,
        "attributes": celtypes.map_of(celtypes.STRING, celtypes.map_of(celtypes.STRING, attribute)),
        "capacity": celtypes.map_of(celtypes.STRING, celtypes.map_of(celtypes.STRING, celtypes.QUANTITY)),
    }
    if stored or gates.consumable_capacity:
        fields["allowMultipleAllocations"] = celtypes.BOOL
    return Environment(
        functions=functions(includes=stored or gates.list_type_attributes),
        idents={**{name: celtypes.type_of(value) for name, value in _TYPE_NAMES.items()}, "device": celtypes.DEVICE},
        fields=fields,
        attribute=attribute,
    )
