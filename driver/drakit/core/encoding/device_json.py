"""The JSON form of devices in ResourceSlices and in the journal: the API's field names, and attributes as ``{"string": "A100"}``."""

from collections.abc import Mapping

from drakit.core import capacity, device, errors, node_resources, records
from drakit.core.encoding import wire

FIELDS: Mapping[tuple[type[object], str], wire.Field] = {
    (device.Device, "consumes"): wire.Field(name="consumesCounters"),
    (capacity.Capacity, "policy"): wire.Field(name="requestPolicy"),
    (device.Device, "node_resources"): wire.Field(name="nodeAllocatableResources"),
    (node_resources.NodeResource, "per_device"): wire.Field(name="mapping.deviceMultiplier"),
    (node_resources.NodeResource, "capacity"): wire.Field(name="mapping.capacityKey"),
    (node_resources.NodeResource, "per_unit"): wire.Field(name="mapping.capacityMultiplier"),
    (node_resources.NodeResource, "per_pod"): wire.Field(name="overhead.perPod"),
    (node_resources.NodeResource, "per_container"): wire.Field(name="overhead.perContainer"),
}
_VERSION = wire.Converter(lambda text: device.Version(wire.TEXT.decode(text)), str)
_PLAIN = wire.Format(converters={device.Version: _VERSION})
_KINDS: Mapping[str, wire.Converter] = {
    "string": wire.TEXT,
    "int": _PLAIN.converter(int),
    "bool": _PLAIN.converter(bool),
    "version": _VERSION,
    "strings": _PLAIN.converter(tuple[str, ...]),
    "ints": _PLAIN.converter(tuple[int, ...]),
    "bools": _PLAIN.converter(tuple[bool, ...]),
    "versions": _PLAIN.converter(tuple[device.Version, ...]),
}
_NAMES: Mapping[type[object], str] = {str: "string", int: "int", bool: "bool", device.Version: "version"}


def _decode(value: object) -> device.AttributeValue:
    members = value if isinstance(value, records.MAPPINGS) else {}
    kinds = [kind for kind in members if kind in _KINDS and members[kind] is not None]
    if len(kinds) != 1:
        raise errors.ConfigError(f"must be an object with one of {', '.join(_KINDS)}")
    decoded: device.AttributeValue = wire.decode(_KINDS[kinds[0]], members[kinds[0]], kinds[0])
    return decoded


def _encode(value: device.AttributeValue) -> dict[str, object]:
    kind = f"{_NAMES[type(value[0])]}s" if isinstance(value, tuple) else _NAMES[type(value)]
    return {kind: _KINDS[kind].encode(value)}


ATTRIBUTE = wire.Converter(_decode, _encode)
