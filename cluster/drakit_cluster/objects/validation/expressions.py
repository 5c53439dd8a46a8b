"""Rules of CEL device selectors in claims, templates and classes."""

from collections.abc import Iterator

from drakit_cluster.objects import json_types, ports
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import each, failure
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_SELECTORS = 32
MAX_BYTES = 10 * 1024
MAX_COST = 1_000_000


def selectors(holder: Json, path: str, context: Context, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of ``holder.selectors``; ``stored`` ones are those that the stored object has too."""

    def one(selector: Json, where: str) -> Iterator[Failure]:
        if json_types.at(selector, "cel") is None:
            yield failure.required(f"{where}.cel", "a selector is a CEL expression")
        else:
            expression = json_types.text(selector, "cel", "expression")
            yield from _expression(expression, f"{where}.cel.expression", context, stored=stored)

    return each.item(json_types.items(holder, "selectors"), f"{path}.selectors", one, limit=MAX_SELECTORS)


def _expression(expression: str, path: str, context: Context, *, stored: bool) -> Iterator[Failure]:
    if len(expression.encode()) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)
        return
    if context.expressions is None:
        return
    try:
        cost = context.expressions.worst_case(expression, stored=stored)
    except ports.SelectorError as error:
        yield failure.invalid(path, expression, str(error))
        return
    if cost > MAX_COST:
        yield failure.forbidden(path, f"may cost {cost}, more than the limit of {MAX_COST}: use fewer or smaller loops")
