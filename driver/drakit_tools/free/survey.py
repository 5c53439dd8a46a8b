"""What is free in a world of slices, claims and taints, by node and kind of device. Pure.

A device is free if the allocator would give it to a claim that asks for any one device, without tolerations and with the default amount of every
capacity. So slices of old generations, incomplete pools, taints, DeviceTaintRules, counters and shares count as for the scheduler. Free devices of
one board (a GPU with its partitions) share counters; :mod:`drakit.core.packing` says how many of them fit together.

Two figures differ on purpose: *alone* is how many devices of one kind fit if no other kind is allocated; *together* has sets of kinds that fit at
the same time. Boards are independent, so both add up over boards, nodes and pools.

Claims without an allocation hold nothing yet. Claims in deletion hold their devices until they are gone. Pools of several nodes are counted once.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from drakit.cli import fits
from drakit.core import errors, packing
from drakit.core.packing import Kind
from drakit_cluster.cel import selectors
from drakit_cluster.client import pod_claims
from drakit_cluster.objects import json_types, naming, quantity, taints
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import taint_rules
from drakit_cluster.scheduling.allocator import symmetry
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.pools import Condition, Pool
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.allocator.suitability import Refusal, Verdict
from drakit_cluster.scheduling.explain import whatif
from drakit_cluster.simulation.engine import blocks

SEVERAL_NODES = ""
"""The name of the node of pools that serve several nodes."""
_ANY = "any"
_CLASS: Object = {"metadata": {"name": _ANY}, "spec": {}}
_CLAIM: Object = {
    "metadata": {"name": _ANY},
    "spec": {"devices": {"requests": [{"name": _ANY, "exactly": {"deviceClassName": _ANY, "allocationMode": "ExactCount", "count": 1}}]}},
}
_EXPECTED = frozenset({Refusal.IN_USE, Refusal.COUNTERS, Refusal.GROUPS, Refusal.CAPACITY, Refusal.NODE})
"""Why a device is not free when nothing is wrong with it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """One capacity of devices that many claims may share: what is left and what there is."""

    free: quantity.Quantity
    total: quantity.Quantity

    def __add__(self, other: "Capacity") -> "Capacity":
        return Capacity(free=self.free + other.free, total=self.total + other.total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
    """The shares that shared devices of one kind still have.

    ``more`` is how many requests for the default amounts they still serve; None if nothing limits them.
    """

    more: int | None = 0
    capacity: Mapping[str, Capacity] = dataclasses.field(default_factory=dict)

    def __add__(self, other: "Shares") -> "Shares":
        more = None if self.more is None or other.more is None else self.more + other.more
        merged = dict(self.capacity)
        for name, amount in other.capacity.items():
            merged[name] = merged[name] + amount if name in merged else amount
        return Shares(more=more, capacity=merged)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """What is free on one board. ``name`` is its counter set, or its only device.

    ``of`` is what ``alone`` would be without any claim and taint. ``withheld`` has the devices that are neither free nor in use, by reason.
    """

    driver: str
    pool: str
    name: str
    model: str
    alone: Mapping[Kind, packing.Fill]
    of: Mapping[Kind, packing.Fill]
    together: tuple[packing.Fill, ...]
    shares: Mapping[Kind, Shares]
    in_use: int
    withheld: Mapping[str, tuple[str, ...]]
    devices: frozenset[DeviceId]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """What is free on one node. ``notes`` say what is not counted, and why.

    ``closed`` is why new pods do not come here, such as ``cordoned``, and nothing is free; empty if they do.
    """

    name: str
    boards: tuple[Board, ...] = ()
    notes: tuple[str, ...] = ()
    closed: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Free:
    """What is free. ``pending`` are claims without devices, ``deleting`` claims in deletion that still hold some."""

    nodes: tuple[Node, ...]
    pending: tuple[str, ...] = ()
    deleting: tuple[str, ...] = ()

    @property
    def boards(self) -> Iterator[tuple[str, Board]]:
        """Yield every board with the name of its node."""
        return ((node.name, board) for node in self.nodes for board in node.boards)


def survey(world: whatif.World, gates: FeatureGates, *, only: Collection[str] | None = None) -> Free:
    """Return what is free on all known nodes, or on the nodes of ``only``. Raises ConfigError for a claim whose status cannot be read."""
    rules = world.taint_rules if gates.on(Gate.DEVICE_TAINT_RULES) else ()
    slices = [taint_rules.tainted(published, rules) for published in world.slices]
    consumable = gates.on(Gate.CONSUMABLE_CAPACITY)
    allocated = AllocatedState(consumable_capacity=consumable)
    for claim in world.claims:
        try:
            allocated.add(claim)
        except quantity.QuantityError as error:
            raise errors.ConfigError(f"claim {naming.label(claim)}: status.allocation: consumedCapacity: {error}") from error
    allocator = Allocator(slices, {_ANY: _CLASS}, selectors.Selectors(gates), gates)
    reader = _Reader(allocator, allocated, consumable=consumable, lost=_lost(world))
    names = only or None
    found = [reader.node(node) for node in world.known_nodes() if names is None or _name(node) in names]
    return Free(
        nodes=(*_once(found), *_without_node(world, names)),
        pending=_labels(claim for claim in world.claims if not pod_claims.is_allocated(claim) and not pod_claims.is_deleting(claim)),
        deleting=_labels(claim for claim in world.claims if pod_claims.is_allocated(claim) and pod_claims.is_deleting(claim)),
    )


def _lost(world: whatif.World) -> Mapping[str, Sequence[str]]:
    """Return the drivers without slices whose devices claims have, by pool. The pool of a node has its name."""
    held = (result for claim in world.claims for result in json_types.objects(claim, "status", "allocation", "devices", "results"))
    used = {(json_types.text(result, "pool"), json_types.text(result, "driver")) for result in held}
    offered = {(json_types.text(entry, "spec", "pool", "name"), json_types.text(entry, "spec", "driver")) for entry in world.slices}
    lost: dict[str, list[str]] = {}
    for pool, driver in sorted(used - offered):
        lost.setdefault(pool, []).append(driver)
    return lost


class _Reader:
    """Reads what is free on one node after the other."""

    def __init__(self, allocator: Allocator, allocated: AllocatedState, *, consumable: bool, lost: Mapping[str, Sequence[str]]) -> None:
        self._allocator = allocator
        self._allocated = allocated
        self._lost = lost
        self._nothing = AllocatedState(consumable_capacity=consumable)

    def node(self, node: Object) -> Node:
        """Return what is free on a node; boards of pools for several nodes are among it."""
        closed = _closed(node)
        try:
            now, empty = (
                self._allocator.problem(claims=[_CLAIM], node=node, allocated=allocated) for allocated in (self._allocated, self._nothing)
            )
            pools = now.inventory.pools
            boards = tuple(
                _board(block.devices, pools[block.devices[0].pool], now, empty, is_closed=bool(closed))
                for block in symmetry.group_blocks(now.inventory.devices)
            )
        except AllocationError as error:
            return Node(name=_name(node), notes=(f"cannot be judged: {error}",))
        notes = [
            f"pool {pool.id} is {pool.condition.name.lower()}: {pool.reason}" for pool in pools if pool.condition is not Condition.USABLE
        ]
        notes += [
            f"no slices of {driver}, and claims have devices of it; check that its driver runs on this node"
            for driver in self._lost.get(_name(node), ())
        ]
        notes += [] if closed else _tolerated(node)
        if closed:
            notes.append(f"{closed}: new pods do not come here, so its devices are not free")
        return Node(name=_name(node), boards=boards, notes=tuple(notes), closed=closed)


def _closed(node: Object) -> str:
    """Return why new pods do not come to a node: a cordon, or a node that is not ready."""
    ready = next((entry for entry in json_types.objects(node, "status", "conditions") if entry.get("type") == "Ready"), {"status": "True"})
    is_cordoned = json_types.at(node, "spec", "unschedulable") is True
    return ", ".join([*(["cordoned"] if is_cordoned else []), *(["not ready"] if ready.get("status") != "True" else [])])


def _tolerated(node: Object) -> Iterator[str]:
    """Yield a note if only pods that tolerate a taint of the node come to it."""
    preventing = [taint for taint in json_types.objects(node, "spec", "taints") if taints.prevents([taint], [])]
    if preventing:
        yield f"has the taint {taints.text(preventing)}: only pods that tolerate it get these devices"


def _board(devices: Sequence[Device], pool: Pool, now: Problem, empty: Problem, *, is_closed: bool) -> Board:
    attribute = _partition_attribute(pool)
    kinds = {device.index: _kind(device, attribute) for device in devices}
    positions = {position: number for number, position in enumerate(dict.fromkeys(at for device in devices for at, _ in device.draws))}
    want = now.wants[0]
    verdicts = {device.index: now.suitability.verdict(want, device) for device in devices}
    unused = {device.index: empty.suitability.verdict(empty.wants[0], device) for device in devices}
    free = _packed((device for device in devices if verdicts[device.index] is None and not is_closed), kinds, positions, now)
    whole = _packed((device for device in devices if unused[device.index] in (None, Refusal.TAINT)), kinds, positions, empty)
    shares: dict[Kind, Shares] = {}
    for device in devices:
        if now.suitability.shared(device) and verdicts[device.index] in (None, Refusal.CAPACITY):
            kind = kinds[device.index]
            shares[kind] = shares.get(kind, Shares()) + _shares(
                device, now, is_free=verdicts[device.index] is None and not is_closed, is_closed=is_closed
            )
    first = devices[0]
    return Board(
        driver=first.driver,
        pool=first.id.pool,
        name=json_types.text(first.spec, "consumesCounters", 0, "counterSet") or first.name,
        model=blocks.label_of(devices),
        alone=packing.alone(free),
        of=packing.alone(whole),
        together=packing.together(free),
        shares=shares,
        in_use=sum(not now.suitability.use(device).unused for device in devices),
        withheld=_withheld(devices, verdicts),
        devices=frozenset(device.id for device in devices),
    )


def _packed(devices: Iterable[Device], kinds: Mapping[int, Kind], positions: Mapping[int, int], problem: Problem) -> packing.Board:
    """Return the board as the packing sees it: counters by their place on the board, so that equal boards are equal on all nodes."""
    suitability = problem.suitability
    listed = list(devices)
    sets = {number: place for place, number in enumerate(sorted({number for device in listed for number, _ in device.groups}))}
    items = []
    for device in listed:
        draws: packing.Draws = ()
        groups: packing.Groups = ()
        if suitability.draws(problem.wants[0], device):
            draws = tuple(sorted((positions[at], amount) for at, amount in device.draws))
            groups = tuple((sets[number], bits) for number, bits in device.groups)
        items.append(packing.Item(kind=kinds[device.index], draws=draws, groups=groups))
    return packing.Board(
        items=tuple(items),
        room=tuple(suitability.remaining[position] for position in positions),
        common=tuple(suitability.common_groups[number] for number in sets),
    )


def _shares(device: Device, problem: Problem, *, is_free: bool, is_closed: bool) -> Shares:
    demands = problem.suitability.demands(problem.wants[0], device) or () if is_free else ()
    limits = [demand.limit // demand.amount for demand in demands if demand.amount > 0]
    room = problem.suitability.room(device)
    return Shares(
        more=0 if not is_free else min(limits) if limits else None,
        capacity={
            name: Capacity(
                free=quantity.Quantity(nanos=0 if is_closed else max(room[name], 0), format=published.value.format), total=published.value
            )
            for name, published in device.capacities.items()
        },
    )


def _withheld(devices: Sequence[Device], verdicts: Mapping[int, Verdict]) -> dict[str, tuple[str, ...]]:
    by_reason: dict[str, list[str]] = {}
    for device in devices:
        verdict = verdicts[device.index]
        if verdict is Refusal.TAINT:
            by_reason.setdefault(f"tainted {_taints(device)}", []).append(device.name)
        elif verdict is not None and verdict not in _EXPECTED:
            by_reason.setdefault(verdict.value if isinstance(verdict, Refusal) else str(verdict), []).append(device.name)
    return {reason: tuple(names) for reason, names in by_reason.items()}


def _taints(device: Device) -> str:
    return taints.text(taint for taint in json_types.objects(device.spec, "taints") if json_types.text(taint, "effect") != "None")


def _kind(device: Device, attribute: str) -> Kind:
    attributes = json_types.mapping(device.spec, "attributes")
    names = (attribute, attribute.removeprefix(f"{device.driver}/"), *fits.KINDS)
    values = (json_types.text(attributes, name, "string") for name in names if name)
    return fits.kind(next(filter(None, values), fits.OTHER), shared=device.shareable)


def _partition_attribute(pool: Pool) -> str:
    """Return the attribute that names the partitions of a pool (partitionTypeAttribute, Kubernetes 1.37); empty if its slices name none."""
    return next(filter(None, (json_types.text(entry.spec, "partitionTypeAttribute") for entry in pool.slices)), "")


def _once(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes, and then what several of them offer: each such board once, as a node that takes pods sees it."""
    listed = list(nodes)
    seen = Counter(board.devices for node in listed for board in node.boards)
    common: dict[frozenset[DeviceId], Board] = {}
    for node in listed:
        shared = {board.devices: board for board in node.boards if seen[board.devices] > 1}
        common = common | shared if not node.closed else shared | common
        yield dataclasses.replace(node, boards=tuple(board for board in node.boards if seen[board.devices] == 1))
    if common:
        yield Node(name=SEVERAL_NODES, boards=tuple(common.values()))


def _without_node(world: whatif.World, only: Collection[str] | None) -> Iterator[Node]:
    """Yield the nodes that slices name and that do not exist, where the nodes are known."""
    named = {json_types.text(published, "spec", "nodeName") for published in world.slices} - {""} if world.nodes else set()
    for name in sorted(named - {_name(node) for node in world.nodes}):
        if only is None or name in only:
            yield Node(name=name, notes=("there is no node of this name, so its slices do not count",))


def _labels(claims: Iterable[Object]) -> tuple[str, ...]:
    return tuple(sorted(naming.label(claim) for claim in claims))


def _name(obj: Object) -> str:
    return json_types.text(obj, "metadata", "name")
