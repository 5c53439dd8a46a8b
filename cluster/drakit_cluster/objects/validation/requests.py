"""Rules of what a claim or a template asks for: requests, constraints and configuration.

Rules of CEL device selectors in claims, templates and classes.

Rules of raw JSON that only a driver understands, and of the configuration that holds it.
"""

import json
from collections.abc import Iterator, Mapping

from drakit_cluster.objects import devices, json_types
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import each, failure, names, taints
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.each import NameRule
from drakit_cluster.objects.validation.failure import Failure

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32

_MODES = ("All", "ExactCount")
_ONE_KIND = "exactly one of exactly or firstAvailable is required"


def check(wanted: Json, path: str, context: Context) -> Iterator[Failure]:
    """Yield the failures of a claim's ``spec.devices``."""
    refers = reference(wanted)

    def request(value: Json, where: str) -> Iterator[Failure]:
        return _request(value, where, context)

    def constraint(value: Json, where: str) -> Iterator[Failure]:
        yield from references(value, where, refers)
        yield from _constraint(value, where, context)

    def config(value: Json, where: str) -> Iterator[Failure]:
        yield from references(value, where, refers)
        yield from check_configuration(value, where)

    yield from each.item(json_types.items(wanted, "requests"), f"{path}.requests", request, limit=MAX_REQUESTS, key=_name)
    yield from each.item(json_types.items(wanted, "constraints"), f"{path}.constraints", constraint, limit=MAX_CONSTRAINTS)
    yield from each.item(json_types.items(wanted, "config"), f"{path}.config", config, limit=MAX_CONFIGS)


def reference(wanted: Json) -> NameRule:
    """Return the rule for names of requests: each must be that of a request in ``wanted``, or ``request/subrequest``."""
    known = _known(wanted)

    def rule(name: str, path: str) -> Iterator[Failure]:
        request, slash, alternative = name.partition("/")
        unknown = request not in known or bool(slash and alternative not in known[request])
        if unknown or any(map(formats.dns_label, name.split("/"))):
            yield failure.invalid(path, name, "must be the name of a request in the claim, or request/subrequest")

    return rule


def references(holder: Json, path: str, rule: NameRule) -> Iterator[Failure]:
    """Yield the failures of ``holder.requests``, a list of names without repetition."""
    return each.name(json_types.items(holder, "requests"), f"{path}.requests", rule, limit=MAX_REQUESTS, unique=True)


def _known(wanted: Json) -> Mapping[str, frozenset[str]]:
    return {
        _name(request): frozenset(map(_name, json_types.items(request, "firstAvailable")))
        for request in json_types.items(wanted, "requests")
    }


def _name(value: Json) -> str:
    return json_types.text(value, "name")


def _request(request: Json, path: str, context: Context) -> Iterator[Failure]:
    exactly, alternatives = json_types.at(request, "exactly"), json_types.items(request, "firstAvailable")
    yield from names.label(_name(request), f"{path}.name")

    def alternative(value: Json, where: str) -> Iterator[Failure]:
        yield from names.label(_name(value), f"{where}.name")
        yield from _devices(value, where, context)

    if exactly is not None and alternatives:
        yield failure.invalid(path, None, f"{_ONE_KIND}: remove one")
    elif exactly is not None:
        yield from _devices(exactly, f"{path}.exactly", context)
    elif alternatives:
        yield from each.item(alternatives, f"{path}.firstAvailable", alternative, limit=MAX_ALTERNATIVES, key=_name)
    else:
        yield failure.required(path, _ONE_KIND)


def _devices(request: Json, path: str, context: Context) -> Iterator[Failure]:
    """Check what is alike in a request and in an alternative."""
    yield from names.class_name(json_types.text(request, "deviceClassName"), f"{path}.deviceClassName")
    yield from check_selectors(request, path, context)
    yield from _amount(request, path)
    yield from each.item(json_types.items(request, "tolerations"), f"{path}.tolerations", taints.toleration)


def _amount(request: Json, path: str) -> Iterator[Failure]:
    mode, count = json_types.text(request, "allocationMode"), json_types.number(request, "count")
    if mode not in _MODES:
        yield failure.not_supported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        yield failure.invalid(f"{path}.count", count, 'must not be specified when allocationMode is "All"')
    elif mode == "ExactCount" and count <= 0:
        yield failure.invalid(f"{path}.count", count, "must be greater than zero")


def _constraint(constraint: Json, path: str, context: Context) -> Iterator[Failure]:
    """Where both attributes are set the first is the constraint, as in Kubernetes 1.36, which does not look at the other."""
    for field in ("matchAttribute", "distinctAttribute"):
        if (attribute := json_types.at(constraint, field)) is not None:
            yield from names.fully_qualified(str(attribute), f"{path}.{field}")
            return
    if context.gates.on(Gate.CONSUMABLE_CAPACITY):
        yield failure.required(path, "write either matchAttribute or distinctAttribute")
    else:
        yield failure.required(f"{path}.matchAttribute", "name the attribute that all devices must have in common")


MAX_SELECTORS = 32
MAX_BYTES = 10 * 1024
MAX_COST = 1_000_000


def check_selectors(holder: Json, path: str, context: Context, *, stored: bool = False) -> Iterator[Failure]:
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
    except devices.SelectorError as error:
        yield failure.invalid(path, expression, str(error))
        return
    if cost > MAX_COST:
        yield failure.forbidden(path, f"may cost {cost}, more than the limit of {MAX_COST}: use fewer or smaller loops")


MAX_OPAQUE_BYTES = 10 * 1024
"""Of parameters, and of a device status' data.

Kubernetes counts the bytes that the client sent. They are gone once decoded, so JSON is counted here as most clients outside Go write
it: with a space after each colon and comma.
"""


def check_configuration(holder: Json, path: str, *, stored: bool = False) -> Iterator[Failure]:
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
    elif not stored and _size(value) > MAX_OPAQUE_BYTES:
        yield failure.too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield failure.invalid(path, value, "must be a JSON object")


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
