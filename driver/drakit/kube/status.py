"""Device statuses of claims at the API server, by server-side apply: a driver on a node touches its own entries and nobody else's.

Each write reads the claim first: whether it is still the claim that is meant, what is allocated, and what of its status is ours already by
``metadata.managedFields``. So entries of devices that are not spoken of now stay, times of conditions that did not change are kept, nothing is sent
that stands there already, and a driver that was restarted goes on where the earlier process stopped. Devices that are of none of the node's pools
several nodes may report: those are written together (see ``joint_status``). Where the API server refuses server-side apply because of how the claim
is stored, a JSON patch follows (see ``status_patch``), and every later write of that claim is a JSON patch.

Since Kubernetes 1.36 two rights are needed: patch on ``resourceclaims/status``, without which the answer is 403, and ``associated-node:patch`` on
``resourceclaims/driver``, without which it is 422 like for many other reasons; its message tells it apart.
"""

import collections
import dataclasses
import hashlib
import http
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from drakit.core import claim as claims
from drakit.core import claim_status, errors, names, ports, records
from drakit.kube import claim_codec, multi_node_status, status_patch, stored_claim, transport
from drakit.kube import claims as kube_claims

APPLY_TYPE = "application/apply-patch+yaml"
_MANAGER_MAX = 128
_KNOWN_MAX = 4096
_NOT_ALLOCATED = "must be an allocated device in the claim"
_DRIVER_RIGHT = "resourceclaims/driver"
_TOLD = ("data", "networkData")
_ALL_NODES = "/all-nodes"
_TRIES = 20
_ALLOCATION = "status.allocation: "
_WHITE_SPACE = (
    "the claim's opaque parameters were stored with white space or an unescaped <, > or &, so the API server refuses every status write; "
    "create the claim with kubectl or with compact JSON"
)
_OTHERS_WHITE_SPACE = (
    "the status data of another driver was stored with white space or an unescaped <, > or &, so the API server refuses the status writes of "
    "this driver; that driver must write compact JSON"
)

Entries = dict[claim_status.DeviceKey, dict[str, object]]
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writer:
    """Whose statuses: one driver's devices of the pools of one node, whose own pool is ``pool``."""

    driver: str
    node: str
    pool: str

    @property
    def field_owner(self) -> str:
        """The field manager, at most 128 characters; the name gives way to its digest where that is too long."""
        name = f"{self.driver}/{self.node}"
        return name if len(name) <= _MANAGER_MAX else f"{self.driver}/{hashlib.sha256(self.node.encode()).hexdigest()[:32]}"


