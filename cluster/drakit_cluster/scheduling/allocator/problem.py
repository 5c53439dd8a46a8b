"""One allocation as a problem: the constant inputs of a search."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drakit_cluster.scheduling.allocator.inventory import Device, Inventory
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.allocator.requests import Claim, Mode, Option, Request, Want
from drakit_cluster.scheduling.allocator.suitability import Suitability

MAX_RESULTS = 32
"""Devices per claim: the API's limit on allocation results."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """The constant inputs of a search. ``every`` holds the devices of each option that requests all."""

    claims: Sequence[Claim]
    requests: Sequence[Request]
    wants: Sequence[Want]
    inventory: Inventory
    suitability: Suitability
    every: dict[Option, list[Device]] = field(default_factory=dict)
    lists: bool
    """Whether attributes may be lists."""
    errors: KnownErrors
    """The errors of a Kubernetes version that the decision repeats."""

    def number(self, option: Option) -> int:
        """Return how many devices the option asks for."""
        return len(self.every[option]) if option.mode is Mode.ALL else option.count
