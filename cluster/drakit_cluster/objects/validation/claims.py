"""Rules of ResourceClaims and their templates."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import claims
from drakit_cluster.objects.validation import allocations, each, equality, failure, metadata, requests
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_USERS = 256


def create(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new claim's spec."""
    yield from requests.check(json_types.at(new, "spec", "devices"), "spec.devices", context)
    yield from _consumer(json_types.at(new, "spec", "reservedFor"), "spec.reservedFor")


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec. One that did not change is not looked at again: it obeyed the rules of its time."""
    if not equality.same(claims.CLAIM_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def create_template(new: Object, context: Context) -> Iterator[Failure]:
    """Yield the failures of a new template's spec."""
    yield from metadata.template(json_types.at(new, "spec", "metadata"), "spec.metadata")
    yield from requests.check(json_types.at(new, "spec", "spec", "devices"), "spec.spec.devices", context)
    yield from _consumer(json_types.at(new, "spec", "spec", "reservedFor"), "spec.spec.reservedFor")


def update_template(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed template."""
    if not equality.same(claims.TEMPLATE_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def update_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a changed status."""
    allocation, before = json_types.at(new, "status", "allocation"), json_types.at(old, "status", "allocation")
    yield from _users(new, old, allocation)
    yield from allocations.statuses(json_types.items(new, "status", "devices"), allocation, "status.devices")
    yield from _allocation(allocation, before, json_types.at(new, "spec", "devices"))


def _allocation(allocation: Json, before: Json, wanted: Json) -> Iterator[Failure]:
    """An allocation may be set and removed, never changed; one that stays is not looked at again."""
    path = "status.allocation"
    if allocation is None:
        return
    if before is None:
        yield from allocations.check(allocation, wanted, path)
    elif not equality.same(claims.ALLOCATION, allocation, before):
        yield failure.immutable(path, allocation)


def _users(new: Object, old: Object, allocation: Json) -> Iterator[Failure]:
    path, users = "status.reservedFor", json_types.items(new, "status", "reservedFor")
    yield from each.item(users, path, _user, limit=MAX_USERS, key=_uid)
    if users and allocation is None:
        yield failure.forbidden(path, "may not be specified when allocation is not set: allocate and reserve in one update")
    elif json_types.text(new, "metadata", "deletionTimestamp"):
        known = {_identity(user) for user in json_types.items(old, "status", "reservedFor")}
        if any(_identity(user) not in known for user in users):
            yield failure.forbidden(path, "new entries may not be added while deletionTimestamp is set")


def _consumer(user: Json, path: str) -> Iterator[Failure]:
    """A workload that the claim is for, if it names one (KEP-5194)."""
    if user is not None:
        yield from _user(user, path)


def _identity(user: Json) -> tuple[str, ...]:
    return tuple(json_types.text(user, field) for field in ("apiGroup", "resource", "name", "uid"))


def _uid(user: Json) -> str:
    return json_types.text(user, "uid")


def _user(user: Json, path: str) -> Iterator[Failure]:
    for field in ("resource", "name", "uid"):
        if not json_types.text(user, field):
            yield failure.required(f"{path}.{field}", "must identify the object that uses the claim")
