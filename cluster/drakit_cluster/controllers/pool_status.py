"""Pool statuses (KEP-5677): answers a ResourcePoolStatusRequest once, with counts of the devices of each pool of a driver.

The counts are those of Kubernetes: devices that are allocated, that have a taint which keeps pods away (since 1.37), and the rest. The rest is not
what fits together, and a device that is allocated and tainted is subtracted twice. Since 1.37 a pool with shared counters has a partition summary, if
its slices or the request name an attribute to group by, and a pool with shareable devices has the sums of their capacities.

A status is written once. A request waits while a pool is incomplete, until a slice changes; Kubernetes tries again five times and then no more. An
answered request is deleted after an hour, and one without an answer after a day.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import Change, discard, find, key_of
from drakit_cluster.objects import json_types, naming, quantity, taints, versions
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.objects.resources import CLAIM, POOL_STATUS_REQUEST, SLICE, TAINT_RULE
from drakit_cluster.scheduling import taint_rules

ANSWERED_FOR = datetime.timedelta(hours=1)
PENDING_FOR = datetime.timedelta(days=1)
_LONGEST_WAIT_SECONDS = 600.0
_ITEMS_MAX = 32
"""The API's limit of the lists of a pool's status."""
_ERROR_MAX = 256
_DEFAULT_LIMIT = 100

_Counters = Mapping[tuple[str, str], int]
"""Amounts in nanos by counter set and counter."""


class IncompleteError(Exception):
    """A pool lacks slices, so the request cannot be answered yet."""


class _ViewError(Exception):
    """A pool for which a summary cannot be made; the text starts with the prefix that the API documents."""


@dataclass(frozen=True, kw_only=True)
class _Use:
    """The use of one pool: the allocated devices, and what they consume of capacities."""

    devices: set[str] = field(default_factory=set)
    consumed: dict[str, Quantity] = field(default_factory=dict)


class PoolStatusWriter:
    """Answers and deletes ResourcePoolStatusRequests."""

    def __init__(self, api: Api, gates: FeatureGates, now: Callable[[], datetime.datetime] = naming.present) -> None:
        self._api = api
        self._gates = gates
        self._now = now
        self._requests: dict[Key, Object] = {}
        self._waiting: set[Key] = set()

    def observe(self, change: Change) -> Iterable[Key]:
        """Record a change of a request or a slice; return the requests to check."""
        if change.resource is SLICE:
            waiting, self._waiting = self._waiting, set()
            return waiting
        key = key_of(change.object)
        if change.deleted:
            self._requests.pop(key, None)
            self._waiting.discard(key)
            return ()
        self._requests[key] = change.object
        return (key,)

    def check(self, key: Key) -> None:
        """Answer a request that has no status, unless a pool is incomplete."""
        request = find(self._api, POOL_STATUS_REQUEST, key)
        if request is None or "status" in request:
            return
        follows_rules = self._gates.on(Gate.DEVICE_TAINT_RULES)
        try:
            status = answer(
                request,
                slices=self._api.list(SLICE).items,
                claims=self._api.list(CLAIM).items,
                rules=self._api.list(TAINT_RULE).items if follows_rules else (),
                since_1_37=versions.within("1.37-", self._gates.version),
                now=self._now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
        except IncompleteError:
            self._waiting.add(key)
            return
        self._api.update(POOL_STATUS_REQUEST, request | {"status": status}, subresource="status")

    def act(self) -> float | None:
        """Delete expired requests; return the seconds until the next one expires, None if there is none."""
        due = []
        for request in list(self._requests.values()):
            left = (_expires(request) - self._now()).total_seconds()
            if left <= 0:
                discard(self._api, POOL_STATUS_REQUEST, request)
            else:
                due.append(left)
        return min(*due, _LONGEST_WAIT_SECONDS) if due else None


def _expires(request: Object) -> datetime.datetime:
    conditions = json_types.objects(request, "status", "conditions")
    since = next((json_types.text(condition, "lastTransitionTime") for condition in conditions), "")
    start = datetime.datetime.fromisoformat(since or json_types.text(request, "metadata", "creationTimestamp"))
    return start + (ANSWERED_FOR if "status" in request else PENDING_FOR)


def answer(
    request: Object, *, slices: Sequence[Object], claims: Iterable[Object], rules: Sequence[Object], since_1_37: bool, now: str
) -> Object:
    """Return the status of a request. Raises IncompleteError while a pool lacks slices."""
    spec = json_types.mapping(request, "spec")
    driver, only = json_types.text(spec, "driver"), json_types.text(spec, "poolName")
    uses = _uses(driver, claims)
    pools = [
        _Pool(driver=driver, name=name, slices=[taint_rules.tainted(entry, rules) for entry in entries], use=uses.get(name, _Use()))
        for name, entries in sorted(_newest(driver, slices).items())
        if only in ("", name)
    ]
    kept = pools[: json_types.number(spec, "limit") or _DEFAULT_LIMIT]
    default = json_types.text(spec, "defaultPartitionTypeAttribute")
    statuses = [pool.status(default, since_1_37=since_1_37) for pool in kept]
    flawed = sum("validationError" in status for status in statuses)
    condition: Object = {
        "type": "Complete",
        "status": "True",
        "reason": "CalculationComplete",
        "message": f"pools in this status: {len(kept)}" + (f", with a validation error: {flawed}" if flawed else ""),
        "lastTransitionTime": now,
    }
    made: Object = {"poolCount": len(pools), "conditions": [condition]}
    return made | ({"pools": json_types.from_objects(statuses)} if statuses else {})


def _newest(driver: str, slices: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the slices of the newest generation of each pool of a driver."""
    pools: dict[str, list[Object]] = {}
    for entry in slices:
        if json_types.text(entry, "spec", "driver") == driver:
            pools.setdefault(json_types.text(entry, "spec", "pool", "name"), []).append(entry)
    return {name: [entry for entry in entries if _generation(entry) == max(map(_generation, entries))] for name, entries in pools.items()}


