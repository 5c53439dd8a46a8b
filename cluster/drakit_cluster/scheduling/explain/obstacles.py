"""The reasons that claims do not fit on a node, by device, grouped for readers.

There are two questions. *Alone*: does every request have enough suitable devices before anything is chosen? If so, *together*: requests
are added one by one, in order, until they no longer fit. The first that does not fit is shown with the obstacles that remain after the
requests before it have their devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from drakit.telemetry import plurals
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator import search, suitability
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.pools import Condition
from drakit_cluster.scheduling.allocator.problem import MAX_RESULTS, Problem
from drakit_cluster.scheduling.allocator.requests import Claim, Constraint, ConstraintSpec, Option, Request
from drakit_cluster.scheduling.allocator.suitability import Refusal
from drakit_cluster.scheduling.allocator.world import Pick, Value, World
from drakit_cluster.scheduling.explain import wording
from drakit_cluster.scheduling.explain.wording import Holders, RefusalTexts


@dataclass(frozen=True, kw_only=True)
class Group:
    """Devices refused for the same reason. ``mismatch`` is 0 for devices of the requested kind, and higher the less they match it."""

    text: str
    devices: tuple[str, ...]
    mismatch: int = 0


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """One request that cannot be served, or (without claim and request) a problem of a pool or of the whole node."""

    text: str
    claim: str = ""
    request: str = ""
    groups: tuple[Group, ...] = ()
    """Sorted by nearness to fitting, then smallest first."""


_PROBE = "/probe"
"""The end of the names of pools by which drivers test what a server stores: never complete, and deleted at once (docs/reference/wire.md)."""
_MISMATCHES = {Refusal.NODE: 1, Refusal.SELECTOR: 1, Refusal.CLASS_SELECTOR: 2}


@dataclass
class _Groups:
    """Devices by the reason of their refusal, in the order of first occurrence."""

    _devices: dict[tuple[int, str], list[str]] = field(default_factory=dict)

    def add(self, text: str, device: Device, mismatch: int = 0) -> None:
        self._devices.setdefault((mismatch, text), []).append(str(device.id))

    def sorted_groups(self) -> tuple[Group, ...]:
        ordered = sorted(self._devices.items(), key=lambda item: (item[0][0], len(item[1])))
        return tuple(Group(text=text, devices=tuple(devices), mismatch=mismatch) for (mismatch, text), devices in ordered)


def find(problem: Problem, holders: Holders) -> list[Obstacle]:
    """Return the obstacles of an unsolvable problem."""
    pools, requests = of_pools(problem), of_requests(problem, holders)
    return [*pools, *(requests or _together(problem, holders))]


def of_pools(problem: Problem) -> list[Obstacle]:
    """Return the obstacles of unusable pools."""
    unusable = [pool for pool in problem.inventory.pools if pool.condition is not Condition.USABLE and not pool.id.pool.endswith(_PROBE)]
    return [Obstacle(text=f"pool {pool.id} is {pool.condition.name.lower()}: {pool.reason}") for pool in unusable]


def takers(problem: Problem, holders: Holders) -> list[str]:
    """Return the claims that have the devices of the requested kind, or what these need of their boards, in the order of the devices.

    Only the requests count that have too few devices; all of them, if each alone has enough.
    """
    texts = RefusalTexts(problem, holders)
    claims: list[str] = []
    for request in [request for request in problem.requests if not _has_enough(problem, request)] or problem.requests:
        for option in request.options:
            for device in problem.inventory.devices:
                verdict = problem.suitability.verdict(option.want, device)
                if isinstance(verdict, Refusal) and problem.suitability.mismatch(option.want, device) is None:
                    claims += texts.takers(device, verdict)
    return list(dict.fromkeys(claims))


def _has_enough(problem: Problem, request: Request) -> bool:
    """Return whether an option of the request has enough devices before anything is chosen."""
    devices, verdict = problem.inventory.devices, problem.suitability.verdict
    return any(
        sum(verdict(option.want, device) is None for device in devices) >= max(problem.number(option), 1) for option in request.options
    )


def of_requests(problem: Problem, holders: Holders) -> list[Obstacle]:
    """Return the requests that have too few devices before anything is chosen."""
    texts = RefusalTexts(problem, holders)
    return [obstacle for request in problem.requests if not _has_enough(problem, request) for obstacle in _alone(problem, texts, request)]


def _alone(problem: Problem, texts: RefusalTexts, request: Request) -> list[Obstacle]:
    """Return why no option of a request has enough devices."""
    shortages = []
    for option in request.options:
        verdicts = [(device, problem.suitability.verdict(option.want, device)) for device in problem.inventory.devices]
        suitable, needed = sum(verdict is None for _, verdict in verdicts), problem.number(option)
        groups = _Groups()
        for device, refusal in verdicts:
            mismatched = problem.suitability.mismatch(option.want, device) if refusal is Refusal.IN_USE else None
            if (verdict := mismatched or refusal) is not None:
                mismatch = _MISMATCHES.get(verdict, 0) if isinstance(verdict, Refusal) else 0
                groups.add(texts.for_verdict(option, device, verdict), device, mismatch)
        text = f"needs {_device_count(needed)}, {suitable or 'none'} available"
        shortages.append(Obstacle(text=text, claim=problem.claims[request.claim].label, request=option.name, groups=groups.sorted_groups()))
    return shortages


def _device_count(number: int) -> str:
    return plurals.counted(number, "device") if number else "all devices"


def _together(problem: Problem, holders: Holders) -> Iterator[Obstacle]:
    picks: list[Pick] = []
    for number in range(1, len(problem.requests) + 1):
        solution = search.solve(replace(problem, requests=problem.requests[:number]))
        if solution is None:
            yield from _AfterPicks(problem, holders, picks).obstacles(problem.requests[number - 1])
            break
        picks = solution
    else:
        return
    for claim in problem.claims:
        for spec in claim.constraints:
            if search.solve(_without(problem, claim, spec)) is not None:
                yield Obstacle(text=f"it would fit without the constraint {spec.kind.value} {spec.attribute}", claim=claim.label)


def _without(problem: Problem, claim: Claim, spec: ConstraintSpec) -> Problem:
    eased = replace(claim, constraints=tuple(constraint for constraint in claim.constraints if constraint is not spec))
    return replace(problem, claims=[eased if claim_ is claim else claim_ for claim_ in problem.claims])


class _AfterPicks:
    """The obstacles of a request after earlier requests have their devices."""

    def __init__(self, problem: Problem, holders: Holders, picks: Sequence[Pick]) -> None:
        self._problem = problem
        self._texts = RefusalTexts(problem, holders)
        self._picks = list(picks)

    def obstacles(self, request: Request) -> Iterator[Obstacle]:
        label = self._problem.claims[request.claim].label
        for option in request.options:
            world = self._replayed()
            groups, chosen = _Groups(), 0
            for device in self._problem.inventory.devices:
                verdict = self._problem.suitability.verdict(option.want, device)
                if verdict is not None:
                    if isinstance(verdict, Refusal) and self._problem.suitability.mismatch(option.want, device) is None:
                        groups.add(self._texts.for_verdict(option, device, verdict), device)
                    continue
                if text := self._refusal(world, option, request.claim, device):
                    groups.add(text, device)
                else:
                    chosen += 1
            del self._picks[len(self._picks) - chosen :]
            needed = self._problem.number(option)
            text = f"needs {_device_count(needed)}, {chosen or 'none'} available {self._picked_text()}"
            if chosen >= needed > 0:
                text = f"with {_device_count(needed)} more, the claim would have over {MAX_RESULTS}"
            yield Obstacle(text=text, claim=label, request=option.name, groups=groups.sorted_groups())

    def _replayed(self) -> World:
        problem = self._problem
        world = World(problem.claims, problem.inventory, problem.suitability, lists=problem.lists)
        for number, pick in enumerate(self._picks):
            world.choose(pick.claim, pick.option, pick.device, 1 << number)
        return world

    def _picked_text(self) -> str:
        devices_by_request: dict[str, list[str]] = {}
        for pick in self._picks:
            devices_by_request.setdefault(pick.option.name, []).append(pick.device.name)
        shown = [f"{name} ({wording.listed(devices)})" for name, devices in devices_by_request.items()]
        return f"beside {', '.join(shown)}" if shown else "together"

    def _refusal(self, world: World, option: Option, claim: int, device: Device) -> str:
        """Return why the device cannot be chosen. If it can, choose it and return ""."""
        if not world.available(option, claim, device):
            return f"taken by {self._taker(device)}"
        if (number := self._excluding_set(world, option, device)) is not None:
            picks = [pick for pick in self._picks if number in dict(pick.groups)]
            return self._texts.groups(device, number, world.common_groups, picks)
        short = self._texts.short_counter(device, world.remaining) if not world.shares[device.index] else None
        if short is not None and self._problem.suitability.draws(option.want, device):
            return self._texts.counter(device, short, world.remaining, [pick for pick in self._picks if short in dict(pick.draws)])
        pick = world.choose(claim, option, device, 1 << len(self._picks))
        if pick is not None:
            self._picks.append(pick)
            return ""
        if world.forbidden:
            return self._constraint(world, option, claim, device)
        return self._capacity(world, option, device)

    def _excluding_set(self, world: World, option: Option, device: Device) -> int | None:
        """Return the counter set whose compatibility groups exclude the device, or None."""
        if world.shares[device.index] or not self._problem.suitability.draws(option.want, device):
            return None
        return suitability.excluding_set(device.groups, world.common_groups)

    def _capacity(self, world: World, option: Option, device: Device) -> str:
        taken = world.taken[device.index]
        for demand in self._problem.suitability.demands(option.want, device) or ():
            left = demand.limit - taken.get(demand.name, 0)
            if demand.amount > left:
                form = device.capacities[demand.name].value.format
                needed, rest = Quantity(nanos=demand.amount, format=form), Quantity(nanos=left, format=form)
                return f"capacity {demand.name}: {needed} needed, {rest} left by the requests before"
        return "not enough capacity is left by the requests before"

    def _taker(self, device: Device) -> str:
        names = [pick.option.name for pick in self._picks if pick.device is device]
        return f"request {', '.join(names)}" if names else "another request"

    def _constraint(self, world: World, option: Option, claim: int, device: Device) -> str:
        """Name the constraint that refuses the device, with the device's value and the chosen values."""
        for spec, chosen in zip(self._problem.claims[claim].constraints, world.chosen[claim], strict=True):
            if not spec.applies(option):
                continue
            value = world.value(spec.attribute, device, option.want)
            clash = bool(value and chosen.elements & value)
            if value is None:
                return f"{spec.kind.value} {spec.attribute}: the device has no such attribute"
            if chosen.devices and clash == (spec.kind is Constraint.DISTINCT):
                return f"{spec.kind.value} {spec.attribute}: {_shown(value)}, while {_shown(chosen.elements)} is chosen"
        return "a constraint"


def _shown(value: Value) -> str:
    return ", ".join(sorted(str(element) for _, element in value)) or "an unknown value"
