"""Write device statuses of claims by server-side apply: a driver on a node changes only its own entries.

Each write starts from the claim as it is stored: its UID, its allocation, and the fields of its status that this driver owns by
``metadata.managedFields``. So entries of other devices stay, unchanged conditions keep their times, an unchanged status is not sent, and a restarted
driver continues from the stored status. A claim that was read a moment ago is not read again; the write then succeeds only if it is still stored so.
Several nodes may report devices of cluster pools; those entries are merged (see ``multi_node_status``). If the API server rejects server-side apply
because of how the claim is stored, a JSON patch follows (see ``status_patch``), and every later write of that claim is a JSON patch.

Since Kubernetes 1.36 two rights are needed: patch on ``resourceclaims/status`` (without it the answer is 403), and ``associated-node:patch`` on
``resourceclaims/driver`` (without it the answer is 422, as for many other reasons, so the message is checked too).
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
from drakit.kube import claim_codec, multi_node_status, recent_claims, status_patch, stored_claim, transport
from drakit.kube import claims as kube_claims

APPLY_TYPE = "application/apply-patch+yaml"
_MANAGER_MAX = 128
_BLANK_MAX = 4096
_NOT_ALLOCATED = "must be an allocated device in the claim"
_DRIVER_RIGHT = "resourceclaims/driver"
_VALUE_FIELDS = ("data", "networkData")
_ALL_NODES = "/all-nodes"
_ATTEMPTS = 20
_OUTDATED = (http.HTTPStatus.CONFLICT, http.HTTPStatus.UNPROCESSABLE_ENTITY)
"""The answers to a write that is based on a claim that changed since, or that was replaced by another of its name."""
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
    """The writer of statuses: one driver on one node, whose own pool is ``pool``."""

    driver: str
    node: str
    pool: str

    @property
    def field_owner(self) -> str:
        """Return the field manager, at most 128 characters; a node name that is too long is replaced by its digest."""
        name = f"{self.driver}/{self.node}"
        return name if len(name) <= _MANAGER_MAX else f"{self.driver}/{hashlib.sha256(self.node.encode()).hexdigest()[:32]}"


class ApiStatuses:
    """The ``core.ports.ClaimStatuses`` of one driver on one node. Thread-safe."""

    def __init__(self, api: transport.Transport, writer: Writer, clock: ports.Clock) -> None:
        self._api = api
        self._writer = writer
        self._clock = clock
        self.recent = recent_claims.RecentClaims(clock)
        self._lock = threading.Lock()
        self._blank: collections.OrderedDict[str, None] = collections.OrderedDict()

    def seen(self, ref: claims.ClaimRef, claim: transport.Object) -> None:
        """Keep a claim that was just read, and whether it has a status of this driver."""
        self.recent.put(ref.uid, claim)
        status = claim.get("status")
        devices = status.get("devices") if isinstance(status, Mapping) else None
        entries = devices if isinstance(devices, list | tuple) else ()
        has_status = any(isinstance(entry, Mapping) and entry.get("driver") == self._writer.driver for entry in entries)
        self._set_blank(ref.uid, blank=not has_status)

    def is_blank(self, uid: names.ClaimUid) -> bool:
        """Return whether the claim is known to have no status of this driver."""
        with self._lock:
            return uid in self._blank

    def write(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Write the change. Raise ClaimError when the claim is deleted, replaced or not allocated, ConfigError when its status can never be written,
        ApiError when the write is rejected or not answered.
        """
        if self._retry_conflicts(lambda: self._write_own(ref, change)):
            self._retry_conflicts(lambda: self._write_merged(ref, change))

    def _write_own(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> bool:
        """Write the status of devices in the node's pools, and return whether the claim has devices of cluster pools too."""
        kept = self.recent.get(ref.uid)
        if kept is None or not self._is_written_on(ref, claim := stored_claim.read(kept), change, is_kept=True):
            self._is_written_on(ref, claim := self._read(ref), change)
        return self._is_elsewhere(claim)

    def _is_written_on(
        self, ref: claims.ClaimRef, claim: stored_claim.StoredClaim, change: claim_status.StatusChange, *, is_kept: bool = False
    ) -> bool:
        """Write the status to this claim, and return whether that changed it. A claim that ``is_kept`` is changed only if it is still stored so."""
        allocated = frozenset(self._allocated(claim))
        change = claim_status.with_pools(change, allocated, self._writer.pool)
        ours = _owned(claim, self._writer.driver, self._writer.field_owner)
        wanted = {key: entry for key in sorted(allocated) if (entry := self._entry(key, claim, ours.get(key), change))}
        self._set_blank(ref.uid, blank=not (wanted or self._is_elsewhere(claim)))
        if wanted == ours:
            return False
        try:
            self._send(ref, claim, self._writer.field_owner, wanted, version=claim.resource_version if is_kept else "")
        except errors.ApiError as error:
            if not is_kept or error.status not in _OUTDATED:
                raise
            return False
        return True

    def _is_elsewhere(self, claim: stored_claim.StoredClaim) -> bool:
        """Return whether the claim has devices of cluster pools."""
        return any(multi_node_status.keys(claim, self._writer.driver, self._writer.pool))

    def _write_merged(self, ref: claims.ClaimRef, change: claim_status.StatusChange) -> None:
        """Write this node's part of the status of devices in cluster pools; a conflict means that another node wrote first."""
        claim = self._read(ref)
        elsewhere = multi_node_status.keys(claim, self._writer.driver, self._writer.pool)
        stored = multi_node_status.stored(claim, self._writer.driver)
        before = {key: stored.get(key, multi_node_status.MultiNodeStatus()) for key in elsewhere}
        after = {key: multi_node_status.changed(status, key, self._writer.node, change) for key, status in before.items()}
        if after != before:
            entries = multi_node_status.entries(after, claim, self._writer.driver, self._to_record)
            self._send(ref, claim, f"{self._writer.driver}{_ALL_NODES}", entries, version=claim.resource_version)

    def _retry_conflicts(self, write: Callable[[], _Result]) -> _Result:
        for _ in range(_ATTEMPTS - 1):
            try:
                return write()
            except errors.ApiError as error:
                if error.status != http.HTTPStatus.CONFLICT:
                    raise
        return write()

    def _read(self, ref: claims.ClaimRef) -> stored_claim.StoredClaim:
        try:
            claim = stored_claim.read(self._api.request("GET", kube_claims.path(ref), timeout=kube_claims.TIMEOUT))
        except errors.ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise _claim_gone(errors.ClaimFault.NOT_FOUND) from error
            raise
        if claim.uid != ref.uid:
            raise _claim_gone(errors.ClaimFault.REPLACED)
        return claim

    def _allocated(self, claim: stored_claim.StoredClaim) -> Iterator[claim_status.DeviceKey]:
        if claim.allocation is None:
            raise _claim_gone(errors.ClaimFault.NOT_ALLOCATED)
        for result in claim.results:
            if result.driver == self._writer.driver and names.is_pool_of_node(result.pool, self._writer.pool):
                yield result.key

    def _entry(
        self,
        key: claim_status.DeviceKey,
        claim: stored_claim.StoredClaim,
        before: Mapping[str, Any] | None,
        change: claim_status.StatusChange,
    ) -> dict[str, object]:
        """Return the entry to apply for one allocated device; empty where it has no status."""
        before_change = tuple(_condition(condition) for condition in (before or {}).get("conditions", ()))
        conditions = claim_status.merged(before_change, key, change, _binding_conditions(claim, self._writer.driver, key))
        reported = change.devices.get(key)
        kept = {} if before is None or change.cleared else {name: before[name] for name in _VALUE_FIELDS if name in before}
        values = kept if reported is None else _value_fields(reported)
        if not (conditions or values):
            return {}
        return _make_entry(self._writer.driver, key, [self._to_record(condition, key, claim) for condition in conditions], values)

    def _to_record(
        self, condition: claim_status.Condition, key: claim_status.DeviceKey, claim: stored_claim.StoredClaim
    ) -> dict[str, object]:
        """Return the condition as metav1.Condition; an unchanged status keeps its transition time."""
        status = "True" if condition.status else "False"
        since = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        for entry in claim.entries_of(self._writer.driver):
            for stored in map(stored_claim.condition, entry.conditions if entry.key == key else ()):
                if (stored.type, stored.status) == (condition.type, status):
                    since = stored.last_transition_time
        record: dict[str, object] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since,
        }
        return {**record, "observedGeneration": claim.generation} if claim.generation else record

    def _send(self, ref: claims.ClaimRef, claim: stored_claim.StoredClaim, manager: str, entries: Entries, *, version: str = "") -> None:
        """Apply the entries as this manager, with a ``version`` only to that version of the claim, or patch the claim where apply cannot work."""
        self.recent.drop(ref.uid)
        try:
            if not _is_patched(claim, manager):
                try:
                    self._apply(ref, manager, [entries[key] for key in sorted(entries)], version)
                except errors.ApiError as error:
                    if not self._may_be_patched(error):
                        raise
                else:
                    return
            self._patch(ref, claim, manager, entries)
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
        written = self._api.request("PATCH", _status_path(ref), query=query, body=records.freeze_record(body), content_type=APPLY_TYPE)
        self.recent.put(ref.uid, written)

    def _patch(self, ref: claims.ClaimRef, claim: stored_claim.StoredClaim, manager: str, entries: Entries) -> None:
        ours = _owned(claim, self._writer.driver, manager)
        body = status_patch.operations(claim, self._writer.driver, ours, entries)
        if body:
            query = {"fieldManager": manager}
            self._api.request("PATCH", _status_path(ref), query=query, body=body, content_type=status_patch.PATCH_TYPE)

    def _may_be_patched(self, error: errors.ApiError) -> bool:
        """Return whether apply was rejected because it would change the allocation or the data of another driver."""
        return error.status == http.HTTPStatus.UNPROCESSABLE_ENTITY and (_ALLOCATION in str(error) or self._names_other_driver(error))

    def _names_other_driver(self, error: errors.ApiError) -> bool:
        return _DRIVER_RIGHT in str(error) and f'"{self._writer.driver}" is forbidden' not in str(error)

    def _translated(self, error: errors.ApiError) -> errors.DrakitError:
        if error.status == http.HTTPStatus.NOT_FOUND:
            return _claim_gone(errors.ClaimFault.NOT_FOUND)
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
            return errors.ApiError(f"{error}; {fix}", status=error.status, reason="Forbidden")
        return _claim_gone(errors.ClaimFault.NOT_ALLOCATED) if _NOT_ALLOCATED in message else error

    def _set_blank(self, uid: str, *, blank: bool) -> None:
        with self._lock:
            self._blank.pop(uid, None)
            if blank:
                self._blank[uid] = None
            while len(self._blank) > _BLANK_MAX:
                self._blank.popitem(last=False)


