"""How many pods each ReplicaSet of a Deployment should have: rolling updates, replacement of all, and scaling while both exist.

Source: the Deployment controller of Kubernetes (apps/v1 DeploymentStrategy, RollingUpdateDeployment).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.objects.json_types import Json


@dataclass(frozen=True, kw_only=True)
class Count:
    """One ReplicaSet: the pods that it should have, that it has, and that are available."""

    name: str
    wanted: int
    available: int = 0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A Deployment's ``replicas``, and how many pods more and fewer an update may have."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def maximum(self) -> int:
        return self.replicas + self.surge

    @property
    def minimum_available(self) -> int:
        return self.replicas - self.unavailable


def rounded_up(amount: Json, total: int) -> int:
    """Return a number or a percentage of ``total``; 0 for neither."""
    return math.ceil(_amount(amount, total))


def _amount(amount: Json, total: int) -> float:
    if isinstance(amount, str) and amount.endswith("%") and amount[:-1].isdecimal():
        return int(amount[:-1]) * total / 100
    return amount if isinstance(amount, int) else 0


def limits(strategy: Mapping[str, Json], replicas: int) -> Limits:
    """Return the limits of a strategy. maxSurge is rounded up and maxUnavailable down; if both are 0, one pod may be unavailable."""
    rolling = strategy.get("rollingUpdate") if strategy.get("type") != "Recreate" else None
    if not isinstance(rolling, dict):
        return Limits(replicas=replicas, surge=0, unavailable=0)
    surge = rounded_up(rolling.get("maxSurge"), replicas)
    unavailable = math.floor(_amount(rolling.get("maxUnavailable"), replicas))
    return Limits(replicas=replicas, surge=surge, unavailable=min(replicas, unavailable if surge or unavailable else 1))


def rolled(limits: Limits, new: Count, old: Sequence[Count]) -> dict[str, int]:
    """Return the next step of a rolling update: the ReplicaSets whose number changes. ``old`` is in order of age.

    The new one grows as far as the maximum allows. Only if it cannot, old ones shrink: first by pods that are not available, then by
    available ones as far as the minimum allows.
    """
    if new.wanted > limits.replicas:
        return {new.name: limits.replicas}
    total = new.wanted + sum(one.wanted for one in old)
    growth = min(limits.maximum - total, limits.replicas - new.wanted)
    if growth > 0:
        return {new.name: new.wanted + growth}
    may_go = total - limits.minimum_available - (new.wanted - new.available)
    if may_go <= 0:
        return {}
    wanted = {one.name: one.wanted for one in old}
    for one in old:
        unhealthy = min(may_go, one.wanted - one.available)
        if unhealthy > 0:
            wanted[one.name] -= unhealthy
            may_go -= unhealthy
    spare = new.available + sum(one.available for one in old) - limits.minimum_available
    for one in old:
        fewer = min(spare, wanted[one.name])
        if fewer > 0:
            wanted[one.name] -= fewer
            spare -= fewer
    return {one.name: wanted[one.name] for one in old if wanted[one.name] != one.wanted}


def scaled(limits: Limits, sets: Sequence[Count], newest: Count | None) -> dict[str, int]:
    """Return the numbers after ``replicas`` of the Deployment changed, or while it is paused: in proportion, the largest set first."""
    active = [one for one in sets if one.wanted]
    if len(active) <= 1:
        alone = active[0] if active else newest
        return {alone.name: limits.replicas} if alone is not None and alone.wanted != limits.replicas else {}
    if newest is not None and newest.wanted == newest.available == limits.replicas:
        return {one.name: 0 for one in active if one is not newest}
    total = sum(one.wanted for one in active)
    remaining = limits.maximum - total
    ordered = sorted(active, key=lambda one: (one is not newest, -one.wanted) if remaining > 0 else (False, -one.wanted))
    wanted = {}
    for one in ordered:
        share = round(one.wanted * limits.maximum / total) - one.wanted
        change = max(remaining, share, -one.wanted) if remaining < 0 else min(remaining, share)
        wanted[one.name] = one.wanted + change
        remaining -= change
    wanted[ordered[0].name] = max(0, wanted[ordered[0].name] + remaining)
    return {one.name: wanted[one.name] for one in ordered if wanted[one.name] != one.wanted}
