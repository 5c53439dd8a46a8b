"""A device as the journal keeps it: the API's words for keys, amounts exact.

An amount is its canonical text where that says the same number, else the count of nanos as a whole number: text such as ``1.0000001Ki`` would be
rounded when written canonically, and what a share holds must not change by being remembered.
"""

import datetime
from collections.abc import Mapping, Sequence

from drakit.core import capacity, device, errors, node_selection, quantity
from drakit.journal import fields

_KINDS: Sequence[tuple[type, str]] = ((bool, "bool"), (int, "int"), (device.Version, "version"), (str, "string"))


def encode(item: device.Device) -> dict[str, object]:
    """The whole device as a JSON object."""
    return fields.compact(
        name=item.name,
        attributes={name: _attribute(value) for name, value in item.attributes.items()},
        capacity={name: _capacity(value) for name, value in item.capacity.items()},
        consumesCounters=[_consumption(part) for part in item.consumes],
        allowMultipleAllocations=item.allow_multiple_allocations,
        taints=[_taint(taint) for taint in item.taints],
        bindsToNode=item.binds_to_node,
        bindingConditions=list(item.binding_conditions),
        bindingFailureConditions=list(item.binding_failure_conditions),
        includes=list(item.includes),
        reach=node_selection.to_record(item.reach),
    )


def decode(source: fields.Fields) -> device.Device:
    """The device of a JSON object; raises UnreadableError."""
    try:
        return device.Device(
            name=source.text("name"),
            attributes=_decode_attributes(source.child("attributes")),
            capacity=_decode_capacities(source.child("capacity")),
            consumes=tuple(_decode_consumption(part) for part in source.children("consumesCounters")),
            allow_multiple_allocations=source.flag("allowMultipleAllocations"),
            taints=tuple(_decode_taint(taint) for taint in source.children("taints")),
            binds_to_node=source.flag("bindsToNode"),
            binding_conditions=source.texts("bindingConditions"),
            binding_failure_conditions=source.texts("bindingFailureConditions"),
            includes=source.texts("includes"),
            reach=_decode_reach(source.child("reach")),
        )
    except (errors.ConfigError, errors.InventoryError, ValueError) as error:
        raise fields.UnreadableError(f"{source.path}: {error}") from error


def _decode_reach(source: fields.Fields) -> node_selection.DeviceNodes | None:
    return node_selection.of_device({key: source.get(key) for key in source})


def encode_amounts(amounts: Mapping[str, quantity.Quantity]) -> dict[str, object]:
    """Amounts by name."""
    return {name: _amount(value) for name, value in amounts.items()}


def decode_amounts(source: fields.Fields) -> dict[str, quantity.Quantity]:
    """Amounts by name; raises UnreadableError."""
    return {name: _decode_amount(source.get(name), f"{source.path}.{name}") for name in source}


def _amount(value: quantity.Quantity) -> object:
    text = str(value)
    return text if quantity.Quantity.parse(text) == value else value.nanos


def _optional_amount(value: quantity.Quantity | None) -> object:
    return None if value is None else _amount(value)


def _decode_amount(value: object, path: str) -> quantity.Quantity:
    if isinstance(value, int) and not isinstance(value, bool):
        return quantity.Quantity(value)
    if not isinstance(value, str):
        raise fields.UnreadableError(f"{path}: not an amount")
    try:
        return quantity.Quantity.parse(value)
    except errors.QuantityError as error:
        raise fields.UnreadableError(f"{path}: {error}") from error


def _decode_optional_amount(source: fields.Fields, key: str) -> quantity.Quantity | None:
    return _decode_amount(source.get(key), f"{source.path}.{key}") if key in source else None


def _attribute(value: device.AttributeValue) -> dict[str, object]:
    if isinstance(value, tuple):
        return {f"{_kind(value[0])}s": [_scalar(item) for item in value]}
    return {_kind(value): _scalar(value)}


def _kind(value: device.Scalar) -> str:
    """The API's name of a scalar's type; a truth value is no whole number."""
    return next(name for kind, name in _KINDS if isinstance(value, kind))


