"""Rules of an allocation, as the scheduler writes it into a claim's status, and of the statuses of its devices."""

import ipaddress
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import devices, each, failure, metadata, names, nodes, requests, taints
from drakit_cluster.objects.validation.failure import Failure

MAX_RESULTS = 32
MAX_CONFIGS = 64
MAX_CONDITIONS = 8
MAX_ADDRESSES = 16
MAX_INTERFACE_BYTES = 256
MAX_HARDWARE_ADDRESS_BYTES = 128

_SOURCES = ("FromClaim", "FromClass")
_DEVICE = ("driver", "pool", "device", "shareID")


def check(allocation: Json, wanted: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a new allocation for a claim whose ``spec.devices`` is ``wanted``."""
    refers = requests.reference(wanted)

    def result(value: Json, where: str) -> Iterator[Failure]:
        yield from refers(json_types.text(value, "request"), f"{where}.request")
        yield from _named(value, where)
        yield from devices.check_binding_conditions(value, where)
        yield from each.item(json_types.items(value, "tolerations"), f"{where}.tolerations", taints.toleration)

    def config(value: Json, where: str) -> Iterator[Failure]:
        yield from _source(json_types.text(value, "source"), f"{where}.source")
        yield from requests.references(value, where, refers)
        yield from requests.check_configuration(value, where)

    results, configs = (json_types.items(allocation, "devices", field) for field in ("results", "config"))
    yield from each.item(results, f"{path}.devices.results", result, limit=MAX_RESULTS)
    yield from each.item(configs, f"{path}.devices.config", config, limit=MAX_CONFIGS)
    if (selector := json_types.at(allocation, "nodeSelector")) is not None:
        yield from nodes.check_selector(selector, f"{path}.nodeSelector")


def statuses(values: list[Json], allocation: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``status.devices``: one entry at most for each device of the allocation."""
    allocated = {_identity(result) for result in json_types.items(allocation, "devices", "results")}

    def one(value: Json, where: str) -> Iterator[Failure]:
        yield from _named(value, where)
        if _identity(value) not in allocated:
            named = {field: json_types.text(value, field) for field in _DEVICE if json_types.text(value, field)}
            yield failure.invalid(
                where, {**named}, "must be an allocated device in the claim: driver, pool, device and shareID as in a result"
            )
        yield from metadata.check_conditions(json_types.items(value, "conditions"), f"{where}.conditions", limit=MAX_CONDITIONS)
        if (data := json_types.at(value, "data")) is not None:
            yield from requests.check_raw(data, f"{where}.data")
        yield from _network(json_types.at(value, "networkData"), f"{where}.networkData")

    return each.item(values, path, one, key=_identity)


def _identity(device: Json) -> tuple[str, ...]:
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
    yield from each.name(json_types.items(network, "ips"), f"{path}.ips", _address, limit=MAX_ADDRESSES, unique=True)


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
