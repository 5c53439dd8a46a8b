"""Label selectors (metav1 LabelSelector)."""

from collections.abc import Callable
from typing import Final

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

_OPERATORS: Final[dict[str, Callable[[Json, list[Json]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def selects(selector: Json, obj: Object) -> bool:
    """Return whether a LabelSelector selects an object. None selects nothing; an empty selector selects everything."""
    if not isinstance(selector, dict):
        return False
    labels = json_types.mapping(obj, "metadata", "labels")
    exact = all(labels.get(key) == value for key, value in json_types.mapping(selector, "matchLabels").items())
    return exact and all(_holds(requirement, labels) for requirement in json_types.objects(selector, "matchExpressions"))


def _holds(requirement: Object, labels: Object) -> bool:
    holds = _OPERATORS.get(json_types.text(requirement, "operator"))
    return holds is not None and holds(labels.get(json_types.text(requirement, "key")), json_types.items(requirement, "values"))
