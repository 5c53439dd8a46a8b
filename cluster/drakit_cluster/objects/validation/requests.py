"""Rules of what a claim requests and gets: requests, constraints, CEL selectors, drivers' parameters; allocations and device statuses."""

import ipaddress
import json
from collections.abc import Iterator

from drakit_cluster import cel
from drakit_cluster.objects import json_types, versions
from drakit_cluster.objects.devices import SelectorError
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import devices, failure, metadata, names, rules, slices
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.rules import NameRule, Rule

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
MAX_DERIVED = 32
_ONE_KIND = "exactly one of exactly or firstAvailable is required"


def check(requested_devices: Json, path: str, context: Context) -> Iterator[Failure]:
    """Yield the failures of a claim's ``spec.devices``."""
    refers = _references(_reference(requested_devices))
    constraint = rules.all_of(refers, _constraint(context))
    yield from rules.items("requests", _request(context), limit=MAX_REQUESTS, key=rules.by("name"))(requested_devices, path)
    yield from _unused(requested_devices, path)
    yield from rules.items("constraints", constraint, limit=MAX_CONSTRAINTS)(requested_devices, path)
    yield from rules.items("config", rules.all_of(refers, check_configuration), limit=MAX_CONFIGS)(requested_devices, path)


def _reference(requested_devices: Json) -> NameRule:
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


def _references(rule: NameRule) -> Rule:
    return rules.texts("requests", rule, limit=MAX_REQUESTS, unique=True)


def _request(context: Context) -> Rule:
    def selectors(holder: Json, path: str) -> Iterator[Failure]:
        return check_selectors(holder, path, context)

    derived = rules.items("derivedAttributes", _derived(context), limit=MAX_DERIVED, key=rules.by("name"))
    check_exact = rules.all_of(rules.text(names.class_name, "deviceClassName"), selectors, derived, _amount, devices.tolerations)
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
            yield from _expression(expression, f"{path}.expression", context, stored=False, purpose=cel.Purpose.DERIVED_ATTRIBUTE)
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


MAX_SELECTORS = 32


def check_selectors(holder: Json, path: str, context: Context, *, stored: bool = False) -> Iterator[Failure]:
    """Yield the failures of ``holder.selectors``; ``stored`` says that the stored object has them too."""

    def check(selector: Json, where: str) -> Iterator[Failure]:
        if json_types.at(selector, "cel") is None:
            yield failure.required(f"{where}.cel", "a selector is a CEL expression")
        else:
            expression = json_types.text(selector, "cel", "expression")
            yield from _expression(expression, f"{where}.cel.expression", context, stored=stored)

    return rules.items("selectors", check, limit=MAX_SELECTORS)(holder, path)


def _expression(
    expression: str, path: str, context: Context, *, stored: bool, purpose: cel.Purpose = cel.Purpose.SELECTOR
) -> Iterator[Failure]:
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


MAX_OPAQUE_BYTES = 10 * 1024
"""The limit of opaque parameters, and of the data of a device status.

Kubernetes counts the bytes that the client sent. They are lost after decoding, so the size here is that of JSON as most clients outside
Go write it: with a space after each colon and comma.
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
    elif not stored and len(json.dumps(value, ensure_ascii=False).encode()) > MAX_OPAQUE_BYTES:
        yield failure.too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield failure.invalid(path, value, "must be a JSON object")


MAX_RESULTS = 32
MAX_ALLOCATED_CONFIGS = 64
MAX_CONDITIONS = 8
MAX_ADDRESSES = 16
MAX_INTERFACE_BYTES = 256
MAX_HARDWARE_ADDRESS_BYTES = 128
_DEVICE = ("driver", "pool", "device", "shareID")
_NAMED = rules.all_of(
    rules.text(names.driver, "driver"),
    rules.text(names.pool, "pool"),
    rules.text(names.label, "device"),
    rules.if_set(rules.of_text(names.uid), "shareID"),
)
"""How a result or a status names its device."""


def check_allocation(allocation: Json, requested_devices: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a new allocation for a claim whose ``spec.devices`` is ``requested_devices``."""
    refers = _reference(requested_devices)
    result = rules.all_of(rules.text(refers, "request"), _NAMED, devices.binding_conditions, devices.tolerations, slices.operations)
    config = rules.all_of(rules.word("source", ("FromClaim", "FromClass")), _references(refers), check_configuration)
    allocated_devices = json_types.at(allocation, "devices")
    yield from rules.items("results", result, limit=MAX_RESULTS)(allocated_devices, f"{path}.devices")
    yield from rules.items("config", config, limit=MAX_ALLOCATED_CONFIGS)(allocated_devices, f"{path}.devices")
    yield from rules.if_set(slices.node_selector, "nodeSelector")(allocation, path)


def statuses(status: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``status.devices``: one entry at most for each device of the allocation."""
    identity = rules.by(*_DEVICE)
    allocated = {identity(result) for result in json_types.items(status, "allocation", "devices", "results")}

    def check(value: Json, where: str) -> Iterator[Failure]:
        yield from _STATUS(value, where)
        yield from metadata.check_conditions(value, where, limit=MAX_CONDITIONS)
        if identity(value) not in allocated:
            named = {field: json_types.text(value, field) for field in _DEVICE if json_types.text(value, field)}
            detail = "must be an allocated device in the claim: driver, pool, device and shareID as in a result"
            yield failure.invalid(where, {**named}, detail)

    return rules.items("devices", check, key=identity)(status, path)


def _address(address: str, path: str) -> Iterator[Failure]:
    if not _is_canonical(address):
        yield failure.invalid(path, address, "must be an address with prefix in canonical form, such as 192.0.2.5/24 or 2001:db8::5/64")


_NETWORK = rules.all_of(
    rules.size(MAX_INTERFACE_BYTES, "interfaceName"),
    rules.size(MAX_HARDWARE_ADDRESS_BYTES, "hardwareAddress"),
    rules.texts("ips", _address, limit=MAX_ADDRESSES, unique=True),
)


def _is_canonical(address: str) -> bool:
    """Return whether an address is written as Go writes it: without a zone, and IPv4 as IPv4."""
    try:
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        return False
    mapped = isinstance(parsed, ipaddress.IPv6Interface) and parsed.ipv4_mapped is not None
    return str(parsed) == address and "%" not in address and not mapped


_STATUS = rules.all_of(_NAMED, rules.if_set(check_raw, "data"), rules.if_set(_NETWORK, "networkData"))
