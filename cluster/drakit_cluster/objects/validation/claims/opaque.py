"""Rules of the opaque parameters of drivers."""

import json
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_OPAQUE_BYTES = 10 * 1024
"""The limit of opaque parameters, and of the data of a device status.

Kubernetes counts the bytes that the client sent. They are lost after decoding, so the size here is that of JSON as most clients outside
Go write it: with a space after each colon and comma.
"""


def check(holder: Json, path: str, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of ``holder.opaque``. ``stored`` parameters may be larger: they are older than the limit."""
    opaque = json_types.at(holder, "opaque")
    if opaque is None:
        yield failure.required(f"{path}.opaque", "a configuration is a driver's opaque parameters")
        return
    yield from names.driver(json_types.text(opaque, "driver"), f"{path}.opaque.driver")
    yield from check_raw(json_types.at(opaque, "parameters"), f"{path}.opaque.parameters", stored=stored)


def check_raw(value: Json, path: str, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of raw JSON: an object of limited size."""
    if value is None:
        yield failure.required(path, "a JSON object")
    elif not stored and len(json.dumps(value, ensure_ascii=False).encode()) > MAX_OPAQUE_BYTES:
        yield failure.too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield failure.invalid(path, value, "must be a JSON object")
