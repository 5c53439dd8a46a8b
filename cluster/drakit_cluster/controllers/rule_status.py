"""The condition EvictionInProgress of a DeviceTaintRule: what its taint does, in words for the admin. Pure.

It is kept up to date for the effect NoExecute. For None it is a forecast, made once for each generation of the rule's spec.
"""

from dataclasses import dataclass

from drakit_cluster.objects import json_types, moments
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import taint_rules

TYPE = "EvictionInProgress"
_COMPARED = ("status", "reason", "message", "observedGeneration")


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Devices that a rule selects, in slices and in claims; pods that have to go, in how many namespaces; and pods that went."""

    published: int
    allocated: int
    pods: int
    namespaces: int
    evicted: int


def is_final(rule: Object) -> bool:
    """Say whether the condition is the forecast for the present spec, which is not made again."""
    known = _known(rule)
    generation = json_types.number(rule, "metadata", "generation")
    return taint_rules.taint_of(rule).get("effect") == "None" and known.get("observedGeneration") == generation


def differs(rule: Object, condition: Object) -> bool:
    """Say whether the rule's condition has to be written."""
    known = _known(rule)
    return any(known.get(field) != condition.get(field) for field in _COMPARED)


def condition(rule: Object, effects: Effects) -> Object:
    """Return the condition for the rule."""
    effect = json_types.text(taint_rules.taint_of(rule), "effect")
    pending = effect == "NoExecute" and effects.pods > 0
    if effect == "NoExecute":
        reason = "PodsPendingEviction" if pending else "Completed" if effects.evicted else "NotStarted"
        message = f"{_count(effects.pods, 'pod')} must still be evicted in {_count(effects.namespaces, 'namespace')}." if pending else ""
    elif effect == "None":
        reason = "NoEffect"
        message = (
            f"The rule selects {_count(effects.published, 'published device')} and {_count(effects.allocated, 'allocated device')}. "
            f"With the effect NoExecute it would evict {_count(effects.pods, 'pod')} in {_count(effects.namespaces, 'namespace')}."
        )
    else:
        reason, message = "OtherEffect", "Only the effect NoExecute evicts pods."
    if effects.evicted:
        message = f"{message} {_count(effects.evicted, 'pod')} evicted so far.".strip()
    return {
        "type": TYPE,
        "status": "True" if pending else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": json_types.number(rule, "metadata", "generation"),
        "lastTransitionTime": moments.now(),
    }


def _known(rule: Object) -> Object:
    conditions = json_types.objects(rule, "status", "conditions")
    return next((one for one in conditions if one.get("type") == TYPE), {})


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
