"""Rules of node selectors, and of the choice between a node, a selector and all nodes."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.failure import Failure


def choice(holder: Json, fields: tuple[str, ...], path: str) -> Iterator[Failure]:
    """Yield the failures of ``fields``, of which exactly one must be set."""
    for field in fields:
        value, where = json_types.at(holder, field), f"{path}.{field}"
        if value is False:
            yield failure.invalid(where, False, "must be either unset or set to true")
        elif value == "":
            yield failure.invalid(where, "", "must be either unset or set to a non-empty string")
        elif isinstance(value, str):
            yield from names.subdomain(value, where)
        elif isinstance(value, dict):
            yield from check(value, where)
    chosen = [field for field in fields if json_types.at(holder, field) not in (None, "", False)]
    if not chosen:
        yield failure.required(path, f"exactly one of {', '.join(fields)} is required")
    elif len(chosen) > 1:
        yield failure.invalid(path, json_types.from_strings(chosen), f"exactly one of {', '.join(fields)} may be set")


_LISTS = ("In", "NotIn")
_PRESENCE = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


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
    yield from rules.texts("values", names.label_value)(requirement, path)


def _field(requirement: Json, path: str) -> Iterator[Failure]:
    operator, values = json_types.text(requirement, "operator"), json_types.items(requirement, "values")
    if operator not in _LISTS:
        yield failure.invalid(f"{path}.operator", operator, f"use one of {', '.join(_LISTS)} for a field")
    elif len(values) != 1:
        yield failure.required(f"{path}.values", f"operator {operator} needs exactly one value for a field")
    if json_types.text(requirement, "key") != "metadata.name":
        yield failure.invalid(f"{path}.key", json_types.at(requirement, "key"), "only metadata.name can be matched as a field")
    else:
        yield from rules.texts("values", names.subdomain)(requirement, path)


_term = rules.all_of(rules.items("matchExpressions", _expression), rules.items("matchFields", _field))


def check(selector: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a node selector."""
    if not json_types.items(selector, "nodeSelectorTerms"):
        yield failure.required(f"{path}.nodeSelectorTerms", "write at least one term; none selects no node")
    yield from rules.items("nodeSelectorTerms", _term)(selector, path)
