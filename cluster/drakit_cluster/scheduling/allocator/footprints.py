"""The fields of a device that a selector reads, so that devices with equal fields share one result.

A node's devices almost always differ in some attribute (a UUID, a placement), but an expression reads only one or two. If every ``device``
in an expression begins a path to one scalar, such as ``device.attributes["domain"].name``, the verdict depends only on the values at these
paths, because ``device`` is the only variable. Any other expression (a whole map, a computed key, a macro over attributes) has no
footprint. Neither has a device with a field that may be unreadable. Then no result is shared, and each device is evaluated.
"""

import functools
import re
from collections.abc import Hashable, Mapping
from typing import NamedTuple, Self

from drakit_cluster.objects.json_types import Json, Object

# The names are so narrow that a match that begins inside a string literal cannot hide another use of the variable. A field that is
# called is a macro or a function over the whole map. A comment may come before the parenthesis.
_PATH = re.compile(
    r"\bdevice\.(?:(?:driver|allowMultipleAllocations)(?!\w)"
    r'|(?P<group>attributes|capacity)\["(?P<domain>[A-Za-z0-9._-]*)"\]'
    r'(?:\.\??(?P<field>[A-Za-z0-9_]+)(?!\w|\s*[(/])|\[\??"(?P<key>[A-Za-z0-9._-]*)"\]))'
)
_TYPES: Mapping[str, type] = {"string": str, "int": int, "bool": bool, "version": str}
_VERSION = re.compile(r"(?:(?:0|[1-9][0-9]{0,8})(?:\.(?!$)|$)){3}")
_QUANTITY = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?(?:[KMGTPE]i|[numkMGTPE])?")


class _Read(NamedTuple):
    """One path: ``group`` is attributes or capacity."""

    group: str
    domain: str
    name: str
    qualified: str


class Footprint:
    """The paths of one expression."""

    def __init__(self, reads: frozenset[_Read]) -> None:
        self._reads = tuple(sorted(reads))

    @classmethod
    def of(cls, expression: str) -> Self | None:
        """Return the footprint, or None if the expression may read more than its paths."""
        reads = set()
        for match in _PATH.finditer(expression):
            if match["group"]:
                name = match["field"] or match["key"] or ""
                reads.add(_Read(match["group"], match["domain"], name, f"{match['domain']}/{name}"))
        return None if "device" in _PATH.sub(" ", expression) else cls(frozenset(reads))

    def on(self, driver: str, device: Object) -> Hashable:
        """Return the values that the expression reads from a plain device; None if a name is published both with and without its domain."""
        read_values: list[Hashable] = [driver, device.get("allowMultipleAllocations") is True]
        for group, domain, name, qualified in self._reads:
            published = device.get(group)
            if not isinstance(published, dict):
                read_values.append(None)
                continue
            entry = published.get(qualified)
            if domain == driver and name in published:
                if entry is not None:
                    return None
                entry = published[name]
            read_values.append(_value(entry))
        return tuple(read_values)


def _value(entry: Json) -> Hashable:
    """Return kind and value of a plain attribute, or the quantity of a plain capacity."""
    if not isinstance(entry, dict):
        return None
    return str(entry["value"]) if "value" in entry else tuple(entry.items())


def is_plain(device: Object) -> bool:
    """Return whether every attribute and capacity is certain to be readable: scalars of the right type, common versions and quantities."""
    attributes, capacities, types = device.get("attributes"), device.get("capacity"), _TYPES
    for entry in attributes.values() if isinstance(attributes, dict) else ():
        if not isinstance(entry, dict) or len(entry) != 1:
            return False
        ((kind, value),) = entry.items()
        if type(value) is not types.get(kind) or (kind == "version" and not _is_version(str(value))):
            return False
    for entry in capacities.values() if isinstance(capacities, dict) else ():
        value = entry.get("value") if isinstance(entry, dict) else None
        if not isinstance(value, str) or not _is_quantity(value):
            return False
    return True


@functools.lru_cache(maxsize=4096)
def _is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


@functools.lru_cache(maxsize=4096)
def _is_quantity(text: str) -> bool:
    return _QUANTITY.fullmatch(text) is not None
