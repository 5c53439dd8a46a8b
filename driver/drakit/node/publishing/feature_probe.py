"""Ask the API server which feature gates are on, by storing something that nobody can allocate and reading what comes back.

Asked is only what decides about an inventory, and only for fields that the server's schema has: the others are never stored.

A server whose feature gate is off drops the gate's fields without a word. So before partitions go out, a slice with a counter set and
mixins but no device is stored; and before shared or tainted devices do, a slice with one such device in a pool that says it has two slices
and never gets the second: the scheduler uses no device of an incomplete pool. Devices with list attributes are asked about in the same way,
but alone: without its list an attribute has no value, and a server that drops lists refuses the whole slice. All are in a pool of their own
and deleted at once.
"""

import dataclasses
import enum
from collections.abc import Mapping

from drakit.core import capacity, device, errors, inventory, ports, quantity
from drakit.core.slices import node_selection, reconcile, resource_slice
from drakit.telemetry import logs

_log = logs.get_logger(__name__)

UNPROCESSABLE = 422


class Question(enum.Enum):
    """What can be asked: counters and mixins, shared and tainted devices, or list attributes."""

    COUNTERS = "counters"
    DEVICES = "devices"
    LISTS = "lists"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Whose slices are published: one pool of a node, or, with an empty ``node``, one of the cluster, usable where ``reach`` says."""

    driver: str
    node: str
    pool: str
    reach: node_selection.PoolNodes | None = None


def questions(offered: inventory.Inventory, *, mixins: bool, lacks: frozenset[str]) -> frozenset[Question]:
    """What must be asked before this inventory goes out; ``mixins`` says that the answer decides whether they are used.

    ``lacks`` are the gates whose fields the server's schema does not have: nothing needs to be asked about them.
    """
    asked = set()
    if (offered.counter_sets and "DRAPartitionableDevices" not in lacks) or (mixins and "DRAMixins" not in lacks):
        asked.add(Question.COUNTERS)
    is_shared = any(item.allow_multiple_allocations for item in offered.devices) and "DRAConsumableCapacity" not in lacks
    if is_shared or (any(item.taints for item in offered.devices) and "DRADeviceTaints" not in lacks):
        asked.add(Question.DEVICES)
    if "DRAListTypeAttributes" in lacks:
        return frozenset(asked)
    described = [item.attributes for item in offered.devices] + [item.attributes for item in offered.mixins.device]
    if any(isinstance(value, tuple) for attributes in described for value in attributes.values()):
        asked.add(Question.LISTS)
    return frozenset(asked)


GATES: Mapping[Question, frozenset[str]] = {
    Question.COUNTERS: frozenset({"DRAPartitionableDevices", "DRAMixins"}),
    Question.DEVICES: frozenset({"DRAConsumableCapacity", "DRADeviceTaints"}),
    Question.LISTS: frozenset({"DRAListTypeAttributes"}),
}
"""The feature gates that each question is about."""


def ask(
    question: Question, target: Target, store: ports.SliceStore, lacks: frozenset[str] = frozenset()
) -> tuple[frozenset[str], resource_slice.Layout | None]:
    """The feature gates whose fields are dropped, and the layout the server asks for where it refuses the usual one. Raises ApiError."""
    has_mixins = "DRAMixins" not in lacks
    page = _nowhere(_PLAIN_COUNTERS if question is Question.COUNTERS and not has_mixins else _PAGES[question], target)
    pool = resource_slice.Pool(
        name=f"{target.pool}{resource_slice.PROBE_SUFFIX}", generation=1, count=1 if question is Question.COUNTERS else 2
    )
    spec = resource_slice.SliceSpec(driver=target.driver, node=target.node, pool=pool, page=page, reach=target.reach)
    try:
        stored = store.create(resource_slice.Create(index=0, prefix=f"probe-{target.driver}-", spec=spec))
    except errors.ApiError as error:
        if error.status == UNPROCESSABLE and isinstance(target.reach, node_selection.PerDevice) and "perDeviceNodeSelection" in str(error):
            raise _undivided(target, error) from error
        if question is Question.LISTS and error.status == UNPROCESSABLE and "attributes" in str(error):
            return frozenset({"DRAListTypeAttributes"}), None
        if question is not Question.COUNTERS or error.status != UNPROCESSABLE or "sharedCounters" not in str(error):
            raise
        _log.warning("API server rejects counter sets in slices of their own", error=str(error))
        return frozenset({"DRAMixins"}), resource_slice.Layout.TOGETHER
    store.delete(stored)
    return frozenset(reconcile.dropped(page, stored.spec.page)), None


def _nowhere(page: resource_slice.Page, target: Target) -> resource_slice.Page:
    """The page for this target; where devices say their nodes, they say one that there is not."""
    if not isinstance(target.reach, node_selection.PerDevice):
        return page
    place = node_selection.OneNode(name="no-node.drakit.dev")
    return dataclasses.replace(page, devices=tuple(dataclasses.replace(item, reach=place) for item in page.devices))


def _undivided(target: Target, error: errors.ApiError) -> errors.ApiError:
    message = (
        f"pool {target.pool} cannot be offered: the API server drops perDeviceNodeSelection; "
        f"switch on its feature gate DRAPartitionableDevices ({error})"
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
_PAGES = {Question.COUNTERS: _COUNTERS, Question.DEVICES: _DEVICES, Question.LISTS: _LISTS}
