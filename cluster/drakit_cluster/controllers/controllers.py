"""One loop that watches pods, PodGroups, workloads, claims and their templates, nodes, slices, rules and requests for pool status.

It passes each change to its controllers.

Every controller works from the current state: an extra call is harmless, and a failed step is retried.
"""

import time
from collections.abc import Callable

from drakit.telemetry import logs
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.api import Api
from drakit_cluster.client.backoff import Backoff
from drakit_cluster.client.informer import Change, Loop, Selection, earliest, key_of
from drakit_cluster.client.pod_claims import claim_keys, is_allocated, reservations
from drakit_cluster.client.recorder import Recorder
from drakit_cluster.client.sharing import Sharing, group_of
from drakit_cluster.controllers.claims import ClaimGenerator, ClaimReleaser, ClaimReserver, GroupProtector, pods_of
from drakit_cluster.controllers.eviction import TaintEvictor
from drakit_cluster.controllers.garbage import GarbageCollector
from drakit_cluster.controllers.pod_index import PodIndex
from drakit_cluster.controllers.pool_status import PoolStatusWriter
from drakit_cluster.controllers.workloads import Workloads
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.resources import (
    CLAIM,
    CLAIM_TEMPLATE,
    DAEMON_SET,
    NODE,
    POD,
    POD_GROUP,
    POOL_STATUS_REQUEST,
    SLICE,
    TAINT_RULE,
    Resource,
)

_log = logs.get_logger(__name__)

_RETRY_SECONDS = (0.02, 1.0)
_RECHECK_SECONDS = 1.0
"""The polling interval of workloads that reserve claims."""
Action = Callable[[Key], float | None]
"""A step for one object; it returns the seconds after which it wants to be repeated, None for never."""
Work = tuple[Action, Key]


