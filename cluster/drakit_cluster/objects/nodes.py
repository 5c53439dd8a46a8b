"""Which nodes a slice, or a single device of one, is for: a node name, all nodes, or a v1 NodeSelector."""

import re
from collections.abc import Callable, Sequence

from drakit_cluster.objects import json_types, taints
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import formats

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = 1 << 63


def matches(node: Object, place: Object) -> bool:
    """Return whether the node selection in ``place`` (``nodeName``, ``allNodes`` or ``nodeSelector``) covers ``node``.

    Raises :class:`AllocationError` for a selector that cannot be read.
    """
    if name := json_types.text(place, "nodeName"):
        return name == json_types.text(node, "metadata", "name")
    if place.get("allNodes") is True:
        return True
    selector = place.get("nodeSelector")
    return selector is not None and selects(selector, node)


def exclusion(node: Object, selector: Object, tolerations: Sequence[Object]) -> str:
    """Return why the labels or taints of a node exclude a pod with a nodeSelector and tolerations; "" if they do not."""
    labels = json_types.mapping(node, "metadata", "labels")
    if missing := [f"{name}={value}" for name, value in selector.items() if labels.get(name) != value]:
        return f"lacks the labels {', '.join(missing)} of the pod's nodeSelector"
    if taints.prevents(json_types.objects(node, "spec", "taints"), tolerations):
        return "has a taint that the pod does not tolerate"
    return ""


def selects(selector: Json, node: Object) -> bool:
    """Return whether a NodeSelector selects the node: any term whose requirements all hold; an empty term selects nothing."""
    terms = [_term(term, node) for term in json_types.objects(selector, "nodeSelectorTerms")]
    return any(terms)


def _term(term: Object, node: Object) -> bool:
    labels = {key: value for key, value in json_types.mapping(node, "metadata", "labels").items() if isinstance(value, str)}
    fields = {"metadata.name": json_types.text(node, "metadata", "name")}
    matches = [_requirement(_checked_label(expression), labels) for expression in json_types.objects(term, "matchExpressions")]
    matches += [_requirement(_checked_field(field_term), fields) for field_term in json_types.objects(term, "matchFields")]
    return bool(matches) and all(matches)


def _checked_label(requirement: Object) -> Object:
    """Refuse an invalid label. Such a selector is an error as a whole; it does not just select no node."""
    key = json_types.text(requirement, "key")
    if reason := formats.label_key(key):
        raise AllocationError(f"node selector: key {key!r}: {reason}")
    for value in json_types.strings(requirement, "values"):
        if reason := formats.label_value(value):
            raise AllocationError(f"node selector: {key}: value {value!r}: {reason}")
    return requirement


def _checked_field(requirement: Object) -> Object:
    """Allow any field, as Kubernetes does. A node has only metadata.name, so every other field counts as absent."""
    key, operator = json_types.text(requirement, "key"), json_types.text(requirement, "operator")
    values = json_types.items(requirement, "values")
    if operator not in {"In", "NotIn"} or len(values) != 1:
        raise AllocationError(f"node selector: matchFields takes In or NotIn and one value, not {key} {operator} {values}")
    return requirement


def _requirement(requirement: Object, labels: dict[str, str]) -> bool:
    key, operator = json_types.text(requirement, "key"), json_types.text(requirement, "operator")
    values = json_types.strings(requirement, "values")
    if operator not in _OPERATORS:
        raise AllocationError(f"node selector: {key}: unknown operator {operator!r}; known are {', '.join(_OPERATORS)}")
    allowed, holds = _OPERATORS[operator]
    if not allowed(values):
        raise AllocationError(f"node selector: {key}: {operator} does not take {len(values)} values {values}")
    return holds(labels.get(key), values)


def _number(text: str | None) -> int | None:
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def _compare(label: str | None, values: list[str], sign: int) -> bool:
    left, right = _number(label), _number(values[0])
    return left is not None and right is not None and sign * left > sign * right


_OPERATORS: dict[str, tuple[Callable[[list[str]], bool], Callable[[str | None, list[str]], bool]]] = {
    "In": (bool, lambda label, values: label is not None and label in values),
    "NotIn": (bool, lambda label, values: label is None or label not in values),
    "Exists": (lambda values: not values, lambda label, _: label is not None),
    "DoesNotExist": (lambda values: not values, lambda label, _: label is None),
    "Gt": (lambda values: len(values) == 1 and _number(values[0]) is not None, lambda label, values: _compare(label, values, 1)),
    "Lt": (lambda values: len(values) == 1 and _number(values[0]) is not None, lambda label, values: _compare(label, values, -1)),
}
