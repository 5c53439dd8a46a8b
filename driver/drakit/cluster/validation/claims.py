"""Rules of ResourceClaims and templates, spec and status. Source: Kubernetes 1.36's validation."""

import ipaddress
import json
from collections.abc import Iterator

from drakit.cluster import json_types
from drakit.cluster.json_types import Json, Object
from drakit.cluster.schema import claims
from drakit.cluster.validation import failure, fields
from drakit.cluster.validation.failure import Failure

MAX_PARAMETERS_BYTES = 10 * 1024
MAX_EXPRESSION_BYTES = 10 * 1024
MAX_INTERFACE_BYTES = 256
MAX_HARDWARE_ADDRESS_BYTES = 128


def check(new: Object, old: Object | None) -> list[Failure]:
    """Return what is wrong with a claim, created (``old`` is None) or updated, its status included."""
    immutable = [] if old is None else failure.unchanged("spec", new.get("spec"), old.get("spec"))
    return fields.chain(immutable, devices(json_types.at(new, "spec", "devices"), "spec.devices"), _status(new, old))


def check_template(new: Object, old: Object | None) -> list[Failure]:
    """Return what is wrong with a claim template."""
    immutable = [] if old is None else failure.unchanged("spec", new.get("spec"), old.get("spec"))
    return fields.chain(immutable, devices(json_types.at(new, "spec", "spec", "devices"), "spec.spec.devices"))


