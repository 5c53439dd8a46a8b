"""ResourceSlices to pools, as one node sees them.

- A pool is named by driver and pool name. Only slices of its highest generation among those relevant for the node count.
- Relevant are slices for the node, by slice or by some device, and every slice with shared counters, whichever node it names.
- It is complete when as many slices exist as they declare; slices for other nodes count. If newer slices exist for other nodes only, the
  pool is being replaced and offers nothing on this node.
- It is invalid if its slices declare different numbers of slices (Kubernetes takes the number of any of them), if a mixin is missing, if a
  device or counter set is named twice, or if a device draws from a counter that the pool lacks.
- The order is fixed: pools by driver and name, those with binding conditions last; slices by object name; devices by position.

Source: KEP-4815, KEP-4381 (pool generations) and the API documentation of ResourceSliceSpec.pool.
"""

import enum
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drakit_cluster.objects import json_types, mixins, nodes
from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.versions import Rule


class PoolId(NamedTuple):
    """Pool names are unique per driver only."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class Condition(enum.Enum):
    """The condition of a pool, which decides whether its devices can be allocated."""

    USABLE = enum.auto()
    INCOMPLETE = enum.auto()
    INVALID = enum.auto()


@dataclass(frozen=True, kw_only=True, eq=False)
class Slice:
    """One ResourceSlice. Its content is decoded on first use, because most slices of a cluster are for other nodes."""

    name: str
    pool: PoolId
    generation: int
    published: Object
    """The spec as published. It differs from the flat one only in the content of devices and counter sets."""
    compact: bool
    """Whether mixins are on, so that the slice may have to be flattened."""

    @property
    def spec(self) -> Object:
        """The flat spec; the published one if it is broken."""
        return self._flattened[0]

    @property
    def broken(self) -> str:
        """The reason that it cannot be flattened, or ``""``."""
        return self._flattened[1]

    @functools.cached_property
    def devices(self) -> Sequence[Object]:
        return json_types.objects(self.spec, "devices")

    @functools.cached_property
    def _flattened(self) -> tuple[Object, str]:
        if not self.compact:
            return self.published, ""
        try:
            return mixins.flatten(self.published), ""
        except mixins.MixinError as error:
            return self.published, str(error)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """One pool. ``slices`` hold the devices for the node, in order; ``elsewhere`` the other nodes' devices, which draw counters too."""

    id: PoolId
    condition: Condition = Condition.USABLE
    reason: str = ""
    slices: tuple[Slice, ...] = ()
    elsewhere: tuple[Slice, ...] = ()
    counter_sets: Mapping[str, Object] = field(default_factory=dict)
    grouped_sets: Sequence[str] = ()
    """The counter sets of which some device names compatibility groups."""


class SliceIndex:
    """The slices of a cluster, flattened and sorted once, from which the pools of any node are read."""

    def __init__(self, slices: Iterable[Object], features: FeatureGates) -> None:
        self._partitionable = features.on(Gate.PARTITIONABLE_DEVICES)
        self._counters_beside_devices = not features.follows(Rule.SEPARATE_COUNTERS)
        self._by_node: dict[str, list[Slice]] = defaultdict(list)
        self._by_pool: dict[PoolId, list[Slice]] = defaultdict(list)
        self._counters_of_nodes: dict[PoolId, list[tuple[str, Slice]]] = defaultdict(list)
        self._counts: dict[tuple[PoolId, int], set[int]] = defaultdict(set)
        for item in slices:
            entry = _read(item, compact=features.on(Gate.MIXINS))
            self._counts[entry.pool, entry.generation].add(json_types.number(entry.published, "pool", "resourceSliceCount"))
            node = json_types.text(entry.published, "nodeName")
            self._by_node[node].append(entry)
            self._by_pool[entry.pool].append(entry)
            if node and self._partitionable and entry.published.get("sharedCounters"):
                self._counters_of_nodes[entry.pool].append((node, entry))

    def pools(self, node: Object) -> list[Pool]:
        """Return the pools for ``node`` in the order of allocation. Raises AllocationError for an unreadable node selector."""
        relevant: dict[PoolId, list[Slice]] = {}
        name = json_types.text(node, "metadata", "name")
        for entry in (*(self._by_node.get(name, ()) if name else ()), *self._by_node.get("", ())):
            if self._is_relevant(entry, node):
                _add_newest(relevant.setdefault(entry.pool, []), entry)
        for key, entries in relevant.items():
            for owner, entry in self._counters_of_nodes.get(key, ()):
                if owner != name:
                    _add_newest(entries, entry)
        pools = [pool for key, entries in relevant.items() if (pool := self._pool(key, entries, node)) is not None]
        return sorted(pools, key=lambda pool: (_has_binding_conditions(pool), pool.id))

    def _is_relevant(self, entry: Slice, node: Object) -> bool:
        spec = entry.published
        counters = json_types.items(spec, "sharedCounters")
        if not self._partitionable and (counters or spec.get("perDeviceNodeSelection") is not None):
            return False
        if counters:
            return True
        try:
            if json_types.text(spec, "nodeName") or spec.get("allNodes") is True or spec.get("nodeSelector") is not None:
                return nodes.matches(node, spec)
            if spec.get("perDeviceNodeSelection") is True:
                return any(nodes.matches(node, device) for device in json_types.objects(spec, "devices"))
        except AllocationError as error:
            raise AllocationError(f"slice {entry.name}: {error}") from error
        return False

    def _pool(self, key: PoolId, entries: list[Slice], node: Object) -> Pool | None:
        """Return the pool of the relevant slices, or None for one that is being replaced."""
        generation = entries[0].generation
        counts = sorted(self._counts[key, generation])
        everywhere = entries
        if counts != [len(entries)]:
            if any(entry.generation > generation for entry in self._by_pool[key]):
                return None
            everywhere = [entry for entry in self._by_pool[key] if entry.generation == generation]
        if len(counts) > 1:
            reason = f"its slices declare different resourceSliceCounts: {', '.join(map(str, counts))}"
            return Pool(id=key, condition=Condition.INVALID, reason=reason)
        if counts != [len(everywhere)]:
            reason = f"{len(everywhere)} of {counts[0]} slices of generation {generation}"
            return Pool(id=key, condition=Condition.INCOMPLETE, reason=reason)
        everywhere, relevant = sorted(everywhere, key=_by_name), sorted(entries, key=_by_name)
        offering = [entry for entry in relevant if self._offers(entry, node)]
        offered = {id(entry) for entry in offering}
        return self._checked(key, offering, [entry for entry in everywhere if id(entry) not in offered], relevant)

    def _offers(self, entry: Slice, node: Object) -> bool:
        """Return whether the devices of a relevant slice are for ``node``; in 1.36 a slice with counters has no devices of its own."""
        spec = entry.published
        if not (self._partitionable and spec.get("sharedCounters")):
            return True
        return self._counters_beside_devices and (nodes.matches(node, spec) or spec.get("perDeviceNodeSelection") is True)

    def _checked(self, key: PoolId, holds_devices: list[Slice], elsewhere: list[Slice], relevant: list[Slice]) -> Pool:
        counter_sets: dict[str, Object] = {}
        grouped: set[str] = set()
        everywhere = [*holds_devices, *elsewhere]
        reason = _broken(everywhere) or _duplicate_device(holds_devices)
        if not reason and self._partitionable:
            reason = _collect_counters(relevant, counter_sets) or _check_draws(everywhere, counter_sets, grouped)
        if reason:
            return Pool(id=key, condition=Condition.INVALID, reason=reason)
        return Pool(
            id=key, slices=tuple(holds_devices), elsewhere=tuple(elsewhere), counter_sets=counter_sets, grouped_sets=sorted(grouped)
        )


