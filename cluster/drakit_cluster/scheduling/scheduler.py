"""The scheduler: assigns nodes to pods and devices to their claims, one pod after the other in the order of arrival.

A pod that does not fit is retried when a slice, class, taint rule, node or PodGroup changes, when a claim is deallocated, or when one of its own
claims changes. The scheduler counts its own writes at once, before the watch delivers them.

A pod whose devices have binding conditions is bound when the conditions are true. Until then its claims stay allocated and reserved, and
the scheduler decides again whenever they change. A restarted scheduler therefore continues where the previous one stopped.
"""

import datetime
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from drakit.telemetry import logs
from drakit_cluster.api.metrics import Metrics
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.client.informer import Change, Loop, Selection, amend, key_of, uid_of, version_of
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.devices import SelectorPort
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NODE, POD, POD_GROUP, SLICE, TAINT_RULE
from drakit_cluster.scheduling import binding_wait, extended, placement, reservation, taint_rules
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.binding_wait import Failed, Readiness
from drakit_cluster.scheduling.explain import wording
from drakit_cluster.scheduling.placed_pods import PlacedPods
from drakit_cluster.scheduling.placement import Placement, Refusal, Site, Special

_log = logs.get_logger(__name__)

NAME = "default-scheduler"
_RETRY_SECONDS = (0.02, 1.0)
BINDING_SECONDS = 600.0
"""How long the scheduler waits for binding conditions, as Kubernetes does."""


