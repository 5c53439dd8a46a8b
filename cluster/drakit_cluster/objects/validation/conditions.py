"""Rules of metav1 Conditions."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_REASON_BYTES = 1024
MAX_MESSAGE_BYTES = 32768
_STATUSES = ("False", "True", "Unknown")


def check(values: list[Json], path: str, *, limit: int) -> Iterator[Failure]:
    """Yield the failures of a list of conditions, one of each type. All are looked at, even where there are too many."""
    if limit and len(values) > limit:
        yield failure.too_many(path, len(values), limit)
    seen = set[str]()
    for index, value in enumerate(values):
        where, kind = f"{path}[{index}]", json_types.text(value, "type")
        if kind in seen:
            yield failure.duplicate(f"{where}.type", kind)
        seen.add(kind)
        yield from _condition(value, where)


def _condition(value: Json, path: str) -> Iterator[Failure]:
    yield from names.label_key(json_types.text(value, "type"), f"{path}.type")
    status = json_types.text(value, "status")
    if status not in _STATUSES:
        yield failure.not_supported(f"{path}.status", status, _STATUSES)
    if (generation := json_types.number(value, "observedGeneration")) < 0:
        yield failure.invalid(f"{path}.observedGeneration", generation, "must be 0 or more")
    if not json_types.text(value, "lastTransitionTime"):
        yield failure.required(f"{path}.lastTransitionTime", "say when the status last changed")
    yield from _reason(json_types.text(value, "reason"), f"{path}.reason")
    if len(json_types.text(value, "message").encode()) > MAX_MESSAGE_BYTES:
        yield failure.too_long(f"{path}.message", MAX_MESSAGE_BYTES)


def _reason(reason: str, path: str) -> Iterator[Failure]:
    if not reason:
        yield failure.required(path, "one CamelCase word")
        return
    if wrong := formats.condition_reason(reason):
        yield failure.invalid(path, reason, wrong)
    if len(reason.encode()) > MAX_REASON_BYTES:
        yield failure.too_long(path, MAX_REASON_BYTES)
