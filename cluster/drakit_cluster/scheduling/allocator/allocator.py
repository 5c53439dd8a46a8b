"""The scheduler's decision: which devices the claims of one pod get on one node. Pure: no I/O, no clock.

Decides as Kubernetes 1.36's structured allocator does (first fit in the order of pools, slices and devices, depth first), without its
known errors unless they are asked for (:mod:`drakit_cluster.scheduling.allocator.known_errors`).

:func:`allocate` is for one decision. An :class:`Allocator` keeps what slices and selectors teach for many decisions over one state of the
slices: make a new one when a slice or class changes.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import AllocationError, SelectorPort
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors, search
from drakit_cluster.scheduling.allocator.allocation import Writer
from drakit_cluster.scheduling.allocator.inventory import Inventory
from drakit_cluster.scheduling.allocator.known_errors import KnownError, KnownErrors
from drakit_cluster.scheduling.allocator.pools import Condition, SliceIndex
from drakit_cluster.scheduling.allocator.requests import Claim, Classes, Mode, Option, Reader
from drakit_cluster.scheduling.allocator.search import TooLongError
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.allocator.suitability import MAX_RESULTS, Problem, Suitability, Switches, Verdicts

_KEPT_NODES = 128


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
        """``errors`` are those of a Kubernetes version, to be repeated."""
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
        """Return one AllocationResult per claim, or None where they do not fit together on ``node``.

        Raise AllocationError where a claim, class, selector or pool makes a decision impossible. Nothing is recorded in ``allocated``.
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
        """Return by which of the repeated errors claims that fit on ``node`` do not get their devices; "" where they do not fit."""
        if not self._errors:
            return ""
        right = self.repeating(known_errors.NONE).problem(claims=claims, node=node, allocated=allocated)
        if search.solve(right) is None:
            return ""

        def fails(errors: KnownErrors) -> bool:
            problem = self.repeating(errors).problem(claims=claims, node=node, allocated=allocated)
            return search.solve(problem) is None

        try:
            blamed = next(
                (kind for kind in KnownError if kind in self._errors and fails(replace(self._errors, kinds=frozenset({kind})))), None
            )
        except TooLongError as error:
            return str(error)
        return f"the claims fit, but Kubernetes 1.36 does not find it: {known_errors.advice(blamed)}"

    def problem(self, *, claims: Sequence[Object], node: Object, allocated: AllocatedState) -> Problem:
        """Return what there is to solve. Raise AllocationError for what is wrong before any device is chosen."""
        inventory = self._inventory(node)
        read = self._reader.read(claims)
        problem = Problem(
            claims=read.claims,
            requests=[request for claim in read.claims for request in claim.requests],
            wants=read.wants,
            inventory=inventory,
            suitability=Suitability(inventory, allocated, node, self._verdicts, self._switches, early=not self._errors),
            lists=self._features.on(Gate.LIST_TYPE_ATTRIBUTES),
            errors=self._errors,
        )
        for claim in read.claims:
            _find_every(problem, claim)
            _check_size(problem, claim)
        return problem

    def repeating(self, errors: KnownErrors) -> "Allocator":
        """Return an allocator over the same slices and classes that repeats ``errors``; the two share what they learn."""
        other = copy.copy(self)
        vars(other)["_errors"] = errors
        return other

    def _inventory(self, node: Object) -> Inventory:
        """Return the node's inventory, compiled again only when its name or labels changed."""
        name = json_types.text(node, "metadata", "name")
        labels = json_types.mapping(node, "metadata", "labels")
        known = self._inventories.get(name)
        if known is None or known[0] != labels:
            if len(self._inventories) >= _KEPT_NODES:
                self._inventories.pop(next(iter(self._inventories)))
            known = (json_types.copy_object(labels), Inventory(self._index.pools(node)))
            self._inventories[name] = known
        return known[1]

    def _check_pools(self, problem: Problem) -> None:
        for pool in problem.inventory.pools:
            if pool.condition is Condition.INVALID:
                raise AllocationError(f"nothing fits, and pool {pool.id} is invalid: {pool.reason}")


def _find_every(problem: Problem, claim: Claim) -> None:
    """Find the devices of requests for all, which must know every pool."""
    for option in _options(claim):
        if option.mode is not Mode.ALL:
            continue
        for pool in problem.inventory.pools:
            if pool.condition is not Condition.USABLE:
                state = pool.condition.name.lower()
                raise AllocationError(
                    f"{claim.label}, request {option.name}: asks for all devices, but pool {pool.id} is {state}: {pool.reason}"
                )
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


def allocate(
    *,
    claims: Sequence[Object],
    slices: Sequence[Object],
    classes: Mapping[str, Object],
    node: Object,
    allocated: AllocatedState,
    selectors: SelectorPort,
    features: FeatureGates,
    new_share_id: Callable[[], str],
) -> list[Object] | None:
    """Decide once: see :meth:`Allocator.allocate`. ``classes`` are DeviceClasses by name."""
    allocator = Allocator(slices, classes, selectors, features)
    return allocator.allocate(claims=claims, node=node, allocated=allocated, new_share_id=new_share_id)
