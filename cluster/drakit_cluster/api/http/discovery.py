"""Discovery: the groups, versions and resources of the server, its version, and OpenAPI v3 documents generated from the shapes.

The OpenAPI documents are enough for kubectl to know kinds, fields and fieldValidation. They list the fields of the server's version, and
a field that no released Kubernetes has only where its gate is on. They hold no descriptions and no request bodies, so kubectl chooses its
patches by its own types.
"""

import re

from drakit_cluster.api.http import verbs
from drakit_cluster.objects import json_types, resources, versions
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Type

_VERSION = re.compile(r"v(?P<major>[0-9]+)((?P<stage>alpha|beta)(?P<minor>[0-9]+))?")
_EXTENSIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""kubectl reads this path before it reports that no server has a kind; without a response it reports only that something is not found."""
_STATUS_VERBS = ("get", "patch", "update")


def git_version(version: str) -> str:
    """Return the version that the server and its kubelets report."""
    return f"v{version}.0{'-alpha.0' if version in versions.PLANNED else ''}+drakit"


def _served(gates: FeatureGates) -> list[Resource]:
    return [resource for resource in resources.SERVED if gates.serves(resource)]


def documents(gates: FeatureGates) -> dict[str, Object]:
    """Return every discovery document by its path."""
    served = _served(gates)
    groups = sorted({resource.group for resource in served if resource.group})
    by_path: dict[str, Object] = {
        "/version": {
            "major": "1",
            "minor": gates.version.partition(".")[2],
            "gitVersion": git_version(gates.version),
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "none",
            "platform": "linux/amd64",
        },
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name, served) for name in groups]},
    }
    by_path |= {f"/apis/{name}": _group(name, served) | {"kind": "APIGroup", "apiVersion": "v1"} for name in groups}
    by_path[_EXTENSIONS] = {
        "kind": "CustomResourceDefinitionList",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    }
    for prefix in sorted({resource.prefix for resource in served}):
        by_path[prefix] = _resource_list([resource for resource in served if resource.prefix == prefix])
    return by_path


def _group(name: str, served: list[Resource]) -> Object:
    names = sorted({resource.version for resource in served if resource.group == name}, key=_priority, reverse=True)
    versions: list[Json] = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _priority(version: str) -> tuple[int, int, int]:
    """Order versions as Kubernetes does: released before beta before alpha, then by number."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0)
    return (("alpha", "beta", "").index(match["stage"] or ""), int(match["major"]), int(match["minor"] or 0))


def _resource_list(served: list[Resource]) -> Object:
    entries: list[Json] = []
    for resource in served:
        entries.append(_resource(resource, "", resource.verbs))
        if resource.has_status:
            entries.append(_resource(resource, "status", _STATUS_VERBS))
        if resource.has_scale:
            gvk: Object = {"group": verbs.SCALE_GROUP, "version": verbs.SCALE_VERSION, "kind": verbs.SCALE_KIND}
            entries.append(json_types.mapping(_resource(resource, "scale", _STATUS_VERBS)) | gvk)
        entries += [_resource(resource, post, resources.REVIEW_VERBS, resources.POSTED[post]) for post in resource.posts]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served[0].api_version, "resources": entries}


def _resource(resource: Resource, subresource: str, verbs: tuple[str, ...], body: Resource | None = None) -> Json:
    entry: Object = {
        "name": f"{resource.plural}/{subresource}" if subresource else resource.plural,
        "singularName": "" if subresource else resource.singular,
        "namespaced": resource.namespaced,
        "kind": (body or resource).kind,
        "verbs": list(verbs),
    }
    if body is not None:
        entry |= {"group": body.group, "version": body.version}
    if resource.short_names and not subresource:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories and not subresource:
        entry["categories"] = list(resource.categories)
    return entry


_OPENAPI_PREFIX = "/openapi/v3"
_LEAVES: dict[Type, Object] = {
    Type.STRING: {"type": "string"},
    Type.INTEGER: {"type": "integer", "format": "int64"},
    Type.BOOLEAN: {"type": "boolean"},
    Type.QUANTITY: {"type": "string"},
    Type.TIME: {"type": "string", "format": "date-time"},
    Type.ANY: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
OPENAPI_V2_PATH = "/openapi/v2"
OPENAPI_V2_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2 = b"\x0a\x032.0"
"""The document of OpenAPI v2, ``swagger: "2.0"`` and no kinds, as protobuf. kubectl reads it before it reports that no server has a kind."""
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def openapi_documents(gates: FeatureGates) -> dict[str, Object]:
    """Return the index and one document per group version, by path."""
    served = _served(gates)
    prefixes = sorted({resource.prefix for resource in served})
    index: Object = {prefix.lstrip("/"): {"serverRelativeURL": _OPENAPI_PREFIX + prefix} for prefix in prefixes}
    by_path: dict[str, Object] = {_OPENAPI_PREFIX: {"paths": index}}
    for prefix in prefixes:
        by_path[_OPENAPI_PREFIX + prefix] = _document([resource for resource in served if resource.prefix == prefix], gates)
    return by_path


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
    return {
        "openapi": "3.0.0",
        "info": {"title": "drakit local cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": {_schema_name(entry): _schema(entry, gates) for entry in served}},
    }


def _operation(resource: Resource, action: str, subresource: str) -> Json:
    parameters: list[Json] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    reference: Object = {"$ref": f"#/components/schemas/{_schema_name(resource)}"}
    return {
        "operationId": f"{action}{resource.kind}{subresource.title()}",
        "parameters": [] if action in ("get", "list") else parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }


def _gvk(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema_name(resource: Resource) -> str:
    group = resource.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def _schema(resource: Resource, gates: FeatureGates) -> Json:
    return schema(table.shape_of(resource, gates)) | {"x-kubernetes-group-version-kind": [_gvk(resource)]}


def schema(shape: Shape) -> Object:
    """Return the OpenAPI schema of a shape."""
    if isinstance(shape, Leaf):
        return dict(_LEAVES[shape.type])
    if isinstance(shape, ListOf):
        return _list_traits(shape) | {"type": "array", "items": schema(shape.item)}
    if isinstance(shape, MapOf):
        return {"type": "object", "additionalProperties": schema(shape.value)}
    node: Object = {"type": "object", "properties": {name: schema(field) for name, field in shape.fields.items()}}
    if shape.required:
        node["required"] = list(shape.required)
    if shape.open:
        node["x-kubernetes-preserve-unknown-fields"] = True
    return node


def _list_traits(shape: ListOf) -> Object:
    traits: Object = {"x-kubernetes-list-type": "map" if shape.keys else "set" if shape.unique else "atomic"}
    if shape.keys:
        traits["x-kubernetes-list-map-keys"] = list(shape.keys)
    if shape.merge_key:
        traits |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": shape.merge_key}
    return traits
