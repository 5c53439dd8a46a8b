"""Rules of what a claim gets: its allocation, and the statuses of its devices."""

import ipaddress
from collections.abc import Iterator

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.validation import conditions, failure, names, rules
from drakit_cluster.objects.validation.claims import opaque, requests
from drakit_cluster.objects.validation.failure import Failure
from drakit_cluster.objects.validation.slices import devices, node_selection, slices, taints

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


def check(allocation: Json, requested_devices: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of a new allocation for a claim whose ``spec.devices`` is ``requested_devices``."""
    refers = requests.reference(requested_devices)
    result = rules.all_of(rules.text(refers, "request"), _NAMED, devices.binding_conditions, taints.tolerations, slices.operations)
    config = rules.all_of(rules.word("source", ("FromClaim", "FromClass")), requests.references(refers), opaque.check)
    allocated_devices = json_types.at(allocation, "devices")
    yield from rules.items("results", result, limit=MAX_RESULTS)(allocated_devices, f"{path}.devices")
    yield from rules.items("config", config, limit=MAX_ALLOCATED_CONFIGS)(allocated_devices, f"{path}.devices")
    yield from rules.if_set(node_selection.check, "nodeSelector")(allocation, path)


def statuses(status: Json, path: str) -> Iterator[Failure]:
    """Yield the failures of ``status.devices``: one entry at most for each device of the allocation."""
    identity = rules.by(*_DEVICE)
    allocated = {identity(result) for result in json_types.items(status, "allocation", "devices", "results")}

    def check(value: Json, where: str) -> Iterator[Failure]:
        yield from _STATUS(value, where)
        yield from conditions.check(value, where, limit=MAX_CONDITIONS)
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


_STATUS = rules.all_of(_NAMED, rules.if_set(opaque.check_raw, "data"), rules.if_set(_NETWORK, "networkData"))