def _generation(published: Object) -> int:
    return json_types.number(published, "spec", "pool", "generation")


def _uses(driver: str, claims: Iterable[Object]) -> dict[str, _Use]:
    """Return the use of each pool of a driver. Admin access uses nothing."""
    uses: dict[str, _Use] = {}
    for claim in claims:
        for result in json_types.objects(claim, "status", "allocation", "devices", "results"):
            if json_types.text(result, "driver") == driver and result.get("adminAccess") is not True:
                use = uses.setdefault(json_types.text(result, "pool"), _Use())
                use.devices.add(json_types.text(result, "device"))
                for name, amount in json_types.mapping(result, "consumedCapacity").items():
                    use.consumed[name] = use.consumed[name] + quantity.parse(amount) if name in use.consumed else quantity.parse(amount)
    return uses


@dataclass(frozen=True, kw_only=True)
class _Pool:
    """The slices of one pool's newest generation, with the taints of rules, and its use."""

    driver: str
    name: str
    slices: Sequence[Object]
    use: _Use

    def status(self, default_attribute: str, *, since_1_37: bool) -> Object:
        """Return the pool's entry in a status. Raises IncompleteError."""
        first = json_types.mapping(self.slices[0], "spec")
        if len(self.slices) < json_types.number(first, "pool", "resourceSliceCount"):
            raise IncompleteError
        devices = self._devices()
        tainted = sum(taints.prevents(json_types.objects(device, "taints"), ()) for _, device in devices) if since_1_37 else 0
        nodes = {json_types.text(entry, "spec", "nodeName") for entry in self.slices}
        status: Object = {
            "driver": self.driver,
            "poolName": self.name,
            "generation": _generation(self.slices[0]),
            "resourceSliceCount": len(self.slices),
            "totalDevices": len(devices),
            "allocatedDevices": len(self.use.devices),
            "availableDevices": max(0, len(devices) - len(self.use.devices) - tainted),
            "unavailableDevices": tainted,
        }
        if len(nodes) == 1 and "" not in nodes:
            status["nodeName"] = nodes.pop()
        return status | (self._views(devices, default_attribute) if since_1_37 else {})

    def _devices(self) -> list[tuple[str, Object]]:
        """Return the devices, each with the attribute that its slice names for partitions."""
        return [
            (json_types.text(entry, "spec", "partitionTypeAttribute"), device)
            for entry in self.slices
            for device in json_types.objects(entry, "spec", "devices")
        ]

    def _views(self, devices: Sequence[tuple[str, Object]], default_attribute: str) -> Object:
        """Return the summaries, and the first error; with an error there is no partition summary."""
        made: Object = {}
        problems = []
        if not any(attribute for attribute, _ in devices):
            devices = [(default_attribute, device) for _, device in devices]
        views: Mapping[str, Callable[[Sequence[tuple[str, Object]]], Json]] = {
            "partitionSummary": self._partitions,
            "shareableSummary": self._shares,
        }
        for name, view in views.items():
            try:
                if (value := view(devices)) is not None:
                    made[name] = value
            except _ViewError as error:
                problems.append(str(error)[:_ERROR_MAX])
        if problems:
            made.pop("partitionSummary", None)
            made["validationError"] = problems[0]
        return made

    def _partitions(self, devices: Sequence[tuple[str, Object]]) -> Json:
        """Return how many more partitions of each type fit, each type as if no other was allocated."""
        if not any(attribute for attribute, _ in devices):
            return None
        left = self._left()
        if not left:
            raise _ViewError(f"PartitionTypeMissing: pool {self.driver}/{self.name} names a partition type but has no shared counters")
        groups: dict[tuple[str, str], list[Object]] = {}
        for attribute, device in devices:
            if attribute and json_types.items(device, "consumesCounters"):
                groups.setdefault((attribute, self._type(attribute, device)), []).append(device)
        if len(groups) > _ITEMS_MAX:
            raise _ViewError(
                f"PartitionSummaryOverCap: pool {self.driver}/{self.name} has {len(groups)} partition types, over {_ITEMS_MAX}"
            )
        return json_types.from_objects(
            [self._partition(*key, members, left) for key, members in sorted(groups.items(), key=lambda entry: entry[0])]
        )

    def _partition(self, attribute: str, kind: str, members: Sequence[Object], left: _Counters) -> Object:
        costs: set[Hashable] = {tuple(sorted(_cost(device).items())) for device in members}
        if len(costs) > 1:
            raise _ViewError(f"PartitionCostMismatch: devices of type {kind} in pool {self.driver}/{self.name} consume different counters")
        fresh = sum(json_types.text(device, "name") not in self.use.devices for device in members)
        fits = [max(left.get(counter, 0), 0) // amount for counter, amount in _cost(members[0]).items() if amount]
        return {"attribute": attribute, "type": kind, "total": len(members), "allocatable": min(fresh, *fits) if fits else fresh}

    def _type(self, attribute: str, device: Object) -> str:
        """Return the partition type; the attribute may be published without the driver's domain."""
        attributes = json_types.mapping(device, "attributes")
        entry = attributes.get(attribute, attributes.get(attribute.removeprefix(f"{self.driver}/")))
        if not isinstance(kind := json_types.at(entry, "string"), str):
            name = json_types.text(device, "name")
            raise _ViewError(f"PartitionTypeMissing: device {name} in pool {self.driver}/{self.name} has no text attribute {attribute}")
        return kind

    def _left(self) -> _Counters:
        """Return what the devices in use leave in the counters."""
        left: Counter[tuple[str, str]] = Counter()
        for entry in self.slices:
            for counter_set in json_types.objects(entry, "spec", "sharedCounters"):
                name = json_types.text(counter_set, "name")
                for counter, value in json_types.mapping(counter_set, "counters").items():
                    left[name, counter] += _nanos(value)
        for _, device in self._devices():
            if json_types.text(device, "name") in self.use.devices:
                left.subtract(_cost(device))
        return left

    def _shares(self, devices: Sequence[tuple[str, Object]]) -> Json:
        """Return the sums of the capacities of shareable devices; None if the pool has none."""
        shareable = [device for _, device in devices if device.get("allowMultipleAllocations") is True]
        if not shareable:
            return None
        totals: dict[str, Quantity] = {}
        for device in shareable:
            for name, entry in json_types.mapping(device, "capacity").items():
                amount = quantity.parse(json_types.at(entry, "value") or "0")
                totals[name] = totals[name] + amount if name in totals else amount
        if len(totals) > _ITEMS_MAX:
            raise _ViewError(
                f"ShareableSummaryOverCap: pool {self.driver}/{self.name} has {len(totals)} shareable capacities, over {_ITEMS_MAX}"
            )
        used = sum(json_types.text(device, "name") in self.use.devices for device in shareable)
        return {
            "fullyAvailableDevices": len(shareable) - used,
            "partiallyAvailableDevices": used,
            "capacity": json_types.from_objects([self._capacity(name, total) for name, total in sorted(totals.items())]),
        }

    def _capacity(self, name: str, total: Quantity) -> Object:
        consumed = self.use.consumed.get(name, Quantity(nanos=0))
        available = replace(total, nanos=max(0, total.nanos - consumed.nanos), source="")
        return {"name": name, "total": str(total), "consumed": str(consumed), "available": str(available)}


def _cost(device: Object) -> Counter[tuple[str, str]]:
    cost: Counter[tuple[str, str]] = Counter()
    for part in json_types.objects(device, "consumesCounters"):
        for counter, value in json_types.mapping(part, "counters").items():
            cost[json_types.text(part, "counterSet"), counter] += _nanos(value)
    return cost


def _nanos(counter: Json) -> int:
    return quantity.parse(json_types.at(counter, "value") or "0").nanos
