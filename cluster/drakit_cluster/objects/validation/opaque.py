"""Rules of raw JSON that only a driver understands, and of the configuration that holds it."""

import json
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_BYTES = 10 * 1024
"""Of parameters, and of a device status' data.

Kubernetes counts the bytes that the client sent. They are gone once decoded, so JSON is counted here as most clients outside Go write
it: with a space after each colon and comma.
"""


def configuration(holder: Json, path: str, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of ``holder.opaque``. ``stored`` parameters may be larger: they are older than the limit."""
    opaque = json_types.at(holder, "opaque")
    if opaque is None:
        yield failure.required(f"{path}.opaque", "a configuration is a driver's opaque parameters")
        return
    yield from names.driver(json_types.text(opaque, "driver"), f"{path}.opaque.driver")
    yield from raw(json_types.at(opaque, "parameters"), f"{path}.opaque.parameters", stored=stored)


def raw(value: Json, path: str, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of raw JSON: an object of limited size."""
    if value is None:
        yield failure.required(path, "a JSON object")
    elif not stored and _size(value) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)
    elif not isinstance(value, dict):
        yield failure.invalid(path, value, "must be a JSON object")


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
