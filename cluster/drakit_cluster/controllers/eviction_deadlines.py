"""When the users of a claim are evicted: taints of its devices, and the tolerations of its allocation."""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.objects import json_types, taints
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object

_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_NEVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)
_MAX_SECONDS = 10**9


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A taint on a device, and the name of the rule that added it; ``""`` for the driver."""

    body: Object
    rule: str = ""


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The time at which the users of a claim are evicted, the key of the taint that sets it, and every rule with a NoExecute taint
    that is not tolerated forever.
    """

    time: datetime.datetime
    taint: str
    rules: frozenset[str]


def results(claim: Object) -> list[tuple[DeviceId, Object]]:
    """Return the claim's allocated devices with their results."""
    entries = json_types.objects(pod_claims.allocation(claim), "devices", "results")
    return [(DeviceId(*(json_types.text(entry, field) for field in ("driver", "pool", "device"))), entry) for entry in entries]


def of_claim(claim: Object, taints_of: Callable[[DeviceId], Iterable[Taint]]) -> Deadline | None:
    """Return the earliest deadline that a taint of a device sets; None if every taint is tolerated."""
    pressing = [
        (time, taint)
        for device, result in results(claim)
        for taint in taints_of(device)
        if taint.body.get("effect") == "NoExecute" and (time := _time(taint.body, json_types.objects(result, "tolerations"))) is not None
    ]
    if not pressing:
        return None
    time, first = min(pressing, key=lambda entry: entry[0])
    rules = frozenset(taint.rule for _, taint in pressing if taint.rule)
    return Deadline(time=time, taint=json_types.text(first.body, "key"), rules=rules)


def _time(taint: Object, tolerations: Iterable[Object]) -> datetime.datetime | None:
    """Return when the taint takes effect, None if it is tolerated forever."""
    matching = [toleration for toleration in tolerations if taints.tolerates(toleration, taint)]
    if any(toleration.get("tolerationSeconds") is None for toleration in matching):
        return None
    added = _added(taint)
    seconds = min((json_types.number(toleration, "tolerationSeconds") for toleration in matching), default=0)
    if added == _LONG_AGO or seconds <= 0:
        return added
    return _NEVER if seconds > _MAX_SECONDS else added + datetime.timedelta(seconds=seconds)


def _added(taint: Object) -> datetime.datetime:
    try:
        added = datetime.datetime.fromisoformat(json_types.text(taint, "timeAdded"))
    except ValueError:
        return _LONG_AGO
    return added if added.tzinfo else added.replace(tzinfo=datetime.UTC)
