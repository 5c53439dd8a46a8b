"""Plan the writes that turn the published slices of one pool into the wanted pages, by the rules of Kubernetes' own slice controller.

A slice belongs to a page by the index at the start of its name (``00000-gpu.example.com-node1-abcde``), which is also the order in which the
scheduler tries devices. A change of one page is one update and keeps the pool's generation. A new page or a change of several pages raises it, so
that the scheduler sees either all old or all new slices. Equality is semantic: quantities by value, devices in order, and a taint's time only if both
sides have one. All functions are pure.
"""

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence

from drakit.core import device as devices
from drakit.core.slices import feature_gates, node_selection, resource_slice

_INDEX = re.compile(r"[0-9a-f]+")
_TIME_TOLERANCE = datetime.timedelta(seconds=1)

_TaintId = tuple[str, str, str, devices.TaintEffect]


def index_width(count: int) -> int:
    """Return the number of hex digits in the slice names of a pool of ``count`` pages."""
    return max(resource_slice.INDEX_WIDTH_MIN, len(f"{max(count - 1, 0):x}"))


def generate_name(index: int, width: int, driver: str, node: str) -> str:
    """Return metadata.generateName of a slice, without the node for a cluster pool; the server keeps 58 characters and appends five."""
    owner = f"{node}-" if node else ""
    return f"{index:0{width}x}-{driver}-{owner}"


def index_of(name: str, width: int) -> int | None:
    """Return the index at the start of a slice's name; None unless it is exactly ``width`` hex digits before the first ``-``."""
    head, dash, _ = name.partition("-")
    return int(head, 16) if dash and len(head) == width and _INDEX.fullmatch(head) else None


def plan(
    pages: Sequence[resource_slice.Page],
    published: Iterable[resource_slice.Published],
    *,
    driver: str,
    node: str,
    pool: str,
    reach: node_selection.PoolNodes | None = None,
) -> resource_slice.Changes:
    """Return the slices to delete, update and create. An empty ``pages`` withdraws the pool; slices of other drivers, nodes and pools stay.

    A cluster pool has no node but a ``reach``.
    """
    existing = sorted(
        (entry for entry in published if (entry.spec.driver, entry.spec.node, entry.spec.pool.name) == (driver, node, pool)),
        key=lambda entry: (entry.spec.pool.generation, entry.name),
    )
    current = _current(existing, len(pages))
    kept = {entry.name for entry in current.values()}
    wanted = [adopt(page, [entry.spec.page for entry in existing]) for page in pages]
    shape = (len(pages), reach)
    changed = {
        index
        for index, entry in current.items()
        if (entry.spec.pool.count, entry.spec.reach) != shape or not same(wanted[index], entry.spec.page)
    }
    missing = [index for index in range(len(pages)) if index not in current]
    generation = max((entry.spec.pool.generation for entry in existing), default=0)
    if missing or len(changed) > 1:
        generation, changed = generation + 1, set(current)
    target = resource_slice.Pool(name=pool, generation=generation, count=len(pages))
    specs = [resource_slice.SliceSpec(driver=driver, node=node, pool=target, page=page, reach=reach) for page in wanted]
    width = index_width(len(pages))
    return resource_slice.Changes(
        deletes=tuple(entry for entry in existing if entry.name not in kept),
        updates=tuple(resource_slice.Update(index=index, published=current[index], spec=specs[index]) for index in sorted(changed)),
        creates=tuple(
            resource_slice.Create(index=index, prefix=generate_name(index, width, driver, node), spec=specs[index]) for index in missing
        ),
    )


def _current(existing: Sequence[resource_slice.Published], count: int) -> dict[int, resource_slice.Published]:
    """Return the slices of pages by index: those of the highest generation with an index in range; the first by name for a duplicate index."""
    newest = max((entry.spec.pool.generation for entry in existing), default=0)
    current: dict[int, resource_slice.Published] = {}
    for entry in existing:
        index = index_of(entry.name, index_width(count))
        if index is not None and index < count and entry.spec.pool.generation == newest:
            current.setdefault(index, entry)
    return current


def adopt(page: resource_slice.Page, stored: Iterable[resource_slice.Page]) -> resource_slice.Page:
    """Return the page with the stored times of its taints, so that publishing again does not restart the eviction clock.

    Taints are equal when device, key, value and effect are equal; if several pages have one, the last page counts. A time that differs from the
    stored one by more than a second was set by the driver and stays.
    """
    times = {
        _taint_id(device, taint): taint.time_added for stored_page in stored for device in stored_page.devices for taint in device.taints
    }
    if not times:
        return page
    return dataclasses.replace(page, devices=tuple(_with_times(device, times) for device in page.devices))


def _with_times(device: devices.Device, times: Mapping[_TaintId, datetime.datetime | None]) -> devices.Device:
    taints = tuple(_with_time(taint, times.get(_taint_id(device, taint))) for taint in device.taints)
    return device if taints == device.taints else dataclasses.replace(device, taints=taints)


def _with_time(taint: devices.Taint, stored: datetime.datetime | None) -> devices.Taint:
    if stored is None or stored == taint.time_added or not _times_agree(taint.time_added, stored):
        return taint
    return dataclasses.replace(taint, time_added=stored)


def _taint_id(device: devices.Device, taint: devices.Taint) -> _TaintId:
    return (device.name, taint.key, taint.value, taint.effect)


def same(wanted: resource_slice.Page, stored: resource_slice.Page) -> bool:
    """Return whether both pages are semantically equal to the API."""
    return (
        (wanted.counter_sets, len(wanted.devices)) == (stored.counter_sets, len(stored.devices))
        and (wanted.partition_type, wanted.skip_node_operations) == (stored.partition_type, stored.skip_node_operations)
        and _mixins_shape(wanted) == _mixins_shape(stored)
        and all(_same_device(device, other) for device, other in zip(wanted.devices, stored.devices, strict=True))
    )


def _same_device(wanted: devices.Device, stored: devices.Device) -> bool:
    return _shape(wanted) == _shape(stored) and all(
        _times_agree(taint.time_added, other.time_added) for taint, other in zip(wanted.taints, stored.taints, strict=True)
    )


def _shape(device: devices.Device) -> Mapping[str, object]:
    """Return all fields of a device, with typed attributes (True is not 1) and taints without times."""
    fields = {field.name: getattr(device, field.name) for field in dataclasses.fields(device)}
    return fields | {"attributes": _typed(device.attributes), "taints": [_taint_id(device, taint) for taint in device.taints]}


def _mixins_shape(page: resource_slice.Page) -> object:
    shared = [(mixin.name, _typed(mixin.attributes), mixin.capacity) for mixin in page.mixins.device]
    return shared, page.mixins.counter_set, page.mixins.consumption


def _typed(values: Mapping[str, devices.AttributeValue]) -> Mapping[str, object]:
    return {name: (type(value), type(value[0]) if isinstance(value, tuple) else None, value) for name, value in values.items()}


def _times_agree(first: datetime.datetime | None, second: datetime.datetime | None) -> bool:
    return first is None or second is None or abs(first - second) <= _TIME_TOLERANCE


def dropped(sent: resource_slice.Page, stored: resource_slice.Page) -> tuple[str, ...]:
    """Return the feature gates whose fields were stored differently than sent, in a fixed order.

    ``unknown`` stands for a difference that no gate explains, such as a change by a webhook.
    """
    if same(sent, stored):
        return ()
    return feature_gates.differing(sent, stored) or (feature_gates.UNKNOWN,)
