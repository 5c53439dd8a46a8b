"""The scheduler's decision: the devices for the claims of one pod on one node. Pure: no I/O, no clock.

Decides as Kubernetes 1.36's structured allocator does (first fit in the order of pools, slices and devices, depth first), without its
known errors unless the caller passes them (:mod:`drakit_cluster.scheduling.allocator.known_errors`).

:func:`allocate` is for one decision. An :class:`Allocator` caches facts about slices and selectors for many decisions over one state of the
slices. Make a new one when a slice or class changes.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError, SelectorPort, UnusablePoolError
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors, search
from drakit_cluster.scheduling.allocator.allocation import Writer
from drakit_cluster.scheduling.allocator.inventory import Inventory
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.pools import Condition, SliceIndex
from drakit_cluster.scheduling.allocator.problem import MAX_RESULTS, Problem
from drakit_cluster.scheduling.allocator.requests import Claim, Classes, Mode, Option, Reader
from drakit_cluster.scheduling.allocator.search import TooLongError
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.allocator.suitability import Suitability, Switches, Verdicts

_MAX_NODES = 128


class Allocator:
    """Allocates over one set of slices and classes."""

    def __init__(
        self,
        slices: Sequence[Object],
        classes: Mapping[str, Object],
        selectors: SelectorPort,
        features: FeatureGates,
        errors: KnownErrors = known_errors.NONE,
    ) -> None:
        """``errors`` are the known errors of a Kubernetes version to repeat."""
        self._errors = errors
        self._reader = Reader(Classes(classes), features)
        self._verdicts = Verdicts(selectors)
        self._features = features
        self._switches = Switches.of(features)
        self._index = SliceIndex(slices, features)
        self._inventories: dict[str, tuple[Object, Inventory]] = {}

    def allocate(
        self, *, claims: Sequence[Object], node: Object, allocated: AllocatedState, new_share_id: Callable[[], str]
    ) -> list[Object] | None:
        """Return one AllocationResult per claim, or None if they do not fit together on ``node``.

        Raises AllocationError if a claim, class or selector makes a decision impossible, and UnusablePoolError if a pool makes it
        impossible on this node. ``allocated`` is not changed.
        """
        problem = self.problem(claims=claims, node=node, allocated=allocated)
        try:
            picks = search.solve(problem)
        except TooLongError:
            return None
        if picks is None:
            self._check_pools(problem)
            return None
        writer = Writer(node, self._features, new_share_id)
        return [writer.write(claim, [pick for pick in picks if pick.claim == claim.number]) for claim in problem.claims]

    def misjudged(self, *, claims: Sequence[Object], node: Object, allocated: AllocatedState) -> str:
        """Return the repeated error that denies devices to claims that fit on ``node``; "" if they do not fit."""
        if not self._errors:
            return ""
        correct_problem = self.repeating(known_errors.NONE).problem(claims=claims, node=node, allocated=allocated)
        if search.solve(correct_problem) is None:
            return ""

        def fails(errors: KnownErrors) -> bool:
            problem = self.repeating(errors).problem(claims=claims, node=node, allocated=allocated)
            return search.solve(problem) is None

        try:
            if not fails(self._errors):
                return f"the claims fit on this node, but {known_errors.advice(KnownError.ALL_STOPS)}"
            blamed = next(
                (kind for kind in KnownError if kind in self._errors and fails(replace(self._errors, kinds=frozenset({kind})))), None
            )
        except TooLongError as error:
            return str(error)
        return f"the claims fit, but Kubernetes {self._errors.version} does not find it: {known_errors.advice(blamed)}"

    def problem(self, *, claims: Sequence[Object], node: Object, allocated: AllocatedState) -> Problem:
        """Return the problem to solve. Raises AllocationError for errors that show before any device is chosen."""
        inventory = self._inventory(node)
        reading = self._reader.read(claims)
        problem = Problem(
            claims=reading.claims,
            requests=[request for claim in reading.claims for request in claim.requests],
            wants=reading.wants,
            inventory=inventory,
            suitability=Suitability(
                inventory,
                allocated,
                node,
                self._verdicts,
                self._switches,
                early=not self._errors,
                beside_shares=self.repeats(KnownError.FORMER_SHARES),
                held_only=self.repeats(KnownError.SHARES_COUNT_FREE),
            ),
            lists=self._features.on(Gate.LIST_TYPE_ATTRIBUTES),
            errors=self._errors,
        )
        for claim in reading.claims:
            _find_every(problem, claim)
            _check_size(problem, claim)
        return problem

    def repeats(self, kind: KnownError) -> bool:
        """Return whether the allocator repeats a known error."""
        return kind in self._errors

    def repeating(self, errors: KnownErrors) -> "Allocator":
        """Return an allocator over the same slices and classes that repeats ``errors``; the two share their caches."""
        other = copy.copy(self)
        vars(other)["_errors"] = errors
        return other

    def _inventory(self, node: Object) -> Inventory:
        """Return the node's inventory, compiled again only when its name or labels changed."""
        name = json_types.text(node, "metadata", "name")
        labels = json_types.mapping(node, "metadata", "labels")
        cached = self._inventories.get(name)
        if cached is None or cached[0] != labels:
            if len(self._inventories) >= _MAX_NODES:
                self._inventories.pop(next(iter(self._inventories)))
            cached = (json_types.copy_object(labels), Inventory(self._index.pools(node), self._features))
            self._inventories[name] = cached
        return cached[1]

    def _check_pools(self, problem: Problem) -> None:
        for pool in problem.inventory.pools:
            if pool.condition is Condition.INVALID:
                raise UnusablePoolError(f"nothing fits, and pool {pool.id} is invalid: {pool.reason}")


def _find_every(problem: Problem, claim: Claim) -> None:
    """Find the devices of requests for all devices. Such a request needs every pool to be usable."""
    for option in _options(claim):
        if option.mode is not Mode.ALL:
            continue
        for pool in problem.inventory.pools:
            if pool.condition is not Condition.USABLE:
                state = pool.condition.name.lower()
                kind = AllocationError if KnownError.ALL_STOPS in problem.errors else UnusablePoolError
                raise kind(f"{claim.label}, request {option.name}: asks for all devices, but pool {pool.id} is {state}: {pool.reason}")
        try:
            problem.every[option] = problem.suitability.all_of(option.want)
        except AllocationError as error:
            raise AllocationError(f"{claim.label}, request {option.name}: {error}") from error


def _check_size(problem: Problem, claim: Claim) -> None:
    least = sum(min(problem.number(option) for option in request.options) for request in claim.requests)
    if least > MAX_RESULTS:
        raise AllocationError(f"{claim.label}: asks for at least {least} devices; a claim may have {MAX_RESULTS}")


def _options(claim: Claim) -> list[Option]:
    return [option for request in claim.requests for option in request.options]
