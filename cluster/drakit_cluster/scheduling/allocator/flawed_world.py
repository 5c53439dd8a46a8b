"""The choices of one decision as Kubernetes 1.36 tracks them, with the requested known errors.

The order of the checks matters: what a rejected device leaves behind depends on the check that rejected it. The order is capacity,
counters, taints, constraints.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from drakit_cluster.scheduling.allocator import world
from drakit_cluster.scheduling.allocator.inventory import CompiledPool, Device
from drakit_cluster.scheduling.allocator.known_errors import KnownError
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Constraint, ConstraintSpec, Mode, Option
from drakit_cluster.scheduling.allocator.suitability import excluding_set
from drakit_cluster.scheduling.allocator.world import Chosen, Pick, Value, World

_Counter = tuple[str, str]
"""Counter set and name."""


class _LastByRequest(NamedTuple):
    """The state of a distinctAttribute that remembers one device for each request."""

    devices: int
    by_request: Mapping[str, Value]


class _Account:
    """The counters of one pool, or of all pools of one name: the amounts free before the decision, and the amounts that it consumed."""

    def __init__(self, free: Mapping[_Counter, int]) -> None:
        self._free = free
        self._consumed: defaultdict[_Counter, int] = defaultdict(int)

    def take(self, draws: Mapping[_Counter, int]) -> bool:
        """Consume what a device draws; return False and consume nothing if any counter is short."""
        self.count(draws, 1)
        if all(free >= self._consumed.get(counter, 0) for counter, free in self._free.items()):
            return True
        self.count(draws, -1)
        return False

    def count(self, draws: Mapping[_Counter, int], sign: int) -> None:
        for counter, amount in draws.items():
            self._consumed[counter] += sign * amount


class FlawedWorld(World):
    """The mutable state of one search that repeats the problem's known errors."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.claims, problem.inventory, problem.suitability, lists=problem.lists)
        self._problem = problem
        self._has = problem.errors.kinds.__contains__
        self._pools: dict[int, CompiledPool] = {pool.number: pool for pool in problem.inventory.usable}
        self._accounts: dict[object, _Account] = {}
        self._states: list[list[Chosen | _LastByRequest]] = [[self._unused(spec) for spec in claim.constraints] for claim in problem.claims]
        self._before: dict[int, list[Chosen | _LastByRequest]] = {}

    def _unused(self, spec: ConstraintSpec) -> Chosen | _LastByRequest:
        by_request = spec.kind is Constraint.DISTINCT and self._has(KnownError.DISTINCT_LAST)
        return _LastByRequest(0, {}) if by_request else world.NONE_CHOSEN

    def choose(self, claim: int, option: Option, device: Device, bit: int) -> Pick | None:
        """Choose an available and suitable device, or return None. What a refusal leaves behind is not undone."""
        self.forbidden = False
        has_room = self._has_room(option, device)
        if option.mode is Mode.COUNT and not has_room:
            return None
        counted = self._needs_counters(option, device)
        groups = device.groups if counted else ()
        if excluding_set(groups, self.common_groups) is not None:
            return None
        draws = self._draws(device) if counted else None
        if draws is not None and not self._account(device).take(draws):
            return None
        before = list(self._states[claim])
        tainted = self._problem.suitability.tainted(option.want, device)
        self.forbidden = not tainted and not self._constrain(claim, option, device)
        if tainted or self.forbidden or not has_room:
            if not self._has(KnownError.KEPT_COUNTERS):
                self._states[claim] = before
                self._release(device, draws)
            return None
        shared = self._problem.suitability.shared(device)
        demands = (self._problem.suitability.demands(option.want, device) or ()) if shared else ()
        groups_before = tuple(self.common_groups[number] for number, _ in groups)
        pick = Pick(claim, option, device, bit, device.draws if counted else (), demands, shared, (), groups, groups_before)
        self._before[bit] = before
        self._apply(pick, 1)
        return pick

    def undo(self, pick: Pick) -> None:
        """Undo the latest pick, as far as Kubernetes does."""
        before = self._before.pop(pick.bit)
        for position, spec in enumerate(self._problem.claims[pick.claim].constraints):
            if spec.applies(pick.option):
                self._states[pick.claim][position] = self._removed(pick.option, self._states[pick.claim][position], before[position])
        if pick.draws and not (pick.shared and self._has(KnownError.KEPT_COUNTERS)):
            self._release(pick.device, self._draws(pick.device))
        self._apply(pick, -1)

    def _has_room(self, option: Option, device: Device) -> bool:
        taken = self.taken.get(device.index, {})
        demands = self._problem.suitability.demands(option.want, device) or ()
        return all(taken.get(demand.name, 0) + demand.amount <= demand.limit for demand in demands)

    def _needs_counters(self, option: Option, device: Device) -> bool:
        if not device.draws_counters or (option.want.admin and not self._has(KnownError.ADMIN_COUNTERS)):
            return False
        if self._has(KnownError.EVERY_SHARE_DRAWS):
            return True
        by_admins = self._has(KnownError.ADMIN_COUNTERS) and any(self.taken.get(device.index, {}).values())
        return not (self._drawn(device) or self.shares[device.index] or by_admins)

    def _drawn(self, device: Device) -> bool:
        suitability = self._problem.suitability
        if self._has(KnownError.SHARES_WITHOUT_CAPACITY) and not suitability.use(device).taken:
            return False
        return suitability.drawn(device)

    def _draws(self, device: Device) -> dict[_Counter, int]:
        return {self._problem.inventory.counters[position][1:]: amount for position, amount in device.draws}

    def _account(self, device: Device) -> _Account:
        """Return the account of the device's pool. Pools that share an account by name use the counters of the first pool examined."""
        pool = self._pools[device.pool]
        key = pool.id.pool if self._has(KnownError.POOL_NAMES) else pool.id
        if key not in self._accounts:
            left = self._problem.suitability.remaining
            free = {(owner, name): left[at] for owner, positions in pool.positions.items() for name, at in positions.items()}
            self._accounts[key] = _Account(free)
        return self._accounts[key]

    def _release(self, device: Device, draws: Mapping[_Counter, int] | None) -> None:
        if draws is not None:
            self._account(device).count(draws, -1)

    def _constrain(self, claim: int, option: Option, device: Device) -> bool:
        """Add the device to the claim's constraints; if one refuses it, remove it from the constraints before."""
        states, specs = self._states[claim], self._problem.claims[claim].constraints
        before = list(states)
        for position, spec in enumerate(specs):
            if not spec.applies(option):
                continue
            value = self.value(spec.attribute, device, option.want)
            if value and spec.kind is Constraint.DISTINCT and self._has(KnownError.DISTINCT_BY_DEVICE):
                value = frozenset({("int", device.index)})
            added = self._added(spec, option, states[position], value)
            if added is None:
                for earlier in range(position):
                    if specs[earlier].applies(option):
                        states[earlier] = self._removed(option, states[earlier], before[earlier])
                return False
            states[position] = added
        return True

    def _added(
        self, spec: ConstraintSpec, option: Option, state: Chosen | _LastByRequest, value: Value | None
    ) -> Chosen | _LastByRequest | None:
        if isinstance(state, Chosen):
            return world.add(spec, state, value, lists=self._problem.lists)
        if value is None or (state.devices and (not value or any(value & other for other in state.by_request.values()))):
            return None
        return _LastByRequest(state.devices + 1, {**state.by_request, option.base: value})

    def _removed(self, option: Option, state: Chosen | _LastByRequest, before: Chosen | _LastByRequest) -> Chosen | _LastByRequest:
        if isinstance(state, _LastByRequest):
            return _LastByRequest(state.devices - 1, {name: value for name, value in state.by_request.items() if name != option.base})
        return Chosen(state.devices - 1, state.elements) if self._has(KnownError.LISTS_NOT_RESTORED) else before
