"""Eviction: pods whose claims have a device with a NoExecute taint are deleted when their tolerations end.

Taints are those that the driver publishes in slices of the pool's highest generation, and those of DeviceTaintRules, which also apply to
devices that are no longer published. A pod is evicted if the claim is reserved for it or its
PodGroup, or for a workload that lets any pod use it.

A taint counts from its timeAdded. Tolerations are those of the allocation's results: the shortest tolerationSeconds of those that match
decides; a toleration without it tolerates forever. Admin access makes no difference.

The condition EvictionInProgress of a DeviceTaintRule reports the progress of its eviction. It is updated for the effect NoExecute. For the
effect None it is a forecast, made once for each generation of the rule's spec.

Source: KEP-5055, KEP-5194, KEP-5729, Kubernetes' device taint eviction controller.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping

from drakit.telemetry import logs
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import Change, amend, key_of, uid_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.controllers import eviction_deadlines, rule_conditions
from drakit_cluster.controllers.pod_index import PodIndex
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.devices import DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE, TAINT_RULE
from drakit_cluster.scheduling import taint_rules

_log = logs.get_logger(__name__)
_LONGEST_WAIT_SECONDS = 3600.0
REASON = "DeletionByDeviceTaintManager"
_PoolKey = tuple[str, str]


class TaintEvictor:
    """Evicts pods. The caller updates ``pods`` and passes slices, rules and claims to :meth:`observe`."""

    def __init__(
        self, api: Api, recorder: Recorder, pods: PodIndex, sharing: Sharing, now: Callable[[], datetime.datetime] = naming.present
    ) -> None:
        self._api = api
        self._sharing = sharing
        self._recorder = recorder
        self._pods = pods
        self._now = now
        self._slices: dict[_PoolKey, dict[Key, Object]] = {}
        self._rules: dict[str, Object] = {}
        self._claims: dict[Key, Object] = {}
        self._claims_of: dict[_PoolKey, set[Key]] = {}
        self._stale: set[Key] = set()
        self._deadlines: dict[Key, eviction_deadlines.Deadline] = {}
        self._evicted: set[str] = set()
        self._counts: dict[str, int] = {}

    def observe(self, change: Change) -> None:
        """Record a changed slice, rule or claim, or the end of a pod."""
        if change.resource is SLICE:
            self._observe_slice(change)
        elif change.resource is TAINT_RULE:
            self._observe_rule(change)
        elif change.resource is CLAIM:
            self._observe_claim(change)
        elif change.resource is POD and (change.deleted or pod_claims.is_deleting(change.object)):
            self._evicted.discard(uid_of(change.object))

    def _observe_slice(self, change: Change) -> None:
        for published in (change.before, change.object):
            if published is not None:
                pool = _pool_of(published)
                self._slices.setdefault(pool, {}).pop(key_of(published), None)
                self._stale |= self._claims_of.get(pool, set())
        pool = _pool_of(change.object)
        if not change.deleted:
            self._slices[pool][key_of(change.object)] = change.object
        elif not self._slices[pool]:
            del self._slices[pool]

    def _observe_rule(self, change: Change) -> None:
        name = key_of(change.object).name
        if change.deleted:
            self._rules.pop(name, None)
            self._counts.pop(uid_of(change.object), None)
        else:
            self._rules[name] = change.object
        if change.deleted or change.before is None or change.before.get("spec") != change.object.get("spec"):
            self._stale |= set(self._claims)

    def _observe_claim(self, change: Change) -> None:
        key = key_of(change.object)
        old_claim = self._claims.pop(key, None)
        for device, _ in eviction_deadlines.results(old_claim) if old_claim else ():
            self._claims_of.get((device.driver, device.pool), set()).discard(key)
        self._stale.add(key)
        if change.deleted or not pod_claims.is_allocated(change.object):
            return
        self._claims[key] = change.object
        for device, _ in eviction_deadlines.results(change.object):
            self._claims_of.setdefault((device.driver, device.pool), set()).add(key)

    def act(self) -> float | None:
        """Evict the pods that are due and report on the rules; return the seconds until the next eviction, or None. Raises ApiError, for a retry."""
        for key in self._stale:
            claim = self._claims.get(key)
            deadline = eviction_deadlines.of_claim(claim, self._taints) if claim is not None else None
            if deadline is None:
                self._deadlines.pop(key, None)
            else:
                self._deadlines[key] = deadline
        self._stale.clear()
        for key in [key for key, deadline in self._deadlines.items() if deadline.time <= self._now()]:
            self._evict_users(key)
        self._report()
        return self._delay()

    def _delay(self) -> float | None:
        later = [deadline.time for deadline in self._deadlines.values() if deadline.time > self._now()]
        if not later:
            return None
        return min(max(0.0, (min(later) - self._now()).total_seconds()), _LONGEST_WAIT_SECONDS)

    def _taints(self, device: DeviceId) -> Iterator[eviction_deadlines.Taint]:
        for device_id, body in _newest(self._slices.get((device.driver, device.pool), {})):
            if device_id == device:
                yield from (eviction_deadlines.Taint(body=taint) for taint in json_types.objects(body, "taints"))
        for name, rule in self._rules.items():
            if taint_rules.selects(rule, device):
                yield eviction_deadlines.Taint(body=taint_rules.taint_of(rule), rule=name)

    def _users(self, key: Key) -> list[Object]:
        """Return the pods on nodes that use an allocated claim and are not evicted yet."""
        claim = self._claims[key]
        return [
            pod
            for pod in self._pods.users(key)
            if json_types.text(pod, "spec", "nodeName") and uid_of(pod) not in self._evicted and self._sharing.may_use(claim, pod)
        ]

    def _evict_users(self, key: Key) -> None:
        deadline = self._deadlines[key]
        for pod in self._users(key):
            try:
                self._evict(pod, deadline)
            except (errors.NotFoundError, errors.ConflictError):
                _log.debug("pod deleted before its eviction", pod=key_of(pod).name)

    def _evict(self, pod: Object, deadline: eviction_deadlines.Deadline) -> None:
        condition: Object = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": REASON,
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": naming.now(),
        }
        amend(self._api, POD, pod, {"status": {"conditions": [condition]}}, subresource="status", kind=PatchKind.STRATEGIC)
        key = key_of(pod)
        self._api.delete(POD, key.name, namespace=key.namespace, uid=uid_of(pod))
        self._evicted.add(uid_of(pod))
        for rule in deadline.rules & self._rules.keys():
            uid = uid_of(self._rules[rule])
            self._counts[uid] = self._counts.get(uid, 0) + 1
        message = f"Marking for deletion: a device has the NoExecute taint {deadline.taint}"
        self._recorder.normal(POD, pod, "DeviceTaintManagerEviction", message)

    def _report(self) -> None:
        """Write the progress of each rule's eviction into its status."""
        for name, rule in list(self._rules.items()):
            if rule_conditions.is_final(rule):
                continue
            condition = rule_conditions.condition_of(rule, self._effects(name, rule))
            if rule_conditions.differs(rule, condition):
                patch: Object = {"status": {"conditions": [condition]}}
                try:
                    self._rules[name] = amend(self._api, TAINT_RULE, rule, patch, subresource="status", kind=PatchKind.STRATEGIC)
                except (errors.NotFoundError, errors.ConflictError):
                    _log.debug("rule deleted before its status was written", rule=name)

    def _effects(self, name: str, rule: Object) -> rule_conditions.Effects:
        """Count the pods to evict for the rule; for the effect None, the selected devices and the pods it would evict."""
        if taint_rules.taint_of(rule).get("effect") != "None":
            return self._counted(rule, [key for key, deadline in self._deadlines.items() if name in deadline.rules])
        taint = eviction_deadlines.Taint(body=taint_rules.taint_of(rule) | {"effect": "NoExecute"}, rule=name)

        def taints_of(device: DeviceId) -> list[eviction_deadlines.Taint]:
            return [taint] if taint_rules.selects(rule, device) else []

        concerned = [key for key, claim in self._claims.items() if eviction_deadlines.of_claim(claim, taints_of)]
        published = sum(taint_rules.selects(rule, device) for slices in self._slices.values() for device, _ in _newest(slices))
        allocated = sum(
            taint_rules.selects(rule, device) for claim in self._claims.values() for device, _ in eviction_deadlines.results(claim)
        )
        return self._counted(rule, concerned, published=published, allocated=allocated)

    def _counted(self, rule: Object, claims: Iterable[Key], *, published: int = 0, allocated: int = 0) -> rule_conditions.Effects:
        pods = {uid_of(pod): key_of(pod).namespace for key in claims for pod in self._users(key)}
        return rule_conditions.Effects(
            published=published,
            allocated=allocated,
            pods=len(pods),
            namespaces=len(set(pods.values())),
            evicted=self._counts.get(uid_of(rule), 0),
        )


def _newest(slices: Mapping[Key, Object]) -> Iterator[tuple[DeviceId, Object]]:
    """Yield the devices of a pool's slices of the highest generation."""
    newest = max(map(_generation, slices.values()), default=0)
    for published in slices.values():
        if _generation(published) == newest:
            yield from taint_rules.devices_of(published)


def _pool_of(published: Object) -> _PoolKey:
    return json_types.text(published, "spec", "driver"), json_types.text(published, "spec", "pool", "name")


def _generation(published: Object) -> int:
    return json_types.number(published, "spec", "pool", "generation")
