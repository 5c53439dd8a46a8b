"""The values of one pool's ResourceSlices: wanted pages, published slices, and the changes between them.

``paging`` makes the pages of an inventory, ``reconcile`` the changes. The limits of a slice (resource.k8s.io/v1, 1.36) are: 128 devices, or 64 if any
of them has taints, counters or list attributes; 8 counter sets; counter sets and devices in separate slices (together before 1.35); fewer than 128
devices and mixins together. A slice has the mixins that it uses.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Iterable, Mapping

from drakit.core import device, errors, inventory, names
from drakit.core.slices import node_selection

DEVICES_MAX = 128
DEVICES_MAX_DETAILED = 64
COUNTER_SETS_MAX = 8
INDEX_WIDTH_MIN = 5
PROBE_SUFFIX = f"/{names.PROBE_POOL}"
"""The suffix that makes the name of a pool of probe slices from the name of the driver's pool."""


class Form(enum.Enum):
    """The form of devices in slices: every fact on every device, or shared facts in mixins."""

    FLAT = "flat"
    MIXINS = "mixins"


class Layout(enum.Enum):
    """The place of counter sets: in slices of their own (API 1.35 and later), or beside the devices that consume from them (earlier)."""

    APART = "apart"
    TOGETHER = "together"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """The content of one slice."""

    devices: tuple[device.Device, ...] = ()
    counter_sets: tuple[device.CounterSet, ...] = ()
    mixins: inventory.Mixins = dataclasses.field(default_factory=inventory.Mixins)
    partition_type: str = ""
    skip_node_operations: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """The spec.pool of a slice; ``count`` is the number of slices of this generation."""

    name: str
    generation: int
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceSpec:
    """The spec of one ResourceSlice of a node, or with an empty ``node`` of a cluster pool, usable on the nodes of ``reach``."""

    driver: str
    node: str
    pool: Pool
    page: Page
    reach: node_selection.PoolNodes | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A stored slice. ``version`` is the opaque metadata.resourceVersion."""

    name: str
    uid: str
    version: str
    spec: SliceSpec


def published_devices(slices: Iterable[Published], node_pool: str) -> Mapping[str, device.Device]:
    """Return the devices in stored slices of a node's pools by name, flat, without those that lack a mixin, because somebody edited the slice.

    They consume no counters: what is published now may exclude what a device consumed when it was allocated. They take nothing of the node, because
    only the scheduler counts that.
    """
    devices: dict[str, device.Device] = {}
    for spec in (stored.spec for stored in slices if names.is_pool_of_node(stored.spec.pool.name, node_pool)):
        for published in spec.page.devices:
            with contextlib.suppress(errors.InventoryError):
                (flat,) = inventory.flat_devices([published], spec.page.mixins)
                pool = names.suffix_of(spec.pool.name, node_pool)
                devices[flat.name] = dataclasses.replace(flat, pool=pool, consumes=(), node_resources={})
    return devices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Create:
    """A slice to create with metadata.generateName ``prefix``."""

    index: int
    prefix: str
    spec: SliceSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Update:
    """A slice to replace by PUT."""

    index: int
    published: Published
    spec: SliceSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """The writes of one pool, in this order: deletes, updates, creates. Empty when the pool is as wanted."""

    deletes: tuple[Published, ...] = ()
    updates: tuple[Update, ...] = ()
    creates: tuple[Create, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.updates or self.creates)
