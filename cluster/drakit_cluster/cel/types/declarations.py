"""What a device selector may call and read: Kubernetes' base environment 1.36 and the variable `device`.

Sources: the CEL language definition (standard functions), cel-go's extensions (strings 2, lists 3, sets, optional types, bindings 0,
two-variable comprehensions), Kubernetes' own libraries, and the device environment of dynamic resource allocation.
"""

import dataclasses
import enum
import functools
from typing import Final, Protocol

from drakit_cluster.cel.types import celtypes, signatures
from drakit_cluster.cel.types.celtypes import Type

COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_NUMBERS: Final = {"int": "int64", "uint": "uint64", "double": "double"}
_ORDERED: Final = ("bool", "int64", "uint64", "double", "string", "bytes", "timestamp", "duration")


class EnvType(enum.Enum):
    """For whom an expression is compiled: a new one sees only what the gates allow, a stored one everything."""

    NEW = "NewExpressions"
    STORED = "StoredExpressions"


class Features(Protocol):
    """The feature gates that selectors depend on."""

    @property
    def consumable_capacity(self) -> bool: ...
    @property
    def list_type_attributes(self) -> bool: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Names, functions and fields that an expression may use, and the type of an attribute."""

    functions: signatures.Functions
    idents: dict[str, Type]
    fields: dict[str, Type]
    attribute: Type


_STANDARD: Final = """
logical_not !_ bool -> bool
not_strictly_false @not_strictly_false bool -> bool
conditional _?_:_ bool,A,A -> A
equals _==_ A,A -> bool
not_equals _!=_ A,A -> bool
in_list @in A,list(A) -> bool
in_map @in A,map(A,B) -> bool
index_list _[_] list(A),int -> A
index_map _[_] map(A,B),A -> B
add_bytes _+_ bytes,bytes -> bytes
add_double _+_ double,double -> double
add_duration_duration _+_ duration,duration -> duration
add_duration_timestamp _+_ duration,timestamp -> timestamp
add_timestamp_duration _+_ timestamp,duration -> timestamp
add_int64 _+_ int,int -> int
add_list _+_ list(A),list(A) -> list(A)
add_string _+_ string,string -> string
add_uint64 _+_ uint,uint -> uint
subtract_double _-_ double,double -> double
subtract_duration_duration _-_ duration,duration -> duration
subtract_int64 _-_ int,int -> int
subtract_timestamp_duration _-_ timestamp,duration -> timestamp
subtract_timestamp_timestamp _-_ timestamp,timestamp -> duration
subtract_uint64 _-_ uint,uint -> uint
multiply_double _*_ double,double -> double
multiply_int64 _*_ int,int -> int
multiply_uint64 _*_ uint,uint -> uint
divide_double _/_ double,double -> double
divide_int64 _/_ int,int -> int
divide_uint64 _/_ uint,uint -> uint
modulo_int64 _%_ int,int -> int
modulo_uint64 _%_ uint,uint -> uint
negate_double -_ double -> double
negate_int64 -_ int -> int
bool_to_bool bool bool -> bool
string_to_bool bool string -> bool
bytes_to_bytes bytes bytes -> bytes
string_to_bytes bytes string -> bytes
double_to_double double double -> double
int64_to_double double int -> double
string_to_double double string -> double
uint64_to_double double uint -> double
duration_to_duration duration duration -> duration
int64_to_duration duration int -> duration
string_to_duration duration string -> duration
to_dyn dyn A -> dyn
int64_to_int64 int int -> int
double_to_int64 int double -> int
duration_to_int64 int duration -> int
string_to_int64 int string -> int
timestamp_to_int64 int timestamp -> int
uint64_to_int64 int uint -> int
string_to_string string string -> string
bool_to_string string bool -> string
bytes_to_string string bytes -> string
double_to_string string double -> string
duration_to_string string duration -> string
int64_to_string string int -> string
timestamp_to_string string timestamp -> string
uint64_to_string string uint -> string
ip_to_string string ip -> string
cidr_to_string string cidr -> string
timestamp_to_timestamp timestamp timestamp -> timestamp
int64_to_timestamp timestamp int -> timestamp
string_to_timestamp timestamp string -> timestamp
type type A -> type(A)
uint64_to_uint64 uint uint -> uint
double_to_uint64 uint double -> uint
int64_to_uint64 uint int -> uint
string_to_uint64 uint string -> uint
contains_string .contains string,string -> bool
ends_with_string .endsWith string,string -> bool
starts_with_string .startsWith string,string -> bool
matches matches string,string -> bool
matches_string .matches string,string -> bool
duration_to_hours .getHours duration -> int
duration_to_minutes .getMinutes duration -> int
duration_to_seconds .getSeconds duration -> int
duration_to_milliseconds .getMilliseconds duration -> int
"""

_TIME_FIELDS: Final = {
    "getFullYear": "year",
    "getMonth": "month",
    "getDayOfYear": "day_of_year",
    "getDayOfMonth": "day_of_month",
    "getDate": "day_of_month_1_based",
    "getDayOfWeek": "day_of_week",
    "getHours": "hours",
    "getMinutes": "minutes",
    "getSeconds": "seconds",
    "getMilliseconds": "milliseconds",
}

_OPTIONAL: Final = """
optional_of optional.of V -> optional(V)
optional_ofNonZeroValue optional.ofNonZeroValue V -> optional(V)
optional_none optional.none -> optional(V)
optional_value .value optional(V) -> V
optional_hasValue .hasValue optional(V) -> bool
optional_or_optional .or optional(V),optional(V) -> optional(V)
optional_orValue_value .orValue optional(V),V -> V
optional_unwrap optional.unwrap list(optional(V)) -> list(V)
optional_unwrapOpt .unwrapOpt list(optional(V)) -> list(V)
list_first .first list(V) -> optional(V)
list_last .last list(V) -> optional(V)
optional_list_index_int _[_] optional(list(V)),int -> optional(V)
optional_map_index_value _[_] optional(map(K,V)),K -> optional(V)
list_optindex_optional_int _[?_] list(V),int -> optional(V)
optional_list_optindex_optional_int _[?_] optional(list(V)),int -> optional(V)
map_optindex_optional_value _[?_] map(K,V),K -> optional(V)
optional_map_optindex_optional_value _[?_] optional(map(K,V)),K -> optional(V)
"""

_STRINGS: Final = """
string_char_at_int .charAt string,int -> string
string_index_of_string .indexOf string,string -> int
string_index_of_string_int .indexOf string,string,int -> int
string_last_index_of_string .lastIndexOf string,string -> int
string_last_index_of_string_int .lastIndexOf string,string,int -> int
string_lower_ascii .lowerAscii string -> string
string_upper_ascii .upperAscii string -> string
string_replace_string_string .replace string,string,string -> string
string_replace_string_string_int .replace string,string,string,int -> string
string_split_string .split string,string -> list(string)
string_split_string_int .split string,string,int -> list(string)
string_substring_int .substring string,int -> string
string_substring_int_int .substring string,int,int -> string
string_trim .trim string -> string
list_join .join list(string) -> string
list_join_string .join list(string),string -> string
string_format .format string,list(dyn) -> string
strings_quote strings.quote string -> string
string_find_string .find string,string -> string
string_find_all_string .findAll string,string -> list(string)
string_find_all_string_int .findAll string,string,int -> list(string)
"""

_LISTS: Final = """
list_a_index_of_int .indexOf list(A),A -> int
list_a_last_index_of_int .lastIndexOf list(A),A -> int
list_slice .slice list(T),int,int -> list(T)
list_flatten .flatten list(list(T)) -> list(T)
list_flatten_int .flatten list(dyn),int -> list(dyn)
lists_range lists.range int -> list(int)
list_reverse .reverse list(T) -> list(T)
list_distinct .distinct list(T) -> list(T)
list_sets_contains_list sets.contains list(T),list(T) -> bool
list_sets_equivalent_list sets.equivalent list(T),list(T) -> bool
list_sets_intersects_list sets.intersects list(T),list(T) -> bool
@mapInsert_map_key_value cel.@mapInsert map(K,V),K,V -> map(K,V)
@mapInsert_map_map cel.@mapInsert map(K,V),map(K,V) -> map(K,V)
"""

_KUBERNETES: Final = """
string_to_quantity quantity string -> quantity
is_quantity_string isQuantity string -> bool
quantity_sign sign quantity -> int
quantity_is_greater_than .isGreaterThan quantity,quantity -> bool
quantity_is_less_than .isLessThan quantity,quantity -> bool
quantity_compare_to .compareTo quantity,quantity -> int
quantity_get_float .asApproximateFloat quantity -> double
quantity_get_int .asInteger quantity -> int
quantity_is_integer .isInteger quantity -> bool
quantity_add .add quantity,quantity -> quantity
quantity_add_int .add quantity,int -> quantity
quantity_sub .sub quantity,quantity -> quantity
quantity_sub_int .sub quantity,int -> quantity
string_to_semver semver string -> semver
string_bool_to_semver semver string,bool -> semver
is_semver_string isSemver string -> bool
is_semver_string_bool isSemver string,bool -> bool
semver_is_greater_than .isGreaterThan semver,semver -> bool
semver_is_less_than .isLessThan semver,semver -> bool
semver_compare_to .compareTo semver,semver -> int
semver_major .major semver -> int
semver_minor .minor semver -> int
semver_patch .patch semver -> int
string_to_url url string -> url
is_url_string isURL string -> bool
url_get_scheme .getScheme url -> string
url_get_host .getHost url -> string
url_get_hostname .getHostname url -> string
url_get_port .getPort url -> string
url_get_escaped_path .getEscapedPath url -> string
url_get_query .getQuery url -> map(string,list(string))
string_to_ip ip string -> ip
is_ip isIP string -> bool
ip_is_canonical ip.isCanonical string -> bool
ip_family .family ip -> int
ip_is_unspecified .isUnspecified ip -> bool
ip_is_loopback .isLoopback ip -> bool
ip_is_link_local_multicast .isLinkLocalMulticast ip -> bool
ip_is_link_local_unicast .isLinkLocalUnicast ip -> bool
ip_is_global_unicast .isGlobalUnicast ip -> bool
string_to_cidr cidr string -> cidr
is_cidr isCIDR string -> bool
cidr_contains_ip_string .containsIP cidr,string -> bool
cidr_contains_ip_ip .containsIP cidr,ip -> bool
cidr_contains_cidr_string .containsCIDR cidr,string -> bool
cidr_contains_cidr .containsCIDR cidr,cidr -> bool
cidr_ip .ip cidr -> ip
cidr_prefix_length .prefixLength cidr -> int
cidr_masked .masked cidr -> cidr
format-validate .validate named_format,string -> optional(list(string))
format-named format.named string -> optional(named_format)
"""

FORMATS: Final = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix"),
    *("dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)

_INCLUDES: Final = "dra_includes_dyn_dyn .includes dyn,dyn -> bool"


def _families() -> str:
    """Overloads that exist once for every type of a family."""
    lines = [f"format.{name} format.{name} -> named_format" for name in FORMATS]
    lines += [f"timestamp_to_{what} .{name} timestamp -> int" for name, what in _TIME_FIELDS.items()]
    lines += [f"timestamp_to_{what}_with_tz .{name} timestamp,string -> int" for name, what in _TIME_FIELDS.items()]
    for kind in ("bytes", "list(A)", "map(A,B)", "string"):
        short = kind.partition("(")[0]
        lines += [f"size_{short} size {kind} -> int", f"{short}_size .size {kind} -> int"]
    for kind in COMPARABLE:
        lines.append(f"list_{kind}_is_sorted_bool .isSorted list({kind}) -> bool")
        lines += [f"list_{kind}_{name}_{kind} .{name} list({kind}) -> {kind}" for name in ("min", "max")]
        lines.append(f"list_{kind}_sort .sort list({kind}) -> list({kind})")
        lines.append(f"list_{kind}_sortByAssociatedKeys .@sortByAssociatedKeys list(T),list({kind}) -> list(T)")
    lines += [f"list_{kind}_sum_{kind} .sum list({kind}) -> {kind}" for kind in ("int", "uint", "double", "duration")]
    return "\n".join(lines)


def _comparisons() -> str:
    """`<` and its like: within a type, and between the types of numbers."""
    names = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}
    types = {suffix: kind for kind, suffix in _NUMBERS.items()}
    lines: list[str] = []
    for function, name in names.items():
        for kind in _ORDERED:
            lines.append(f"{name}_{kind} {function} {types.get(kind, kind)},{types.get(kind, kind)} -> bool")
            crossed = [other for other in types if kind in types and other != kind]
            lines += [f"{name}_{kind}_{other} {function} {types[kind]},{types[other]} -> bool" for other in crossed]
    return "\n".join(lines)


@functools.cache
def _base(*, includes: bool) -> signatures.Functions:
    tables = (_STANDARD, _comparisons(), _OPTIONAL, _STRINGS, _LISTS, _KUBERNETES, _families())
    return signatures.functions(*tables, _INCLUDES if includes else "")


_TYPE_NAMES: Final = {
    **{str(kind): celtypes.type_of(kind) for kind in (celtypes.BOOL, celtypes.BYTES, celtypes.DOUBLE, celtypes.INT)},
    **{str(kind): celtypes.type_of(kind) for kind in (celtypes.STRING, celtypes.UINT, celtypes.IP, celtypes.CIDR)},
    "list": celtypes.type_of(celtypes.list_of(celtypes.param("A"))),
    "map": celtypes.type_of(celtypes.map_of(celtypes.param("A"), celtypes.param("B"))),
    "null_type": celtypes.type_of(celtypes.NULL),
    "type": celtypes.type_of(celtypes.type_of(celtypes.param("A"))),
    "optional_type": celtypes.type_of(celtypes.optional_of(celtypes.param("V"))),
    "google.protobuf.Duration": celtypes.type_of(celtypes.DURATION),
    "google.protobuf.Timestamp": celtypes.type_of(celtypes.TIMESTAMP),
}


def environment(features: Features, kind: EnvType) -> Environment:
    """What an expression of this kind may use under these gates."""
    stored = kind is EnvType.STORED
    attribute = celtypes.DYN if features.list_type_attributes else celtypes.ANY
    fields = {
        "driver": celtypes.STRING,
        "attributes": celtypes.map_of(celtypes.STRING, celtypes.map_of(celtypes.STRING, attribute)),
        "capacity": celtypes.map_of(celtypes.STRING, celtypes.map_of(celtypes.STRING, celtypes.QUANTITY)),
    }
    if stored or features.consumable_capacity:
        fields["allowMultipleAllocations"] = celtypes.BOOL
    return Environment(
        functions=_base(includes=stored or features.list_type_attributes),
        idents={**_TYPE_NAMES, "device": celtypes.DEVICE},
        fields=fields,
        attribute=attribute,
    )
