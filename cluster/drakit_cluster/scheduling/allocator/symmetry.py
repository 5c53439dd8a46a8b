"""Finds states that are equal for the search, so that it fails once, not once per GPU, placement or order of choosing.

Devices that share counters or compatibility groups form a *block* (a GPU with its partitions); any other device is a block of its own. Two
blocks are of one class if they correspond device by device: equal verdicts for all wants, equal draws on equal counters, equal groups, equal
room, and equal values of the attributes that constraints read. Values that occur in one block only (a parent's UUID) need only have the same pattern.

The state of a block is what is left in it. Exchanging two blocks of one class does not change whether the rest can be allocated, and
neither does the order in which a state was reached. A failed state is therefore identified by the multiset of (class, state) over all
blocks that the remaining requests could use. Only the order of preference distinguishes such states, and that matters only for the first
success.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from drakit_cluster.objects.devices import AllocationError, Element
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Constraint, Option, Want
from drakit_cluster.scheduling.allocator.suitability import excluding_set
from drakit_cluster.scheduling.allocator.world import Value, World

Token = tuple[Hashable, ...]


@dataclass(slots=True, eq=False)
class Block:
    """Candidate devices that draw on common counters, in order of preference. ``places`` gives each device's place in the block."""

    number: int
    devices: list[Device]
    counters: tuple[int, ...]
    kind: int = 0
    """The class: equal for blocks that correspond."""
    grouped_sets: tuple[int, ...] = ()
    places: dict[int, int] = field(default_factory=dict)
    wanted_by: frozenset[int] = frozenset()
    """Numbers of the wants that some device of the block suits."""


