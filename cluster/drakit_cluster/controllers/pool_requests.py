"""Answers ResourcePoolStatusRequests once, as soon as the pools are complete, and deletes them: answered ones after an hour, others after a day.

What pools have, counted for those who ask with a ResourcePoolStatusRequest. Pure.

Source: KEP-5677. Only slices of the highest generation count. A device that several claims share is allocated once, admin access allocates nothing,
and a device is unavailable that has a taint with the effect NoSchedule or NoExecute, be it of its driver or of a rule.
"""

import contextlib
import datetime
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POOL_STATUS_REQUEST, SLICE, TAINT_RULE
from drakit_cluster.scheduling import taint_rules

ANSWERED_FOR = datetime.timedelta(hours=1)
WAITING_FOR = datetime.timedelta(days=1)


class PoolCounter:
    """``with_rules`` says whether DeviceTaintRules make devices unavailable."""

    def __init__(self, api: Api, *, with_rules: bool, now: Callable[[], datetime.datetime] = naming.present) -> None:
        self._api = api
        self._with_rules = with_rules
        self._now = now
        self._ends: dict[Key, datetime.datetime] = {}
        self.waiting: set[Key] = set()
        """Requests for pools that are incomplete."""

    def check(self, key: Key) -> None:
        """Answer a request that has no answer yet, and note when it ends. Raise ApiError."""
        self.waiting.discard(key)
        self._ends.pop(key, None)
        try:
            request = self._api.get(POOL_STATUS_REQUEST, key.name)
        except errors.NotFoundError:
            return
        if "status" not in request and not self._answer(request):
            self.waiting.add(key)
        self._ends[key] = _end(request)

    def act(self) -> float | None:
        """Delete the requests that have ended. Return after how many seconds the next one does, None where there is none. Raise ApiError."""
        present = self._now()
        for key in [key for key, end in self._ends.items() if end <= present]:
            with contextlib.suppress(errors.NotFoundError):
                self._api.delete(POOL_STATUS_REQUEST, key.name)
            del self._ends[key]
            self.waiting.discard(key)
        return min(((end - present).total_seconds() for end in self._ends.values()), default=None)

    def _answer(self, request: Object) -> bool:
        rules = self._api.list(TAINT_RULE).items if self._with_rules else []
        status = answer_to(request, self._api.list(SLICE).items, self._api.list(CLAIM).items, rules)
        if status is None:
            return False
        request["status"] = status
        self._api.update(POOL_STATUS_REQUEST, request, subresource="status")
        return True


def _end(request: Object) -> datetime.datetime:
    """Return when a request is to be deleted."""
    created = json_types.text(request, "metadata", "creationTimestamp")
    if "status" not in request:
        return datetime.datetime.fromisoformat(created) + WAITING_FOR
    answered = json_types.text(request, "status", "conditions", 0, "lastTransitionTime")
    return datetime.datetime.fromisoformat(answered or created) + ANSWERED_FOR


_EXCLUDING = frozenset({"NoSchedule", "NoExecute"})


def answer_to(request: Object, slices: Iterable[Object], claims: Iterable[Object], rules: Collection[Object]) -> Object | None:
    """Return the status that answers a request; None as long as a pool that it asks for is incomplete."""
    spec = json_types.mapping(request, "spec")
    driver, name = json_types.text(spec, "driver"), json_types.text(spec, "poolName")
    pools: dict[str, list[Object]] = defaultdict(list)
    for one in slices:
        pool = json_types.text(one, "spec", "pool", "name")
        if json_types.text(one, "spec", "driver") == driver and name in ("", pool):
            pools[pool].append(taint_rules.tainted(one, rules))
    newest = {pool: _newest(found) for pool, found in sorted(pools.items())}
    if any(len(found) < json_types.number(found[0], "spec", "pool", "resourceSliceCount") for found in newest.values()):
        return None
    allocated = _allocated(driver, claims)
    counted = [_pool(driver, pool, found, allocated[pool]) for pool, found in newest.items()]
    shown = counted[: json_types.number(spec, "limit")]
    answer: Object = {"poolCount": len(counted), "conditions": [_complete(len(shown))]}
    return answer | ({"pools": json_types.from_objects(shown)} if shown else {})


def _newest(slices: list[Object]) -> list[Object]:
    """Return the slices of a pool that are of its highest generation."""
    highest = max(_generation(one) for one in slices)
    return [one for one in slices if _generation(one) == highest]


def _generation(published: Object) -> int:
    return json_types.number(published, "spec", "pool", "generation")


def _allocated(driver: str, claims: Iterable[Object]) -> dict[str, set[str]]:
    """Return by pool the devices of a driver that claims have."""
    found: dict[str, set[str]] = defaultdict(set)
    for claim in claims:
        for result in json_types.objects(pod_claims.allocation(claim), "devices", "results"):
            if json_types.text(result, "driver") == driver and result.get("adminAccess") is not True:
                found[json_types.text(result, "pool")].add(json_types.text(result, "device"))
    return found


def _pool(driver: str, pool: str, slices: list[Object], allocated: set[str]) -> Object:
    devices = [device for one in slices for device in json_types.objects(one, "spec", "devices")]
    unavailable = sum(any(taint.get("effect") in _EXCLUDING for taint in json_types.objects(one, "taints")) for one in devices)
    nodes = {json_types.text(one, "spec", "nodeName") for one in slices}
    node: Object = {"nodeName": nodes.pop()} if len(nodes) == 1 and "" not in nodes else {}
    return {
        "driver": driver,
        "poolName": pool,
        "generation": _generation(slices[0]),
        "resourceSliceCount": len(slices),
        "totalDevices": len(devices),
        "allocatedDevices": len(allocated),
        "availableDevices": max(0, len(devices) - len(allocated) - unavailable),
        "unavailableDevices": unavailable,
        **node,
    }


def _complete(pools: int) -> Object:
    return {
        "type": "Complete",
        "status": "True",
        "reason": "CalculationComplete",
        "message": f"{pools} pool{'' if pools == 1 else 's'} counted",
        "lastTransitionTime": naming.now(),
    }
