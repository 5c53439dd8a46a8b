"""JSON values as drakit keeps them: typed, and frozen all the way down.

A ``Record`` is the small JSON object a driver may remember about a grant (a MIG UUID, a class id). ``freeze`` makes one from anything
JSON-like; ``thaw`` gives back plain dicts and lists for an encoder.
"""

import types
from collections.abc import Mapping, Sequence

_TYPE_ERROR = "only None, bool, int, float, str, lists and mappings with text keys can be remembered"

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Record = Mapping[str, Json]

DEPTH_MAX = 64
_PLAIN = (str, int, float, type(None))
# What is met most comes first, because to ask whether something is a Mapping of any other kind costs much more.
_OBJECT = (dict, types.MappingProxyType, Mapping)

EMPTY: Record = types.MappingProxyType({})


def empty() -> Record:
    """The empty record, as a default of dataclass fields (a read-only mapping is not hashable before Python 3.12)."""
    return EMPTY


def freeze(value: object, *, depth: int = DEPTH_MAX) -> Json:
    """An immutable copy of a JSON value: mappings become read-only, lists become tuples.

    Raises TypeError for anything JSON cannot express, and for what is nested deeper than ``depth``.
    """
    if not depth:
        raise TypeError(f"what is nested deeper than {DEPTH_MAX} cannot be remembered")
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _OBJECT):
        return types.MappingProxyType({_key(key): freeze(item, depth=depth - 1) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return tuple(freeze(item, depth=depth - 1) for item in value)
    raise TypeError(f"{_TYPE_ERROR}, not {type(value).__name__}")


def freeze_record(value: Mapping[str, object]) -> Record:
    """An immutable copy of a JSON object; raises TypeError as ``freeze`` does."""
    return types.MappingProxyType({_key(key): freeze(item) for key, item in value.items()})


def thaw(value: Json) -> object:
    """Plain dicts and lists for an encoder."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _OBJECT):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value]


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{_TYPE_ERROR}, not a key of type {type(key).__name__}")