class Symmetry:
    """Blocks, their classes, and their states in a world. Without ``exchangeable`` every block is its own class."""

    def __init__(self, problem: Problem, world: World, *, exchangeable: bool) -> None:
        self._problem = problem
        self._world = world
        self._constraints = [(claim.number, place) for claim in problem.claims for place in range(len(claim.constraints))]
        self._suiting = {want.number: problem.suitability.candidates(want) for want in problem.wants}
        self._raising = frozenset(
            device.index
            for want in problem.wants
            for device in self._suiting[want.number]
            if isinstance(problem.suitability.verdict(want, device), AllocationError)
        )
        self._has_admin = any(want.admin for want in problem.wants)
        candidates = {device.index: device for devices in self._suiting.values() for device in devices}
        self.blocks = group_blocks([candidates[index] for index in sorted(candidates)])
        self.block_of: dict[int, Block] = {device.index: block for block in self.blocks for device in block.devices}
        self._read_by = {key: self._readers(*key) for key in self._constraints}
        """By constraint, wants that between them have every expression for its attribute: one want, unless requests derive it differently."""
        self._homes = self._find_homes()
        self._classify(exchangeable=exchangeable)
        self._relevant: dict[int, tuple[Block, ...]] = {}
        self._states: dict[int, Token] = {}

    def suiting(self, want: Want) -> list[Device]:
        """Return the candidates of a want, in order, including those that raise an error."""
        return self._suiting[want.number]

    @property
    def raises(self) -> bool:
        return bool(self._raising)

    def relevant(self, request: int) -> tuple[Block, ...]:
        """Return the blocks that requests from ``request`` on could use."""
        if request not in self._relevant:
            wants = {option.want.number for later in self._problem.requests[request:] for option in later.options}
            self._relevant[request] = tuple(block for block in self.blocks if block.wanted_by & wants)
        return self._relevant[request]

    def changed(self, device: Device) -> None:
        self._states.pop(self.block_of[device.index].number, None)

    def state(self, block: Block) -> Token:
        state = self._states.get(block.number)
        if state is None:
            state = self._states[block.number] = self._read_state(block)
        return state

    def signatures(self, request: int, option: Option | None, start: int) -> tuple[dict[int, Token], Token]:
        """Return (class, state, constraint marks, number of devices before ``start``) of every relevant block, and the constraints' common state.

        ``option`` may only choose devices from the place ``start`` in the order of preference on.
        """
        marks, common = self._constraint_marks(self._problem.requests[request].claim, request)
        by_block: dict[int, Token] = {}
        for block in self.relevant(request):
            behind = self._behind(block, option, start) if start and option is not None else 0
            by_block[block.number] = (block.kind, self.state(block), tuple(marks.get(block.number, ())), behind)
        return by_block, common

    def _behind(self, block: Block, option: Option, start: int) -> int:
        if option.want.number not in block.wanted_by:
            return 0
        return sum(device.index < start for device in block.devices)

    def _read_state(self, block: Block) -> Token:
        world, suitability = self._world, self._problem.suitability
        free = 0
        shares: list[Hashable] = []
        for place, device in enumerate(block.devices):
            index = device.index
            if suitability.shared(device):
                taken = tuple(sorted(item for item in world.taken[index].items() if item[1]))
                if world.shares[index] or taken:
                    shares.append((place, world.shares[index] > 0, taken))
            elif not world.marks[index] and (index in self._raising or self._has_room(device)):
                free |= 1 << place
        marks = tuple(world.marks[device.index] for device in block.devices) if self._has_admin else ()
        return (free, *self._left(block), tuple(shares), marks)

    def _has_room(self, device: Device) -> bool:
        world = self._world
        return excluding_set(device.groups, world.common_groups) is None and all(
            world.remaining[position] >= amount for position, amount in device.draws
        )

    def _left(self, block: Block) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the rest of the block's counters, and the common groups of its counter sets."""
        world = self._world
        return (
            tuple(world.remaining[position] for position in block.counters),
            tuple(world.common_groups[number] for number in block.grouped_sets),
        )

    def _constraint_marks(self, claim: int, request: int) -> tuple[Mapping[int, list[Hashable]], Token]:
        """Split the state of the claim's constraints into marks on blocks, for values of one block only, and the rest."""
        chosen = self._world.chosen[claim]
        if not chosen:
            return {}, ()
        marks: dict[int, list[Hashable]] = defaultdict(list)
        common: list[Hashable] = []
        usable = {block.number for block in self.relevant(request)}
        for position, state in enumerate(chosen):
            homes = self._homes[claim, position]
            spread, unusable = [], False
            for element in state.elements:
                home = homes.get(element)
                if home is None:
                    spread.append(element)
                elif home[0] in usable:
                    marks[home[0]].append((position, home[1]))
                else:
                    unusable = True
            matching = self._problem.claims[claim].constraints[position].kind is Constraint.MATCH
            common.append((state.devices > 0, frozenset(spread), unusable and matching))
        for held in marks.values():
            held.sort(key=repr)
        return marks, tuple(common)

    def _readers(self, claim: int, position: int) -> tuple[Want, ...]:
        spec = self._problem.claims[claim].constraints[position]
        options = [option for request in self._problem.claims[claim].requests for option in request.options if spec.applies(option)]
        return tuple({option.want.derived.get(spec.attribute): option.want for option in options}.values())

    def _values(self, key: tuple[int, int], device: Device) -> list[Value | None]:
        """Return the values of a device for a constraint, one for each expression; None where the expression fails."""
        attribute, values = self._problem.claims[key[0]].constraints[key[1]].attribute, list[Value | None]()
        for want in self._read_by[key]:
            try:
                values.append(self._world.value(attribute, device, want))
            except AllocationError:  # It is among the devices that raise if a request may choose it.
                values.append(None)
        return values

    def _find_homes(self) -> dict[tuple[int, int], dict[Element, tuple[int, int]]]:
        """Return, per constraint, the elements that occur in one block only, with that block and their number in it."""
        return {key: self._homes_of(*key) for key in self._constraints}

    def _homes_of(self, claim: int, position: int) -> dict[Element, tuple[int, int]]:
        homes: dict[Element, tuple[int, int]] = {}
        spread: set[Element] = set()
        for block in self.blocks:
            order: dict[Element, int] = {}
            for device in block.devices:
                for value in self._values((claim, position), device):
                    for element in sorted(value or (), key=repr):
                        order.setdefault(element, len(order))
            for element, number in order.items():
                if element in homes:
                    spread.add(element)
                homes[element] = (block.number, number)
        return {element: home for element, home in homes.items() if element not in spread}

    def _classify(self, *, exchangeable: bool) -> None:
        kinds: dict[Hashable, int] = {}
        for block in self.blocks:
            wants = [want for want in self._problem.wants if any(self._suits(want, device) for device in block.devices)]
            block.wanted_by = frozenset(want.number for want in wants)
            block.kind = kinds.setdefault(self._signature(block), len(kinds)) if exchangeable else block.number

    def _suits(self, want: Want, device: Device) -> bool:
        verdict = self._problem.suitability.verdict(want, device)
        return verdict is None or isinstance(verdict, AllocationError)

    def _signature(self, block: Block) -> Hashable:
        names = {position: number for number, position in enumerate((*block.counters, *map(_link, block.grouped_sets)))}
        return (self._left(block), tuple(self._device_signature(device, names) for device in block.devices))

    def _device_signature(self, device: Device, names: Mapping[int, int]) -> Hashable:
        problem, suitability = self._problem, self._problem.suitability
        verdicts = tuple(self._suits(want, device) for want in problem.wants)
        draws = tuple(sorted((names[position], amount) for position, amount in device.draws)) if device.draws else ()
        groups = tuple(sorted((names[_link(number)], bits) for number, bits in device.groups)) if device.groups else ()
        rooms = tuple(suitability.demands(want, device) for want in problem.wants) if suitability.shared(device) else None
        values = tuple(tuple(self._label(key, value) for value in self._values(key, device)) for key in self._constraints)
        every = tuple(device in devices for devices in problem.every.values())
        return (verdicts, draws, groups, suitability.drawn(device), rooms, values, every, device.index in self._raising)

    def _label(self, key: tuple[int, int], value: Value | None) -> Hashable:
        if value is None:
            return None
        homes = self._homes[key]
        return frozenset(("here", homes[element][1]) if element in homes else ("spread", element) for element in value)


