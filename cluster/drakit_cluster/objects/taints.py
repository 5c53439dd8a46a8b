"""Device taints and tolerations (KEP-5055): which taint keeps a device from being allocated.

Only the effects NoSchedule and NoExecute do; None and effects unknown to this version do not.
"""

from collections.abc import Iterable, Sequence

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object

_PREVENTING = frozenset({"NoSchedule", "NoExecute"})


def tolerates(toleration: Json, taint: Json) -> bool:
    """Return whether ``toleration`` covers ``taint``: an absent effect or key covers all, an absent operator is Equal.

    An unknown operator covers nothing.
    """
    if not _covers(toleration, taint, "effect") or not _covers(toleration, taint, "key"):
        return False
    match json_types.text(toleration, "operator"):
        case "" | "Equal":
            return json_types.text(toleration, "value") == json_types.text(taint, "value")
        case "Exists":
            return True
        case _:
            return False


def _covers(toleration: Json, taint: Json, field: str) -> bool:
    tolerated = json_types.text(toleration, field)
    return not tolerated or tolerated == json_types.text(taint, field)


def text(listed: Iterable[Object]) -> str:
    """Return taints as kubectl writes them."""
    fields = ([json_types.text(taint, name) for name in ("key", "value", "effect")] for taint in listed)
    return ", ".join(f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in fields)


def prevents(taints: Sequence[Object], tolerations: Sequence[Object]) -> bool:
    """Return whether some taint keeps a request with ``tolerations`` from getting the device."""
    return any(
        json_types.text(taint, "effect") in _PREVENTING and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )
