"""The ResourceSlices of one pool as values: pages wanted, slices published, and the changes between them.

``paging`` makes pages of an inventory, ``reconcile`` the changes. Rules of paging (resource.k8s.io/v1, 1.36):
at most 128 devices a slice, 64 where any of them has taints, counters or list attributes; at most 8 counter sets a slice; counter sets and
devices in separate slices (together before 1.35); devices and mixins together under 128 a slice; a slice carries the mixins it uses.
"""

import dataclasses
import enum

from drakit.core import device, inventory, names
from drakit.core.slices import node_selection

DEVICES_MAX = 128
DEVICES_MAX_DETAILED = 64
COUNTER_SETS_MAX = 8
INDEX_WIDTH_MIN = 5
PROBE_SUFFIX = f"/{names.PROBE_POOL}"
"""The pool of slices that only ask the API server what it stores has the name of the driver's pool and this."""


class Form(enum.Enum):
    """How devices are written: every fact on every device, or shared facts in mixins."""

    FLAT = "flat"
    MIXINS = "mixins"


class Layout(enum.Enum):
    """Where counter sets go: in slices of their own (API 1.35 and later), or beside the devices that draw from them (before)."""

    APART = "apart"
    TOGETHER = "together"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """The contents of one slice."""

    devices: tuple[device.Device, ...] = ()
    counter_sets: tuple[device.CounterSet, ...] = ()
    mixins: inventory.Mixins = dataclasses.field(default_factory=inventory.Mixins)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """spec.pool of a slice: ``count`` is the number of slices of this generation."""

    name: str
    generation: int
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceSpec:
    """spec of one ResourceSlice: of the node ``node``, or, with an empty one, of the cluster, where ``reach`` says which nodes can use it."""

    driver: str
    node: str
    pool: Pool
    page: Page
    reach: node_selection.PoolNodes | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A slice as the API server has it. ``version`` is metadata.resourceVersion, opaque."""

    name: str
    uid: str
    version: str
    spec: SliceSpec


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
    """What to write, in this order: deletes, updates, creates. Empty when the pool is as desired."""

    deletes: tuple[Published, ...] = ()
    updates: tuple[Update, ...] = ()
    creates: tuple[Create, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.updates or self.creates)