def _claim_gone(fault: errors.ClaimFault) -> errors.ClaimError:
    return errors.ClaimError(fault, "the claim was deleted, replaced, or is not allocated; its status is not written")


def _binding_conditions(claim: stored_claim.StoredClaim, driver: str, key: claim_status.DeviceKey) -> frozenset[str]:
    """Return the condition types that a device's allocation waits for or fails by."""
    results = [result for result in claim.results if result.driver == driver and result.key == key]
    return frozenset(name for result in results for name in (*result.binding_conditions, *result.binding_failure_conditions))


def _status_path(ref: claims.ClaimRef) -> str:
    return f"{kube_claims.path(ref)}/status"


def _owned(claim: stored_claim.StoredClaim, driver: str, manager: str) -> Entries:
    """Return a driver's entries as the manager last wrote them, with only the fields that it owns by ``managedFields``."""
    owned_fields = _owned_fields(claim, manager)
    ours: Entries = {}
    for entry in claim.entries_of(driver):
        owned = owned_fields.get(entry.key)
        if owned is not None:
            ours[entry.key] = _owned_part(driver, entry, owned)
    return ours


def _owned_part(driver: str, entry: stored_claim.Entry, owned: Mapping[str, object]) -> dict[str, object]:
    types = _condition_types(owned)
    values = {name: entry.stored[name] for name in _VALUE_FIELDS if f"f:{name}" in owned and entry.stored.get(name) is not None}
    conditions = [dict(condition) for condition in entry.conditions if isinstance(kind := condition.get("type"), str) and kind in types]
    return _make_entry(driver, entry.key, conditions, values)


