"""Binding conditions: whether the devices of allocated claims are ready for their pod to be bound. Pure. Source: KEP-5007.

A result is ready when all its bindingConditions are True in the entry of its device in status.devices. It has failed when one of its
bindingFailureConditions is, or when it is not ready ``timeout`` seconds after the allocation.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

_IDENTITY = ("driver", "pool", "device", "shareID")


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A claim whose devices will not be ready, and why."""

    claim: Object
    message: str


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The state of binding: failures, pending conditions, and the seconds until the first one times out."""

    failed: tuple[Failed, ...] = ()
    pending: tuple[str, ...] = ()
    seconds: float = 0.0


def of_claims(claims: Iterable[Object], now: datetime.datetime, timeout: float) -> Readiness:
    """Return how far the devices of ``claims`` are. Claims without an allocation or binding conditions are ready."""
    failed: list[Failed] = []
    pending: list[str] = []
    seconds_left: list[float] = []
    for claim in claims:
        label = f"claim {json_types.text(claim, 'metadata', 'name')}"
        missing, broken = _conditions(claim)
        remaining = timeout - _age(claim, now)
        if broken:
            failed.append(Failed(claim=claim, message=f"{label}: {', '.join(broken)}"))
        elif missing and remaining <= 0:
            failed.append(Failed(claim=claim, message=f"{label}: not true {timeout:g} s after the allocation: {', '.join(missing)}"))
        elif missing:
            pending.append(f"{label}: {', '.join(missing)}")
            seconds_left.append(remaining)
    return Readiness(failed=tuple(failed), pending=tuple(pending), seconds=min(seconds_left, default=0.0))


def _conditions(claim: Object) -> tuple[list[str], list[str]]:
    """Return the binding conditions that are not True, and the failure conditions that are, with their devices."""
    true_by_device = {_identity(status): _true(status) for status in json_types.objects(claim, "status", "devices")}
    missing: list[str] = []
    broken: list[str] = []
    for result in json_types.objects(pod_claims.allocation(claim), "devices", "results"):
        true_types, device = true_by_device.get(_identity(result), set()), json_types.text(result, "device")
        missing += [f"{name} of {device}" for name in json_types.strings(result, "bindingConditions") if name not in true_types]
        broken += [f"{name} of {device}" for name in json_types.strings(result, "bindingFailureConditions") if name in true_types]
    return missing, broken


def _identity(device: Object) -> tuple[str, ...]:
    return tuple(json_types.text(device, field) for field in _IDENTITY)


def _true(status: Object) -> set[str]:
    return {
        json_types.text(condition, "type") for condition in json_types.objects(status, "conditions") if condition.get("status") == "True"
    }


def _age(claim: Object, now: datetime.datetime) -> float:
    """Return the seconds since the allocation; 0 if it has no readable timestamp."""
    try:
        since = datetime.datetime.fromisoformat(json_types.text(pod_claims.allocation(claim), "allocationTimestamp"))
    except ValueError:
        return 0.0
    return (now - since).total_seconds() if since.tzinfo else 0.0