def _scalar(value: device.Scalar) -> str | int | bool:
    return value.text if isinstance(value, device.Version) else value


def _decode_attributes(source: fields.Fields) -> dict[str, device.AttributeValue]:
    return {name: _decode_attribute(source.child(name)) for name in source}


def _decode_attribute(source: fields.Fields) -> device.AttributeValue:
    for key in source:
        value = _decode_scalar(source, key)
        if value is not None:
            return value
        items = _decode_list(source, key)
        if items is not None:
            return items
    raise fields.UnreadableError(f"{source.path}: an attribute of no known type")


def _decode_scalar(source: fields.Fields, key: str) -> device.Scalar | None:
    match key:
        case "bool":
            return source.flag(key)
        case "int":
            return source.whole(key)
        case "string":
            return source.text(key)
        case "version":
            return device.Version(source.text(key))
        case _:
            return None


def _decode_list(source: fields.Fields, key: str) -> device.AttributeValue | None:
    match key:
        case "bools":
            return source.list_of(bool, key)
        case "ints":
            return source.list_of(int, key)
        case "strings":
            return source.texts(key)
        case "versions":
            return tuple(device.Version(text) for text in source.texts(key))
        case _:
            return None


def _capacity(value: capacity.Capacity) -> dict[str, object]:
    amount: dict[str, object] = {"value": _amount(value.value)}
    return amount if value.policy is None else {**amount, "requestPolicy": _policy(value.policy)}


def _policy(rule: capacity.RequestPolicy) -> dict[str, object]:
    span = rule.valid_range
    return fields.compact(
        default=_optional_amount(rule.default),
        validValues=[_amount(value) for value in rule.valid_values],
        validRange=None if span is None else _range(span),
    )


def _range(span: capacity.ValidRange) -> dict[str, object]:
    return fields.compact(min=_amount(span.min), max=_optional_amount(span.max), step=_optional_amount(span.step))


def _decode_capacities(source: fields.Fields) -> dict[str, capacity.Capacity]:
    return {name: _decode_capacity(source.child(name)) for name in source}


def _decode_capacity(source: fields.Fields) -> capacity.Capacity:
    return capacity.Capacity(
        value=_decode_amount(source.get("value"), f"{source.path}.value"),
        policy=_decode_policy(source.child("requestPolicy")) if "requestPolicy" in source else None,
    )


def _decode_policy(source: fields.Fields) -> capacity.RequestPolicy:
    values = source.list_of(object, "validValues")
    return capacity.RequestPolicy(
        default=_decode_optional_amount(source, "default"),
        valid_values=tuple(_decode_amount(value, f"{source.path}.validValues[{number}]") for number, value in enumerate(values)),
        valid_range=_decode_range(source.child("validRange")) if "validRange" in source else None,
    )


def _decode_range(source: fields.Fields) -> capacity.ValidRange:
    return capacity.ValidRange(
        min=_decode_amount(source.get("min"), f"{source.path}.min"),
        max=_decode_optional_amount(source, "max"),
        step=_decode_optional_amount(source, "step"),
    )


def _consumption(part: device.CounterConsumption) -> dict[str, object]:
    return fields.compact(counterSet=part.counter_set, counters=encode_amounts(part.counters), includes=list(part.includes))


def _decode_consumption(source: fields.Fields) -> device.CounterConsumption:
    return device.CounterConsumption(
        counter_set=source.text("counterSet"), counters=decode_amounts(source.child("counters")), includes=source.texts("includes")
    )


def _taint(taint: device.Taint) -> dict[str, object]:
    added = taint.time_added
    return fields.compact(
        key=taint.key, value=taint.value, effect=taint.effect.value, timeAdded=None if added is None else added.isoformat()
    )


def _decode_taint(source: fields.Fields) -> device.Taint:
    added = source.text("timeAdded")
    return device.Taint(
        key=source.text("key"),
        value=source.text("value"),
        effect=device.TaintEffect(source.text("effect")),
        time_added=datetime.datetime.fromisoformat(added) if added else None,
    )
