"""``core.slices`` values to ResourceSlice JSON (resource.k8s.io/v1) and back.

One encoding serves both forms: what includes no mixin is the flat form. Empty lists and maps are left out (the API server takes ``[]`` for a value),
maps are sorted, quantities are canonical; so equal slices give equal bytes. Mixins travel as ``spec.mixins`` {device, counterSet,
deviceCounterConsumption} and as ``includes`` lists of {name}.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from drakit.core import capacity, device, inventory, node_selection, quantity, records
from drakit.core.slices import resource_slice
from drakit.kube import fields, transport
from drakit.telemetry import logs

API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceSlice"

Object = dict[str, records.Json]

_log = logs.get_logger(__name__)


def encode(spec: resource_slice.SliceSpec) -> Object:
    """The ``spec`` of a ResourceSlice."""
    page = spec.page
    return _filled(
        {
            "driver": spec.driver,
            "nodeName": spec.node,
            **node_selection.to_record(spec.reach),
            "pool": {"name": spec.pool.name, "generation": spec.pool.generation, "resourceSliceCount": spec.pool.count},
            "mixins": _mixins(page.mixins),
            "sharedCounters": [
                _filled({"name": item.name, "counters": _counters(item.counters), "includes": _includes(item.includes)})
                for item in page.counter_sets
            ],
            "devices": [_device(item) for item in page.devices],
        }
    )


def _device(item: device.Device) -> Object:
    return _filled(
        {
            "name": item.name,
            **node_selection.to_record(item.reach),
            "includes": _includes(item.includes),
            "attributes": _attributes(item.attributes),
            "capacity": _capacities(item.capacity),
            "consumesCounters": [
                _filled({"counterSet": part.counter_set, "includes": _includes(part.includes), "counters": _counters(part.counters)})
                for part in item.consumes
            ],
            "taints": [_taint(taint) for taint in item.taints],
            "bindsToNode": item.binds_to_node or None,
            "bindingConditions": list(item.binding_conditions),
            "bindingFailureConditions": list(item.binding_failure_conditions),
            "allowMultipleAllocations": item.allow_multiple_allocations or None,
        }
    )


def _filled(value: Object) -> Object:
    """Without what is absent or empty."""
    return {key: item for key, item in value.items() if item is not None and item not in ("", [], {})}


def _includes(names: Iterable[str]) -> records.Json:
    return [{"name": name} for name in names]


def _counters(values: Mapping[str, quantity.Quantity]) -> records.Json:
    return {name: {"value": str(values[name])} for name in sorted(values)}


def _attributes(values: Mapping[str, device.AttributeValue]) -> records.Json:
    return {name: _attribute(values[name]) for name in sorted(values)}


def _attribute(value: device.AttributeValue) -> records.Json:
    if isinstance(value, tuple):
        return {f"{_attribute_kind(value[0])}s": [_plain(item) for item in value]}
    return {_attribute_kind(value): _plain(value)}


def _attribute_kind(value: device.Scalar) -> str:
    return {bool: "bool", int: "int", device.Version: "version"}.get(type(value), "string")


def _plain(value: device.Scalar) -> str | int | bool:
    return value.text if isinstance(value, device.Version) else value


def _capacities(values: Mapping[str, capacity.Capacity]) -> records.Json:
    return {name: _filled({"value": str(values[name].value), "requestPolicy": _policy(values[name].policy)}) for name in sorted(values)}


def _policy(rule: capacity.RequestPolicy | None) -> records.Json:
    if rule is None:
        return None
    span = rule.valid_range
    return _filled(
        {
            "default": _text(rule.default),
            "validValues": [str(value) for value in rule.valid_values],
            "validRange": None if span is None else _filled({"min": _text(span.min), "max": _text(span.max), "step": _text(span.step)}),
        }
    )


def _text(amount: quantity.Quantity | None) -> str | None:
    return None if amount is None else str(amount)


def _taint(taint: device.Taint) -> Object:
    added = taint.time_added
    at = None if added is None else added.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _filled({"key": taint.key, "value": taint.value, "effect": taint.effect.value, "timeAdded": at})


def _mixins(all_mixins: inventory.Mixins) -> Object:
    return _filled(
        {
            "device": [
                _filled({"name": item.name, "attributes": _attributes(item.attributes), "capacity": _capacities(item.capacity)})
                for item in all_mixins.device
            ],
            "counterSet": [{"name": item.name, "counters": _counters(item.counters)} for item in all_mixins.counter_set],
            "deviceCounterConsumption": [{"name": item.name, "counters": _counters(item.counters)} for item in all_mixins.consumption],
        }
    )


def decode(found: transport.Object) -> resource_slice.Published:
    """A stored slice.

    What is not understood of somebody else's slice must not keep ours from being published: a page that cannot be read is given back empty, with a
    slice count of 0, so that it equals no slice anybody wants. Raises ConfigError only when metadata or pool are unusable.
    """
    root = fields.Field(found)
    metadata, spec = root["metadata"], root["spec"]
    name, generation, count = spec["pool"]["name"].text(), spec["pool"]["generation"], spec["pool"]["resourceSliceCount"].integer()
    place: node_selection.PoolNodes | None = None
    try:
        page, place = _read_page(spec), node_selection.of_pool(spec.object())
    except fields.UNREADABLE as error:
        _log.warning("stored slice unreadable", slice=metadata["name"].text(), error=str(error))
        page, count = resource_slice.Page(), 0
    return resource_slice.Published(
        name=metadata["name"].text(),
        uid=metadata["uid"].text(),
        version=metadata["resourceVersion"].text(),
        spec=resource_slice.SliceSpec(
            driver=spec["driver"].text(),
            node=spec["nodeName"].text_or_empty(),
            pool=resource_slice.Pool(name=name, generation=generation.integer() if generation else 0, count=count),
            page=page,
            reach=place,
        ),
    )


def _read_page(spec: fields.Field) -> resource_slice.Page:
    return resource_slice.Page(
        devices=tuple(_read_device(item) for item in spec["devices"].each()),
        counter_sets=tuple(
            device.CounterSet(name=item["name"].text(), counters=_read_counters(item["counters"]), includes=_read_includes(item))
            for item in spec["sharedCounters"].each()
        ),
        mixins=_read_mixins(spec["mixins"]),
    )


def _read_device(item: fields.Field) -> device.Device:
    return device.Device(
        name=item["name"].text(),
        attributes=_read_attributes(item["attributes"]),
        capacity=_read_capacities(item["capacity"]),
        consumes=tuple(
            device.CounterConsumption(
                counter_set=part["counterSet"].text(), counters=_read_counters(part["counters"]), includes=_read_includes(part)
            )
            for part in item["consumesCounters"].each()
        ),
        allow_multiple_allocations=item["allowMultipleAllocations"].flag(),
        taints=tuple(_read_taint(taint) for taint in item["taints"].each()),
        binds_to_node=item["bindsToNode"].flag(),
        binding_conditions=item["bindingConditions"].texts(),
        binding_failure_conditions=item["bindingFailureConditions"].texts(),
        includes=_read_includes(item),
        reach=node_selection.of_device(item.object()),
    )


def _read_includes(item: fields.Field) -> tuple[str, ...]:
    return tuple(include["name"].text() for include in item["includes"].each())


def _read_counters(item: fields.Field) -> Mapping[str, quantity.Quantity]:
    return {name: counter["value"].amount() for name, counter in item.items()}


def _read_attributes(item: fields.Field) -> Mapping[str, device.AttributeValue]:
    return {name: _read_attribute(value) for name, value in item.items()}


def _read_attribute(item: fields.Field) -> device.AttributeValue:
    kinds = [(kind, value) for kind, value in item.items() if value]
    if len(kinds) != 1:
        raise item.error("must have exactly one value")
    kind, value = kinds[0]
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    read = _SCALARS.get(kind.removesuffix("s"))
    if read is None:
        raise value.error("is a kind of attribute that drakit does not know")
    return cast("device.AttributeValue", tuple(read(element) for element in value.each()))


def _plain_text(item: fields.Field) -> str:
    return item.value if item.value == "" else item.text()


_SCALARS: Mapping[str, Callable[[fields.Field], device.Scalar]] = {
    "string": _plain_text,
    "int": fields.Field.integer,
    "bool": fields.Field.flag,
    "version": lambda value: device.Version(value.text()),
}


def _read_capacities(item: fields.Field) -> Mapping[str, capacity.Capacity]:
    return {
        name: capacity.Capacity(value=value["value"].amount(), policy=_read_policy(value["requestPolicy"])) for name, value in item.items()
    }


def _read_policy(item: fields.Field) -> capacity.RequestPolicy | None:
    if not item:
        return None
    span = item["validRange"]
    return capacity.RequestPolicy(
        default=_read_amount(item["default"]),
        valid_values=tuple(value.amount() for value in item["validValues"].each()),
        valid_range=capacity.ValidRange(min=span["min"].amount(), max=_read_amount(span["max"]), step=_read_amount(span["step"]))
        if span
        else None,
    )


def _read_amount(item: fields.Field) -> quantity.Quantity | None:
    return item.amount() if item else None


def _read_taint(item: fields.Field) -> device.Taint:
    effects = [effect.value for effect in device.TaintEffect]
    return device.Taint(
        key=item["key"].text(),
        value=item["value"].text_or_empty(),
        effect=device.TaintEffect(item["effect"].only_in(*effects).text()),
        time_added=_read_time(item["timeAdded"]),
    )


def _read_time(item: fields.Field) -> datetime.datetime | None:
    if not item:
        return None
    try:
        return datetime.datetime.fromisoformat(item.text()).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise item.error(f"{item.text()!r} is not a time") from error


def _read_mixins(item: fields.Field) -> inventory.Mixins:
    return inventory.Mixins(
        device=tuple(
            inventory.DeviceMixin(
                name=part["name"].text(), attributes=_read_attributes(part["attributes"]), capacity=_read_capacities(part["capacity"])
            )
            for part in item["device"].each()
        ),
        counter_set=tuple(
            inventory.CounterSetMixin(name=part["name"].text(), counters=_read_counters(part["counters"]))
            for part in item["counterSet"].each()
        ),
        consumption=tuple(
            inventory.ConsumptionMixin(name=part["name"].text(), counters=_read_counters(part["counters"]))
            for part in item["deviceCounterConsumption"].each()
        ),
    )