def _make_entry(
    driver: str, key: claim_status.DeviceKey, conditions: list[dict[str, object]], values: Mapping[str, object]
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {}), **values}
    return {**entry, "conditions": sorted(conditions, key=lambda condition: str(condition["type"]))} if conditions else entry


def _owned_fields(claim: stored_claim.StoredClaim, owner: str) -> Mapping[claim_status.DeviceKey, Mapping[str, object]]:
    """Return the fields that a manager owns in each device's entry (FieldsV1), applied or patched."""
    owned_fields: dict[claim_status.DeviceKey, Mapping[str, object]] = {}
    for written in _written(claim, owner):
        for name, new in _field(_field(written.fields, "f:status"), "f:devices").items():
            if isinstance(new, Mapping) and (key := _device_key(name)):
                before = owned_fields.get(key, records.EMPTY)
                owned_fields[key] = {**before, **new, "f:conditions": {**_conditions_field(before), **_conditions_field(new)}}
    return owned_fields


def _written(claim: stored_claim.StoredClaim, manager: str) -> Iterator[stored_claim.FieldOwner]:
    """Yield the manager's field sets of the status, one for each operation."""
    return (owner for owner in claim.owners if (owner.manager, owner.subresource) == (manager, "status"))


def _is_patched(claim: stored_claim.StoredClaim, manager: str) -> bool:
    """Return whether the manager has patched this claim before. An apply would not remove the patched fields."""
    return any(owner.operation == "Update" for owner in _written(claim, manager))


