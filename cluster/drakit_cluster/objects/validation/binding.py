"""Rules of binding conditions, in devices and in allocation results."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import each, failure, names
from drakit_cluster.objects.validation.failure import Failure

MAX_CONDITIONS = 4
_WANTED, _FAILING = "bindingConditions", "bindingFailureConditions"


def conditions(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``holder``'s binding conditions: both lists or none, without repetition and without overlap."""
    wanted, failing = json_types.strings(holder, _WANTED), json_types.strings(holder, _FAILING)
    for field, values in ((_WANTED, wanted), (_FAILING, failing)):
        where = f"{path}.{field}"
        yield from each.name(json_types.from_strings(values), where, names.label_key, limit=MAX_CONDITIONS)
        yield from each.duplicates(values, where)
    for index, name in enumerate(failing):
        if name in wanted:
            yield failure.invalid(f"{path}.{_FAILING}[{index}]", name, "must not be a binding condition as well")
    if bool(wanted) != bool(failing):
        missing, present = (_FAILING, _WANTED) if wanted else (_WANTED, _FAILING)
        yield failure.invalid(f"{path}.{missing}", [], f"must be set because {present} is: use both or neither")
