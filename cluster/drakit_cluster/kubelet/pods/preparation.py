"""Claims on the node: prepared before a pod's sandbox is made, unprepared after the containers of the last pod have stopped.

A driver is not called for a claim if all of the claim's devices of this driver skip the call (KEP-5945). It need not be registered then.

The order of checks and writes is that of a real kubelet. A pod that may not use its claims is not recorded. A pod that may is recorded on
disk before the first call to a driver, so that its claims are unprepared even after a crash. Calls run without the lock: two pods that start
to share a claim at the same time may both cause a Prepare.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.api.storage.store import Key
from drakit_cluster.client import pod_claims
from drakit_cluster.client.api import Api
from drakit_cluster.client.informer import key_of, uid_of
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.kubelet.plugins.endpoint import Answer, CallError, ClaimId
from drakit_cluster.kubelet.plugins.plugins import Plugins
from drakit_cluster.kubelet.pods.records import Checkpoint, ClaimRecord, PreparedDevice
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM

_PREPARE, _UNPREPARE, _EVERY = "NodePrepareResources", "NodeUnprepareResources", "*"


class PreparationError(Exception):
    """Claims that could not be prepared or unprepared now; the caller retries."""


@dataclass(frozen=True, kw_only=True)
class _UsableClaim:
    """A claim that a pod may use, and the calls that each driver of its allocation skips, in the order of the results."""

    key: Key
    uid: str
    skips: Mapping[str, frozenset[str]]

    def calls(self, call: str) -> list[str]:
        """Return the drivers that a call goes to."""
        return [driver for driver, skipped in self.skips.items() if call not in skipped]


class Preparation:
    """The claims in use on one node. The constructor raises CheckpointError for a damaged checkpoint."""

    def __init__(self, api: Api, plugins: Plugins, checkpoint: Checkpoint, gates: FeatureGates) -> None:
        self._api = api
        self._plugins = plugins
        self._checkpoint = checkpoint
        self._sharing = Sharing.of(gates)
        self._may_skip = gates.on(Gate.OPTIONAL_NODE_OPERATIONS)
        self._lock = threading.Lock()
        self._records = {record.key: record for record in checkpoint.load()}

    def prepare(self, pod: Object) -> list[str]:
        """Prepare the claims of the pod that are not prepared yet; return a description of each. Raises PreparationError."""
        claims = [self._usable_claim(pod, reference) for reference in pod_claims.references(pod) if reference.claim is not None]
        if not claims:
            return []
        for driver in dict.fromkeys(driver for claim in claims for driver in claim.calls(_PREPARE)):
            if not self._plugins.is_registered(driver):
                raise PreparationError(f"DRA driver {driver} is not registered")
        batches, new_records = self._track(uid_of(pod), claims)
        for driver, batch in batches.items():
            self._prepare_batch(driver, batch)
        return self._finish(new_records)

    def unprepare(self, pod_uid: str) -> list[str]:
        """Release the pod's claims, unprepare those that no other pod uses, and return these. Raises PreparationError."""
        with self._lock:
            last, batches = self._release(pod_uid)
        try:
            for driver in sorted(batches):
                self._call(driver, _UNPREPARE, batches[driver])
            with self._lock:
                for record in last:
                    # Another thread may have released the same claims in the meantime, and a new pod may have recorded them again.
                    if self._records.get(record.key) is record:
                        del self._records[record.key]
                if last:
                    self._save()
        finally:
            for record in last:
                record.unpreparing = False
        return [f"claim {record.key.namespace}/{record.key.name}" for record in last]

    def has(self, pod_uid: str) -> bool:
        """Return whether the pod uses a claim."""
        return pod_uid in self.pods()

    def pods(self, driver: str = "") -> set[str]:
        """Return the UIDs of the pods that use claims; with ``driver``, only claims of that driver."""
        with self._lock:
            return set().union(*(record.pods for record in self._records.values() if not driver or driver in record.drivers))

    def cdi_ids(self, pod: Object, container: Object) -> list[str]:
        """Return the CDI names that a container of the pod gets. A request listed twice gives its names twice, as in a real kubelet."""
        return [name for _, _, device in self._container_devices(pod, container) for name in device.cdi_ids]

    def uses(self, pod: Object, container: Object) -> list[tuple[Key, str, PreparedDevice]]:
        """Return the prepared devices that a container of the pod gets, each once, with their claims and drivers."""
        return list(dict.fromkeys(self._container_devices(pod, container)))

    def claimed(self, pod: Object, container: Object) -> list[tuple[Key, str, PreparedDevice]]:
        """Return every prepared device of each claim that a container uses, whichever requests the container names."""
        namespace = key_of(pod).namespace
        claims = dict.fromkeys(claim for claim, _ in _container_requests(pod, container))
        return [(Key(namespace, claim), driver, device) for claim in claims for driver, device in self.used(pod, claim, "")]

    def _container_devices(self, pod: Object, container: Object) -> list[tuple[Key, str, PreparedDevice]]:
        """Return the devices of each entry of a container's claims, in order."""
        namespace, devices = key_of(pod).namespace, list[tuple[Key, str, PreparedDevice]]()
        for claim, request in _container_requests(pod, container):
            devices += [(Key(namespace, claim), driver, device) for driver, device in self.used(pod, claim, request)]
        return devices

    def used(self, pod: Object, claim: str, request: str) -> list[tuple[str, PreparedDevice]]:
        """Return the drivers and devices of a request of a claim that the pod uses, or of the whole claim if ``request`` is empty."""
        with self._lock:
            record = self._records.get(Key(key_of(pod).namespace, claim))
            return record.devices(request) if record is not None and uid_of(pod) in record.pods else []

    def devices(self, namespace: str, claim: str) -> dict[str, tuple[PreparedDevice, ...]]:
        """Return the devices of a claim by driver; empty if the claim is not in use."""
        with self._lock:
            record = self._records.get(Key(namespace, claim))
            return dict(record.drivers) if record else {}

    def _usable_claim(self, pod: Object, reference: pod_claims.Reference) -> _UsableClaim:
        """Return a claim that the pod may use. It is read from the API, because a cache may be stale."""
        if not reference.claim:
            raise PreparationError(f"ResourceClaim of {reference.name} not created yet")
        key = Key(key_of(pod).namespace, reference.claim)
        try:
            claim = self._api.get(CLAIM, key.name, key.namespace)
        except errors.ApiError as error:
            raise PreparationError(f"fetch ResourceClaim {key.namespace}/{key.name}: {error}") from error
        if reference.owned and not self._sharing.is_generated_for(claim, pod):
            raise PreparationError(f"ResourceClaim {key.namespace}/{key.name} is not owned by pod {key_of(pod).name}")
        if not self._sharing.may_use(claim, pod):
            raise PreparationError(
                f"pod {key_of(pod).name} ({uid_of(pod)}) is not allowed to use ResourceClaim {key.name} ({uid_of(claim)})"
            )
        if not pod_claims.is_allocated(claim):
            raise PreparationError(f"ResourceClaim {key.namespace}/{key.name} is not allocated")
        results = json_types.objects(pod_claims.allocation(claim), "devices", "results")
        if not self._may_skip and any(json_types.strings(result, "skipNodeOperations") for result in results):
            raise PreparationError(
                f"ResourceClaim {key.namespace}/{key.name} skips node operations, but the feature gate {Gate.OPTIONAL_NODE_OPERATIONS} is off"
            )
        return _UsableClaim(key=key, uid=uid_of(claim), skips=_skipped_calls(results))

    def _track(self, pod_uid: str, claims: Sequence[_UsableClaim]) -> tuple[dict[str, list[ClaimId]], list[ClaimRecord]]:
        """Record that the pod uses the claims; return the claims to prepare by driver, and their records."""
        batches: dict[str, list[ClaimId]] = {}
        new_records: list[ClaimRecord] = []
        with self._lock:
            for claim in claims:
                _check_free(self._records.get(claim.key), claim)
            for claim in claims:
                record = self._records.setdefault(claim.key, ClaimRecord(key=claim.key, uid=claim.uid))
                record.pods.add(pod_uid)
                if record.prepared:
                    continue
                new_records.append(record)
                record.not_unprepared = frozenset(claim.skips) - {*claim.calls(_UNPREPARE)}
                for driver in claim.skips:
                    record.drivers.setdefault(driver, ())
                for driver in claim.calls(_PREPARE):
                    batches.setdefault(driver, []).append(_id_of(record))
            self._save()
        return batches, new_records

    def _prepare_batch(self, driver: str, claims: list[ClaimId]) -> None:
        answers = self._call(driver, _PREPARE, claims)
        with self._lock:
            for claim in claims:
                record = self._records.get(Key(claim.namespace, claim.name))
                if record is not None and record.uid == claim.uid:
                    record.drivers[driver] = answers[claim.uid].devices
            self._save()

    def _finish(self, records: Sequence[ClaimRecord]) -> list[str]:
        with self._lock:
            for record in records:
                record.prepared = True
            return [_description(record) for record in records]

    def _release(self, pod_uid: str) -> tuple[list[ClaimRecord], dict[str, list[ClaimId]]]:
        """Remove the pod from shared records; return the records that only it uses, and their claims by driver."""
        last: list[ClaimRecord] = []
        batches: dict[str, list[ClaimId]] = {}
        shared = False
        for record in self._records.values():
            if pod_uid not in record.pods:
                continue
            if len(record.pods) > 1:
                record.pods.discard(pod_uid)
                shared = True
                continue
            record.prepared, record.unpreparing = False, True
            last.append(record)
            for driver in record.drivers.keys() - record.not_unprepared:
                batches.setdefault(driver, []).append(_id_of(record))
        if shared:
            self._save()
        return last, batches

    def _call(self, driver: str, call: str, claims: list[ClaimId]) -> dict[str, Answer]:
        """Return a driver's answers. Raises PreparationError for an answer about an unknown claim, an error, or a missing answer."""
        endpoint = self._plugins.choose(driver)
        if endpoint is None:
            raise PreparationError(f"DRA driver {driver} is not registered")
        try:
            answers = endpoint.prepare(claims) if call == _PREPARE else endpoint.unprepare(claims)
        except CallError as error:
            raise PreparationError(str(error)) from error
        requested = {claim.uid: claim for claim in claims}
        for uid, answer in answers.items():
            if uid not in requested:
                raise PreparationError(f"{call} returned result for unknown claim UID {uid}")
            if answer.error:
                claim = requested[uid]
                raise PreparationError(f"{call} failed for ResourceClaim {claim.namespace}/{claim.name}: {answer.error}")
        if skipped := len(requested) - len(answers):
            raise PreparationError(f"{call} skipped {skipped} ResourceClaims")
        return answers

    def _save(self) -> None:
        try:
            self._checkpoint.save(self._records.values())
        except OSError as error:
            raise PreparationError(f"checkpoint not written: {error}") from error


