"""Discovery: which groups, versions and resources there are, the server's version, and OpenAPI v3 documents made from the shapes.

The OpenAPI documents are enough for kubectl to know kinds, fields and fieldValidation. They list a field that no released Kubernetes has only
where its gate is on, as a server would that does not know it. They hold no descriptions, and no request bodies: kubectl then chooses its
patches by its own types.
"""

import re

from drakit_cluster.api.http import verbs
from drakit_cluster.objects import features, json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.objects.schema import table
from drakit_cluster.objects.schema.shape import Leaf, ListOf, MapOf, Shape, Type

GIT_VERSION = "v1.36.2+drakit"
_VERSION = re.compile(r"v(?P<major>[0-9]+)((?P<stage>alpha|beta)(?P<minor>[0-9]+))?")
_EXTENSIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""kubectl looks here before it says of a kind that nobody serves it; without an answer it says only that something is not found."""
_STATUS_VERBS = ("get", "patch", "update")


def documents() -> dict[str, Object]:
    """Return every discovery document by its path."""
    groups = sorted({resource.group for resource in resources.SERVED if resource.group})
    found: dict[str, Object] = {
        "/version": {
            "major": "1",
            "minor": "36",
            "gitVersion": GIT_VERSION,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "none",
            "compiler": "none",
            "platform": "linux/amd64",
        },
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]},
    }
    found |= {f"/apis/{name}": _group(name) | {"kind": "APIGroup", "apiVersion": "v1"} for name in groups}
    found[_EXTENSIONS] = {
        "kind": "CustomResourceDefinitionList",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    }
    for prefix in sorted({resource.prefix for resource in resources.SERVED}):
        found[prefix] = _resource_list([resource for resource in resources.SERVED if resource.prefix == prefix])
    return found


def _group(name: str) -> Object:
    names = sorted({resource.version for resource in resources.SERVED if resource.group == name}, key=_priority, reverse=True)
    versions: list[Json] = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _priority(version: str) -> tuple[int, int, int]:
    """Order versions as Kubernetes does: released before beta before alpha, then by number."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0)
    return (("alpha", "beta", "").index(found["stage"] or ""), int(found["major"]), int(found["minor"] or 0))


def _resource_list(found: list[Resource]) -> Object:
    listed: list[Json] = []
    for one in found:
        listed.append(_resource(one, "", one.verbs))
        if one.has_status:
            listed.append(_resource(one, "status", _STATUS_VERBS))
        if one.has_scale:
            gvk: Object = {"group": verbs.SCALE_GROUP, "version": verbs.SCALE_VERSION, "kind": verbs.SCALE_KIND}
            listed.append(json_types.mapping(_resource(one, "scale", _STATUS_VERBS)) | gvk)
        listed += [_resource(one, post, resources.REVIEW_VERBS, resources.POSTED[post]) for post in one.posts]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version, "resources": listed}


def _resource(one: Resource, subresource: str, verbs: tuple[str, ...], body: Resource | None = None) -> Json:
    entry: Object = {
        "name": f"{one.plural}/{subresource}" if subresource else one.plural,
        "singularName": "" if subresource else one.singular,
        "namespaced": one.namespaced,
        "kind": (body or one).kind,
        "verbs": list(verbs),
    }
    if body is not None:
        entry |= {"group": body.group, "version": body.version}
    if one.short_names and not subresource:
        entry["shortNames"] = list(one.short_names)
    if one.categories and not subresource:
        entry["categories"] = list(one.categories)
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
"""The document of OpenAPI v2, ``swagger: "2.0"`` and no kinds, as protobuf. kubectl reads it before it says that nobody serves a kind."""
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def openapi_documents(gates: FeatureGates) -> dict[str, Object]:
    """Return the index and one document per group version, by path."""
    prefixes = sorted({resource.prefix for resource in resources.SERVED})
    index: Object = {prefix.lstrip("/"): {"serverRelativeURL": _OPENAPI_PREFIX + prefix} for prefix in prefixes}
    found: dict[str, Object] = {_OPENAPI_PREFIX: {"paths": index}}
    for prefix in prefixes:
        found[_OPENAPI_PREFIX + prefix] = _document([resource for resource in resources.SERVED if resource.prefix == prefix], gates)
    return found


def _document(found: list[Resource], gates: FeatureGates) -> Object:
    paths: Object = {}
    for one in found:
        scope = "{namespace}" if one.namespaced else ""
        if one.verbs == resources.REVIEW_VERBS:
            paths[one.path(scope)] = {"post": _operation(one, "post", "")}
            continue
        for subresource in ("", "status") if one.has_status else ("",):
            paths[one.path(scope, "{name}", subresource)] = {
                "patch": _operation(one, "patch", subresource),
                "put": _operation(one, "put", subresource),
                "get": _operation(one, "get", subresource),
            }
        paths[one.path(scope)] = {"post": _operation(one, "post", ""), "get": _operation(one, "list", "")}
    return {
        "openapi": "3.0.0",
        "info": {"title": "drakit local cluster", "version": "v1"},
        "paths": paths,
        "components": {"schemas": {_schema_name(entry): _schema(entry, gates) for entry in found}},
    }


def _operation(one: Resource, action: str, subresource: str) -> Json:
    parameters: list[Json] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    reference: Object = {"$ref": f"#/components/schemas/{_schema_name(one)}"}
    return {
        "operationId": f"{action}{one.kind}{subresource.title()}",
        "parameters": [] if action in ("get", "list") else parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(one),
    }


def _gvk(one: Resource) -> Object:
    return {"group": one.group, "version": one.version, "kind": one.kind}


def _schema_name(one: Resource) -> str:
    group = one.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{one.version}.{one.kind}"


def _schema(one: Resource, gates: FeatureGates) -> Json:
    made = schema(table.shape_of(one))
    for steps in features.unknown_fields(resources.stored(one), gates):
        _remove(made, steps)
    return made | {"x-kubernetes-group-version-kind": [_gvk(one)]}


def _remove(found: Object, steps: tuple[str, ...]) -> None:
    step, rest = steps[0], steps[1:]
    if step in ("[]", "{}"):
        _remove(json_types.child(found, "items" if step == "[]" else "additionalProperties"), rest)
    elif rest:
        _remove(json_types.child(json_types.child(found, "properties"), step), rest)
    else:
        json_types.child(found, "properties").pop(step, None)


def schema(shape: Shape) -> Object:
    """Return the OpenAPI schema of a shape."""
    if isinstance(shape, Leaf):
        return dict(_LEAVES[shape.type])
    if isinstance(shape, ListOf):
        return _list_traits(shape) | {"type": "array", "items": schema(shape.item)}
    if isinstance(shape, MapOf):
        return {"type": "object", "additionalProperties": schema(shape.value)}
    found: Object = {"type": "object", "properties": {name: schema(one) for name, one in shape.fields.items()}}
    if shape.required:
        found["required"] = list(shape.required)
    if shape.open:
        found["x-kubernetes-preserve-unknown-fields"] = True
    return found


def _list_traits(shape: ListOf) -> Object:
    traits: Object = {"x-kubernetes-list-type": "map" if shape.keys else "set" if shape.unique else "atomic"}
    if shape.keys:
        traits["x-kubernetes-list-map-keys"] = list(shape.keys)
    if shape.merge_key:
        traits |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": shape.merge_key}
    return traits