class ApiStatuses:
    """``core.ports.ClaimStatuses``. Safe between threads."""

    def __init__(self, api: transport.Transport, writer: Writer, clock: ports.Clock) -> None:
        self._api = api
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._blank: collections.OrderedDict[str, None] = collections.OrderedDict()

    def seen(self, ref: claims.ClaimRef, found: transport.Object) -> None:
        """A claim as it was just read: remember whether it has a status of this driver."""
        status = found.get("status")
        devices = status.get("devices") if isinstance(status, Mapping) else None
        entries = devices if isinstance(devices, list | tuple) else ()
        self._note_blank(ref.uid, blank=not any(isinstance(one, Mapping) and one.get("driver") == self._writer.driver for one in entries))

    def is_blank(self, uid: names.ClaimUid) -> bool:
        """Whether the claim is known to have no status of this driver."""
        with self._lock:
            return uid in self._blank

    def write(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Make the change; raises ClaimError when the claim is gone, replaced or not allocated, ConfigError when its status cannot be written at
        all, ApiError when the write is refused or not answered.
        """
        if self._again_after_conflicts(lambda: self._write_own(ref, change)):
            self._again_after_conflicts(lambda: self._write_joint(ref, change))

    def _write_own(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> bool:
        """Change the devices of the node's pools; return whether the claim has devices of other pools too."""
        found = self._read(ref)
        allocated = frozenset(self._allocated(found))
        change = claim_status.with_pools(change, allocated, self._writer.pool)
        ours = _owned(found, self._writer.driver, self._writer.field_owner)
        wanted = {key: entry for key in sorted(allocated) if (entry := self._entry(key, found, ours.get(key), change))}
        elsewhere = any(multi_node_status.keys(found, self._writer.driver, self._writer.pool))
        self._note_blank(ref.uid, blank=not (wanted or elsewhere))
        if wanted != ours:
            self._send(ref, found, self._writer.field_owner, wanted)
        return elsewhere

    def _write_joint(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Change this node's part of the devices that are of none of its pools; a conflict means that another node was faster."""
        found = self._read(ref)
        elsewhere = multi_node_status.keys(found, self._writer.driver, self._writer.pool)
        stored = multi_node_status.stored(found, self._writer.driver)
        before = {key: stored.get(key, multi_node_status.MultiNodeStatus()) for key in elsewhere}
        after = {key: multi_node_status.following(whole, key, self._writer.node, change) for key, whole in before.items()}
        if after != before:
            entries = multi_node_status.entries(after, found, self._writer.driver, self._stamped)
            self._send(ref, found, f"{self._writer.driver}{_ALL_NODES}", entries, version=found.resource_version)

    def _again_after_conflicts(self, write: Callable[[], _Result]) -> _Result:
        for _ in range(_TRIES - 1):
            try:
                return write()
            except errors.ApiError as error:
                if error.status != http.HTTPStatus.CONFLICT:
                    raise
        return write()

    def _read(self, ref: claims.ClaimRef) -> stored_claim.StoredClaim:
        try:
            found = stored_claim.read(self._api.request("GET", kube_claims.path(ref), timeout=kube_claims.TIMEOUT))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise _gone(errors.ClaimFault.NOT_FOUND) from error
            raise
        if found.uid != ref.uid:
            raise _gone(errors.ClaimFault.REPLACED)
        return found

    def _allocated(self, found: stored_claim.StoredClaim) -> Iterator[claim_status.DeviceKey]:
        if found.allocation is None:
            raise _gone(errors.ClaimFault.NOT_ALLOCATED)
        for result in found.results:
            if result.driver == self._writer.driver and names.is_pool_of_node(result.pool, self._writer.pool):
                yield result.key

    def _entry(
        self,
        key: claim_status.DeviceKey,
        found: stored_claim.StoredClaim,
        before: Mapping[str, Any] | None,
        change: claim_status.StatusChange,
    ) -> dict[str, object]:
        """The entry to apply for one allocated device; empty when there is nothing to say of it."""
        before_change = tuple(_condition(one) for one in (before or {}).get("conditions", ()))
        conditions = claim_status.merged(before_change, key, change, _binding_conditions(found, self._writer.driver, key))
        said = change.devices.get(key)
        kept = {} if before is None or change.cleared else {name: before[name] for name in _TOLD if name in before}
        told = kept if said is None else _told(said)
        if not (conditions or told):
            return {}
        return _assembled(self._writer.driver, key, [self._stamped(one, key, found) for one in conditions], told)

    def _stamped(
        self, condition: claim_status.Condition, key: claim_status.DeviceKey, found: stored_claim.StoredClaim
    ) -> dict[str, object]:
        """The condition as metav1.Condition; its time is that of the last change of its status, whoever wrote that."""
        status = "True" if condition.status else "False"
        since = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        for entry in found.entries_of(self._writer.driver):
            for known in map(stored_claim.condition, entry.conditions if entry.key == key else ()):
                if (known.type, known.status) == (condition.type, status):
                    since = known.last_transition_time
        made: dict[str, object] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since,
        }
        generation = found.generation
        return made if not generation else {**made, "observedGeneration": generation}

    def _send(self, ref: claims.ClaimRef, found: stored_claim.StoredClaim, manager: str, entries: Entries, *, version: str = "") -> None:
        """Apply as this manager, with a ``version`` only to the claim of that version; or patch what was read, where apply cannot work."""
        try:
            if not _is_patched(found, manager):
                try:
                    self._apply(ref, manager, [entries[key] for key in sorted(entries)], version)
                except errors.ApiError as error:
                    if not self._may_be_patched(error):
                        raise
                else:
                    return
            self._patch(ref, found, manager, entries)
        except errors.ApiError as error:
            raise self._translated(error) from error

    def _apply(self, ref: claims.ClaimRef, manager: str, entries: Sequence[dict[str, object]], version: str) -> None:
        body = {
            "apiVersion": claim_codec.API_VERSION,
            "kind": claim_codec.KIND,
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid} | ({"resourceVersion": version} if version else {}),
            "status": {"devices": [*entries]},
        }
        query = {"fieldManager": manager, "force": "true"}
        self._api.request("PATCH", _status_path(ref), query=query, body=records.freeze_record(body), content_type=APPLY_TYPE)

    def _patch(self, ref: claims.ClaimRef, found: stored_claim.StoredClaim, manager: str, entries: Entries) -> None:
        ours = _owned(found, self._writer.driver, manager)
        body = status_patch.operations(found, self._writer.driver, ours, entries)
        if body:
            query = {"fieldManager": manager}
            self._api.request("PATCH", _status_path(ref), query=query, body=body, content_type=status_patch.PATCH_TYPE)

    def _may_be_patched(self, error: errors.ApiError) -> bool:
        """Whether apply was refused for what it would change beside our own entries: the allocation, or the data of another driver."""
        return error.status == http.HTTPStatus.UNPROCESSABLE_ENTITY and (_ALLOCATION in str(error) or self._names_other_driver(error))

    def _names_other_driver(self, error: errors.ApiError) -> bool:
        return _DRIVER_RIGHT in str(error) and f'"{self._writer.driver}" is forbidden' not in str(error)

    def _translated(self, error: errors.ApiError) -> errors.DrakitError:
        if error.status == http.HTTPStatus.NOT_FOUND:
            return _gone(errors.ClaimFault.NOT_FOUND)
        if error.status == http.HTTPStatus.FORBIDDEN:
            fix = "allow its service account to patch resourceclaims/status"
            return errors.ApiError(f"{error}; {fix}", status=error.status, reason=error.reason)
        return self._translated_422(error) if error.status == http.HTTPStatus.UNPROCESSABLE_ENTITY else error

    def _translated_422(self, error: errors.ApiError) -> errors.DrakitError:
        message = str(error)
        if _ALLOCATION in message:
            return errors.ConfigError(_WHITE_SPACE, field="status.devices")
        if self._names_other_driver(error):
            return errors.ConfigError(_OTHERS_WHITE_SPACE, field="status.devices")
        if _DRIVER_RIGHT in message:
            right = f"associated-node:patch on {_DRIVER_RIGHT} {self._writer.driver}, with a token of a pod on this node"
            fix = f"allow its service account {right} (arbitrary-node:patch for devices of several nodes)"
            return errors.ApiError(f"{error}; {fix}", status=http.HTTPStatus.FORBIDDEN, reason="Forbidden")
        return _gone(errors.ClaimFault.NOT_ALLOCATED) if _NOT_ALLOCATED in message else error

    def _note_blank(self, uid: str, *, blank: bool) -> None:
        with self._lock:
            self._blank.pop(uid, None)
            if blank:
                self._blank[uid] = None
            while len(self._blank) > _KNOWN_MAX:
                self._blank.popitem(last=False)


