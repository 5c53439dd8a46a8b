"""A device as CEL values: attributes and capacities by domain and id.

A name without a domain belongs to the driver's domain. Lists count only where their gate is on; a device with an attribute that
cannot be read has no verdict at all.
"""

from collections.abc import Mapping
from typing import Final

from drakit_cluster.cel import errors
from drakit_cluster.cel.evaluation import values
from drakit_cluster.cel.evaluation.values import Value
from drakit_cluster.cel.functions import quantities, semver
from drakit_cluster.objects import devices
from drakit_cluster.objects.json_types import Json

_LISTS: Final = ("ints", "bools", "strings", "versions")
_SCALARS: Final = ("int", "bool", "string", "version")


def device(view: devices.DeviceView, *, lists: bool) -> dict[str, Value]:
    """The variable `device`. Raises RunError when an attribute or a capacity cannot be read."""
    attributes = values.DomainMap()
    for name, attribute in view.attributes.items():
        _place(attributes, view.driver, name, _attribute(name, attribute, lists=lists))
    capacity = values.DomainMap()
    for name, amount in view.capacity.items():
        _place(capacity, view.driver, name, _capacity(name, amount))
    return {
        "driver": view.driver,
        "allowMultipleAllocations": view.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }


def _place(domains: values.DomainMap, driver: str, name: str, value: Value) -> None:
    domain, slash, key = name.partition("/")
    if not slash:
        domain, key = driver, name
    domains.setdefault(domain, {})[key] = value


def _attribute(name: str, attribute: Mapping[str, Json], *, lists: bool) -> Value:
    for kind in (*(_LISTS if lists else ()), *_SCALARS):
        value = attribute.get(kind)
        if value is not None:
            return _read(name, kind, value)
    raise errors.RunError(f"attribute {name}: unsupported attribute value")


def _read(name: str, kind: str, value: Json) -> Value:
    try:
        if kind == "version":
            return semver.parse(str(value))
        if kind == "versions":
            return [semver.parse(str(item)) for item in value] if isinstance(value, list) else []
    except ValueError as error:
        raise errors.RunError(f"attribute {name}: parse semantic version: {error}") from error
    return value


def _capacity(name: str, amount: str) -> quantities.Amount:
    try:
        return quantities.parse(amount)
    except ValueError as error:
        raise errors.RunError(f"capacity {name}: {error}") from error