class Scheduler:
    """Schedules pods of ``schedulerName: default-scheduler`` through ``api``. ``binding_timeout`` is in seconds.

    ``repeated_errors`` are the known errors of a Kubernetes version that the scheduler repeats.
    """

    def __init__(  # noqa: PLR0913 -- the parts of a cluster that it works with.
        self,
        api: Api,
        recorder: Recorder,
        selectors: SelectorPort,
        *,
        gates: FeatureGates | None = None,
        new_share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        binding_timeout: float = BINDING_SECONDS,
        now: Callable[[], datetime.datetime] = naming.present,
        metrics: Metrics | None = None,
        repeated_errors: KnownErrors = known_errors.NONE,
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._selectors = selectors
        self._gates = gates or FeatureGates()
        self._new_share_id = new_share_id
        self._sharing = Sharing.of(self._gates)
        self._nodes: dict[Key, Object] = {}
        self._slices: dict[Key, Object] = {}
        self._rules: dict[Key, Object] = {}
        self._classes: dict[Key, Object] = {}
        self._groups: dict[Key, Object] = {}
        self._resources: dict[str, str] = {}
        self._claims: dict[Key, Object] = {}
        self._holders: wording.Holders | None = None
        """Made when a refusal needs it; None after a change of a claim."""
        self._allocated = AllocatedState(consumable_capacity=self._gates.on(Gate.CONSUMABLE_CAPACITY))
        self._binding_timeout = binding_timeout
        self._now = now
        self._metrics = metrics or Metrics()
        self._repeated_errors = repeated_errors
        self._chosen: dict[str, str] = {}
        """The chosen nodes of pods that wait for binding conditions."""
        self._due: dict[str, datetime.datetime] = {}
        """When the wait of these pods times out."""
        self._pods: dict[str, Object] = {}
        self._placed = PlacedPods()
        self._to_try: set[str] = set()
        self._allocator: Allocator | None = None
        self._backoff = Backoff(*_RETRY_SECONDS)
        selections = [Selection(resource=resource) for resource in (NODE, CLASS, SLICE, TAINT_RULE, POD_GROUP, CLAIM, POD)]
        self.loop = Loop(api, "scheduler", selections, self._observe, self._act)

    def start(self) -> None:
        self.loop.start()

    def stop(self) -> None:
        """End after the pod at hand."""
        self.loop.stop()

    def _observe(self, change: Change) -> None:
        if change.resource is POD:
            self._observe_pod(change)
        elif change.resource is CLAIM:
            self._observe_claim(change)
        else:
            self._observe_resource(change)

    def _observe_resource(self, change: Change) -> None:
        """Record a changed node, class, slice, taint rule or PodGroup, and retry all pods."""
        tables = {NODE: self._nodes, CLASS: self._classes, SLICE: self._slices, TAINT_RULE: self._rules, POD_GROUP: self._groups}
        stored = tables[change.resource]
        if change.deleted:
            stored.pop(key_of(change.object), None)
        else:
            stored[key_of(change.object)] = change.object
        if change.resource not in (NODE, POD_GROUP):
            self._allocator = None
        if change.resource is CLASS:
            self._resources = extended.class_names(self._classes.values(), self._gates)
        self._to_try.update(self._pods)

    def _observe_pod(self, change: Change) -> None:
        uid = uid_of(change.object)
        if change.deleted or not _is_ours(change.object):
            self._remove_pod(uid)
            if self._placed.observe(change.object, deleted=change.deleted):
                self._to_try.update(self._pods)
            return
        previous = self._pods.get(uid)
        self._pods[uid] = change.object
        if previous is None or _decision_inputs(previous) != _decision_inputs(change.object):
            self._to_try.add(uid)

    def _remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._metrics.unschedulable(uid, is_unschedulable=False)
        self._to_try.discard(uid)
        self._stop_waiting(uid)

    def _stop_waiting(self, uid: str) -> None:
        self._chosen.pop(uid, None)
        self._due.pop(uid, None)

    def _observe_claim(self, change: Change) -> None:
        key, previous = key_of(change.object), self._claims.get(key_of(change.object))
        same = previous is not None and uid_of(previous) == uid_of(change.object)
        if change.deleted:
            if same:
                self._remove_claim(key)
        elif previous is None or not same or version_of(previous) < version_of(change.object):
            self._store_claim(change.object)
        self._to_try.update(uid for uid, pod in self._pods.items() if key in pod_claims.claim_keys(pod))

    def _remove_claim(self, key: Key) -> None:
        self._holders = None
        self._allocated.remove(self._claims.pop(key))
        self._to_try.update(self._pods)

    def _store_claim(self, claim: Object) -> None:
        """Record a claim's current state. A deallocation may let any pod fit, so all pods are retried."""
        key, self._holders = key_of(claim), None
        previous = self._claims.get(key)
        if previous is not None and pod_claims.is_allocated(previous) and not pod_claims.is_allocated(claim):
            self._to_try.update(self._pods)
        if previous is not None and uid_of(previous) != uid_of(claim):
            self._allocated.remove(previous)
        self._claims[key] = claim
        if pod_claims.is_allocated(claim):
            self._allocated.add(claim)
        else:
            self._allocated.remove(claim)

    def _act(self) -> float | None:
        """Try every pod that may fit now, oldest first. Pods whose writes conflicted are retried with backoff."""
        now = self._now()
        self._to_try.update(uid for uid, due in self._due.items() if due <= now)
        for uid in [uid for uid in self._pods if uid in self._to_try]:
            self._to_try.discard(uid)
            pod = self._pods[uid]
            try:
                self._schedule(pod)
            except errors.NotFoundError:
                _log.debug("pod or claim deleted during scheduling", pod=uid)
            except errors.InvalidError as error:
                self._refuse(pod, f"the API server refuses what the scheduler decided: {error}")
            except errors.ApiError as error:
                _log.debug("scheduling failed", pod=uid, error=str(error))
                self._to_try.add(uid)
        if self._to_try:
            return self._backoff.next()
        self._backoff.reset()
        return max(0.0, (min(self._due.values()) - self._now()).total_seconds()) if self._due else None

    def _schedule(self, pod: Object) -> None:
        if failed := self._readiness(pod).failed:
            self._release_failed(pod, failed)
            return
        with self._metrics.step("PreFilter"):
            site = self._site(pod)
        with self._metrics.step("Filter"):
            decision = placement.place(pod, site)
        if isinstance(decision, Refusal):
            self._refuse(pod, decision.message, gated=decision.gated)
            with self._metrics.step("PostFilter"):
                self._deallocate_stuck(decision.stuck)
            return
        with self._metrics.step("PreBind"):
            pod = self._write(pod, decision)
        readiness = self._readiness(pod)
        if readiness.pending:
            self._wait(pod, decision.node, readiness)
        else:
            self._bind(pod, decision.node)

    def _readiness(self, pod: Object) -> Readiness:
        if not self._gates.on(Gate.BINDING_CONDITIONS):
            return Readiness()
        claims = [self._claims[key] for key in sorted(pod_claims.claim_keys(pod)) if key in self._claims]
        return binding_wait.of_claims(claims, self._now(), self._binding_timeout)

    def _wait(self, pod: Object, node: str, readiness: Readiness) -> None:
        uid = uid_of(pod)
        if self._chosen.get(uid) != node:
            self._recorder.normal(POD, pod, "WaitingForBindingConditions", f"for {node}: {'; '.join(readiness.pending)}")
        self._chosen[uid] = node
        self._due[uid] = self._now() + datetime.timedelta(seconds=readiness.seconds)

    def _release_failed(self, pod: Object, failed: Sequence[Failed]) -> None:
        """Remove the pod's reservations of claims whose devices failed to become ready, and deallocate those without another user."""
        self._stop_waiting(uid_of(pod))
        self._refuse(pod, f"binding failed: {'; '.join(failure.message for failure in failed)}")
        site = self._site(pod)
        for failure in failed:
            holds = placement.own_holds(failure.claim, pod, site)
            if not holds.isdisjoint(json_types.text(holder, "uid") for holder in pod_claims.reservations(failure.claim)):
                self._store_claim(reservation.release(self._api, failure.claim, holds))
                self._to_try.add(uid_of(pod))

    def _site(self, pod: Object) -> Site:
        """Return the inputs of the decision. The node chosen for a waiting pod comes first."""
        if self._allocator is None:
            classes = {key.name: device_class for key, device_class in self._classes.items()}
            rules = self._rules.values() if self._gates.on(Gate.DEVICE_TAINT_RULES) else ()
            unselective = KnownError.RULE_WITHOUT_SELECTOR in self._repeated_errors
            slices = [taint_rules.tainted(slice_, rules, unselective=unselective) for slice_ in self._slices.values()]
            self._allocator = Allocator(slices, classes, self._selectors, self._gates, self._repeated_errors)
        chosen = self._chosen.get(uid_of(pod))
        nodes = [self._nodes[key] for key in sorted(self._nodes, key=lambda key: (key.name != chosen, key))]
        return Site(
            nodes=nodes,
            claims=self._claims,
            allocator=self._allocator,
            allocated=self._allocated,
            new_share_id=self._new_share_id,
            sharing=self._sharing,
            groups=self._groups,
            is_first=lambda pod: self._placed.is_first(pod, [self._pods[uid] for uid in self._chosen]),
            resources=self._resources,
            taken=self._placed.taken,
            apart=self._placed.rule_for(pod, {key.name: node for key, node in self._nodes.items()}),
            holders=self._known_holders,
        )

    def _known_holders(self) -> wording.Holders:
        """Return the claims that have devices, by device."""
        if self._holders is None:
            self._holders = wording.holders_of(self._claims.values())
        return self._holders

    def _write(self, pod: Object, decision: Placement) -> Object:
        """Write the decision and return the updated pod. If a write is refused, the earlier writes are undone."""
        special = decision.special
        if special is None:
            self._write_claims(pod, decision)
            return pod
        claim = special.claim
        if not uid_of(claim):
            claim = self._api.create(CLAIM, claim, namespace=key_of(pod).namespace)
            allocate = [(claim if pending is special.claim else pending, allocation) for pending, allocation in decision.allocate]
            decision = replace(decision, allocate=allocate)
        try:
            self._write_claims(pod, decision)
            return self._write_special_status(pod, claim, special)
        except errors.ApiError:
            self._delete_special(claim, pod)
            raise

    def _write_special_status(self, pod: Object, claim: Object, special: Special) -> Object:
        """Write the name of the claim for extended resources into the pod's status."""
        status: Object = {
            "resourceClaimName": key_of(claim).name,
            "requestMappings": json_types.from_objects(special.mappings),
        }
        if json_types.at(pod, "status", "extendedResourceClaimStatus") == status:
            return pod
        updated = amend(self._api, POD, pod, {"status": {"extendedResourceClaimStatus": status}}, subresource="status")
        self._pods[uid_of(pod)] = updated
        return updated

    def _delete_special(self, claim: Object, pod: Object) -> None:
        """Delete a claim for extended resources that could not be assigned to its pod."""
        key = key_of(claim)
        try:
            self._undo_write(self._api.get(CLAIM, key.name, key.namespace), pod, allocated=True)
            self._api.delete(CLAIM, key.name, namespace=key.namespace, uid=uid_of(claim))
        except errors.ApiError as error:
            _log.warning("claim for extended resources not deleted", claim=key.name, error=str(error))

    def _write_claims(self, pod: Object, decision: Placement) -> None:
        """Write allocations and reservations. If a write is refused, the earlier ones are undone."""
        written: list[Object] = []
        try:
            for claim, allocation in decision.allocate:
                consumer = self._sharing.consumer(claim, pod, self._groups)
                written.append(reservation.allocate(self._api, claim, allocation, consumer, self._sharing))
                self._store_claim(written[-1])
            for claim in decision.reserve:
                consumer = self._sharing.consumer(claim, pod, self._groups)
                written.append(reservation.reserve(self._api, claim, consumer, self._sharing))
                self._store_claim(written[-1])
        except errors.ApiError:
            for index, claim in enumerate(written):
                self._undo_write(claim, pod, allocated=index < len(decision.allocate))
            raise
        for claim in written[: len(decision.allocate)]:
            self._recorder.normal(CLAIM, claim, "Allocated", _allocation_text(claim, decision.node))

    def _deallocate_stuck(self, stuck: Sequence[Object]) -> None:
        """Deallocate one claim that only the refused pod uses, so that the pod may fit elsewhere."""
        for claim in stuck[:1]:
            self._store_claim(reservation.deallocate(self._api, claim))
            self._recorder.normal(CLAIM, claim, "Deallocated", "its only pod cannot run on the node of its devices")

    def _undo_write(self, claim: Object, pod: Object, *, allocated: bool) -> None:
        """Undo a write. A claim just ``allocated`` for a workload has no other user, so it is deallocated."""
        try:
            if allocated and pod_claims.serves_any_pod(claim):
                self._store_claim(reservation.deallocate(self._api, claim))
            else:
                self._store_claim(reservation.release(self._api, claim, {uid_of(pod)}))
        except errors.ApiError as error:
            _log.warning("undo of a reservation failed", claim=key_of(claim).name, error=str(error))

    def _bind(self, pod: Object, node: str) -> None:
        key = key_of(pod)
        amend(self._api, POD, pod, {"spec": {"nodeName": node}})
        self._remove_pod(uid_of(pod))
        self._placed.take(pod, node)
        self._set_condition(pod, {"status": "True"})
        self._recorder.normal(POD, pod, "Scheduled", f"assigned {key.namespace}/{key.name} to {node}")

    def _refuse(self, pod: Object, message: str, *, gated: bool = False) -> None:
        """Write the reason for waiting into the pod's status, and an event unless the pod is gated."""
        self._metrics.unschedulable(uid_of(pod), is_unschedulable=True)
        if _condition(pod).get("message") == message:
            return
        updated = self._set_condition(pod, {"status": "False", "reason": "Unschedulable", "message": message})
        if _decision_inputs(updated) != _decision_inputs(pod):
            self._to_try.add(uid_of(pod))
        self._pods[uid_of(pod)] = updated
        if not gated:
            self._recorder.warning(POD, pod, "FailedScheduling", message)

    def _set_condition(self, pod: Object, fields: Object) -> Object:
        condition: Object = {"type": "PodScheduled", "lastTransitionTime": naming.now(), "reason": None, "message": None} | fields
        return amend(self._api, POD, pod, {"status": {"conditions": [condition]}}, subresource="status", kind=PatchKind.STRATEGIC)


def _is_ours(pod: Object) -> bool:
    """Return whether the pod waits for this scheduler."""
    spec = json_types.mapping(pod, "spec")
    if json_types.text(spec, "nodeName") or json_types.items(spec, "schedulingGates"):
        return False
    return json_types.text(spec, "schedulerName") == NAME and not (pod_claims.is_deleting(pod) or pod_claims.is_terminal(pod))


def _decision_inputs(pod: Object) -> tuple[object, ...]:
    """Return the parts of a pod that a decision depends on. Conditions are left out because the scheduler writes them."""
    return pod.get("spec"), json_types.at(pod, "status", "resourceClaimStatuses")


def _condition(pod: Object) -> Object:
    conditions = json_types.objects(pod, "status", "conditions")
    return next((condition for condition in conditions if condition.get("type") == "PodScheduled"), {})


def _allocation_text(claim: Object, node: str) -> str:
    results = json_types.objects(pod_claims.allocation(claim), "devices", "results")
    parts = [_result_text(result) for result in results]
    return f"on {node}: {', '.join(parts) or 'no devices'}"


def _result_text(result: Object) -> str:
    consumed = ", ".join(f"{name} {amount}" for name, amount in json_types.mapping(result, "consumedCapacity").items())
    text = f"{json_types.text(result, 'request')} gets {json_types.text(result, 'driver')}/{json_types.text(result, 'device')}"
    return f"{text} ({consumed})" if consumed else text
