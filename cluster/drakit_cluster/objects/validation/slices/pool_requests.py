"""Rules of ResourcePoolStatusRequests."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema.devices import POOL_REQUEST
from drakit_cluster.objects.validation import conditions, failure, fields, names, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_ERROR_BYTES = 256
_REQUEST_SPEC, _REQUEST_STATUS = (POOL_REQUEST.fields[name] for name in ("spec", "status"))


def create(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new ResourcePoolStatusRequest."""
    spec = json_types.mapping(new, "spec")
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    yield from rules.if_set(rules.of_text(names.pool), "poolName")(spec, "spec")
    yield from rules.if_set(rules.of_text(names.fully_qualified), "defaultPartitionTypeAttribute")(spec, "spec")
    limit = spec.get("limit")
    if isinstance(limit, int) and not 1 <= limit <= MAX_POOLS:
        yield failure.invalid("spec.limit", limit, f"must be from 1 to {MAX_POOLS}")


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec."""
    if not fields.same(_REQUEST_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def _some_slices(count: Json, path: str) -> Iterator[Failure]:
    if isinstance(count, int) and count < 1:
        yield failure.invalid(path, count, "must be 1 or more")


_NOT_NEGATIVE = "must be 0 or more"
_COUNTED_POOL = rules.all_of(
    rules.text(names.driver, "driver"),
    rules.text(names.pool, "poolName"),
    rules.if_set(rules.of_text(names.subdomain), "nodeName"),
    rules.number(0, _NOT_NEGATIVE, "generation", "totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"),
    rules.if_set(_some_slices, "resourceSliceCount"),
    rules.size(MAX_ERROR_BYTES, "validationError"),
)
_ANSWER = rules.all_of(rules.number(0, _NOT_NEGATIVE, "poolCount"), rules.items("pools", _COUNTED_POOL, limit=MAX_POOLS))


def update_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a status. It is written once: a second, different status fails."""
    status, old_status = new.get("status"), old.get("status")
    if old_status is not None:
        if not fields.same(_REQUEST_STATUS, status, old_status):
            yield failure.immutable("status", status)
    elif status is not None:
        yield from _ANSWER(status, "status")
        yield from conditions.check(status, "status", limit=MAX_CONDITIONS)
