"""Detect the feature gates of the API server: create a probe slice that the scheduler cannot allocate, and read back which fields it stored.

Only gates that affect the inventory are probed, and only those whose fields the server's schema has.

A server whose feature gate is off drops the gate's fields silently. Before partitions are published, the probe is a slice with a counter set and
mixins but no device. Before shared or tainted devices are published, it is a slice with one such device. Its pool claims to have two slices but
never gets the second, and the scheduler ignores an incomplete pool. List attributes have a probe of their own: without its list an attribute has no
value, and a server that drops lists rejects the whole slice. Probe slices have a pool of their own and are deleted at once.
"""

import dataclasses
import enum
from collections.abc import Mapping

from drakit.core import capacity, device, errors, inventory, node_resources, ports, quantity
from drakit.core.slices import feature_gates, node_selection, reconcile, resource_slice
from drakit.telemetry import logs

_log = logs.get_logger(__name__)


class Probe(enum.Enum):
    """The subject of a probe. Each but the first two is one field that only some inventories have."""

    COUNTERS = "counters"
    DEVICES = "devices"
    FRACTIONS = "fractions"
    GROUPS = "groups"
    LISTS = "lists"
    NODE_OPERATIONS = "node operations"
    NODE_RESOURCES = "node resources"
    PARTITION_TYPE = "partition type"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The pool whose slices are published: of a node, or with an empty ``node`` of the cluster, usable on the nodes of ``reach``."""

    driver: str
    node: str
    pool: str
    reach: node_selection.PoolNodes | None = None


UNPROCESSABLE = 422
GATES: Mapping[Probe, frozenset[str]] = {
    Probe.COUNTERS: frozenset({"DRAPartitionableDevices", "DRAResourceSliceMixins"}),
    Probe.DEVICES: frozenset({"DRAConsumableCapacity", "DRADeviceTaints"}),
    Probe.FRACTIONS: frozenset({feature_gates.FRACTIONS}),
    Probe.GROUPS: frozenset({feature_gates.GROUPS}),
    Probe.LISTS: frozenset({"DRAListTypeAttributes"}),
    Probe.NODE_OPERATIONS: frozenset({feature_gates.NODE_OPERATIONS}),
    Probe.NODE_RESOURCES: frozenset({feature_gates.NODE_RESOURCES}),
    Probe.PARTITION_TYPE: frozenset({feature_gates.PARTITION_TYPE}),
}
"""The feature gates that each probe detects."""
_REFUSED = {Probe.LISTS: "attributes", Probe.FRACTIONS: "requestPolicy", Probe.PARTITION_TYPE: "partitionTypeAttribute"}
"""The field that a server names when it refuses a probe because its gate, or one that it needs, is off."""


def needed_probes(used: frozenset[str], *, mixins: bool, lacks: frozenset[str]) -> frozenset[Probe]:
    """Return the probes that an inventory needs before it is published, by the gates that it uses.

    ``mixins`` is true where their probe decides the form. ``lacks`` are the gates whose fields the server's schema does not have; they need none.
    """
    wanted = used | {"DRAResourceSliceMixins"} if mixins else used
    return frozenset(probe for probe, gates in GATES.items() if gates & wanted - lacks)


def run_probe(
    probe: Probe, target: Target, store: ports.SliceStore, lacks: frozenset[str] = frozenset()
) -> tuple[frozenset[str], resource_slice.Layout | None]:
    """Probe, and return the feature gates whose fields are dropped, and the layout to use if the server rejects the usual one. Raises ApiError."""
    page = _on_no_node(_page(probe, lacks), target)
    pool = resource_slice.Pool(name=f"{target.pool}{resource_slice.PROBE_SUFFIX}", generation=1, count=1 if probe is Probe.COUNTERS else 2)
    spec = resource_slice.SliceSpec(driver=target.driver, node=target.node, pool=pool, page=page, reach=target.reach)
    try:
        stored = store.create(resource_slice.Create(index=0, prefix=f"probe-{target.driver}-", spec=spec))
    except errors.ApiError as error:
        if error.status == UNPROCESSABLE and isinstance(target.reach, node_selection.PerDevice) and "perDeviceNodeSelection" in str(error):
            raise _no_per_device_nodes(target, error) from error
        if error.status == UNPROCESSABLE and probe in _REFUSED and _REFUSED[probe] in str(error):
            return GATES[probe], None
        if probe is not Probe.COUNTERS or error.status != UNPROCESSABLE or "sharedCounters" not in str(error):
            raise
        _log.warning("API server rejects counter sets in slices of their own", error=str(error))
        return frozenset({"DRAResourceSliceMixins"}), resource_slice.Layout.TOGETHER
    store.delete(stored)
    return frozenset(reconcile.dropped(page, stored.spec.page)), None


def _page(probe: Probe, lacks: frozenset[str]) -> resource_slice.Page:
    if probe is Probe.COUNTERS and "DRAResourceSliceMixins" in lacks:
        return _PLAIN_COUNTERS
    return _NODE_RESOURCES_1_36 if probe is Probe.NODE_RESOURCES and feature_gates.NODE_RESOURCES_FIELD in lacks else _PAGES[probe]


def _on_no_node(page: resource_slice.Page, target: Target) -> resource_slice.Page:
    """Return the probe page; if the target's devices select their nodes, the probe's device selects a node that does not exist."""
    if not isinstance(target.reach, node_selection.PerDevice):
        return page
    no_node = node_selection.OneNode(name="no-node.drakit.dev")
    return dataclasses.replace(page, devices=tuple(dataclasses.replace(probe, reach=no_node) for probe in page.devices))


def _no_per_device_nodes(target: Target, error: errors.ApiError) -> errors.ApiError:
    message = (
        f"pool {target.pool} cannot be offered: the API server drops perDeviceNodeSelection; "
        f"enable its feature gate DRAPartitionableDevices ({error})"
    )
    return errors.ApiError(message, status=error.status, reason=error.reason)


def _page_of(offered: device.Device) -> resource_slice.Page:
    return resource_slice.Page(devices=(offered,))


_COUNTERS = resource_slice.Page(
    counter_sets=(device.CounterSet(name="probe", counters={"own": quantity.ONE}, includes=("probe",)),),
    mixins=inventory.Mixins(counter_set=(inventory.CounterSetMixin(name="probe", counters={"included": quantity.ONE}),)),
)
_PLAIN_COUNTERS = resource_slice.Page(counter_sets=(device.CounterSet(name="probe", counters={"own": quantity.ONE}),))
_DEVICES = _page_of(
    device.Device(
        name="probe",
        allow_multiple_allocations=True,
        capacity={
            "probe": capacity.Capacity(
                value=quantity.ONE, policy=capacity.RequestPolicy(default=quantity.ONE, valid_values=(quantity.ONE,))
            )
        },
        taints=(device.Taint(key="drakit.dev/probe", effect=device.TaintEffect.NO_EXECUTE),),
    )
)
_LISTS = _page_of(device.Device(name="probe", attributes={"probe": (1, 2)}))
_FRACTIONS = _page_of(
    # Only in thousandths is the maximum, 3, a multiple of the step.
    device.Device(
        name="probe",
        allow_multiple_allocations=True,
        capacity={
            "probe": capacity.Capacity(
                value=3, policy=capacity.RequestPolicy(default=0, valid_range=capacity.ValidRange(min=0, max=3, step="1500m"))
            )
        },
    )
)
_CONSUMPTION = device.CounterConsumption(counter_set="probe", counters={"probe": quantity.ONE})
_GROUPS = _page_of(device.Device(name="probe", consumes=(dataclasses.replace(_CONSUMPTION, compatibility_groups=("probe",)),)))
_PARTITION_TYPE = dataclasses.replace(
    _page_of(device.Device(name="probe", attributes={"drakit.dev/probe": "probe"}, consumes=(_CONSUMPTION,))),
    partition_type="drakit.dev/probe",
)
_NODE_OPERATIONS = dataclasses.replace(_page_of(device.Device(name="probe")), skip_node_operations=True)
_NODE_RESOURCES = _page_of(device.Device(name="probe", node_resources={"cpu": node_resources.NodeResource(per_device=quantity.ONE)}))
_NODE_RESOURCES_1_36 = _page_of(
    device.Device(name="probe", node_resources={"cpu": node_resources.NodeResourceMapping(per_device=quantity.ONE)})
)
_PAGES = {
    Probe.COUNTERS: _COUNTERS,
    Probe.DEVICES: _DEVICES,
    Probe.FRACTIONS: _FRACTIONS,
    Probe.GROUPS: _GROUPS,
    Probe.LISTS: _LISTS,
    Probe.NODE_OPERATIONS: _NODE_OPERATIONS,
    Probe.NODE_RESOURCES: _NODE_RESOURCES,
    Probe.PARTITION_TYPE: _PARTITION_TYPE,
}