class Controllers:
    """Runs the controllers through ``api``."""

    def __init__(self, api: Api, recorder: Recorder, *, gates: FeatureGates | None = None) -> None:
        gates = gates or FeatureGates()
        self._api = api
        self._sharing = Sharing.of(gates)
        self._evicts = gates.on(Gate.DEVICE_TAINTS)
        self._follows_rules = gates.on(Gate.DEVICE_TAINT_RULES)
        self._generators = {resource: ClaimGenerator(api, recorder, resource, self._sharing) for resource in (POD, POD_GROUP)}
        self._releaser = ClaimReleaser(api, recorder, self._sharing)
        self._reserver = ClaimReserver(api, recorder, self._sharing)
        self._protector = GroupProtector(api)
        self._garbage = GarbageCollector(api, recorder)
        self._pods = PodIndex()
        self._evictor = TaintEvictor(api, recorder, self._pods, self._sharing)
        self._workloads = Workloads(api, recorder)
        self._pools = PoolStatusWriter(api, gates)
        self._daemon_sets: set[Key] = set()
        self._claims_of: dict[Key, set[Key]] = {}
        self._work: dict[Work, None] = {}
        self._due: dict[Work, float] = {}
        self._backoff = Backoff(*_RETRY_SECONDS)
        self._recheck_at = 0.0
        self._observers: dict[Resource, Callable[[Change], None]] = {
            POD: self._observe_pod,
            POD_GROUP: self._observe_group,
            CLAIM: self._observe_claim,
            CLAIM_TEMPLATE: self._observe_template,
            SLICE: self._observe_slice,
            TAINT_RULE: self._observe_owned,
            NODE: self._observe_node,
            **dict.fromkeys(self._workloads.kinds, self._observe_workload),
        }
        if gates.serves(POOL_STATUS_REQUEST):
            self._observers[POOL_STATUS_REQUEST] = self._observe_pools
        selections = [Selection(resource=resource) for resource in self._observers]
        self._loop = Loop(api, "controllers", selections, self._observe, self._act)

    def start(self) -> None:
        """Start the loop."""
        self._loop.start()

    def stop(self) -> None:
        """Stop after the current object."""
        self._loop.stop()

    def _add(self, action: Action, key: Key) -> None:
        self._work[action, key] = None

    def _observe(self, change: Change) -> None:
        if change.resource is POD:
            self._pods.observe(change)
        if change.resource is not TAINT_RULE or self._follows_rules:
            self._evictor.observe(change)
        self._observers[change.resource](change)

    def _observe_pod(self, change: Change) -> None:
        pod = key_of(change.object)
        for claim in self._claims_of.get(pod, set()) | claim_keys(change.object):
            self._add(self._releaser.check, claim)
        if json_types.items(change.object, "metadata", "ownerReferences"):
            self._observe_owned(change)
        self._check_owners(change)
        if (group := group_of(change.object)) is not None:
            self._add(self._protector.check, group)
        if change.deleted:
            self._generators[POD].remove(pod)
            self._observe_owner(change)
        else:
            self._add(self._generators[POD].check, pod)
            if json_types.text(change.object, "spec", "nodeName"):
                self._add(self._reserver.check, pod)

    def _observe_group(self, change: Change) -> None:
        group = key_of(change.object)
        self._add(self._protector.check, group)
        for claim in self._claims_of.get(group, set()):
            self._add(self._releaser.check, claim)
        if change.deleted:
            self._generators[POD_GROUP].remove(group)
            self._observe_owner(change)
        elif self._sharing.groups:
            self._add(self._generators[POD_GROUP].check, group)
            self._add(self._generate_for_members, group)

    def _generate_for_members(self, group: Key) -> None:
        """Give the pods of a PodGroup the claims that wait for the group's."""
        for pod in pods_of(self._api, group):
            self._generators[POD].check(key_of(pod))

    def _observe_claim(self, change: Change) -> None:
        claim = key_of(change.object)
        for entry in [*reservations(change.before or {}), *reservations(change.object)]:
            name = entry.get("name")
            if isinstance(name, str):
                self._claims_of.setdefault(Key(claim.namespace, name), set()).add(claim)
        if change.deleted:
            for claims in self._claims_of.values():
                claims.discard(claim)
            self._claims_of = {pod: claims for pod, claims in self._claims_of.items() if claims}
        else:
            self._add(self._releaser.check, claim)
            self._reserve_for_bound(change)
        self._observe_owned(change)

    def _reserve_for_bound(self, change: Change) -> None:
        """Check the pods on nodes that wait for a claim that is now allocated, or that lost a reservation."""
        old, claim = change.before or {}, change.object
        if not is_allocated(claim) or (is_allocated(old) and len(reservations(old)) <= len(reservations(claim))):
            return
        for pod in self._pods.users(key_of(claim)):
            if json_types.text(pod, "spec", "nodeName"):
                self._add(self._reserver.check, key_of(pod))

    def _observe_template(self, change: Change) -> None:
        for generator in self._generators.values():
            for owner in generator.waiting_for(key_of(change.object)):
                self._add(generator.check, owner)

    def _observe_owned(self, change: Change) -> None:
        self._garbage.observe(change)
        if not change.deleted:
            self._add(self._garbage.check_of(change.resource), key_of(change.object))

    def _observe_slice(self, change: Change) -> None:
        self._observe_owned(change)
        self._observe_pools(change)

    def _observe_pools(self, change: Change) -> None:
        for key in self._pools.observe(change):
            self._add(self._pools.check, key)

    def _observe_node(self, change: Change) -> None:
        for key in self._daemon_sets:
            self._add(self._workloads.check_of(DAEMON_SET), key)
        self._observe_owner(change)

    def _observe_workload(self, change: Change) -> None:
        key = key_of(change.object)
        if change.resource is DAEMON_SET:
            (self._daemon_sets.discard if change.deleted else self._daemon_sets.add)(key)
        self._add(self._workloads.check_of(change.resource), key)
        if json_types.items(change.object, "metadata", "ownerReferences"):
            self._observe_owned(change)
        self._check_owners(change)
        self._observe_owner(change)

    def _check_owners(self, change: Change) -> None:
        """Check the workload that controls an object, and the one that controlled it before the change."""
        for obj in filter(None, (change.before, change.object)):
            if (check := self._workloads.check_of_owner(obj)) is not None:
                self._add(*check)

    def _observe_owner(self, change: Change) -> None:
        if change.deleted:
            for resource, key in self._garbage.owned_by(change.object):
                self._add(self._garbage.check_of(resource), key)

    def _act(self) -> float | None:
        now = time.monotonic()
        self._work |= dict.fromkeys(work for work, due in self._due.items() if due <= now)
        self._due = {work: due for work, due in self._due.items() if due > now}
        work, self._work = self._work, {}
        for action, key in work:
            try:
                if (seconds := action(key)) is not None:
                    self._due[action, key] = time.monotonic() + seconds
            except errors.ApiError as error:
                _log.debug("controller step failed", object=str(key), error=str(error))
                self._add(action, key)
            except Exception:  # noqa: BLE001 -- one object that nobody thought of must not stop the others.
                _log.exception("controller step ended by an error", object=str(key))
        due, failed = None, False
        try:
            due = earliest(self._evictor.act() if self._evicts else None, self._pools.act())
        except errors.ApiError as error:
            _log.debug("eviction or clean-up failed", error=str(error))
            failed = True
        repeated = max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None
        due = earliest(due, repeated, self._recheck_workload_claims())
        if failed or self._work:
            return earliest(due, self._backoff.next())
        self._backoff.reset()
        return due

    def _recheck_workload_claims(self) -> float | None:
        """Schedule periodic checks of claims that workloads reserve; return the seconds until the next call."""
        if not self._releaser.waiting:
            return None
        now = time.monotonic()
        if now >= self._recheck_at:
            self._recheck_at = now + _RECHECK_SECONDS
            for claim in self._releaser.waiting:
                self._add(self._releaser.check, claim)
        return self._recheck_at - now
