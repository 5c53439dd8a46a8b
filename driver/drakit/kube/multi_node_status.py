"""Merge the status of one device that several nodes prepare (ResourceClaim.status.devices of a multi-host device).

A claim has one entry for such a device, with at most 8 conditions and one ``data`` object. So ``data`` has the part of each node, and the conditions
are computed from the parts: a condition is true when it is true in the parts of all nodes. A writer reads the entry, changes its own part, and writes
the whole entry back with optimistic locking. As JSON::

    {"count": 2, "nodes": {"node-1": {"conditions": {"Ready": {"status": true, "reason": "Prepared"}}, "values": {"worker": 0}}}}

Unreadable parts of a stored entry are ignored.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from drakit import texts
from drakit.core import claim_status, names, records
from drakit.kube import stored_claim

WAITING = "WaitingForNodes"
_SHOWN = 3
_MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """The part of one node."""

    conditions: tuple[claim_status.Condition, ...] = ()
    values: records.Record = dataclasses.field(default_factory=records.empty)

    def __bool__(self) -> bool:
        return bool(self.conditions or self.values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiNodeStatus:
    """The parts by node, and the number of nodes that prepare the device."""

    parts: Mapping[str, NodeStatus] = dataclasses.field(default_factory=dict)
    count: int = 1

    def with_part(self, node: str, part: NodeStatus, count: int = 0) -> "MultiNodeStatus":
        """Return the status with one node's part replaced, or removed where it is empty; ``count`` 0 keeps the number of nodes."""
        others = {name: other for name, other in self.parts.items() if name != node}
        return MultiNodeStatus(parts={**others, node: part} if part else others, count=count or self.count)

    def conditions(self) -> tuple[claim_status.Condition, ...]:
        """Return the device's conditions, sorted by type."""
        types = sorted({condition.type for part in self.parts.values() for condition in part.conditions})
        return tuple(self._condition(name) for name in types)

    def _condition(self, name: str) -> claim_status.Condition:
        by_node = {node: condition for node, part in sorted(self.parts.items()) for condition in part.conditions if condition.type == name}
        false = {node: condition for node, condition in by_node.items() if not condition.status}
        if false:
            shown = [f"{node}: {condition.message or condition.reason}" for node, condition in list(false.items())[:_SHOWN]]
            more = len(false) - len(shown)
            message = "; ".join(shown) + (f"; and {more} more" if more else "")
            return claim_status.Condition(
                type=name, status=False, reason=next(iter(false.values())).reason, message=texts.cut(message, _MESSAGE_MAX)
            )
        if len(by_node) < self.count:
            return claim_status.Condition(type=name, status=False, reason=WAITING, message=f"{len(by_node)} of {self.count} nodes")
        return claim_status.Condition(
            type=name, status=True, reason=next(iter(by_node.values())).reason, message=f"all of {self.count} nodes"
        )

    def to_record(self) -> dict[str, object]:
        """Return the ``data`` of the entry; empty where no node has a part."""
        if not self.parts:
            return {}
        return {"count": self.count, "nodes": {node: _to_record(self.parts[node]) for node in sorted(self.parts)}}


def read(stored: object) -> MultiNodeStatus:
    """Return the status in the ``data`` of a stored entry."""
    data = _object(stored)
    count = data.get("count")
    parts = {node: _part(value) for node, value in _object(data.get("nodes")).items()}
    number = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
    return MultiNodeStatus(parts={node: part for node, part in parts.items() if part}, count=number)


def _to_record(part: NodeStatus) -> dict[str, object]:
    conditions: dict[str, object] = {}
    for condition in part.conditions:
        message = {"message": condition.message} if condition.message else {}
        conditions[condition.type] = {"status": condition.status, "reason": condition.reason, **message}
    head: dict[str, object] = {"conditions": conditions} if conditions else {}
    return head | ({"values": records.thaw(part.values)} if part.values else {})


def _part(value: object) -> NodeStatus:
    stored = _object(value)
    conditions = (_read_condition(name, _object(condition)) for name, condition in _object(stored.get("conditions")).items())
    return NodeStatus(conditions=tuple(conditions), values=records.freeze_record(dict(_object(stored.get("values")))))


def _read_condition(name: str, stored: Mapping[str, object]) -> claim_status.Condition:
    reason, message = stored.get("reason"), stored.get("message")
    return claim_status.Condition(type=name, status=stored.get("status") is True, reason=str(reason or WAITING), message=str(message or ""))


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


Stamp = Callable[[claim_status.Condition, claim_status.DeviceKey, stored_claim.StoredClaim], dict[str, object]]


def keys(claim: stored_claim.StoredClaim, driver: str, pool: str) -> Iterator[claim_status.DeviceKey]:
    """Return the allocated devices of a driver in cluster pools, where ``pool`` is the node's own pool."""
    return (result.key for result in claim.results if result.driver == driver and not names.is_pool_of_node(result.pool, pool))


def stored(claim: stored_claim.StoredClaim, driver: str) -> Mapping[claim_status.DeviceKey, MultiNodeStatus]:
    """Return the stored status of each of a driver's devices."""
    return {entry.key: read(entry.stored.get("data")) for entry in claim.entries_of(driver)}


def changed(before: MultiNodeStatus, key: claim_status.DeviceKey, node: str, change: claim_status.StatusChange) -> MultiNodeStatus:
    """Return the status after a change of one node's part."""
    own = before.parts.get(node, NodeStatus())
    reported = change.devices.get(key)
    values = NodeStatus().values if change.cleared else own.values
    part = NodeStatus(conditions=claim_status.merged(own.conditions, key, change), values=values if reported is None else reported.values)
    return before.with_part(node, part, 0 if reported is None else reported.nodes)


def entries(
    statuses: Mapping[claim_status.DeviceKey, MultiNodeStatus], claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[claim_status.DeviceKey, dict[str, object]]:
    """Return the entries to apply, of the devices with a part of any node."""
    return {key: _entry(key, statuses[key], claim, driver, stamp) for key in sorted(statuses) if statuses[key].parts}


def _entry(
    key: claim_status.DeviceKey, status: MultiNodeStatus, claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {})}
    conditions = [stamp(condition, key, claim) for condition in status.conditions()]
    return {**entry, "data": status.to_record(), **({"conditions": conditions} if conditions else {})}