def _gone(fault: errors.ClaimFault) -> errors.ClaimError:
    return errors.ClaimError(fault, "the claim was deleted, replaced, or is not allocated; its status is not written")


def _binding_conditions(found: stored_claim.StoredClaim, driver: str, key: claim_status.DeviceKey) -> frozenset[str]:
    """The types of the conditions that a device's allocation waits for, or fails by."""
    ours = [result for result in found.results if result.driver == driver and result.key == key]
    return frozenset(name for result in ours for name in (*result.binding_conditions, *result.binding_failure_conditions))


def _status_path(ref: claims.ClaimRef) -> str:
    return f"{kube_claims.path(ref)}/status"


def _owned(found: stored_claim.StoredClaim, driver: str, manager: str) -> Entries:
    """Return a driver's entries as the manager last wrote them: only the fields that it owns by the server's books."""
    marks = _marks(found, manager)
    ours: Entries = {}
    for entry in found.entries_of(driver):
        mark = marks.get(entry.key)
        if mark is not None:
            ours[entry.key] = _part(driver, entry, mark)
    return ours


def _part(driver: str, entry: stored_claim.Entry, mark: Mapping[str, object]) -> dict[str, object]:
    types = _types(mark)
    told = {name: entry.stored[name] for name in _TOLD if f"f:{name}" in mark and entry.stored.get(name) is not None}
    return _assembled(driver, entry.key, [dict(one) for one in entry.conditions if one.get("type") in types], told)


