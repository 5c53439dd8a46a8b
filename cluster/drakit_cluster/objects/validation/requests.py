"""Rules of what a claim asks for and gets: requests, constraints, CEL selectors, drivers' parameters; allocations and device statuses."""

import ipaddress
import json
from collections.abc import Iterator, Mapping

from drakit_cluster.objects import json_types
from drakit_cluster.objects.devices import SelectorError
from drakit_cluster.objects.features import Gate
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.schema import formats
from drakit_cluster.objects.validation import devices, failure, metadata, names, slices
from drakit_cluster.objects.validation.context import Context
from drakit_cluster.objects.validation.failure import Failure, NameRule

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

    yield from failure.each_item(json_types.items(wanted, "requests"), f"{path}.requests", request, limit=MAX_REQUESTS, key=_name)
    yield from failure.each_item(json_types.items(wanted, "constraints"), f"{path}.constraints", constraint, limit=MAX_CONSTRAINTS)
    yield from failure.each_item(json_types.items(wanted, "config"), f"{path}.config", config, limit=MAX_CONFIGS)


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
    return failure.each_name(json_types.items(holder, "requests"), f"{path}.requests", rule, limit=MAX_REQUESTS, unique=True)


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
        yield from failure.each_item(alternatives, f"{path}.firstAvailable", alternative, limit=MAX_ALTERNATIVES, key=_name)
    else:
        yield failure.required(path, _ONE_KIND)


def _devices(request: Json, path: str, context: Context) -> Iterator[Failure]:
    """Check what is alike in a request and in an alternative."""
    yield from names.class_name(json_types.text(request, "deviceClassName"), f"{path}.deviceClassName")
    yield from check_selectors(request, path, context)
    yield from _amount(request, path)
    yield from failure.each_item(json_types.items(request, "tolerations"), f"{path}.tolerations", devices.toleration)


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

    return failure.each_item(json_types.items(holder, "selectors"), f"{path}.selectors", one, limit=MAX_SELECTORS)


def _expression(expression: str, path: str, context: Context, *, stored: bool) -> Iterator[Failure]:
    if len(expression.encode()) > MAX_BYTES:
        yield failure.too_long(path, MAX_BYTES)
        return
    if context.expressions is None:
        return
    try:
        cost = context.expressions.worst_case(expression, stored=stored)
    except SelectorError as error:
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


MAX_RESULTS = 32
MAX_ALLOCATED_CONFIGS = 64
MAX_CONDITIONS = 8
MAX_ADDRESSES = 16
MAX_INTERFACE_BYTES = 256
MAX_HARDWARE_ADDRESS_BYTES = 128

_SOURCES = ("FromClaim", "FromClass")
_DEVICE = ("driver", "pool", "device", "shareID")


def check_allocation(allocation: Json, wanted: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a new allocation for a claim whose ``spec.devices`` is ``wanted``."""
    refers = reference(wanted)

    def result(value: Json, where: str) -> Iterator[Failure]:
        yield from refers(json_types.text(value, "request"), f"{where}.request")
        yield from _named(value, where)
        yield from devices.check_binding_conditions(value, where)
        yield from failure.each_item(json_types.items(value, "tolerations"), f"{where}.tolerations", devices.toleration)

    def config(value: Json, where: str) -> Iterator[Failure]:
        yield from _source(json_types.text(value, "source"), f"{where}.source")
        yield from references(value, where, refers)
        yield from check_configuration(value, where)

    results, configs = (json_types.items(allocation, "devices", field) for field in ("results", "config"))
    yield from failure.each_item(results, f"{path}.devices.results", result, limit=MAX_RESULTS)
    yield from failure.each_item(configs, f"{path}.devices.config", config, limit=MAX_ALLOCATED_CONFIGS)
    if (selector := json_types.at(allocation, "nodeSelector")) is not None:
        yield from slices.check_selector(selector, f"{path}.nodeSelector")


def statuses(values: list[Json], allocation: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``status.devices``: one entry at most for each device of the allocation."""
    allocated = {_device_identity(result) for result in json_types.items(allocation, "devices", "results")}

    def one(value: Json, where: str) -> Iterator[Failure]:
        yield from _named(value, where)
        if _device_identity(value) not in allocated:
            named = {field: json_types.text(value, field) for field in _DEVICE if json_types.text(value, field)}
            yield failure.invalid(
                where, {**named}, "must be an allocated device in the claim: driver, pool, device and shareID as in a result"
            )
        yield from metadata.check_conditions(json_types.items(value, "conditions"), f"{where}.conditions", limit=MAX_CONDITIONS)
        if (data := json_types.at(value, "data")) is not None:
            yield from check_raw(data, f"{where}.data")
        yield from _network(json_types.at(value, "networkData"), f"{where}.networkData")

    return failure.each_item(values, path, one, key=_device_identity)


def _device_identity(device: Json) -> tuple[str, ...]:
    return tuple(json_types.text(device, field) for field in _DEVICE)


def _named(device: Json, path: str) -> Iterator[Failure]:
    """Check how a result or a status names its device."""
    yield from names.driver(json_types.text(device, "driver"), f"{path}.driver")
    yield from names.pool(json_types.text(device, "pool"), f"{path}.pool")
    yield from names.label(json_types.text(device, "device"), f"{path}.device")
    if (share := json_types.at(device, "shareID")) is not None:
        yield from names.uid(str(share), f"{path}.shareID")


def _source(source: str, path: str) -> Iterator[Failure]:
    if not source:
        yield failure.required(path, f"one of {', '.join(_SOURCES)}")
    elif source not in _SOURCES:
        yield failure.not_supported(path, source, _SOURCES)


def _network(network: Json, path: str) -> Iterator[Failure]:
    for field, limit in (("interfaceName", MAX_INTERFACE_BYTES), ("hardwareAddress", MAX_HARDWARE_ADDRESS_BYTES)):
        if len(json_types.text(network, field).encode()) > limit:
            yield failure.too_long(f"{path}.{field}", limit)
    yield from failure.each_name(json_types.items(network, "ips"), f"{path}.ips", _address, limit=MAX_ADDRESSES, unique=True)


def _address(address: str, path: str) -> Iterator[Failure]:
    if not _is_canonical(address):
        yield failure.invalid(path, address, "must be an address with prefix in canonical form, such as 192.0.2.5/24 or 2001:db8::5/64")


def _is_canonical(address: str) -> bool:
    """Say whether an address is written as Go writes it: without a zone, and IPv4 as IPv4."""
    try:
        found = ipaddress.ip_interface(address)
    except ValueError:
        return False
    mapped = isinstance(found, ipaddress.IPv6Interface) and found.ipv4_mapped is not None
    return str(found) == address and "%" not in address and not mapped
