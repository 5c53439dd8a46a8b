"""The entries of a claim's status that several nodes write together (see ``core.multi_node_status``): how the next ones follow from those stored.

All nodes apply them under one field manager, each the whole of what it read with its own part changed, and each write names the version that was
read: who was overtaken reads again. So no node overwrites another's part, and the last one to leave removes the entry.
"""

from collections.abc import Callable, Iterator, Mapping

from drakit.core import claim_status, multi_node_status
from drakit.kube import stored_claim

Stamp = Callable[[claim_status.Condition, claim_status.DeviceKey, stored_claim.StoredClaim], dict[str, object]]


def keys(claim: stored_claim.StoredClaim, driver: str, pool: str) -> Iterator[claim_status.DeviceKey]:
    """The allocated devices of a driver that are of other pools than the node's own."""
    return (result.key for result in claim.results if result.driver == driver and result.pool != pool)


def stored(claim: stored_claim.StoredClaim, driver: str) -> Mapping[claim_status.DeviceKey, multi_node_status.MultiNodeStatus]:
    """What all nodes have said so far."""
    return {entry.key: multi_node_status.read(entry.stored.get("data")) for entry in claim.entries_of(driver)}


def following(
    before: multi_node_status.MultiNodeStatus, key: claim_status.DeviceKey, node: str, change: claim_status.StatusChange
) -> multi_node_status.MultiNodeStatus:
    """What all nodes say after a change on one of them."""
    mine = before.parts.get(node, multi_node_status.NodeStatus())
    said = change.devices.get(key)
    kept = multi_node_status.NodeStatus().values if change.cleared else mine.values
    part = multi_node_status.NodeStatus(
        conditions=claim_status.merged(mine.conditions, key, change), values=kept if said is None else said.values
    )
    return before.with_part(node, part, 0 if said is None else said.nodes)


def entries(
    wholes: Mapping[claim_status.DeviceKey, multi_node_status.MultiNodeStatus], claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[claim_status.DeviceKey, dict[str, object]]:
    """The entries to apply: those of devices of which any node says something."""
    return {key: _entry(key, wholes[key], claim, driver, stamp) for key in sorted(wholes) if wholes[key].parts}


def _entry(
    key: claim_status.DeviceKey, whole: multi_node_status.MultiNodeStatus, claim: stored_claim.StoredClaim, driver: str, stamp: Stamp
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {})}
    conditions = [stamp(one, key, claim) for one in whole.conditions()]
    return {**entry, "data": whole.to_record(), **({"conditions": conditions} if conditions else {})}
