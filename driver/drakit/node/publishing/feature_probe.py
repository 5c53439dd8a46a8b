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

from drakit.core import capacity, device, errors, inventory, ports, quantity
from drakit.core.slices import node_selection, reconcile, resource_slice
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

UNPROCESSABLE = 422


class Probe(enum.Enum):
    """The subject of a probe: counters and mixins, shared and tainted devices, or list attributes."""

    COUNTERS = "counters"
    DEVICES = "devices"
    LISTS = "lists"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The pool whose slices are published: of a node, or with an empty ``node`` of the cluster, usable on the nodes of ``reach``."""

    driver: str
    node: str
    pool: str
    reach: node_selection.PoolNodes | None = None


def needed_probes(offered: inventory.Inventory, *, mixins: bool, lacks: frozenset[str]) -> frozenset[Probe]:
    """Return the probes that this inventory needs before it is published; ``mixins`` is true where their probe decides the form.

    ``lacks`` are the gates whose fields the server's schema does not have; these need no probe.
    """
    needed = set()
    if (offered.counter_sets and "DRAPartitionableDevices" not in lacks) or (mixins and "DRAResourceSliceMixins" not in lacks):
        needed.add(Probe.COUNTERS)
    has_shared = any(offered_device.allow_multiple_allocations for offered_device in offered.devices)
    has_taints = any(offered_device.taints for offered_device in offered.devices)
    if (has_shared and "DRAConsumableCapacity" not in lacks) or (has_taints and "DRADeviceTaints" not in lacks):
        needed.add(Probe.DEVICES)
    if "DRAListTypeAttributes" in lacks:
        return frozenset(needed)
    all_attributes = [*(device.attributes for device in offered.devices), *(mixin.attributes for mixin in offered.mixins.device)]
    if any(isinstance(value, tuple) for attributes in all_attributes for value in attributes.values()):
        needed.add(Probe.LISTS)
    return frozenset(needed)


GATES: Mapping[Probe, frozenset[str]] = {
    Probe.COUNTERS: frozenset({"DRAPartitionableDevices", "DRAResourceSliceMixins"}),
    Probe.DEVICES: frozenset({"DRAConsumableCapacity", "DRADeviceTaints"}),
    Probe.LISTS: frozenset({"DRAListTypeAttributes"}),
}
"""The feature gates that each probe detects."""


def run_probe(
    probe: Probe, target: Target, store: ports.SliceStore, lacks: frozenset[str] = frozenset()
) -> tuple[frozenset[str], resource_slice.Layout | None]:
    """Probe, and return the feature gates whose fields are dropped, and the layout to use if the server rejects the usual one. Raises ApiError."""
    has_mixins = "DRAResourceSliceMixins" not in lacks
    page = _on_no_node(_PLAIN_COUNTERS if probe is Probe.COUNTERS and not has_mixins else _PAGES[probe], target)
    pool = resource_slice.Pool(name=f"{target.pool}{resource_slice.PROBE_SUFFIX}", generation=1, count=1 if probe is Probe.COUNTERS else 2)
    spec = resource_slice.SliceSpec(driver=target.driver, node=target.node, pool=pool, page=page, reach=target.reach)
    try:
        stored = store.create(resource_slice.Create(index=0, prefix=f"probe-{target.driver}-", spec=spec))
    except errors.ApiError as error:
        if error.status == UNPROCESSABLE and isinstance(target.reach, node_selection.PerDevice) and "perDeviceNodeSelection" in str(error):
            raise _no_per_device_nodes(target, error) from error
        if probe is Probe.LISTS and error.status == UNPROCESSABLE and "attributes" in str(error):
            return frozenset({"DRAListTypeAttributes"}), None
        if probe is not Probe.COUNTERS or error.status != UNPROCESSABLE or "sharedCounters" not in str(error):
            raise
        _log.warning("API server rejects counter sets in slices of their own", error=str(error))
        return frozenset({"DRAResourceSliceMixins"}), resource_slice.Layout.TOGETHER
    store.delete(stored)
    return frozenset(reconcile.dropped(page, stored.spec.page)), None


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


_COUNTERS = resource_slice.Page(
    counter_sets=(device.CounterSet(name="probe", counters={"own": quantity.ONE}, includes=("probe",)),),
    mixins=inventory.Mixins(counter_set=(inventory.CounterSetMixin(name="probe", counters={"included": quantity.ONE}),)),
)
_PLAIN_COUNTERS = resource_slice.Page(counter_sets=(device.CounterSet(name="probe", counters={"own": quantity.ONE}),))
_DEVICES = resource_slice.Page(
    devices=(
        device.Device(
            name="probe",
            allow_multiple_allocations=True,
            capacity={
                "probe": capacity.Capacity(
                    value=quantity.ONE, policy=capacity.RequestPolicy(default=quantity.ONE, valid_values=(quantity.ONE,))
                )
            },
            taints=(device.Taint(key="drakit.dev/probe", effect=device.TaintEffect.NO_EXECUTE),),
        ),
    ),
)
_LISTS = resource_slice.Page(devices=(device.Device(name="probe", attributes={"probe": (1, 2)}),))
_PAGES = {Probe.COUNTERS: _COUNTERS, Probe.DEVICES: _DEVICES, Probe.LISTS: _LISTS}
