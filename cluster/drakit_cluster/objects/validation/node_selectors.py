"""Rules of node selectors in slices, devices and allocations."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import each, failure, names
from drakit_cluster.objects.validation.failure import Failure

_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


def check(selector: Json, path: str) -> Iterator[Failure]:
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
