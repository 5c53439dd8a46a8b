"""Decode the opaque parameters of a claim or a DeviceClass strictly into the dataclasses of a driver (see ``wire``).

A dataclass may declare the class attributes ``api_version`` and ``kind``. Both are then required on the wire, and choose among several types.
Its class attribute ``aliases`` lists further pairs that claims of an older driver have; an empty text stands for a key that they lack. Invalid
parameters raise ConfigError. A schema that breaks the rules raises TypeError; ``check_types`` detects it when a driver opens.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from drakit.core import errors, records
from drakit.core.encoding import json_errors, wire

SIZE_MAX = 10 * 1024
DEPTH_MAX = 32
FORMAT = wire.Format()
_IDENTITY = ("apiVersion", "kind")


def decode(parameters: records.Record, types: Sequence[type[object]], *, root: str) -> object:
    """Return a value of one of ``types``. Raises ConfigError, also above ``SIZE_MAX`` bytes of JSON or 32 levels; its field begins with ``root``."""
    _check_depth(parameters, root)
    _check_size(parameters, root)
    types_by_kind = by_kind(types)
    if None in types_by_kind:
        return FORMAT.decode(types[0], parameters, root)
    schema = types_by_kind[_select(parameters, types_by_kind, root)]
    return FORMAT.decode(schema, {key: value for key, value in parameters.items() if key not in _IDENTITY}, root)


def by_kind(types: Sequence[type[object]]) -> Mapping[tuple[str, str] | None, type[object]]:
    """Return the types by apiVersion and kind, aliases too. Raises TypeError if these are missing or equal for several types."""
    named = [(identity, schema) for schema in types for identity in (kind_id(schema), *_aliases(schema))]
    types_by_kind = dict(named)
    if len(types_by_kind) != len(named) or (None in types_by_kind and len(types) > 1):
        raise TypeError("several configuration types need api_version and kind, each pair once, also among aliases")
    return types_by_kind


def kind_id(schema: type[object]) -> tuple[str, str] | None:
    """Return the apiVersion and kind that a type declares as class attributes; None if it declares neither. Raises TypeError."""
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


def _aliases(schema: type[object]) -> Sequence[tuple[str, str]]:
    """Return the further pairs of apiVersion and kind that mean a type. Raises TypeError."""
    if "aliases" in {field.name for field in dataclasses.fields(schema)}:  # type: ignore[arg-type] # kind_id checked that it is a dataclass
        return ()
    pairs: object = getattr(schema, "aliases", ())
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and [*map(type, pair)] == [str, str] for pair in pairs):
        raise TypeError(f'{schema.__name__}.aliases must be a tuple of pairs of text, apiVersion and kind, such as (("v1alpha1", ""),)')
    if pairs and kind_id(schema) is None:
        raise TypeError(f"{schema.__name__} has aliases, and must declare api_version and kind")
    return pairs


def kind_of(schema: type[object]) -> str:
    """Return the name of a type for users: its kind, or the class's name."""
    identity = kind_id(schema)
    return identity[1] if identity else schema.__name__


def _select(parameters: records.Record, types_by_kind: Mapping[tuple[str, str] | None, type[object]], root: str) -> tuple[str, str]:
    """Return the apiVersion and kind of the parameters. Raises ConfigError unless they are known."""
    api_version, kind = parameters.get("apiVersion", ""), parameters.get("kind", "")
    if isinstance(api_version, str) and isinstance(kind, str) and (api_version, kind) in types_by_kind:
        return api_version, kind
    known = [identity for schema in types_by_kind.values() if (identity := kind_id(schema))]
    listed = ", ".join(f"{api_version} {kind}" for api_version, kind in dict.fromkeys(known))
    for key in _IDENTITY:
        if not isinstance(parameters.get(key), str):
            raise errors.ConfigError(f"is required, as text; known are {listed}", field=f"{root}.{key}")
    written = (str(parameters["apiVersion"]), str(parameters["kind"]))
    wrong = 0 if written[1] in {kind for _, kind in known} else 1
    raise errors.ConfigError(f"{json_errors.quoted(written[wrong])} is not known; known are {listed}", field=f"{root}.{_IDENTITY[wrong]}")


def _check_depth(value: records.Json, root: str) -> None:
    level: list[records.Json] = [value]
    for _ in range(DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise errors.ConfigError(f"is nested over {DEPTH_MAX} levels deep", field=root)


def _children(value: records.Json) -> Sequence[records.Json]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _check_size(parameters: records.Record, root: str) -> None:
    text = json.dumps(records.thaw(parameters), ensure_ascii=False, separators=(",", ":"))
    if (size := len(text.encode(errors="surrogatepass"))) > SIZE_MAX:
        raise errors.ConfigError(f"is {size} bytes of JSON, over the limit of {SIZE_MAX}", field=root)


def check_types(types: object, owner: str) -> None:
    """Raise TypeError unless ``types`` is a tuple of dataclasses that can be decoded. The text begins with ``owner``, and names the fix."""
    if not isinstance(types, tuple) or not types:
        raise TypeError(f"{owner} is {_described_type(types)}; give a tuple of dataclasses, such as (MyConfig,)")
    for number, schema in enumerate(types):
        if not isinstance(schema, type):
            raise TypeError(f"{owner}[{number}] is {_described_type(schema)}; give a dataclass, the class itself")
        if not dataclasses.is_dataclass(schema):
            raise TypeError(f"{owner}[{number}]: {schema.__name__} is not a dataclass; write @dataclasses.dataclass(frozen=True) above it")
    try:
        by_kind(types)
    except TypeError as error:
        raise TypeError(f"{owner}: {error}") from error
    for schema in types:
        FORMAT.converter(schema)


def _described_type(value: object) -> str:
    return (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else "an empty tuple"
        if value == ()
        else repr(value)[: json_errors.QUOTE_MAX]
    )
