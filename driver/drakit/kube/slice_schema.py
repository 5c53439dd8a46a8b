"""Which fields of a ResourceSlice the API server has, read from its OpenAPI v3 document. Nothing is written for it.

A field that the schema lists may still be dropped, because its feature gate is off. A field that it does not list is never stored.
"""

from collections.abc import Mapping

from drakit.core import records
from drakit.kube import slice_codec

PATH = f"/openapi/v3/apis/{slice_codec.API_VERSION}"
# The fields below spec by which each feature gate is known; "[]" and "{}" are the items of a list and of a map.
_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "DRAPartitionableDevices": (("sharedCounters",), ("devices", "[]", "consumesCounters")),
    "DRAMixins": (("mixins",),),
    "DRAConsumableCapacity": (("devices", "[]", "allowMultipleAllocations"), ("devices", "[]", "capacity", "{}", "requestPolicy")),
    "DRADeviceTaints": (("devices", "[]", "taints"),),
    "DRAListTypeAttributes": (("devices", "[]", "attributes", "{}", "strings"),),
}
_INNER = {"[]": "items", "{}": "additionalProperties"}
_DEPTH = 32

Node = Mapping[str, records.Json]


def lacks(document: Node) -> frozenset[str]:
    """The feature gates of which a field is not in the schema; none where the document does not describe a ResourceSlice."""
    schemas = _mapping(_mapping(document.get("components")).get("schemas"))
    spec = next((found for one in schemas.values() if _is_slice(_mapping(one)) and (found := _at(_mapping(one), "spec", schemas))), None)
    if spec is None:
        return frozenset()
    return frozenset(gate for gate, fields in _FIELDS.items() if not all(_has(spec, steps, schemas) for steps in fields))


def _is_slice(schema: Node) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind")
    group, _, version = slice_codec.API_VERSION.partition("/")
    wanted = {"group": group, "version": version, "kind": slice_codec.KIND}
    return isinstance(kinds, (list, tuple)) and any(isinstance(one, Mapping) and dict(one) == wanted for one in kinds)


def _has(schema: Node, steps: tuple[str, ...], schemas: Node) -> bool:
    """Whether the schema has the field. A part that cannot be followed says nothing against it."""
    current: Node | None = schema
    for step in steps:
        if current is None:
            return True
        if step not in _INNER and "properties" in current and step not in _mapping(current["properties"]):
            return False
        current = _at(current, step, schemas)
    return True


def _at(schema: Node, step: str, schemas: Node) -> Node | None:
    """The schema one step below, references followed; None where there is none."""
    inner = _INNER.get(step)
    found = _mapping(schema.get(inner) if inner else _mapping(schema.get("properties")).get(step))
    for _ in range(_DEPTH):
        parts = found.get("allOf")
        wrapped = parts[0] if isinstance(parts, (list, tuple)) and len(parts) == 1 else found
        reference = _mapping(wrapped).get("$ref")
        if not isinstance(reference, str):
            return _mapping(wrapped) or None
        found = _mapping(schemas.get(reference.rpartition("/")[2]))
    return None


def _mapping(value: object) -> Node:
    return value if isinstance(value, Mapping) else {}
