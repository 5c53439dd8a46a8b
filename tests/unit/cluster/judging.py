"""Asks the rules, as the API server does, and names their failures in short."""

from drakit_cluster import cel
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table as shapes
from drakit_cluster.objects.validation import context, table

GATES = FeatureGates()


def problems(resource: Resource, new: Object, old: Object | None = None, gates: FeatureGates = GATES, *, subresource: str = "") -> set[str]:
    """Return "Type field" for each failure. Objects get the name, namespace and version that the test does not care about."""
    rules = context.Context(gates=gates, selectors=cel.Selectors(gates))
    before = None if old is None else _stored(resource, old)
    found = table.check(resource, _stored(resource, new), before, rules, subresource=subresource)
    return {f"{one.type.removeprefix('FieldValue')} {one.field}" for one in found}


def _stored(resource: Resource, obj: Object) -> Object:
    decoded, _ = shapes.decode(resource, obj)
    usual: Object = {"name": "any", "resourceVersion": "1"}
    if resource.namespaced:
        usual["namespace"] = "default"
    decoded["metadata"] = usual | json_types.mapping(decoded, "metadata")
    return decoded


def repeated(count: int, /, **fields: Json) -> list[Json]:
    """Return ``count`` objects with names of their own and the same further fields."""
    return [{"name": f"n{index}", **fields} for index in range(count)]