def _device_key(name: str) -> claim_status.DeviceKey | None:
    key = _field_key(name)
    return (str(key.get("pool", "")), str(key.get("device", "")), str(key.get("shareID", ""))) if key else None


def _condition_types(owned: Mapping[str, object]) -> Collection[str]:
    return {str(_field_key(name).get("type")) for name in _conditions_field(owned) if name.startswith("k:")}


def _conditions_field(owned: Mapping[str, object]) -> Mapping[str, object]:
    return _field(owned, "f:conditions")


def _field(owned: Mapping[str, object], key: str) -> Mapping[str, object]:
    field = owned.get(key)
    return field if isinstance(field, Mapping) else {}


def _field_key(name: str) -> Mapping[str, object]:
    """Return the keys in a name of FieldsV1 such as ``k:{"type":"Ready"}``; none for a name of another form."""
    try:
        keys = json.loads(name.removeprefix("k:")) if name.startswith("k:") else None
    except (ValueError, RecursionError):
        return {}
    return keys if isinstance(keys, dict) else {}


def _condition(record: object) -> claim_status.Condition:
    stored = stored_claim.condition(record)
    return claim_status.Condition(type=stored.type, status=stored.is_true, reason=stored.reason, message=stored.message)


def _value_fields(reported: claim_status.DeviceStatus) -> dict[str, object]:
    """Return the value fields of an entry: ``data`` and ``networkData``."""
    values: dict[str, object] = {"data": records.thaw(reported.values)} if reported.values else {}
    if reported.network is not None:
        parts = {
            "interfaceName": reported.network.interface,
            "ips": list(reported.network.addresses),
            "hardwareAddress": reported.network.hardware_address,
        }
        values["networkData"] = {name: value for name, value in parts.items() if value}
    return values
