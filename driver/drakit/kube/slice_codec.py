"""Encode ``core.slices`` values as ResourceSlice JSON (resource.k8s.io/v1), and decode them.

One encoding serves both forms: a slice without mixins is in the flat form. Empty lists and maps are omitted (the API server treats ``[]`` as a
value), maps are sorted and quantities are canonical, so equal slices give equal bytes. Mixins are encoded as ``spec.mixins`` {device, counterSet,
deviceCounterConsumption} and as ``includes`` lists of {name}.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from drakit.core import device, inventory, node_resources, quantity, records
from drakit.core.encoding import device_json, wire
from drakit.core.slices import node_selection, resource_slice
from drakit.kube import api_objects
from drakit.telemetry import logs

Object = dict[str, records.Json]

_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counter:
    value: quantity.Quantity


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Include:
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Head:
    """The identity of a stored slice: metadata, driver, node and pool."""

    name: Annotated[str, wire.Field(name="metadata.name")]
    uid: Annotated[str, wire.Field(name="metadata.uid")]
    version: Annotated[str, wire.Field(name="metadata.resourceVersion")]
    driver: Annotated[str, wire.Field(name="spec.driver")]
    node: Annotated[str, wire.Field(name="spec.nodeName")] = ""
    pool: Annotated[resource_slice.Pool, wire.Field(name="spec.pool")]


API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceSlice"
_EVERY_OPERATION = "*"
_SKIPS = wire.Converter(
    lambda value: isinstance(value, list | tuple) and _EVERY_OPERATION in value, lambda skips: [_EVERY_OPERATION] if skips else []
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Content:
    """The rest of the spec of a slice."""

    reach: node_selection.PoolNodes | None = None
    mixins: inventory.Mixins = dataclasses.field(default_factory=inventory.Mixins)
    shared_counters: tuple[device.CounterSet, ...] = ()
    devices: tuple[device.Device, ...] = ()
    partition_type: Annotated[str, wire.Field(name="partitionTypeAttribute")] = ""
    skip_node_operations: Annotated[bool, wire.Field(converter=_SKIPS)] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MappingOf136:
    """One entry of ``nodeAllocatableResourceMappings``."""

    allocation_multiplier: quantity.Quantity | None = None
    capacity_key: str = ""


_COUNTERS = api_objects.FORMAT.converter(Mapping[str, _Counter])
_INCLUDE_LIST = api_objects.FORMAT.converter(tuple[_Include, ...])
_INCLUDES = wire.Field(
    converter=wire.Converter(
        lambda value: tuple(include.name for include in _INCLUDE_LIST.decode(value)), lambda names: [{"name": name} for name in names]
    )
)
_MAPPINGS = api_objects.FORMAT.converter(Mapping[str, _MappingOf136])
_RESOURCES = wire.Format(ignore_unknown=True, empty_is_absent=True, sorted_keys=True, fields=device_json.FIELDS).converter(
    Mapping[str, node_resources.NodeResource]
)
_FIELD, _FIELD_OF_136 = "nodeAllocatableResources", "nodeAllocatableResourceMappings"


def _read_node_resources(fields: Mapping[str, object]) -> Mapping[str, node_resources.NodeResource]:
    """Return what a device takes of its node, in the form of 1.37 or of 1.36."""
    if fields.get(_FIELD):
        return wire.decode(_RESOURCES, fields[_FIELD], _FIELD)  # type: ignore[no-any-return]
    mappings: Mapping[str, _MappingOf136] = wire.decode(_MAPPINGS, fields.get(_FIELD_OF_136) or {}, _FIELD_OF_136)
    return {name: _resource(mapping) for name, mapping in mappings.items()}


def _resource(mapping: _MappingOf136) -> node_resources.NodeResource:
    amount = quantity.ONE if mapping.allocation_multiplier is None else mapping.allocation_multiplier
    if mapping.capacity_key:
        return node_resources.NodeResourceMapping(capacity=mapping.capacity_key, per_unit=amount)
    return node_resources.NodeResourceMapping(per_device=amount)


def _write_node_resources(resources: Mapping[str, node_resources.NodeResource]) -> dict[str, records.Json]:
    if not resources:
        return {}
    if not any(isinstance(resource, node_resources.NodeResourceMapping) for resource in resources.values()):
        return {_FIELD: _RESOURCES.encode(resources)}
    amounts = {name: resource.per_unit or resource.per_device for name, resource in resources.items()}
    mappings = {
        name: _MappingOf136(allocation_multiplier=amounts[name], capacity_key=resources[name].capacity) for name in sorted(resources)
    }
    return {_FIELD_OF_136: _MAPPINGS.encode(mappings)}


_FORMAT = wire.Format(
    ignore_unknown=True,
    empty_is_absent=True,
    sorted_keys=True,
    converters={
        **api_objects.CONVERTERS,
        device.AttributeValue: device_json.ATTRIBUTE,
        Mapping[str, quantity.Quantity]: wire.Converter(
            lambda value: {name: counter.value for name, counter in _COUNTERS.decode(value).items()},
            lambda counters: {name: {"value": str(counters[name])} for name in sorted(counters)},
        ),
    },
    fields={
        **device_json.FIELDS,
        (device.Device, "includes"): _INCLUDES,
        (device.Device, "reach"): wire.Field(inline=True, converter=wire.Converter(node_selection.of_device, node_selection.to_record)),
        (device.Device, "node_resources"): wire.Field(inline=True, converter=wire.Converter(_read_node_resources, _write_node_resources)),
        (device.Device, "pool"): wire.Field(inline=True, converter=wire.Converter(lambda _: None, lambda _: {})),
        (device.CounterConsumption, "includes"): _INCLUDES,
        (device.CounterSet, "includes"): _INCLUDES,
        (resource_slice.Pool, "generation"): wire.Field(absent=0),
        (resource_slice.Pool, "count"): wire.Field(name="resourceSliceCount"),
        (inventory.Mixins, "consumption"): wire.Field(name="deviceCounterConsumption"),
        (_Content, "reach"): wire.Field(inline=True, converter=wire.Converter(node_selection.of_pool, node_selection.to_record)),
    },
)


def encode(spec: resource_slice.SliceSpec) -> Object:
    """Return the ``spec`` of a ResourceSlice."""
    page = spec.page
    head = {"driver": spec.driver, **({"nodeName": spec.node} if spec.node else {}), "pool": _FORMAT.encode(spec.pool)}
    content = _Content(
        reach=spec.reach,
        mixins=page.mixins,
        shared_counters=page.counter_sets,
        devices=page.devices,
        partition_type=page.partition_type,
        skip_node_operations=page.skip_node_operations,
    )
    return head | _FORMAT.encode(content)


def pool_name(stored: object) -> str:
    """Return the pool of a stored slice. Raise ConfigError for an unreadable identity."""
    return _FORMAT.decode(_Head, stored).pool.name


def decode(stored: Any) -> resource_slice.Published:
    """Return a stored slice. Raise ConfigError for an unreadable identity.

    An unreadable slice of another program must not block the publisher. So a page that cannot be read is returned empty with a slice count of 0, and
    equals no wanted slice.
    """
    head = _FORMAT.decode(_Head, stored)
    pool, content = head.pool, _Content()
    try:
        content = _FORMAT.decode(_Content, stored["spec"], "spec")
    except api_objects.UNREADABLE as error:
        _log.warning("stored slice unreadable", slice=head.name, error=str(error))
        pool = dataclasses.replace(pool, count=0)
    page = resource_slice.Page(
        devices=content.devices,
        counter_sets=content.shared_counters,
        mixins=content.mixins,
        partition_type=content.partition_type,
        skip_node_operations=content.skip_node_operations,
    )
    spec = resource_slice.SliceSpec(driver=head.driver, node=head.node, pool=pool, page=page, reach=content.reach)
    return resource_slice.Published(name=head.name, uid=head.uid, version=head.version, spec=spec)