def _skipped_calls(results: Sequence[Object]) -> dict[str, frozenset[str]]:
    """Return what all results of each driver skip. A result that skips every call skips both."""
    skipped: dict[str, frozenset[str]] = {}
    for result in results:
        calls = frozenset(json_types.strings(result, "skipNodeOperations"))
        if _EVERY in calls:
            calls |= {_PREPARE, _UNPREPARE}
        driver = json_types.text(result, "driver")
        skipped[driver] = skipped.get(driver, calls) & calls
    return skipped


def _check_free(record: ClaimRecord | None, claim: _UsableClaim) -> None:
    """Refuse a claim if a deleted claim of the same name is still in use, or if it is being unprepared for another pod."""
    if record is None:
        return
    if record.uid != claim.uid:
        raise PreparationError(
            f"old ResourceClaim with same name {claim.key.name} and different UID {record.uid} still exists (previous pod force-deleted?!)"
        )
    if record.unpreparing:
        raise PreparationError(f"ResourceClaim {claim.key.namespace}/{claim.key.name} is being unprepared for another pod")


def _container_requests(pod: Object, container: Object) -> list[tuple[str, str]]:
    """Return the claims and requests that a container uses: those that it lists, and its part of the claim for extended resources."""
    claims = {reference.name: reference.claim for reference in pod_claims.references(pod) if not reference.special}
    named = [(claims.get(json_types.text(use, "name")), use) for use in json_types.objects(container, "resources", "claims")]
    status, name = json_types.mapping(pod, "status", "extendedResourceClaimStatus"), json_types.text(container, "name")
    mappings = [mapping for mapping in json_types.objects(status, "requestMappings") if mapping.get("containerName") == name]
    extended = [(json_types.text(status, "resourceClaimName"), json_types.text(mapping, "requestName")) for mapping in mappings]
    return [*((claim, json_types.text(use, "request")) for claim, use in named if claim), *extended]


def _id_of(record: ClaimRecord) -> ClaimId:
    return ClaimId(namespace=record.key.namespace, name=record.key.name, uid=record.uid)


def _description(record: ClaimRecord) -> str:
    devices = [f"{driver}/{device.device}" for driver, devices in record.drivers.items() for device in devices]
    return f"claim {record.key.namespace}/{record.key.name}: {', '.join(devices) or 'no devices'}"
