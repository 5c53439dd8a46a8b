"""Rules of what a claim requests: devices, constraints and drivers' parameters."""

from collections.abc import Iterator

from drakit_cluster import cel
from drakit_cluster.objects import json_types, versions
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import failure, names, rules
from drakit_cluster.objects.validation.claims import expressions, opaque
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.rules import NameRule, Rule
from drakit_cluster.objects.validation.slices import taints

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_DERIVED = 32
_ONE_KIND = "exactly one of exactly or firstAvailable is required"


def check(requested_devices: Json, path: str, context: Context) -> Iterator[Failure]:
    """Yield the failures of a claim's ``spec.devices``."""
    refers = references(reference(requested_devices))
    constraint = rules.all_of(refers, _constraint(context))
    yield from rules.items("requests", _request(context), limit=MAX_REQUESTS, key=rules.by("name"))(requested_devices, path)
    yield from _unused(requested_devices, path)
    yield from rules.items("constraints", constraint, limit=MAX_CONSTRAINTS)(requested_devices, path)
    yield from rules.items("config", rules.all_of(refers, opaque.check), limit=MAX_CONFIGS)(requested_devices, path)


def reference(requested_devices: Json) -> NameRule:
    """Return the rule for names of requests: each must be that of a request in ``requested_devices``, or ``request/subrequest``."""
    alternatives = {
        json_types.text(request, "name"): {
            json_types.text(subrequest, "name") for subrequest in json_types.items(request, "firstAvailable")
        }
        for request in json_types.items(requested_devices, "requests")
    }

    def rule(name: str, path: str) -> Iterator[Failure]:
        request, slash, alternative = name.partition("/")
        unknown = request not in alternatives or bool(slash and alternative not in alternatives[request])
        if unknown or any(map(formats.dns_label, name.split("/"))):
            yield failure.invalid(path, name, "must be the name of a request in the claim, or request/subrequest")

    return rule


def references(rule: NameRule) -> Rule:
    """Return the rule for the list of requests that a constraint or configuration names."""
    return rules.texts("requests", rule, limit=MAX_REQUESTS, unique=True)


def _request(context: Context) -> Rule:
    def selectors(holder: Json, path: str) -> Iterator[Failure]:
        return expressions.selectors(holder, path, context)

    derived = rules.items("derivedAttributes", _derived(context), limit=MAX_DERIVED, key=rules.by("name"))
    check_exact = rules.all_of(rules.text(names.class_name, "deviceClassName"), selectors, derived, _amount, taints.tolerations)
    check_alternative = rules.all_of(rules.text(names.label, "name"), check_exact)
    alternatives = rules.items("firstAvailable", check_alternative, limit=MAX_ALTERNATIVES, key=rules.by("name"))

    def check(request: Json, path: str) -> Iterator[Failure]:
        exactly, several = json_types.at(request, "exactly"), json_types.items(request, "firstAvailable")
        yield from names.label(json_types.text(request, "name"), f"{path}.name")
        if exactly is not None and several:
            yield failure.invalid(path, None, f"{_ONE_KIND}: remove one")
        elif exactly is not None:
            yield from check_exact(exactly, f"{path}.exactly")
        elif several:
            yield from alternatives(request, path)
        else:
            yield failure.required(path, _ONE_KIND)

    return check


def _derived(context: Context) -> Rule:
    """Return the rule of a derived attribute (KEP-6080). Each expression has the limits of a selector."""

    def check(attribute: Json, path: str) -> Iterator[Failure]:
        name, expression = json_types.text(attribute, "name"), json_types.text(attribute, "expression")
        yield from _qualified(name, f"{path}.name", context) if name else [failure.required(f"{path}.name", "write domain/name")]
        if expression:
            yield from expressions.check(expression, f"{path}.expression", context, stored=False, purpose=cel.Purpose.DERIVED_ATTRIBUTE)
        else:
            yield failure.required(f"{path}.expression", "a CEL expression that reads the device")

    return check


def _qualified(name: str, path: str, context: Context) -> Iterator[Failure]:
    yield from names.fully_qualified(name, path)
    yield from names.one_slash(name, path) if context.gates.follows(versions.Rule.ONE_SLASH) else ()


def _unused(requested_devices: Json, path: str) -> Iterator[Failure]:
    """Yield derived attributes that no constraint of their request names."""
    constraints = json_types.items(requested_devices, "constraints")
    for index, request in enumerate(json_types.items(requested_devices, "requests")):
        name = json_types.text(request, "name")
        options = [("exactly", json_types.at(request, "exactly"), {name})]
        for place, option in enumerate(json_types.items(request, "firstAvailable")):
            options.append((f"firstAvailable[{place}]", option, {name, f"{name}/{json_types.text(option, 'name')}"}))
        for where, option, targets in options:
            concerned = [each for each in constraints if not (to := json_types.strings(each, "requests")) or targets & set(to)]
            used = {json_types.text(each, field) for each in concerned for field in ("matchAttribute", "distinctAttribute")}
            for place, attribute in enumerate(json_types.items(option, "derivedAttributes")):
                if (derived := json_types.text(attribute, "name")) and derived not in used:
                    field = f"{path}.requests[{index}].{where}.derivedAttributes[{place}].name"
                    yield failure.invalid(field, derived, "must be the attribute of a constraint on this request")


def _amount(request: Json, path: str) -> Iterator[Failure]:
    mode, count = json_types.text(request, "allocationMode"), json_types.number(request, "count")
    if mode not in (modes := ("All", "ExactCount")):
        yield failure.not_supported(f"{path}.allocationMode", mode, modes)
    elif mode == "All" and count:
        yield failure.invalid(f"{path}.count", count, 'must not be specified when allocationMode is "All"')
    elif mode == "ExactCount" and count <= 0:
        yield failure.invalid(f"{path}.count", count, "must be greater than zero")


def _constraint(context: Context) -> Rule:
    """Return the rule of a constraint. If both attributes are set, only matchAttribute is checked: Kubernetes 1.36 ignores distinctAttribute."""

    def check(constraint: Json, path: str) -> Iterator[Failure]:
        fields = [field for field in ("matchAttribute", "distinctAttribute") if json_types.at(constraint, field) is not None]
        if fields:
            yield from _qualified(json_types.text(constraint, fields[0]), f"{path}.{fields[0]}", context)
        elif context.gates.on(Gate.CONSUMABLE_CAPACITY):
            yield failure.required(path, "write either matchAttribute or distinctAttribute")
        else:
            yield failure.required(f"{path}.matchAttribute", "name the attribute that all devices must have in common")

    return check