def devices(wanted: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of what a claim asks for."""
    requests = json_types.items(wanted, "requests")
    names = set[str]()
    for index, request in enumerate(requests):
        name = json_types.text(request, "name")
        names |= {name} | {f"{name}/{json_types.text(one, 'name')}" for one in json_types.items(request, "firstAvailable")}
        yield from _request(request, f"{path}.requests[{index}]")
    for index, constraint in enumerate(json_types.items(wanted, "constraints")):
        yield from _constraint(constraint, names, f"{path}.constraints[{index}]")
    for index, config in enumerate(json_types.items(wanted, "config")):
        where = f"{path}.config[{index}]"
        yield from _request_names(config, names, where)
        yield from parameters(config, where)


def _request(request: Json, path: str) -> Iterator[Failure]:
    exactly, alternatives = json_types.at(request, "exactly"), json_types.items(request, "firstAvailable")
    if exactly is None and not alternatives:
        yield failure.required(path, "exactly one of exactly or firstAvailable is required")
    if exactly is not None and alternatives:
        yield failure.invalid(path, None, "exactly one of exactly or firstAvailable is required")
    if exactly is not None:
        yield from _amount(exactly, f"{path}.exactly")
        yield from selectors(exactly, f"{path}.exactly")
    for index, one in enumerate(alternatives):
        yield from _amount(one, f"{path}.firstAvailable[{index}]")
        yield from selectors(one, f"{path}.firstAvailable[{index}]")


def _amount(request: Json, path: str) -> Iterator[Failure]:
    mode, count = json_types.text(request, "allocationMode"), json_types.number(request, "count")
    if mode == "All" and count:
        yield failure.invalid(f"{path}.count", count, 'must not be specified when allocationMode is "All"')
    if mode == "ExactCount" and count <= 0:
        yield failure.invalid(f"{path}.count", count, "must be greater than zero")
    for index, toleration in enumerate(json_types.items(request, "tolerations")):
        yield from _toleration(toleration, f"{path}.tolerations[{index}]")


def _toleration(toleration: Json, path: str) -> Iterator[Failure]:
    exists = json_types.text(toleration, "operator") == "Exists"
    if exists and json_types.text(toleration, "value"):
        field, value = f"{path}.value", json_types.text(toleration, "value")
        yield failure.invalid(field, value, "must be empty for operator Exists")
    if not exists and not json_types.text(toleration, "key"):
        yield failure.required(f"{path}.key", "must be set unless the operator is Exists")


def selectors(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of CEL selectors that need no compiler: their size."""
    for index, selector in enumerate(json_types.items(holder, "selectors")):
        if len(json_types.text(selector, "cel", "expression").encode()) > MAX_EXPRESSION_BYTES:
            yield failure.too_long(f"{path}.selectors[{index}].cel.expression", MAX_EXPRESSION_BYTES)


def _constraint(constraint: Json, names: set[str], path: str) -> Iterator[Failure]:
    yield from _request_names(constraint, names, path)
    kinds = [name for name in ("matchAttribute", "distinctAttribute") if json_types.text(constraint, name)]
    if len(kinds) != 1:
        detail = "exactly one of matchAttribute or distinctAttribute is required"
        yield failure.invalid(path, constraint, detail) if kinds else failure.required(path, detail)


def _request_names(holder: Json, names: set[str], path: str) -> Iterator[Failure]:
    for index, name in enumerate(json_types.items(holder, "requests")):
        if name not in names:
            detail = "must be the name of a request in the claim, or request/subrequest"
            yield failure.invalid(f"{path}.requests[{index}]", name, detail)


def parameters(holder: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of opaque parameters: a JSON object of limited size."""
    opaque = json_types.mapping(holder, "opaque")
    if "parameters" in opaque:
        yield from _raw(opaque["parameters"], f"{path}.opaque.parameters")


def _raw(value: Json, path: str) -> Iterator[Failure]:
    if not isinstance(value, dict):
        yield failure.invalid(path, value, "must be a valid JSON object")
    elif len(json.dumps(value, separators=(",", ":")).encode()) > MAX_PARAMETERS_BYTES:
        yield failure.too_long(path, MAX_PARAMETERS_BYTES)


def _status(new: Object, old: Object | None) -> Iterator[Failure]:
    allocation = json_types.at(new, "status", "allocation")
    before = json_types.at(old, "status", "allocation")
    if before is not None and allocation is not None:
        yield from failure.unchanged("status.allocation", allocation, before)
    elif allocation is not None:
        yield from _allocation(new, allocation)
    reserved = json_types.items(new, "status", "reservedFor")
    if reserved and allocation is None:
        yield failure.forbidden("status.reservedFor", "may not be specified when allocated is not set")
    if json_types.text(old, "metadata", "deletionTimestamp"):
        known = {json_types.text(one, "uid") for one in json_types.items(old, "status", "reservedFor")}
        if any(json_types.text(one, "uid") not in known for one in reserved):
            detail = "new entries may not be added while deletionTimestamp is set"
            yield failure.forbidden("status.reservedFor", detail)
    results = json_types.items(allocation, "devices", "results")
    allocated = {_device_key(result) for result in results}
    for index, device in enumerate(json_types.items(new, "status", "devices")):
        yield from _device(device, allocated, f"status.devices[{index}]")


def _allocation(claim: Object, allocation: Json) -> Iterator[Failure]:
    requests = json_types.items(claim, "spec", "devices", "requests")
    names = {json_types.text(request, "name") for request in requests}
    for index, result in enumerate(json_types.items(allocation, "devices", "results")):
        request = json_types.text(result, "request")
        if request and request.split("/")[0] not in names:
            field = f"status.allocation.devices.results[{index}].request"
            yield failure.invalid(field, request, "must be the name of a request in the claim")
    for index, config in enumerate(json_types.items(allocation, "devices", "config")):
        yield from parameters(config, f"status.allocation.devices.config[{index}]")
    terms = json_types.at(allocation, "nodeSelector", "nodeSelectorTerms")
    if isinstance(terms, list) and len(terms) != 1:
        field = "status.allocation.nodeSelector.nodeSelectorTerms"
        yield failure.invalid(field, len(terms), "must have exactly one node selector term")


def _device_key(device: Json) -> tuple[str, ...]:
    return tuple(json_types.text(device, key) for key in claims.DEVICE_STATUS_KEYS)


def _device(device: Json, allocated: set[tuple[str, ...]], path: str) -> Iterator[Failure]:
    if _device_key(device) not in allocated:
        named = {key: value for key, value in zip(claims.DEVICE_STATUS_KEYS, _device_key(device), strict=True) if value}
        yield failure.invalid(path, {**named}, "must be an allocated device in the claim")
    if (data := json_types.at(device, "data")) is not None:
        yield from _raw(data, f"{path}.data")
    network = json_types.mapping(device, "networkData")
    sizes = (("interfaceName", MAX_INTERFACE_BYTES), ("hardwareAddress", MAX_HARDWARE_ADDRESS_BYTES))
    for name, limit in sizes:
        if len(json_types.text(network, name).encode()) > limit:
            yield failure.too_long(f"{path}.networkData.{name}", limit)
    seen = set[Json]()
    for index, address in enumerate(json_types.strings(network, "ips")):
        where = f"{path}.networkData.ips[{index}]"
        if not _is_interface_address(address):
            detail = "must be an address with prefix in canonical form, such as 192.0.2.5/24"
            yield failure.invalid(where, address, detail)
        if address in seen:
            yield failure.duplicate(where, address)
        seen.add(address)


def _is_interface_address(address: str) -> bool:
    try:
        return str(ipaddress.ip_interface(address)) == address
    except ValueError:
        return False
