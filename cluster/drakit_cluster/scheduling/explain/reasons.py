"""Why claims do not fit: for every request, each pool and device that cannot serve it, and the first thing that stands in the way.

Read from the world before anything is chosen. A request without a suitable device is named with all refusals; where every request alone
could be served, they do not fit together, and that is said instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from drakit_cluster.objects.devices import AllocationError
from drakit_cluster.objects.quantity import Quantity
from drakit_cluster.scheduling.allocator.inventory import Device
from drakit_cluster.scheduling.allocator.pools import Condition
from drakit_cluster.scheduling.allocator.problem import Problem
from drakit_cluster.scheduling.allocator.requests import Option, Want
from drakit_cluster.scheduling.allocator.suitability import Refusal


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One obstacle. ``request`` and ``device`` are empty where it concerns a whole pool or all requests."""

    text: str
    claim: str = ""
    request: str = ""
    device: str = ""


def explain(problem: Problem) -> list[Reason]:
    """Return the obstacles in the order of pools, claims, requests and devices."""
    reasons = [
        Reason(text=f"pool {pool.id} is {pool.condition.name.lower()}: {pool.reason}")
        for pool in problem.inventory.pools
        if pool.condition is not Condition.USABLE
    ]
    for claim in problem.claims:
        for request in claim.requests:
            for option in request.options:
                reasons += _of_option(problem, claim.label, option)
    if not any(reason.request for reason in reasons):
        reasons.append(Reason(text="every request could be served alone, but not all together"))
    return reasons


def _of_option(problem: Problem, claim: str, option: Option) -> Iterator[Reason]:
    verdicts = [(device, problem.suitability.verdict(option.want, device)) for device in problem.inventory.devices]
    suitable = sum(verdict is None for _, verdict in verdicts)
    needed = problem.number(option)
    if suitable >= max(needed, 1):
        return
    text = f"needs {needed or 'all'} device{'' if needed == 1 else 's'}, {suitable or 'none'} suit{'' if suitable > 1 else 's'}"
    yield Reason(text=text, claim=claim, request=option.name)
    for device, verdict in verdicts:
        if verdict is not None:
            yield Reason(text=_text(problem, option.want, device, verdict), claim=claim, request=option.name, device=str(device.id))


def _text(problem: Problem, want: Want, device: Device, verdict: Refusal | AllocationError) -> str:
    if verdict is Refusal.COUNTERS:
        return f"{verdict.value}: {_short_counters(problem, device)}"
    if verdict is Refusal.CAPACITY:
        return f"{verdict.value}: {_short_capacity(problem, want, device)}"
    return str(verdict) if isinstance(verdict, AllocationError) else verdict.value


def _short_counters(problem: Problem, device: Device) -> str:
    left, counters = problem.suitability.remaining, problem.inventory.counters
    short = [
        f"{pool.id}: {set_name}.{name} has {Quantity(nanos=left[position])} left, {Quantity(nanos=amount)} needed"
        for position, amount in device.draws
        if left[position] < amount
        for pool, set_name, name in [counters[position]]
    ]
    return "; ".join(short) or "another counter of the pool is overdrawn"


def _short_capacity(problem: Problem, want: Want, device: Device) -> str:
    missing = sorted(name for name in want.amounts if name not in device.capacities)
    if missing:
        return f"the device has no {', '.join(missing)}"
    room = problem.suitability.room(device)
    return "; ".join(
        f"{name}: {want.amounts.get(name, 'the default')} requested, {Quantity(nanos=room[name])} of {capacity.value} left"
        for name, capacity in device.capacities.items()
    )
