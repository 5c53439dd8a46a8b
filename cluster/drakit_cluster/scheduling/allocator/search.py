"""Finds the first solution, in Kubernetes' order, without Kubernetes' explosions.

The order is depth first: claims, requests and devices in order, within one request only devices after the last chosen one. The
answer is always the first complete choice in that order. The search skips only what is proven to hold no solution:

- *jumps*: when a step fails, the search goes back to the latest step to blame; alternatives of steps in between cannot help;
- *equals*: a device that corresponds to one that failed at the same step is not tried (:mod:`drakit_cluster.scheduling.allocator.symmetry`);
- *known failures*: a state equal to one that failed is skipped at once;
- *bounds*: counting shows that too little is left (:mod:`drakit_cluster.scheduling.allocator.bounds`).

Most allocations succeed at the first try, so these proofs are prepared only after the first dead end. Kubernetes reports an error as soon
as its search meets one: a selector that fails on a device, or "all devices" of which a constraint forbids one. If that may happen, the
search uses only proofs that lose no error: known failures, and equals unless the order of "all devices" matters.

If the errors of a Kubernetes version are repeated, nothing is proven: a tried device leaves traces, so every device is tried.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from itertools import islice

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.scheduling.allocator.bounds import Bounds
from drakit_cluster.scheduling.allocator.flawed_world import FlawedWorld
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.problem import MAX_RESULTS, Problem
from drakit_cluster.scheduling.allocator.requests import Mode, Option
from drakit_cluster.scheduling.allocator.symmetry import Symmetry, Token
from drakit_cluster.scheduling.allocator.world import Pick, World


class TooLongError(AllocationError):
    """A search that proves nothing took too many steps."""


class _DeadEnd(Exception):  # noqa: N818 - not an error: the first try ended.
    pass


class _Step:
    """One decision: the alternative of a request (``option`` is None), or the ``number``-th device of an option."""

    __slots__ = ("blame", "candidates", "equals", "key", "number", "option", "oversize", "pick", "request", "signatures", "start")

    def __init__(self, request: int, option: Option | None, number: int, start: int) -> None:
        self.request = request
        self.option = option
        self.number = number
        self.start = start
        self.blame = 0
        self.pick: Pick | None = None
        self.oversize = True
        self.candidates: Iterator[Device] = iter(())
        self.key: Hashable = None
        self.signatures: dict[int, Token] = {}
        self.equals: dict[Hashable, int] = {}


class Search:
    """One run over a problem. Without ``learning`` the first dead end raises, unless the problem repeats known errors."""

    def __init__(self, problem: Problem, *, learning: bool) -> None:
        self._problem = problem
        self._world = (
            FlawedWorld(problem) if problem.errors else World(problem.claims, problem.inventory, problem.suitability, lists=problem.lists)
        )
        self._steps: list[_Step] = []
        forbids_all = learning and _may_forbid_all(problem)
        self._symmetry = Symmetry(problem, self._world, exchangeable=not forbids_all) if learning else None
        self._bounds = Bounds(problem, self._world, self._symmetry) if self._symmetry is not None else None
        self._may_jump = self._symmetry is not None and not self._symmetry.raises and not forbids_all
        self._failed: set[Hashable] = set()
        self._counted = [any(r.prioritized for r in claim.requests) for claim in problem.claims] if learning else []
        self.visited = 0
        """Steps opened, a measure of work."""

    def run(self) -> list[Pick] | None:
        """Return the picks in order, or None if there is no solution."""
        if self._open_request(0):
            return []
        while self._steps:
            step = self._steps[-1]
            if self._advance(step):
                if self._descend(step):
                    return [step.pick for step in self._steps if step.pick is not None]
            else:
                self._exhausted(step)
        return None

    def _advance(self, step: _Step) -> bool:
        """Make the step's next choice; return False if none is left."""
        if step.option is None:
            step.number += 1
            return step.number < len(self._problem.requests[step.request].options)
        claim = self._problem.requests[step.request].claim
        bit = 1 << (len(self._steps) - 1)
        world, suitability = self._world, self._problem.suitability
        world.blame = 0
        must = step.option.mode is Mode.ALL
        for device in step.candidates:
            if not world.available(step.option, claim, device) or not suitability.suits(step.option.want, device):
                continue
            equal = self._equal(step, device)
            if equal is not None and equal in step.equals:
                world.blame |= step.equals[equal] | self._touching(device)
                continue
            pick = world.choose(claim, step.option, device, bit)
            if pick is not None:
                self._record(step, device, equal, pick)
                return True
            if must and world.forbidden:
                raise AllocationError(self._forbidden(claim, step.option, device))
        step.blame |= world.blame
        return False

    def _record(self, step: _Step, device: Device, equal: Hashable, pick: Pick) -> None:
        step.blame |= self._world.blame
        step.pick = pick
        if self._symmetry is not None:
            self._symmetry.changed(device)
            if equal is not None:
                step.equals[equal] = self._touching(device) & ~pick.bit

    def _forbidden(self, claim: int, option: Option, device: Device) -> str:
        """Return the error of a claim for all devices whose own constraint forbids one of them."""
        return f"{self._problem.claims[claim].label}, request {option.name}: asks for all devices, but a constraint forbids {device.id}"

    def _equal(self, step: _Step, device: Device) -> Hashable:
        """Return the key that the device shares with corresponding devices; None if unknown."""
        if self._symmetry is None or step.option is None or step.option.mode is Mode.ALL:
            return None
        block = self._symmetry.block_of[device.index]
        return (step.signatures[block.number], block.places[device.index])

    def _touching(self, device: Device) -> int:
        """Return the steps that chose a device of the same block or affect a constraint."""
        if self._symmetry is None:
            return 0
        mask = 0
        for other in self._symmetry.block_of[device.index].devices:
            mask |= self._world.touched_by[other.index]
        for masks in self._world.bound_by:
            for steps in masks:
                mask |= steps
        return mask

    def _descend(self, step: _Step) -> bool:
        """Open the next step after a choice; return True when everything is allocated."""
        request = self._problem.requests[step.request]
        if step.option is None:
            return self._open_option(step.request, request.options[step.number])
        if step.number + 1 < self._problem.number(step.option):
            start = step.pick.device.index + 1 if step.pick is not None else 0
            return self._open_step(step.request, step.option, step.number + 1, start)
        return self._open_request(step.request + 1)

    def _open_request(self, request: int) -> bool:
        if request == len(self._problem.requests):
            return True
        options = self._problem.requests[request].options
        if not self._problem.requests[request].prioritized:
            return self._open_option(request, options[0])
        self._push(_Step(request, None, -1, 0))
        return False

    def _open_option(self, request: int, option: Option) -> bool:
        count, claim = self._problem.number(option), self._problem.requests[request].claim
        chosen = 1 << (len(self._steps) - 1) if self._problem.requests[request].prioritized else 0
        if option.mode is Mode.ALL and not count:
            self._go_back(chosen, request, oversize=False)
            return False
        if count <= 0:
            return self._open_request(request + 1)
        if self._world.counts[claim] + count > MAX_RESULTS:
            self._go_back(self._choices(claim), request, oversize=True)
            return False
        return self._open_step(request, option, 0, 0)

    def _open_step(self, request: int, option: Option, number: int, start: int) -> bool:
        step = _Step(request, option, number, start)
        if option.mode is Mode.ALL:
            step.candidates = iter((self._problem.every[option][number],))
        elif self._symmetry is None:
            step.candidates = self._problem.suitability.selected(option.want, start)
        else:
            devices = self._symmetry.suiting(option.want)
            step.candidates = islice(devices, bisect_left(devices, start, key=lambda device: device.index), None)
        self._push(step)
        return False

    def _push(self, step: _Step) -> None:
        self.visited += 1
        if self._symmetry is None or self._bounds is None:
            if self._problem.errors and self.visited > self._problem.errors.max_steps:
                raise TooLongError(
                    f"Kubernetes {self._problem.errors.version} tries over {self._problem.errors.max_steps} combinations, and gives up after 10 s"
                )
            self._steps.append(step)
            return
        if self._may_jump and step.number <= 0 and self._bounds.short(step.request):
            self._go_back(self._relevant(step), step.request, oversize=False)
            return
        step.signatures, common = self._symmetry.signatures(step.request, step.option, step.start)
        claim = self._problem.requests[step.request].claim
        results = self._world.counts[claim] if self._counted[claim] else 0
        step.key = (step.request, step.option, step.number, results, common, tuple(sorted(step.signatures.values(), key=hash)))
        if step.key in self._failed:
            self._go_back(self._relevant(step), step.request, oversize=False)
            return
        self._steps.append(step)

    def _relevant(self, step: _Step) -> int:
        """Return the earlier steps on which the failure of a state like this can depend."""
        mask = self._choices(self._problem.requests[step.request].claim)
        if self._symmetry is not None:
            for block in self._symmetry.relevant(step.request):
                for device in block.devices:
                    mask |= self._world.touched_by[device.index]
        for masks in self._world.bound_by:
            for steps in masks:
                mask |= steps
        return mask | self._predecessor(step)

    def _predecessor(self, step: _Step) -> int:
        """Return the step before, if it chose the alternative or the position where this one starts."""
        if step.option is None or not self._steps:
            return 0
        depends = step.number > 0 or self._problem.requests[step.request].prioritized
        return 1 << (self._depth(step) - 1) if depends else 0

    def _depth(self, step: _Step) -> int:
        return len(self._steps) - 1 if self._steps and self._steps[-1] is step else len(self._steps)

    def _choices(self, claim: int) -> int:
        """Return the steps that decided on alternatives of the claim."""
        mask = 0
        for depth, step in enumerate(self._steps):
            if step.option is None and self._problem.requests[step.request].claim == claim:
                mask |= 1 << depth
        return mask

    def _exhausted(self, step: _Step) -> None:
        oversize = step.option is None and step.oversize
        blame = step.blame | self._predecessor(step)
        self._steps.pop()
        if self._symmetry is not None and not oversize:
            self._failed.add(step.key)
        self._go_back(blame, step.request, oversize=oversize)

    def _go_back(self, blame: int, request: int, *, oversize: bool) -> None:
        """Undo steps down to the one that can change the failure."""
        if self._symmetry is None and not self._problem.errors:
            raise _DeadEnd
        claim = self._problem.requests[request].claim
        while self._steps:
            step, bit = self._steps[-1], 1 << (len(self._steps) - 1)
            if step.pick is not None:
                self._world.undo(step.pick)
                if self._symmetry is not None:
                    self._symmetry.changed(step.pick.device)
                step.pick = None
            if oversize and self._problem.requests[step.request].claim != claim:
                blame, oversize = 0, False
            if step.option is None:
                step.oversize = step.oversize and oversize
            if (step.option is None) if oversize else (not self._may_jump or blame & bit):
                step.blame |= blame & ~bit
                return
            self._steps.pop()
            if not oversize:
                self._failed.add(step.key)


def _may_forbid_all(problem: Problem) -> bool:
    return any(
        option.mode is Mode.ALL and any(spec.applies(option) for spec in claim.constraints)
        for claim in problem.claims
        for request in claim.requests
        for option in request.options
    )


def solve(problem: Problem) -> list[Pick] | None:
    """Return the first solution, or None. Raises AllocationError if Kubernetes' search would meet an error."""
    try:
        return Search(problem, learning=False).run()
    except _DeadEnd:
        return Search(problem, learning=True).run()
