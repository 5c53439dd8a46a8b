"""Mistakes in what claims were given: devices that do not exist, shares without an id, and devices, capacity or counters given out twice."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.lint import findings
from drakit_cluster.lint.catalogue import Catalogue, Offer
from drakit_cluster.lint.findings import Finding
from drakit_cluster.manifests import Accepted
from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator.pools import PoolId

_RESULTS = "status.allocation.devices.results"


@dataclass(frozen=True, kw_only=True)
class _Result:
    """One device that a claim has."""

    claim: Accepted
    path: str
    body: Object
    device: Offer

    @property
    def label(self) -> str:
        return self.claim.document.label

    @property
    def counts(self) -> bool:
        """Whether it takes anything: admin access does not."""
        return self.body.get("adminAccess") is not True


class Given:
    """Judges the allocations of claims by the devices that are offered, and by each other."""

    def __init__(self, offered: Catalogue) -> None:
        self._offered = offered
        self._results: list[_Result] = []

    def check(self, claims: Iterable[Accepted], pods: Sequence[Accepted]) -> Iterator[Finding]:
        """Yield what is wrong with the claims' status."""
        for claim in claims:
            results = json_types.objects(pod_claims.allocation(claim.object), "devices", "results")
            for number, result in enumerate(results):
                yield from self._result(claim, result, f"{_RESULTS}[{number}]")
            if results:
                yield from _missing(claim, results)
            yield from _users(claim, pods)
        yield from self._alone()
        yield from self._capacity()
        yield from self._counters()

    def _result(self, claim: Accepted, result: Object, path: str) -> Iterator[Finding]:
        pool = PoolId(json_types.text(result, "driver"), json_types.text(result, "pool"))
        name, stock = json_types.text(result, "device"), self._offered.pools.get(pool)
        if stock is None:
            siblings = [known.pool for known in self._offered.pools if known.driver == pool.driver]
            if siblings:
                text = f"driver {pool.driver} has no pool {pool.pool} in these files"
                yield findings.warning(claim.document, f"{path}.pool", text, findings.suggestion(pool.pool, siblings))
            return
        device = next((one for one in stock.devices if one.name == name), None)
        if device is not None:
            self._results.append(_Result(claim=claim, path=path, body=result, device=device))
            yield from _share(claim, result, device, path)
        elif not (stock.partial or stock.is_incomplete):
            text = f"pool {pool} has no device {name}: its driver cannot prepare the claim"
            yield findings.error(claim.document, f"{path}.device", text, findings.suggestion(name, (one.name for one in stock.devices)))

    def _alone(self) -> Iterator[Finding]:
        first: dict[DeviceId, _Result] = {}
        for one in self._results:
            before = first.setdefault(one.device.id, one) if one.counts else one
            if before is not one and not one.device.shared:
                text = f"{one.device.name} is given to {before.label} too: two claims have one device"
                yield findings.error(one.claim.document, f"{one.path}.device", text, "remove the allocation of one of them")

    def _capacity(self) -> Iterator[Finding]:
        taken: dict[tuple[DeviceId, str], int] = defaultdict(int)
        for one in self._results:
            capacity = json_types.mapping(one.device.spec, "capacity")
            for name, amount in json_types.mapping(one.body, "consumedCapacity").items():
                field = f"{one.path}.consumedCapacity[{name}]"
                if name not in capacity:
                    text = f"device {one.device.name} has no capacity {name}"
                    yield findings.warning(one.claim.document, field, text, findings.suggestion(name, capacity))
                    continue
                total, before = quantity.parse(json_types.at(capacity[name], "value")), taken[one.device.id, name]
                taken[one.device.id, name] += quantity.parse(amount).nanos
                if taken[one.device.id, name] > total.nanos:
                    left = Quantity(nanos=max(total.nanos - before, 0))
                    text = f"consumes {amount}, and {left} of {total} is left by the claims before it: {one.device.name} is overdrawn"
                    yield findings.error(one.claim.document, field, text, f"write at most {left}, or remove another allocation")

    def _counters(self) -> Iterator[Finding]:
        drawn: dict[tuple[PoolId, str, str], int] = defaultdict(int)
        seen: set[DeviceId] = set()
        for one in self._results:
            if not one.counts or one.device.id in seen:
                continue
            seen.add(one.device.id)
            for counter_set, name, amount in _draws(one.device):
                total = self._total(one.device.pool, counter_set, name)
                drawn[one.device.pool, counter_set, name] += amount
                if total is not None and drawn[one.device.pool, counter_set, name] > total:
                    needed = Quantity(nanos=drawn[one.device.pool, counter_set, name])
                    text = (
                        f"with {one.device.name}, {needed} of counter {name} of {counter_set} is drawn, "
                        f"and there is {Quantity(nanos=total)}: it overlaps what other claims have"
                    )
                    yield findings.error(one.claim.document, f"{one.path}.device", text, "remove one of the allocations that overlap")
                    break

    def _total(self, pool: PoolId, counter_set: str, name: str) -> int | None:
        known = next((one.counters for one in self._offered.pools[pool].counter_sets if one.name == counter_set), {})
        return quantity.parse(json_types.at(known[name], "value")).nanos if name in known else None


