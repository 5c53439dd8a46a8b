"""Rules of ResourceClaims and their templates."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import claims
from drakit_cluster.objects.validation import failure, fields, metadata, rules
from drakit_cluster.objects.validation.claims import allocations, requests
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_USERS = 256


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new claim's spec."""
    yield from requests.check(json_types.at(new, "spec", "devices"), "spec.devices", context)
    yield from _consumer(new.get("spec"), "spec")


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec. An unchanged spec is not checked again: it passed the rules that applied when it was stored."""
    if not fields.same(claims.CLAIM_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def create_template(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new template's spec."""
    yield from metadata.template(json_types.at(new, "spec", "metadata"), "spec.metadata")
    yield from requests.check(json_types.at(new, "spec", "spec", "devices"), "spec.spec.devices", context)
    yield from _consumer(json_types.at(new, "spec", "spec"), "spec.spec")


def update_template(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed template."""
    if not fields.same(claims.TEMPLATE_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def update_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed status."""
    allocation, old_allocation = json_types.at(new, "status", "allocation"), json_types.at(old, "status", "allocation")
    yield from _users(new, old, allocation)
    yield from allocations.statuses(new.get("status"), "status")
    yield from _allocation(allocation, old_allocation, json_types.at(new, "spec", "devices"))


def _allocation(allocation: Json, old_allocation: Json, requested_devices: Json) -> Iterator[Failure]:
    """An allocation may be set and removed, but not changed. An unchanged allocation is not checked again."""
    path = "status.allocation"
    if allocation is None:
        return
    if old_allocation is None:
        yield from allocations.check(allocation, requested_devices, path)
    elif not fields.same(claims.ALLOCATION, allocation, old_allocation):
        yield failure.immutable(path, allocation)


_identity = rules.by("apiGroup", "resource", "name", "uid")


def _users(new: Object, old: Object, allocation: Json) -> Iterator[Failure]:
    path, users = "status.reservedFor", json_types.items(new, "status", "reservedFor")
    yield from rules.each(users, path, _user, limit=MAX_USERS, key=rules.by("uid"))
    if users and allocation is None:
        yield failure.forbidden(path, "may not be specified when allocation is not set: allocate and reserve in one update")
    elif json_types.text(new, "metadata", "deletionTimestamp"):
        old_users = {_identity(user) for user in json_types.items(old, "status", "reservedFor")}
        if any(_identity(user) not in old_users for user in users):
            yield failure.forbidden(path, "new entries may not be added while deletionTimestamp is set")


def _user(user: Json, path: str) -> Iterator[Failure]:
    for field in ("resource", "name", "uid"):
        if not json_types.text(user, field):
            yield failure.required(f"{path}.{field}", "must identify the object that uses the claim")


_consumer = rules.if_set(_user, "reservedFor")
"""The rule for the workload that a claim is reserved for, if it names one (KEP-5194)."""
