"""Rules of what a claim or a template asks for: requests, constraints and configuration."""

from collections.abc import Iterator, Mapping

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import each, expressions, failure, names, opaque, taints
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
        yield from opaque.configuration(value, where)

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
    yield from expressions.selectors(request, path, context)
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
