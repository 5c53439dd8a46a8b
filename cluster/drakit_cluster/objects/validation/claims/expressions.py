"""Rules of CEL selectors and expressions."""

from collections.abc import Iterator

from drakit_cluster import cel
from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import SelectorError
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import failure, rules
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure

MAX_SELECTORS = 32


def selectors(holder: Json, path: str, context: Context, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of ``holder.selectors``; ``stored`` says that the stored object has them too."""

    def selector_rule(selector: Json, where: str) -> Iterator[Failure]:
        if json_types.at(selector, "cel") is None:
            yield failure.required(f"{where}.cel", "a selector is a CEL expression")
        else:
            expression = json_types.text(selector, "cel", "expression")
            yield from check(expression, f"{where}.cel.expression", context, stored=stored)

    return rules.items("selectors", selector_rule, limit=MAX_SELECTORS)(holder, path)


def check(expression: str, path: str, context: Context, *, stored: bool, purpose: cel.Purpose = cel.Purpose.SELECTOR) -> Iterator[Failure]:
    """Yield the failures of a CEL expression: too long, not compilable, or too expensive."""
    if len(expression.encode()) > cel.LENGTH_LIMIT:
        yield failure.too_long(path, cel.LENGTH_LIMIT)
        return
    if context.selectors is None:
        return
    try:
        cost = context.selectors.compile(expression, cel.EnvType.STORED if stored else cel.EnvType.NEW, purpose).max_cost
    except SelectorError as error:
        yield failure.invalid(path, expression, str(error))
        return
    if cost > cel.COST_LIMIT:
        yield failure.forbidden(path, f"may cost {cost}, more than the limit of {cel.COST_LIMIT}: use fewer or smaller loops")
