"""The condition EvictionInProgress of a DeviceTaintRule: the progress of its eviction, or for the effect None a forecast."""

from dataclasses import dataclass

from drakit.telemetry import plurals
from drakit_cluster.objects import json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import taint_rules

TYPE = "EvictionInProgress"
_COMPARED = ("status", "reason", "message", "observedGeneration")


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Counts for a rule: the selected devices in slices and in claims, the pods still to evict, their namespaces, and the evicted pods."""

    published: int
    allocated: int
    pods: int
    namespaces: int
    evicted: int


def is_final(rule: Object) -> bool:
    """Return whether the condition is the forecast for the current spec, which is made only once."""
    condition = _existing_condition(rule)
    generation = json_types.number(rule, "metadata", "generation")
    return taint_rules.taint_of(rule).get("effect") == "None" and condition.get("observedGeneration") == generation


def differs(rule: Object, condition: Object) -> bool:
    """Return whether the rule's condition has to be written."""
    existing = _existing_condition(rule)
    return any(existing.get(field) != condition.get(field) for field in _COMPARED)


def condition_of(rule: Object, effects: Effects) -> Object:
    """Return the condition for the rule."""
    effect = json_types.text(taint_rules.taint_of(rule), "effect")
    pending = effect == "NoExecute" and effects.pods > 0
    namespaces = plurals.counted(effects.namespaces, "namespace")
    if effect == "NoExecute":
        reason = "PodsPendingEviction" if pending else "Completed" if effects.evicted else "NotStarted"
        message = f"{plurals.counted(effects.pods, 'pod')} must still be evicted in {namespaces}." if pending else ""
    elif effect == "None":
        reason = "NoEffect"
        devices = f"{plurals.counted(effects.published, 'published device')} and {plurals.counted(effects.allocated, 'allocated device')}"
        would_evict = f"{plurals.counted(effects.pods, 'pod')} in {namespaces}"
        message = f"The rule selects {devices}. With the effect NoExecute it would evict {would_evict}."
    else:
        reason, message = "OtherEffect", "Only the effect NoExecute evicts pods."
    if effects.evicted:
        message = f"{message} {plurals.counted(effects.evicted, 'pod')} evicted so far.".strip()
    return {
        "type": TYPE,
        "status": "True" if pending else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": json_types.number(rule, "metadata", "generation"),
        "lastTransitionTime": naming.now(),
    }


def _existing_condition(rule: Object) -> Object:
    conditions = json_types.objects(rule, "status", "conditions")
    return next((condition for condition in conditions if condition.get("type") == TYPE), {})
