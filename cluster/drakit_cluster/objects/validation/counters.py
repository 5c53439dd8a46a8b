"""Rules of counter sets, and of what devices take from them."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import each, failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_SETS = 8
MAX_COUNTERS = 32
MAX_CONSUMED_SETS = 2


def sets(values: list[Json], path: str) -> Iterator[Failure]:
    """Yield the failures of ``spec.sharedCounters``."""

    def one(value: Json, where: str) -> Iterator[Failure]:
        return _counters(value, "name", where)

    return each.item(values, path, one, limit=MAX_SETS, key=lambda value: json_types.text(value, "name"))


def consumption(values: list[Json], path: str) -> Iterator[Failure]:
    """Yield the failures of a device's ``consumesCounters``: one entry for each set."""

    def one(value: Json, where: str) -> Iterator[Failure]:
        return _counters(value, "counterSet", where)

    return each.item(values, path, one, limit=MAX_CONSUMED_SETS, key=lambda value: json_types.text(value, "counterSet"))


def _counters(holder: Json, naming: str, path: str) -> Iterator[Failure]:
    """Check a name and its counters, which may all come from mixins (ours)."""
    if name := json_types.text(holder, naming):
        yield from names.label(name, f"{path}.{naming}")
    else:
        yield failure.required(f"{path}.{naming}", "name the counter set")
    counters = json_types.mapping(holder, "counters")
    if counters:
        shown = formats.LABEL_BYTES
        yield from each.entry(counters, f"{path}.counters", names.label, each.anything, limit=MAX_COUNTERS, shown=shown)
    elif not json_types.items(holder, "includes"):
        yield failure.required(f"{path}.counters", "write at least one counter")
