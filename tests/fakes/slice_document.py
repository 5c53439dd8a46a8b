"""Reads the spec of a ResourceSlice, mixins included, from YAML into core values: enough for the examples kept in tests/golden."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from drakit.core import capacity, device, inventory, quantity


def load(path: pathlib.Path) -> inventory.Inventory:
    spec = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    shared = spec["mixins"]
    return inventory.Inventory(
        devices=tuple(map(_device, spec["devices"])),
        counter_sets=tuple(device.CounterSet(name=one["name"], **_counters(one)) for one in spec["sharedCounters"]),
        mixins=inventory.Mixins(
            device=tuple(
                inventory.DeviceMixin(name=one["name"], attributes=_attributes(one), capacity=_capacity(one)) for one in shared["device"]
            ),
            counter_set=tuple(inventory.CounterSetMixin(name=one["name"], counters=_amounts(one)) for one in shared["counterSet"]),
            consumption=tuple(
                inventory.ConsumptionMixin(name=one["name"], counters=_amounts(one)) for one in shared["deviceCounterConsumption"]
            ),
        ),
    )


def _device(document: Mapping[str, Any]) -> device.Device:
    return device.Device(
        name=document["name"],
        attributes=_attributes(document),
        capacity=_capacity(document),
        includes=_includes(document),
        consumes=tuple(
            device.CounterConsumption(counter_set=part["counterSet"], **_counters(part)) for part in document["consumesCounters"]
        ),
    )


def _counters(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"counters": _amounts(document), "includes": _includes(document)}


def _amounts(document: Mapping[str, Any]) -> Mapping[str, quantity.Quantity]:
    return {name: quantity.Quantity.parse(entry["value"]) for name, entry in document.get("counters", {}).items()}


def _capacity(document: Mapping[str, Any]) -> Mapping[str, capacity.Capacity]:
    return {name: capacity.Capacity.of(entry["value"]) for name, entry in document.get("capacity", {}).items()}


def _attributes(document: Mapping[str, Any]) -> Mapping[str, device.AttributeValue]:
    return {name: _value(entry) for name, entry in document.get("attributes", {}).items()}


def _value(entry: Mapping[str, Any]) -> device.AttributeValue:
    ((kind, value),) = entry.items()
    kinds: Mapping[str, type] = {"string": str, "int": int, "bool": bool, "version": device.Version}
    made: device.AttributeValue = kinds[kind](value)
    return made


def _includes(document: Mapping[str, Sequence[Mapping[str, str]]]) -> tuple[str, ...]:
    return tuple(reference["name"] for reference in document.get("includes", ()))
