"""Rules of ResourcePoolStatusRequests: a spec that never changes, and a status that is written once."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.schema import devices
from drakit_cluster.objects.validation import each, failure, fields, metadata, names
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_ERROR_BYTES = 256

_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")
_SPEC, _STATUS = (devices.POOL_REQUEST.fields[name] for name in ("spec", "status"))


def create(new: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of a new request."""
    spec = json_types.mapping(new, "spec")
    yield from names.driver(json_types.text(spec, "driver"), "spec.driver")
    if "poolName" in spec:
        yield from names.pool(json_types.text(spec, "poolName"), "spec.poolName")
    limit = spec.get("limit")
    if isinstance(limit, int) and not 1 <= limit <= MAX_POOLS:
        yield failure.invalid("spec.limit", limit, f"must be from 1 to {MAX_POOLS}")


def update(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failure of a changed spec."""
    if not fields.same(_SPEC, new.get("spec"), old.get("spec")):
        yield failure.immutable("spec", new.get("spec"))


def update_status(new: Object, old: Object, _context: Context) -> Iterator[Failure]:
    """Yield the failures of an answer, or of a second one."""
    status, before = new.get("status"), old.get("status")
    if before is not None:
        if not fields.same(_STATUS, status, before):
            yield failure.immutable("status", status)
    elif status is not None:
        yield from _not_negative(status, "poolCount", "status")
        yield from each.item(json_types.items(status, "pools"), "status.pools", _pool, limit=MAX_POOLS)
        yield from metadata.check_conditions(json_types.items(status, "conditions"), "status.conditions", limit=MAX_CONDITIONS)


def _pool(pool: Json, path: str) -> Iterator[Failure]:
    yield from names.driver(json_types.text(pool, "driver"), f"{path}.driver")
    yield from names.pool(json_types.text(pool, "poolName"), f"{path}.poolName")
    if (node := json_types.at(pool, "nodeName")) is not None:
        yield from names.subdomain(str(node), f"{path}.nodeName")
    for field in ("generation", *_COUNTS):
        yield from _not_negative(pool, field, path)
    slices = json_types.at(pool, "resourceSliceCount")
    if isinstance(slices, int) and slices < 1:
        yield failure.invalid(f"{path}.resourceSliceCount", slices, "must be 1 or more")
    if len(json_types.text(pool, "validationError").encode()) > MAX_ERROR_BYTES:
        yield failure.too_long(f"{path}.validationError", MAX_ERROR_BYTES)


def _not_negative(holder: Json, field: str, path: str) -> Iterator[Failure]:
    if (number := json_types.number(holder, field)) < 0:
        yield failure.invalid(f"{path}.{field}", number, "must be 0 or more")