def group_blocks(candidates: Iterable[Device]) -> list[Block]:
    """Group devices that draw on common counters or have groups in common counter sets, directly or through others."""
    leader: dict[int, int] = {}

    def find(link: int) -> int:
        root = link
        while leader.setdefault(root, root) != root:
            root = leader[root]
        leader[link] = root
        return root

    grouped: dict[Hashable, list[Device]] = {}
    devices = [(device, _links(device)) for device in candidates]
    for _, links in devices:
        for link in links[1:]:
            leader[find(link)] = find(links[0])
    for device, links in devices:
        key: Hashable = find(links[0]) if links else (device.index, "alone")
        grouped.setdefault(key, []).append(device)
    return [_block(number, group) for number, group in enumerate(grouped.values())]


def _links(device: Device) -> list[int]:
    """Return numbers that two devices share if the choice of one may exclude the other."""
    links = [position for position, _ in device.draws]
    return [*links, *(_link(number) for number, _ in device.groups)] if device.groups else links


def _link(grouped_set: int) -> int:
    """Return a number for a counter set with groups, different from every position of a counter."""
    return -1 - grouped_set


def _block(number: int, devices: list[Device]) -> Block:
    return Block(
        number=number,
        devices=devices,
        counters=tuple(dict.fromkeys(position for device in devices for position, _ in device.draws)),
        places={device.index: place for place, device in enumerate(devices)},
        grouped_sets=tuple(dict.fromkeys(grouped_set for device in devices for grouped_set, _ in device.groups)),
    )
