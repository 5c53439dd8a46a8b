"""The status of one device that several nodes prepare, each its own part (ResourceClaim.status.devices of a multi-host device).

A claim has one entry for such a device, whoever writes it: at most 8 conditions and one ``data`` object. So the parts are kept side by side in
``data``, by node, and the conditions are made of them: one holds when the parts of all nodes say that it does. Whoever writes reads the entry,
changes its own part, and writes the whole back only if nobody wrote meanwhile. As JSON::

    {"count": 2, "nodes": {"node-1": {"conditions": {"Ready": {"status": true, "reason": "Prepared"}}, "values": {"worker": 0}}}}

What cannot be read of a stored entry counts as not said. Pure.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from drakit.core import claim_status, names, records
from drakit.kube import stored_claim

WAITING = "WaitingForNodes"
_SHOWN = 3
_MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """What one node says."""

    conditions: tuple[claim_status.Condition, ...] = ()
    values: records.Record = dataclasses.field(default_factory=records.empty)

    def __bool__(self) -> bool:
        return bool(self.conditions or self.values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiNodeStatus:
    """All parts that were said, by node, and how many nodes there are to say one."""

    parts: Mapping[str, NodeStatus] = dataclasses.field(default_factory=dict)
    count: int = 1

    def with_part(self, node: str, part: NodeStatus, count: int = 0) -> "MultiNodeStatus":
        """The same with one node's part replaced, or gone where it says nothing; ``count`` 0 leaves the number of nodes."""
        others = {name: one for name, one in self.parts.items() if name != node}
        return MultiNodeStatus(parts={**others, node: part} if part else others, count=count or self.count)

    def conditions(self) -> tuple[claim_status.Condition, ...]:
        """The device's conditions, sorted by type."""
        types = sorted({one.type for part in self.parts.values() for one in part.conditions})
        return tuple(self._condition(name) for name in types)

    def _condition(self, name: str) -> claim_status.Condition:
        said = {node: one for node, part in sorted(self.parts.items()) for one in part.conditions if one.type == name}
        against = {node: one for node, one in said.items() if not one.status}
        if against:
            shown = [f"{node}: {one.message or one.reason}" for node, one in list(against.items())[:_SHOWN]]
            more = len(against) - len(shown)
            message = "; ".join(shown) + (f"; and {more} more" if more else "")
            return claim_status.Condition(
                type=name, status=False, reason=next(iter(against.values())).reason, message=message[:_MESSAGE_MAX]
            )
        if len(said) < self.count:
            return claim_status.Condition(type=name, status=False, reason=WAITING, message=f"{len(said)} of {self.count} nodes")
        return claim_status.Condition(type=name, status=True, reason=next(iter(said.values())).reason, message=f"all of {self.count} nodes")

    def to_record(self) -> dict[str, object]:
        """The ``data`` of the entry; empty when nobody says anything."""
        if not self.parts:
            return {}
        return {"count": self.count, "nodes": {node: _to_record(self.parts[node]) for node in sorted(self.parts)}}


def read(stored: object) -> MultiNodeStatus:
    """What the ``data`` of a stored entry says."""
    found = _object(stored)
    count = found.get("count")
    parts = {node: _part(value) for node, value in _object(found.get("nodes")).items()}
    number = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
    return MultiNodeStatus(parts={node: part for node, part in parts.items() if part}, count=number)


def _to_record(part: NodeStatus) -> dict[str, object]:
    conditions: dict[str, object] = {}
    for one in part.conditions:
        conditions[one.type] = {"status": one.status, "reason": one.reason, **({"message": one.message} if one.message else {})}
    head: dict[str, object] = {"conditions": conditions} if conditions else {}
    return head | ({"values": records.thaw(part.values)} if part.values else {})


def _part(value: object) -> NodeStatus:
    found = _object(value)
    conditions = (_read_condition(name, _object(one)) for name, one in _object(found.get("conditions")).items())
    return NodeStatus(conditions=tuple(conditions), values=records.freeze_record(dict(_object(found.get("values")))))


def _read_condition(name: str, found: Mapping[str, object]) -> claim_status.Condition:
    reason, message = found.get("reason"), found.get("message")
    return claim_status.Condition(type=name, status=found.get("status") is True, reason=str(reason or WAITING), message=str(message or ""))


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


Stamp = Callable[[claim_status.Condition, claim_status.DeviceKey, stored_claim.StoredClaim], dict[str, object]]


def keys(claim: stored_claim.StoredClaim, driver: str, pool: str) -> Iterator[claim_status.DeviceKey]:
    """The allocated devices of a driver that are of no pool of the node whose own pool is ``pool``."""
    return (result.key for result in claim.results if result.driver == driver and not names.is_pool_of_node(result.pool, pool))


def stored(claim: stored_claim.StoredClaim, driver: str) -> Mapping[claim_status.DeviceKey, MultiNodeStatus]:
    """What all nodes have said so far."""
    return {entry.key: read(entry.stored.get("data")) for entry in claim.entries_of(driver)}


def following(before: MultiNodeStatus, key: claim_status.DeviceKey, node: str, change: claim_status.StatusChange) -> MultiNodeStatus:
    """What all nodes say after a change on one of them."""
    mine = before.parts.get(node, NodeStatus())
    said = change.devices.get(key)
    kept = NodeStatus().values if change.cleared else mine.values
    part = NodeStatus(conditions=claim_status.merged(mine.conditions, key, change), values=kept if said is None else said.values)
    return before.with_part(node, part, 0 if said is None else said.nodes)


def entries(
    wholes: Mapping[claim_status.DeviceKey, MultiNodeStatus], claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[claim_status.DeviceKey, dict[str, object]]:
    """The entries to apply: those of devices of which any node says something."""
    return {key: _entry(key, wholes[key], claim, driver, stamp) for key in sorted(wholes) if wholes[key].parts}


def _entry(
    key: claim_status.DeviceKey, whole: MultiNodeStatus, claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {})}
    conditions = [stamp(one, key, claim) for one in whole.conditions()]
    return {**entry, "data": whole.to_record(), **({"conditions": conditions} if conditions else {})}
