"""Discovery: which groups, versions and resources there are; and the server's version."""

import re

from drakit_cluster.api.http import verbs
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

GIT_VERSION = "v1.36.2+drakit"
_VERSION = re.compile(r"v(?P<major>[0-9]+)((?P<stage>alpha|beta)(?P<minor>[0-9]+))?")
_EXTENSIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""kubectl looks here before it says of a kind that nobody serves it; without an answer it says only that something is not found."""
_STATUS_VERBS = ("get", "patch", "update")


def documents() -> dict[str, Object]:
    """Return every discovery document by its path."""
    groups = sorted({one.group for one in resources.SERVED if one.group})
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
    for prefix in sorted({one.prefix for one in resources.SERVED}):
        found[prefix] = _resource_list([one for one in resources.SERVED if one.prefix == prefix])
    return found


def _group(name: str) -> Object:
    names = sorted({one.version for one in resources.SERVED if one.group == name}, key=_priority, reverse=True)
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