def _draws(device: Offer) -> Iterator[tuple[str, str, int]]:
    for one in json_types.objects(device.spec, "consumesCounters"):
        for name, amount in json_types.mapping(one, "counters").items():
            yield json_types.text(one, "counterSet"), name, quantity.parse(json_types.at(amount, "value")).nanos


def _share(claim: Accepted, result: Object, device: Offer, path: str) -> Iterator[Finding]:
    """A share of a shared device has an id, and says what it consumes; a device that is taken whole has neither."""
    share = json_types.text(result, "shareID")
    if device.shared and not share:
        text = f"is missing: {device.name} may be given to many, and drivers tell shares by their ids"
        yield findings.error(claim.document, f"{path}.shareID", text, "write a UUID of its own")
    elif share and not device.shared:
        text = f"is superfluous: {device.name} is given to one claim only"
        yield findings.error(claim.document, f"{path}.shareID", text, "remove it, or let the driver set allowMultipleAllocations")
    consumed = json_types.mapping(result, "consumedCapacity")
    for name in json_types.mapping(device.spec, "capacity") if device.shared and share else ():
        if name not in consumed:
            text = f"does not say how much of {name} the share of {device.name} takes: nothing is accounted"
            yield findings.warning(claim.document, f"{path}.consumedCapacity", text, f"add {name}: AMOUNT")


def _missing(claim: Accepted, results: Sequence[Object]) -> Iterator[Finding]:
    served = {json_types.text(one, "request").partition("/")[0] for one in results}
    for request in json_types.objects(claim.object, "spec", "devices", "requests"):
        name = json_types.text(request, "name")
        if name not in served:
            yield findings.warning(claim.document, _RESULTS, f"request {name} has no device", "allocate all requests of a claim at once")


def _users(claim: Accepted, pods: Sequence[Accepted]) -> Iterator[Finding]:
    """Without pods in the files, nobody can say who uses a claim."""
    namespace = json_types.text(claim.object, "metadata", "namespace")
    known = {
        json_types.text(pod.object, "metadata", "name"): pod
        for pod in pods
        if json_types.text(pod.object, "metadata", "namespace") == namespace
    }
    for number, user in enumerate(pod_claims.reservations(claim.object) if pods else ()):
        name, path = json_types.text(user, "name"), f"status.reservedFor[{number}]"
        if json_types.text(user, "resource") != "pods" or json_types.text(user, "apiGroup"):
            continue
        if name not in known:
            text = f"there is no Pod {namespace}/{name} in these files: the claim is never given back for it"
            yield findings.warning(claim.document, f"{path}.name", text, findings.suggestion(name, known))
            continue
        uid, wanted = json_types.text(known[name].document.body, "metadata", "uid"), json_types.text(user, "uid")
        if uid and uid != wanted:
            text = f"is {wanted}, and Pod {namespace}/{name} has {uid}: it is another pod of that name"
            yield findings.warning(claim.document, f"{path}.uid", text, f"write {uid}, or remove the entry")