def _by_name(entry: Slice) -> str:
    return entry.name


def _read(item: Object, *, compact: bool) -> Slice:
    spec = json_types.mapping(item, "spec")
    return Slice(
        name=json_types.text(item, "metadata", "name"),
        pool=PoolId(json_types.text(spec, "driver"), json_types.text(spec, "pool", "name")),
        generation=json_types.number(spec, "pool", "generation"),
        published=spec,
        compact=compact,
    )


def _add_newest(entries: list[Slice], entry: Slice) -> None:
    if entries and entry.generation < entries[0].generation:
        return
    if entries and entry.generation > entries[0].generation:
        entries.clear()
    entries.append(entry)


def _has_binding_conditions(pool: Pool) -> bool:
    return any(device.get("bindingConditions") is not None for entry in pool.slices for device in entry.devices)


def _broken(entries: Sequence[Slice]) -> str:
    return next((f"slice {entry.name}: {entry.broken}" for entry in entries if entry.broken), "")


def _duplicate_device(entries: Sequence[Slice]) -> str:
    names: set[str] = set()
    for entry in entries:
        for device in entry.devices:
            name = json_types.text(device, "name")
            if name in names:
                return f"slice {entry.name}: device {name} is named twice in the pool"
            names.add(name)
    return ""


def _collect_counters(entries: Sequence[Slice], counter_sets: dict[str, Object]) -> str:
    for entry in entries:
        for counter_set in json_types.objects(entry.spec, "sharedCounters"):
            name = json_types.text(counter_set, "name")
            if name in counter_sets:
                return f"slice {entry.name}: counter set {name} is named twice in the pool"
            counter_sets[name] = json_types.mapping(counter_set, "counters")
    return ""


def _check_draws(entries: Sequence[Slice], counter_sets: Mapping[str, Object], grouped: set[str]) -> str:
    """Return why a device's draws are invalid, "" if none is. Add the counter sets of which a device names groups to ``grouped``."""
    counter_names = {name: counters.keys() for name, counters in counter_sets.items()}
    for entry in entries:
        for device in entry.devices:
            for consumption in json_types.objects(device.get("consumesCounters")):
                name, counters = json_types.text(consumption, "counterSet"), json_types.mapping(consumption, "counters")
                if consumption.get("compatibilityGroups"):
                    grouped.add(name)
                if name not in counter_names:
                    return f"{_place(entry, device)} consumes counters of counter set {name}, which the pool lacks"
                if not counters.keys() <= counter_names[name]:
                    return f"{_place(entry, device)} consumes counter {min(counters.keys() - counter_names[name])}, which counter set {name} lacks"
    return ""


def _place(entry: Slice, device: Object) -> str:
    return f"slice {entry.name}: device {json_types.text(device, 'name')}"
