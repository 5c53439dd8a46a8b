"""Rules of taints and tolerations, and of DeviceTaintRules."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import failure, metadata, names
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_CONDITIONS = 8

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")


def taint(value: Json, path: str, old: Json = None) -> Iterator[Failure]:
    """Yield the failures of a taint. An effect that the ``old`` taint has stays allowed: a newer server may have let it in."""
    yield from names.label_key(json_types.text(value, "key"), f"{path}.key")
    yield from names.label_value(json_types.text(value, "value"), f"{path}.value")
    effect = json_types.text(value, "effect")
    if old is not None and json_types.text(old, "effect") == effect:
        return
    if not effect:
        yield failure.required(f"{path}.effect", f"one of {', '.join(_EFFECTS)}")
    elif effect not in _EFFECTS:
        yield failure.not_supported(f"{path}.effect", effect, _EFFECTS)


def toleration(value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a toleration."""
    key, operator, effect = (json_types.text(value, field) for field in ("key", "operator", "effect"))
    if key:
        yield from names.label_key(key, f"{path}.key")
    yield from _operator(operator, json_types.text(value, "value"), path)
    if effect and effect not in _EFFECTS:
        yield failure.not_supported(f"{path}.effect", effect, _EFFECTS)


def _operator(operator: str, value: str, path: str) -> Iterator[Failure]:
    if operator == "Exists":
        if value:
            yield failure.invalid(f"{path}.value", value, "must be empty for operator Exists, which accepts every value")
    elif operator == "Equal":
        yield from names.label_value(value, f"{path}.value")
    elif not operator:
        yield failure.required(f"{path}.operator", f"one of {', '.join(_OPERATORS)}")
    else:
        yield failure.not_supported(f"{path}.operator", operator, _OPERATORS)


def create(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new DeviceTaintRule."""
    return _rule(new, None)


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed DeviceTaintRule."""
    return _rule(new, json_types.at(old, "spec", "taint"))


def update_status(new: Object, _old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of what a DeviceTaintRule's controller reports."""
    return metadata.check_conditions(json_types.items(new, "status", "conditions"), "status.conditions", limit=MAX_CONDITIONS)


def _rule(new: Object, old: Json) -> Iterator[Failure]:
    chosen = json_types.mapping(new, "spec", "deviceSelector")
    for field, rule in (("driver", names.driver), ("pool", names.pool), ("device", names.label)):
        if field in chosen:
            yield from rule(json_types.text(chosen, field), f"spec.deviceSelector.{field}")
    yield from taint(json_types.mapping(new, "spec", "taint"), "spec.taint", old)
