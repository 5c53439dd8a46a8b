"""Rules of the fields that say from which nodes a slice or a device can be used."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure, names, node_selectors
from drakit_cluster.objects.validation.failure import Failure

_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_PER_DEVICE = "perDeviceNodeSelection"


def of_slice(spec: Json) -> Iterator[Failure]:
    """Yield the failures of a slice's choice: exactly one of the four fields."""
    yield from _choice(spec, (*_FIELDS, _PER_DEVICE), "spec")
    terms = json_types.items(spec, "nodeSelector", "nodeSelectorTerms")
    if json_types.at(spec, "nodeSelector") is not None and len(terms) != 1:
        field = "spec.nodeSelector.nodeSelectorTerms"
        yield failure.invalid(field, len(terms), "must have exactly one node selector term")


def of_device(device: Json, path: str, *, chooses: bool) -> Iterator[Failure]:
    """Yield the failures of a device's choice: exactly one of three fields if its slice leaves it to devices, none otherwise."""
    if chooses:
        yield from _choice(device, _FIELDS, path)
    elif any(json_types.at(device, field) is not None for field in _FIELDS):
        detail = f"{', '.join(_FIELDS)} of a device may be set only if the slice has {_PER_DEVICE}: true"
        yield failure.invalid(path, None, detail)


def _choice(holder: Json, fields: tuple[str, ...], path: str) -> Iterator[Failure]:
    for field in fields:
        value, where = json_types.at(holder, field), f"{path}.{field}"
        if value is False:
            yield failure.invalid(where, False, "must be either unset or set to true")
        elif value == "":
            yield failure.invalid(where, "", "must be either unset or set to a non-empty string")
        elif isinstance(value, str):
            yield from names.subdomain(value, where)
        elif isinstance(value, dict):
            yield from node_selectors.check(value, where)
    chosen = [field for field in fields if json_types.at(holder, field) not in (None, "", False)]
    if not chosen:
        yield failure.required(path, f"exactly one of {', '.join(fields)} is required")
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), f"exactly one of {', '.join(fields)} may be set")