def _assembled(
    driver: str, key: claim_status.DeviceKey, conditions: list[dict[str, object]], told: Mapping[str, object]
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {}), **told}
    return {**entry, "conditions": sorted(conditions, key=lambda one: str(one["type"]))} if conditions else entry


def _marks(found: stored_claim.StoredClaim, owner: str) -> Mapping[claim_status.DeviceKey, Mapping[str, object]]:
    """What a manager owns of each device's entry (FieldsV1), applied or patched, by pool, device and share id."""
    marks: dict[claim_status.DeviceKey, Mapping[str, object]] = {}
    for written in _written(found, owner):
        for name, new in _inside(_inside(written.fields, "f:status"), "f:devices").items():
            if isinstance(new, Mapping) and (key := _key_of_mark(name)):
                before = marks.get(key, records.EMPTY)
                marks[key] = {**before, **new, "f:conditions": {**_conditions_mark(before), **_conditions_mark(new)}}
    return marks


def _written(found: stored_claim.StoredClaim, manager: str) -> Iterator[stored_claim.FieldOwner]:
    """What a manager wrote of the status, by operation."""
    return (owner for owner in found.owners if (owner.manager, owner.subresource) == (manager, "status"))


def _is_patched(found: stored_claim.StoredClaim, manager: str) -> bool:
    """Whether the manager had to patch this claim before. To apply again would leave what it patched."""
    return any(one.operation == "Update" for one in _written(found, manager))


def _key_of_mark(name: str) -> claim_status.DeviceKey | None:
    key = _keys_of_mark(name)
    return (str(key.get("pool", "")), str(key.get("device", "")), str(key.get("shareID", ""))) if key else None


def _types(mark: Mapping[str, object]) -> Collection[str]:
    return {str(_keys_of_mark(name).get("type")) for name in _conditions_mark(mark) if name.startswith("k:")}


def _conditions_mark(mark: Mapping[str, object]) -> Mapping[str, object]:
    return _inside(mark, "f:conditions")


def _inside(mark: Mapping[str, object], key: str) -> Mapping[str, object]:
    inside = mark.get(key)
    return inside if isinstance(inside, Mapping) else {}


def _keys_of_mark(name: str) -> Mapping[str, object]:
    """The keys in a name of FieldsV1 such as ``k:{"type":"Ready"}``; none where it has another form."""
    try:
        keys = json.loads(name.removeprefix("k:")) if name.startswith("k:") else None
    except (ValueError, RecursionError):
        return {}
    return keys if isinstance(keys, dict) else {}


def _condition(found: object) -> claim_status.Condition:
    stored = stored_claim.condition(found)
    return claim_status.Condition(type=stored.type, status=stored.is_true, reason=stored.reason, message=stored.message)


def _told(said: claim_status.DeviceStatus) -> dict[str, object]:
    """The parts of an entry beside its identity and conditions."""
    told: dict[str, object] = {"data": records.thaw(said.values)} if said.values else {}
    if said.network is not None:
        parts = {
            "interfaceName": said.network.interface,
            "ips": list(said.network.addresses),
            "hardwareAddress": said.network.hardware_address,
        }
        told["networkData"] = {name: value for name, value in parts.items() if value}
    return told
