"""The entries of a claim's status that several nodes write together (see ``core.multi_node_status``): how the next ones follow from those stored.

All nodes apply them under one field manager, each the whole of what it read with its own part changed, and each write names the version that was
read: who was overtaken reads again. So no node overwrites another's part, and the last one to leave removes the entry.
"""

from collections.abc import Callable, Iterator, Mapping

from drakit.core import claim_status, multi_node_status
from drakit.kube import fields

Stamp = Callable[[claim_status.Condition, claim_status.DeviceKey, fields.Field], dict[str, object]]


def keys(found: fields.Field, driver: str, pool: str) -> Iterator[claim_status.DeviceKey]:
    """The allocated devices of a driver that are of other pools than the node's own."""
    for result in found["status"]["allocation"]["devices"]["results"].each():
        if result["driver"].value == driver and result["pool"].value != pool:
            yield result["pool"].text(), result["device"].text(), result["shareID"].text_or_empty()


def stored(found: fields.Field, driver: str) -> Mapping[claim_status.DeviceKey, multi_node_status.MultiNodeStatus]:
    """What all nodes have said so far."""
    entries = (entry for entry in found["status"]["devices"].each() if entry["driver"].value == driver)
    return {
        (one["pool"].text(), one["device"].text(), one["shareID"].text_or_empty()): multi_node_status.read(one["data"].value)
        for one in entries
    }


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
    wholes: Mapping[claim_status.DeviceKey, multi_node_status.MultiNodeStatus], found: fields.Field, driver: str, stamp: Stamp
) -> dict[claim_status.DeviceKey, dict[str, object]]:
    """The entries to apply: those of devices of which any node says something."""
    return {key: _entry(key, wholes[key], found, driver, stamp) for key in sorted(wholes) if wholes[key].parts}


def _entry(
    key: claim_status.DeviceKey, whole: multi_node_status.MultiNodeStatus, found: fields.Field, driver: str, stamp: Stamp
) -> dict[str, object]:
    pool, device, share = key
    entry: dict[str, object] = {"driver": driver, "pool": pool, "device": device, **({"shareID": share} if share else {})}
    conditions = [stamp(one, key, found) for one in whole.conditions()]
    return {**entry, "data": whole.to_record(), **({"conditions": conditions} if conditions else {})}
