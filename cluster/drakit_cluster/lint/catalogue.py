"""The pools and devices in the slices of some files, flattened, each with its place in the files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from drakit_cluster.manifests import Accepted, Document
from drakit_cluster.objects import devices, json_types, mixins
from drakit_cluster.objects.devices import DeviceId, DeviceView
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import taint_rules
from drakit_cluster.scheduling.allocator.pools import PoolId


@dataclass(frozen=True, kw_only=True)
class PublishedDevice:
    """One device; ``spec`` is flat, ``path`` its place in the document."""

    document: Document
    path: str
    pool: PoolId
    spec: Object
    node: str
    """The device's node; "" for several nodes."""
    taints: tuple[Object, ...] = ()
    """The taints of its driver and of rules."""

    @property
    def name(self) -> str:
        return json_types.text(self.spec, "name")

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.pool.driver, self.pool.pool, self.name)

    @property
    def shared(self) -> bool:
        return self.spec.get("allowMultipleAllocations") is True

    @cached_property
    def view(self) -> DeviceView:
        return devices.view_of(self.pool.driver, self.spec)


@dataclass(frozen=True, kw_only=True)
class CounterSet:
    """One counter set; ``counters`` are flat."""

    document: Document
    path: str
    name: str
    counters: Object


@dataclass(kw_only=True)
class PublishedPool:
    """The newest generation of one pool, and the documents of older ones. ``partial``: the server refused some of its slices."""

    id: PoolId
    partial: bool = False
    slices: list[Accepted] = field(default_factory=list)
    older: list[Accepted] = field(default_factory=list)
    devices: list[PublishedDevice] = field(default_factory=list)
    counter_sets: list[CounterSet] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Whether the number of slices differs from a slice's resourceSliceCount."""
        return any(
            json_types.number(published_slice.object, "spec", "pool", "resourceSliceCount") != len(self.slices)
            for published_slice in self.slices
        )


class Catalogue:
    """All pools of the accepted slices, with the taints that ``rules`` put on devices."""

    def __init__(self, accepted: Iterable[Accepted], refused: Iterable[Document], rules: Sequence[Object] = ()) -> None:
        by_pool: dict[PoolId, list[Accepted]] = defaultdict(list)
        for published_slice in accepted:
            by_pool[_pool_of(published_slice.object)].append(published_slice)
        self.pools: Mapping[PoolId, PublishedPool] = {key: _published_pool(key, slices, rules) for key, slices in by_pool.items()}
        for document in refused:
            if (pool := self.pools.get(_pool_of(document.body))) is not None:
                pool.partial = True

    @property
    def is_complete(self) -> bool:
        """Whether every pool is complete, so that no other device exists."""
        return bool(self.pools) and not any(pool.partial or pool.is_incomplete for pool in self.pools.values())

    @cached_property
    def devices(self) -> list[PublishedDevice]:
        return [device for pool in self.pools.values() for device in pool.devices]


def generation(published_slice: Accepted) -> int:
    """Return the generation of a slice's pool."""
    return json_types.number(published_slice.object, "spec", "pool", "generation")


def _pool_of(obj: Object) -> PoolId:
    return PoolId(json_types.text(obj, "spec", "driver"), json_types.text(obj, "spec", "pool", "name"))


def _published_pool(key: PoolId, slices: list[Accepted], rules: Sequence[Object]) -> PublishedPool:
    newest = max(map(generation, slices))
    pool = PublishedPool(id=key)
    for published_slice in slices:
        if generation(published_slice) < newest:
            pool.older.append(published_slice)
            continue
        pool.slices.append(published_slice)
        spec = mixins.flatten(json_types.mapping(published_slice.object, "spec"))  # Includes were checked when the slice was accepted.
        for place, device in enumerate(json_types.objects(spec, "devices")):
            path, node = f"spec.devices[{place}]", json_types.text(device, "nodeName") or json_types.text(spec, "nodeName")
            device_id = DeviceId(key.driver, key.pool, json_types.text(device, "name"))
            taints = [
                *json_types.objects(device, "taints"),
                *(taint_rules.taint_of(rule) for rule in rules if taint_rules.selects(rule, device_id)),
            ]
            pool.devices.append(
                PublishedDevice(document=published_slice.document, path=path, pool=key, spec=device, node=node, taints=tuple(taints))
            )
        for place, counter_set in enumerate(json_types.objects(spec, "sharedCounters")):
            pool.counter_sets.append(
                CounterSet(
                    document=published_slice.document,
                    path=f"spec.sharedCounters[{place}]",
                    name=json_types.text(counter_set, "name"),
                    counters=json_types.mapping(counter_set, "counters"),
                )
            )
    return pool
