"""Rules of metav1 Conditions."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.failure import Failure

MAX_REASON_BYTES = 1024
MAX_MESSAGE_BYTES = 32768


def check(holder: Json, path: str, *, limit: int = 0) -> Iterator[Failure]:
    """Yield the failures of a list of conditions, one of each type. All are checked, even if there are too many. ``limit`` 0 is none."""
    values, path = json_types.items(holder, "conditions"), f"{path}.conditions"
    if limit and len(values) > limit:
        yield failure.too_many(path, len(values), limit)
    seen = set[str]()
    for index, value in enumerate(values):
        where, kind = f"{path}[{index}]", json_types.text(value, "type")
        if kind in seen:
            yield failure.duplicate(f"{where}.type", kind)
        seen.add(kind)
        yield from _condition(value, where)


def _reason(reason: str, path: str) -> Iterator[Failure]:
    if not reason:
        yield failure.required(path, "one CamelCase word")
    elif error := formats.condition_reason(reason):
        yield failure.invalid(path, reason, error)


def _moment(moment: str, path: str) -> Iterator[Failure]:
    if not moment:
        yield failure.required(path, "say when the status last changed")


def _status(status: str, path: str) -> Iterator[Failure]:
    if status not in (allowed := ("False", "True", "Unknown")):
        yield failure.not_supported(path, status, allowed)


_condition = rules.all_of(
    rules.text(names.label_key, "type"),
    rules.text(_status, "status"),
    rules.number(0, "must be 0 or more", "observedGeneration"),
    rules.text(_moment, "lastTransitionTime"),
    rules.text(_reason, "reason"),
    rules.size(MAX_REASON_BYTES, "reason"),
    rules.size(MAX_MESSAGE_BYTES, "message"),
)
