"""Rules of the fields that say from which nodes a slice or a device can be used.

Rules of node selectors in slices, devices and allocations.
"""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import each, failure, names
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
            yield from check_selector(value, where)
    chosen = [field for field in fields if json_types.at(holder, field) not in (None, "", False)]
    if not chosen:
        yield failure.required(path, f"exactly one of {', '.join(fields)} is required")
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), f"exactly one of {', '.join(fields)} may be set")


_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


def check_selector(selector: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a node selector."""
    terms = json_types.items(selector, "nodeSelectorTerms")
    if not terms:
        yield failure.required(f"{path}.nodeSelectorTerms", "write at least one term; none selects no node")
    yield from each.item(terms, f"{path}.nodeSelectorTerms", _term)


def _term(term: Json, path: str) -> Iterator[Failure]:
    yield from each.item(json_types.items(term, "matchExpressions"), f"{path}.matchExpressions", _expression)
    yield from each.item(json_types.items(term, "matchFields"), f"{path}.matchFields", _field)


def _expression(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator in _LISTS and not values:
        yield failure.required(f"{path}.values", f"operator {operator} needs values")
    elif operator in _PRESENCE and values:
        yield failure.forbidden(f"{path}.values", f"operator {operator} takes no values")
    elif operator in _COMPARISONS and len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value")
    elif operator not in _LISTS + _PRESENCE + _COMPARISONS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS + _PRESENCE + _COMPARISONS)}")
    yield from names.label_key(json_types.text(requirement, "key"), f"{path}.key")
    yield from each.name(values, f"{path}.values", names.label_value)


def _field(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator not in _LISTS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS)} for a field")
    elif len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value for a field")
    if json_types.text(requirement, "key") != "metadata.name":
        yield failure.invalid(f"{path}.key", json_types.at(requirement, "key"), "only metadata.name can be matched as a field")
    else:
        yield from each.name(values, f"{path}.values", names.subdomain)
