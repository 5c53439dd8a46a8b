"""The pools and devices that the slices of some files describe, flattened, each with where it is written."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from drakit.cluster import devices, json_types, mixins
from drakit.cluster.devices import DeviceView
from drakit.cluster.json_types import Object
from drakit.cluster.manifests import Accepted, Document
from drakit.cluster.pools import PoolId


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One device; ``spec`` is flat, ``path`` its place in the document."""

    document: Document
    path: str
    pool: PoolId
    spec: Object

    @property
    def name(self) -> str:
        """Its name in the pool."""
        return json_types.text(self.spec, "name")

    @cached_property
    def view(self) -> DeviceView:
        """What selectors see."""
        return devices.view_of(self.pool.driver, self.spec)


@dataclass(frozen=True, kw_only=True)
class CounterSet:
    """One counter set; ``counters`` are flat."""

    document: Document
    path: str
    name: str
    counters: Object


@dataclass(kw_only=True)
class Stock:
    """The newest generation of one pool, and the documents of older ones. ``partial``: the server refused some of its slices."""

    id: PoolId
    partial: bool = False
    slices: list[Accepted] = field(default_factory=list)
    older: list[Accepted] = field(default_factory=list)
    devices: list[Offer] = field(default_factory=list)
    counter_sets: list[CounterSet] = field(default_factory=list)


class Catalogue:
    """All pools of the accepted slices."""

    def __init__(self, accepted: Iterable[Accepted], refused: Iterable[Document]) -> None:
        by_pool: dict[PoolId, list[Accepted]] = defaultdict(list)
        for one in accepted:
            by_pool[_pool_of(one.object)].append(one)
        self.pools: Mapping[PoolId, Stock] = {key: _stock(key, found) for key, found in by_pool.items()}
        for document in refused:
            if (stock := self.pools.get(_pool_of(document.body))) is not None:
                stock.partial = True

    @cached_property
    def devices(self) -> list[Offer]:
        """The devices of all pools."""
        return [offer for stock in self.pools.values() for offer in stock.devices]


def generation(one: Accepted) -> int:
    """Return the generation of a slice's pool."""
    return json_types.number(one.object, "spec", "pool", "generation")


def _pool_of(obj: Object) -> PoolId:
    return PoolId(json_types.text(obj, "spec", "driver"), json_types.text(obj, "spec", "pool", "name"))


def _stock(key: PoolId, found: list[Accepted]) -> Stock:
    newest = max(map(generation, found))
    stock = Stock(id=key)
    for one in found:
        if generation(one) < newest:
            stock.older.append(one)
            continue
        stock.slices.append(one)
        spec = mixins.flatten(json_types.mapping(one.object, "spec"))  # Includes were checked when the slice was accepted.
        for place, device in enumerate(json_types.objects(spec, "devices")):
            stock.devices.append(Offer(document=one.document, path=f"spec.devices[{place}]", pool=key, spec=device))
        for place, counter_set in enumerate(json_types.objects(spec, "sharedCounters")):
            stock.counter_sets.append(
                CounterSet(
                    document=one.document,
                    path=f"spec.sharedCounters[{place}]",
                    name=json_types.text(counter_set, "name"),
                    counters=json_types.mapping(counter_set, "counters"),
                )
            )
    return stock
