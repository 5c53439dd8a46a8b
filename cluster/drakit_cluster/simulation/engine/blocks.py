"""The devices of one node type by block, with results for a block cached by the state of the block.

A block is a GPU with its partitions, or any device that shares no counters. Its state is what claims use of it. The free devices for each
request, the use and the fragmentation of a block depend only on its state. 40,000 GPUs in a few hundred states therefore need a few hundred
computations. The allocator itself decides which devices are suitable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.devices import AllocationError, DeviceId
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator import known_errors, symmetry
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.pools import Condition
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Mode, Want
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.workload.templates import PodTemplate

PLENTY = 1 << 30
"""A number that stands for any number of devices, for a device that many claims may share."""
_MEASURED = ("memory", "multiprocessors")
"""The counters that measure the use of a GPU, if it has them. The larger share is its use."""

DeviceUse = tuple[str, int, int, tuple[tuple[str, int], ...]]
"""The use of one device: its name, holders, shares, and the consumed amounts of its capacities in nanos."""
State = tuple[DeviceUse, ...]
Room = tuple[int, ...]
"""An upper bound of the devices for each want of a template; see :class:`Needs`."""


class Choice(NamedTuple):
    """``number`` devices of the want ``want``."""

    want: int
    number: int


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The minimum that a node must have. ``certain`` is false if only the allocator can decide."""

    certain: bool = True
    wants: int = 0
    exact: Sequence[Choice] = ()
    alternatives: Sequence[Sequence[Choice]] = ()

    def met(self, totals: Sequence[int]) -> bool:
        """Return whether ``totals`` devices of each want may be enough."""
        return self.pods(totals) > 0

    def pods(self, totals: Sequence[int]) -> int:
        """Return an upper bound of the pods for which ``totals`` devices of each want are enough."""
        limit = PLENTY
        for want, count in self.exact:
            limit = min(limit, totals[want] // count)
        for options in self.alternatives:
            limit = min(limit, sum(totals[want] // count if count else PLENTY for want, count in options))
        return limit


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """One block of a node type. ``label`` groups blocks of one model in reports; ``number`` is its position."""

    number: int
    label: str
    devices: tuple[Device, ...]

    @property
    def counter_set(self) -> str:
        """The counter set of its devices, or the device's name."""
        spec = self.devices[0].spec
        return json_types.text(spec, "consumesCounters", 0, "counterSet") or self.devices[0].name


class NodeType:
    """Nodes that offer the same. ``spans`` says that their pools also serve other nodes, so that blocks are not independent."""

    def __init__(self, label: str, node: Object, allocator: Allocator, *, spans: bool) -> None:
        self.label = label
        self.node = node
        self.spans = spans
        self._allocator = allocator.repeating(known_errors.NONE)
        problem = self.problem((), AllocatedState())
        self.inventory = problem.inventory
        self.blocks = [
            Block(number=number, label=label_of(group.devices), devices=tuple(group.devices))
            for number, group in enumerate(symmetry.group_blocks(problem.inventory.devices))
        ]
        self.block_of: Mapping[DeviceId, int] = {device.id: block.number for block in self.blocks for device in block.devices}
        self._is_complete = all(pool.condition is Condition.USABLE for pool in problem.inventory.pools)
        self._needs: dict[PodTemplate, Needs] = {}
        self._rooms: dict[tuple[PodTemplate, int, State], Room | None] = {}
        self._used: dict[tuple[int, State], float] = {}

    def needs(self, template: PodTemplate) -> Needs:
        """Return what the template needs of a node of this type."""
        if template not in self._needs:
            self._needs[template] = self._find_needs(template)
        return self._needs[template]

    def room(self, template: PodTemplate, block: int, state: State) -> Room | None:
        """Return an upper bound of the devices for each want in a block in a state; None if a device causes an error."""
        key = (template, block, state)
        if key not in self._rooms:
            self._rooms[key] = self._find_room(template, self.blocks[block], state)
        return self._rooms[key]

    def used(self, block: int, state: State) -> float:
        """Return the share of a block that is in use, from 0 to 1."""
        key = (block, state)
        if key not in self._used:
            self._used[key] = self._find_used(self.blocks[block], state) if state else 0.0
        return self._used[key]

    def first_device(self, template: PodTemplate, block: int, state: State) -> State | None:
        """Return the block's state after the template's first want gets the first suitable device; None without such a device."""
        problem = self.problem(template.claims, self._allocated(self.blocks[block], state))
        if not problem.wants:
            return None
        want = problem.wants[0]
        for device in self.blocks[block].devices:
            if problem.suitability.verdict(want, device) is None:
                allocated = self._allocated(self.blocks[block], state)
                if problem.suitability.shared(device):
                    demands = problem.suitability.demands(want, device) or ()
                    allocated.share(device.id, {demand.name: Quantity(nanos=demand.amount) for demand in demands})
                else:
                    allocated.hold(device.id)
                return state_of(self.blocks[block], allocated)
        return None

    def problem(self, claims: Sequence[Object], allocated: AllocatedState) -> Problem:
        """Return the allocator's problem on a node of this type, without the known errors of any version."""
        return self._allocator.problem(claims=claims, node=self.node, allocated=allocated)

    def _allocated(self, block: Block, state: State) -> AllocatedState:
        """Return the allocated state in which only this block is in use."""
        allocated = AllocatedState()
        ids = {device.name: device.id for device in block.devices}
        for name, holders, shares, taken in state:
            for _ in range(holders):
                allocated.hold(ids[name])
            for _ in range(shares):
                allocated.share(ids[name], {})
            if taken:
                allocated.consume(ids[name], {key: Quantity(nanos=amount) for key, amount in taken})
        return allocated

    def _find_needs(self, template: PodTemplate) -> Needs:
        if self.spans or not self._is_complete:
            return Needs(certain=False)
        try:
            problem = self.problem(template.claims, AllocatedState())
        except AllocationError:
            return Needs(certain=False)
        exact: dict[int, int] = {}
        alternatives = []
        for request in problem.requests:
            options = [Choice(option.want.number, option.count if option.mode is Mode.COUNT else 0) for option in request.options]
            if request.prioritized:
                alternatives.append(options)
            else:
                exact[options[0].want] = exact.get(options[0].want, 0) + options[0].number
        return Needs(
            wants=len(problem.wants), exact=[Choice(want, count) for want, count in exact.items() if count], alternatives=alternatives
        )

    def _find_room(self, template: PodTemplate, block: Block, state: State) -> Room | None:
        problem = self.problem(template.claims, self._allocated(block, state))
        counts = []
        for want in problem.wants:
            count = _count_suitable(problem, want, block)
            if count is None:
                return None
            counts.append(count)
        return tuple(counts)

    def _find_used(self, block: Block, state: State) -> float:
        allocated = self._allocated(block, state)
        counters = {position for device in block.devices for position, _ in device.draws}
        if not counters:
            return max(self._taken(device, allocated) for device in block.devices)
        remaining = self.inventory.remaining(allocated)
        totals: dict[str, list[int]] = {}
        for position in counters:
            sums = totals.setdefault(self.inventory.kinds[position][1], [0, 0])
            sums[0] += self.inventory.totals[position] - remaining[position]
            sums[1] += self.inventory.totals[position]
        measured = [totals[name] for name in _MEASURED if name in totals] or list(totals.values())
        return min(1.0, max((used / total for used, total in measured if total), default=0.0))

    def _taken(self, device: Device, allocated: AllocatedState) -> float:
        use = allocated.use(device.id)
        if use.held or not device.shareable:
            return 1.0 if use.held or use.shared else 0.0
        limits = {name: capacity.value.nanos for name, capacity in device.capacities.items()}
        return min(1.0, max((amount / limits[name] for name, amount in use.taken.items() if limits.get(name)), default=0.0))


def state_of(block: Block, allocated: AllocatedState) -> State:
    """Return the state of a block under ``allocated``."""
    first = block.devices[0].id
    uses = allocated.pool(first.driver, first.pool)
    if not uses:
        return ()
    used_devices = []
    for device in block.devices:
        use = uses.get(device.name)
        if use is not None:
            used_devices.append((device.name, use.holders, use.shares, tuple(sorted(use.taken.items()))))
    return tuple(used_devices)


def _count_suitable(problem: Problem, want: Want, block: Block) -> int | None:
    """Return an upper bound of the devices for a want in the block, by number and by counters; None for an error."""
    suitability = problem.suitability
    suitable: list[Device] = []
    for device in block.devices:
        verdict = suitability.verdict(want, device)
        if isinstance(verdict, AllocationError):
            return None
        if verdict is None:
            if want.admin or suitability.shared(device):
                return PLENTY
            suitable.append(device)
    count = len(suitable)
    if count > 1:
        least: dict[int, int] = dict(suitable[0].draws)
        for device in suitable[1:]:
            draws = dict(device.draws)
            least = {position: min(amount, draws[position]) for position, amount in least.items() if position in draws}
        for position, amount in least.items():
            count = min(count, suitability.remaining[position] // amount)
    return count


def label_of(devices: Sequence[Device]) -> str:
    """Return the model of a block: the product name, or the driver name with its largest capacity."""
    attributes = json_types.mapping(devices[0].spec, "attributes")
    product = json_types.text(attributes, "productName", "string")
    if product:
        return product
    family = devices[0].driver.partition(".")[0]
    sizes = [json_types.at(capacity, "value") for capacity in json_types.mapping(devices[0].spec, "capacity").values()]
    if not sizes:
        return family
    return f"{family} {max((quantity.parse(size) for size in sizes), default=Quantity(nanos=0))}"
