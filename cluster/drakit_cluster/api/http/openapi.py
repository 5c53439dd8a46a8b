"""OpenAPI documents, generated from the shapes and the texts of Kubernetes.

They tell kubectl kinds, fields, descriptions and fieldValidation. They list the fields of the server's version, and a field that no released
Kubernetes has only where its gate is on. Where a shape keeps fields that it does not describe, the document has Kubernetes' own. The
documents hold no request bodies, so kubectl chooses its patches by its own types.
"""

import re
from collections.abc import Mapping

from drakit_cluster.objects import resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import api_models, table
from drakit_cluster.objects.schema.api_models import Model
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Struct, Type

PREFIX = "/openapi/v3"
V2_PATH = "/openapi/v2"
V2_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2 = b"\x0a\x032.0"
"""The document of OpenAPI v2, ``swagger: "2.0"`` and no kinds, as protobuf. kubectl reads it before it reports that no server has a kind."""
_LEAVES: dict[Type, Object] = {
    Type.STRING: {"type": "string"},
    Type.INTEGER: {"type": "integer", "format": "int64"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.QUANTITY: {"type": "string"},
    Type.TIME: {"type": "string", "format": "date-time"},
    Type.ANY: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_TYPES: dict[str, Object] = {
    "str": _LEAVES[Type.STRING],
    "int": _LEAVES[Type.INTEGER],
    "float": {"type": "number"},
    "bool": _LEAVES[Type.BOOLEAN],
    "datetime": _LEAVES[Type.TIME],
}
_LIST_TYPE = re.compile(r"List\[(.+)\]")
_MAP_TYPE = re.compile(r"Dict\[str, (.+)\]")
_MODEL_NAME = re.compile(r"(?P<version>\w*?V\d+((alpha|beta)\d+)?)(?P<name>[A-Z]\w*)")
_MODEL_TYPE = re.compile(r"[A-Z]\w*")
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def index(gates: FeatureGates) -> Object:
    """Return the document that names the others, at ``PREFIX``."""
    prefixes = sorted({resource.prefix for resource in _served(gates)})
    return {"paths": {prefix.lstrip("/"): {"serverRelativeURL": PREFIX + prefix} for prefix in prefixes}}


def document(gates: FeatureGates, path: str) -> Object | None:
    """Return the document of a group version by its path; None for another path. The first call for a group takes up to a second."""
    served = [resource for resource in _served(gates) if path == PREFIX + resource.prefix]
    return _document(served, gates) if served else None


def _served(gates: FeatureGates) -> list[Resource]:
    return [resource for resource in resources.SERVED if gates.serves(resource)]


def _document(served: list[Resource], gates: FeatureGates) -> Object:
    paths: Object = {}
    for resource in served:
        scope = "{namespace}" if resource.namespaced else ""
        if resource.verbs == resources.REVIEW_VERBS:
            paths[resource.path(scope)] = {"post": _operation(resource, "post", "")}
            continue
        for subresource in ("", "status") if resource.has_status else ("",):
            paths[resource.path(scope, "{name}", subresource)] = {
                "patch": _operation(resource, "patch", subresource),
                "put": _operation(resource, "put", subresource),
                "get": _operation(resource, "get", subresource),
            }
        paths[resource.path(scope)] = {"post": _operation(resource, "post", ""), "get": _operation(resource, "list", "")}
    schemas = Schemas()
    for resource in served:
        described = schemas.of_shape(table.shape_of(resource, gates), api_models.name_of(resource))
        schemas.components[_schema_name(resource)] = described | {"x-kubernetes-group-version-kind": [_gvk(resource)]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "drakit local cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


def _operation(resource: Resource, action: str, subresource: str) -> Json:
    parameters: list[Json] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    return {
        "operationId": f"{action}{resource.kind}{subresource.title()}",
        "parameters": [] if action in ("get", "list") else parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": _reference(_schema_name(resource))}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }


def _gvk(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema_name(resource: Resource) -> str:
    group = resource.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def _reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}


class Schemas:
    """The schemas of one document. ``components`` are those by name, to which references point."""

    def __init__(self) -> None:
        self.components: Object = {}

    def of_shape(self, shape: Shape, kind: str = "", text: str = "") -> Object:
        """Return the schema of a shape. ``kind`` is its type in the package of models, and ``text`` describes the field that has it."""
        if isinstance(shape, Leaf):
            node = self._of_leaf(shape, kind)
            text = text or api_models.model(kind).text
        elif isinstance(shape, ListOf):
            node = _list_traits(shape) | {"type": "array", "items": self.of_shape(shape.item, _within(_LIST_TYPE, kind))}
        elif isinstance(shape, MapOf):
            node = {"type": "object", "additionalProperties": self.of_shape(shape.value, _within(_MAP_TYPE, kind))}
        else:
            node = self._of_struct(shape, api_models.model(kind))
            text = text or api_models.model(kind).text
        return self._with_text(node, text)

    def _of_leaf(self, leaf: Leaf, kind: str) -> Object:
        is_free = leaf.type is Type.ANY
        described = self._of_type(kind) if is_free and kind not in ("", "object") else {}
        return described or dict(_LEAVES[leaf.type])

    def _of_struct(self, shape: Struct, model: Model) -> Object:
        node: Object = {"type": "object", "properties": self._properties(shape, model)}
        if shape.required:
            node["required"] = list(shape.required)
        if shape.open:
            node["x-kubernetes-preserve-unknown-fields"] = True
        return node

    def _properties(self, shape: Struct, model: Model) -> Object:
        properties: Object = {}
        for name, field in shape.fields.items():
            described = model.fields.get(name)
            properties[name] = self.of_shape(field, described.type, described.text) if described else self.of_shape(field)
        further = {name: described for name, described in model.fields.items() if shape.open and name not in shape.fields}
        return properties | self._of_fields(further)

    def _of_fields(self, fields: Mapping[str, api_models.FieldText]) -> Object:
        return {
            name: self._with_text(self._of_type(field.type), field.text or api_models.model(field.type).text)
            for name, field in fields.items()
        }

    @staticmethod
    def _with_text(node: Object, text: str) -> Object:
        """Add a description. A reference may have none beside it, so it moves into ``allOf``, as Kubernetes writes it."""
        described: Object = {"description": text} if text else {}
        wrapped: Object = {"allOf": [node]}
        return described | (wrapped if text and "$ref" in node else node)

    def _of_type(self, kind: str) -> Object:
        """Return the schema of a type of the package."""
        if kind in _TYPES:
            return dict(_TYPES[kind])
        if item := _within(_LIST_TYPE, kind):
            return {"type": "array", "items": self._of_type(item)}
        if value := _within(_MAP_TYPE, kind):
            return {"type": "object", "additionalProperties": self._of_type(value)}
        model = api_models.model(kind) if _MODEL_TYPE.fullmatch(kind) else Model()
        if not model.fields:
            return dict(_LEAVES[Type.ANY])
        name = _MODEL_NAME.sub(r"io.k8s.\g<version>.\g<name>", kind)
        if name not in self.components:
            self.components[name] = {}  # A schema may contain itself.
            self.components[name] = self._of_model(model)
        return _reference(name)

    def _of_model(self, model: Model) -> Object:
        node: Object = {"description": model.text, "type": "object", "properties": self._of_fields(model.fields)}
        return node | ({"required": list(model.required)} if model.required else {})


def _within(pattern: re.Pattern[str], kind: str) -> str:
    match = pattern.fullmatch(kind)
    return match[1] if match else ""


def _list_traits(shape: ListOf) -> Object:
    traits: Object = {"x-kubernetes-list-type": "map" if shape.keys else "set" if shape.unique else "atomic"}
    if shape.keys:
        traits["x-kubernetes-list-map-keys"] = list(shape.keys)
    if shape.merge_key:
        traits |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": shape.merge_key}
    return traits
