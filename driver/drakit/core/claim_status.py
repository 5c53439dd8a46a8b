"""Device statuses of a claim, and how a new status merges with the present one (ResourceClaim.status.devices).

A driver's new status of a device replaces its previous one. The framework itself sets one condition, ``Ready``, on all devices of the claim. A driver
that sets ``Ready`` for a device overrides it there. Binding conditions stay until the driver changes them or the claim is deallocated, because a
later pod of the same claim depends on them. Pure functions.
"""

import dataclasses
import types
from collections.abc import Collection, Mapping

from drakit.core import arguments, names, records

READY = "Ready"

DeviceKey = tuple[str, str, str]


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition of a device in a claim's status (metav1.Condition). ``reason`` is CamelCase. The framework sets times and generation."""

    type: str
    status: bool
    reason: str
    message: str = ""


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkStatus:
    """The network data of a device (NetworkDeviceData). ``addresses`` are in canonical CIDR form, ``hardware_address`` is a MAC address."""

    interface: str = ""
    addresses: tuple[str, ...] = ()
    hardware_address: str = ""


@arguments.checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceStatus:
    """A driver's status of one device of a claim (ResourceClaim.status.devices[]). ``values`` becomes its ``data`` field, a JSON object.

    ``pool`` is optional for devices of the node's own pools. Several nodes may prepare a device of another pool; ``nodes`` is their number. Their
    statuses are merged (see ``kube.multi_node_status``): no node overwrites another's, and a condition is true if all of them report it as true.
    Network data is written only for devices of the node's own pools.
    """

    device: str
    pool: str = ""
    share_id: names.ShareId | None = None
    conditions: tuple[Condition, ...] = ()
    values: records.Record = dataclasses.field(default_factory=records.empty)
    network: NetworkStatus | None = None
    nodes: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusChange:
    """A change of the statuses of one driver in one claim.

    ``devices`` are replaced, by pool, device and share id; ``ready`` is set on every allocated device; ``bound`` conditions are added to a device;
    ``cleared`` removes all else first.
    """

    devices: Mapping[DeviceKey, DeviceStatus] = dataclasses.field(default_factory=dict)
    ready: Condition | None = None
    bound: Mapping[DeviceKey, Condition] = dataclasses.field(default_factory=dict)
    cleared: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", types.MappingProxyType(dict(self.devices)))
        object.__setattr__(self, "bound", types.MappingProxyType(dict(self.bound)))

    def then(self, later: "StatusChange") -> "StatusChange":
        """Return one change that does what this one and then the next do."""
        bound = {**self.bound, **later.bound}
        if later.cleared:
            return dataclasses.replace(later, bound=bound)
        devices = self.devices if later.ready is None else {key: _without_ready(status) for key, status in self.devices.items()}
        return StatusChange(devices={**devices, **later.devices}, ready=later.ready or self.ready, bound=bound, cleared=self.cleared)


def of_device(status: DeviceStatus, pool: str) -> StatusChange:
    """Return the change for one device's status. ``pool`` is its pool if it names none."""
    key = (status.pool or pool, status.device, status.share_id or names.ShareId(""))
    return StatusChange(devices={key: status})


def with_pools(change: StatusChange, allocated: Collection[DeviceKey], node_pool: str) -> StatusChange:
    """Return the change with each device's allocated pool instead of the node's own; device names are unique across a node's pools."""
    pools = {(device, share): pool for pool, device, share in allocated}
    named = {(pools.get(key[1:], key[0]) if key[0] == node_pool else key[0], *key[1:]): status for key, status in change.devices.items()}
    return dataclasses.replace(change, devices=named)


def merged(before: tuple[Condition, ...], key: DeviceKey, change: StatusChange, lasting: Collection[str] = ()) -> tuple[Condition, ...]:
    """Return the conditions of one device after a change, given its conditions before. ``lasting`` are the types of its binding conditions."""
    conditions = {condition.type: condition for condition in before if not change.cleared or condition.type in lasting}
    status = change.devices.get(key)
    if status is not None:
        conditions = {name: condition for name, condition in conditions.items() if name == READY or name in lasting}
    if change.ready is not None:
        conditions[READY] = change.ready
    if key in change.bound:
        conditions[change.bound[key].type] = change.bound[key]
    conditions |= {condition.type: condition for condition in (status.conditions if status else ())}
    return tuple(conditions.values())


def _without_ready(status: DeviceStatus) -> DeviceStatus:
    return dataclasses.replace(status, conditions=tuple(condition for condition in status.conditions if condition.type != READY))
