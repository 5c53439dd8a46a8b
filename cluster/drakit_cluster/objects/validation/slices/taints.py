"""Rules of taints, tolerations and DeviceTaintRules."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.validation import conditions, failure, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.versions import Rule

MAX_CONDITIONS = 8
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_TAINT_NAMES = rules.all_of(rules.text(names.label_key, "key"), rules.text(names.label_value, "value"))


def effect(gates: FeatureGates) -> rules.Rule:
    """Return the rule for the effect of a taint that was not there before, in versions that do not have all effects."""

    def check(value: Json, path: str) -> Iterator[Failure]:
        if json_types.text(value, "effect") == "None" and not gates.follows(Rule.EFFECT_NONE):
            yield failure.not_supported(f"{path}.effect", "None", tuple(effect for effect in _EFFECTS if effect != "None"))

    return check


def check(value: Json, path: str, old: Json = None) -> Iterator[Failure]:
    """Yield the failures of a taint. An effect that the ``old`` taint has stays allowed: a newer server may have accepted it."""
    yield from _TAINT_NAMES(value, path)
    if old is None or json_types.text(old, "effect") != json_types.text(value, "effect"):
        yield from rules.word("effect", _EFFECTS)(value, path)


def toleration(value: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a toleration."""
    key, operator, value_text = (json_types.text(value, field) for field in ("key", "operator", "value"))
    if key:
        yield from names.label_key(key, f"{path}.key")
    yield from rules.word("operator", ("Equal", "Exists"))(value, path)
    if operator == "Exists" and value_text:
        yield failure.invalid(f"{path}.value", value_text, "must be empty for operator Exists, which accepts every value")
    if operator == "Equal":
        yield from names.label_value(value_text, f"{path}.value")
    yield from rules.word("effect", _EFFECTS, optional=True)(value, path)


tolerations = rules.items("tolerations", toleration)
_SELECTOR = rules.all_of(
    rules.if_set(rules.of_text(names.driver), "driver"),
    rules.if_set(rules.of_text(names.pool), "pool"),
    rules.if_set(rules.of_text(names.label), "device"),
)


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new DeviceTaintRule."""
    yield from _rule(new, None)
    yield from effect(context.gates)(json_types.mapping(new, "spec", "taint"), "spec.taint")


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed DeviceTaintRule."""
    return _rule(new, json_types.at(old, "spec", "taint"))


def update_status(new: Object, _old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of what a DeviceTaintRule's controller reports."""
    return conditions.check(new.get("status"), "status", limit=MAX_CONDITIONS)


def _rule(new: Object, old: Json) -> Iterator[Failure]:
    yield from _SELECTOR(json_types.at(new, "spec", "deviceSelector"), "spec.deviceSelector")
    yield from check(json_types.mapping(new, "spec", "taint"), "spec.taint", old)
