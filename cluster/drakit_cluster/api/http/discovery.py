"""Discovery: the groups, versions and resources of the server, and its version."""

import functools
import re
from collections.abc import Mapping

from drakit_cluster.api.http import verbs
from drakit_cluster.objects import json_types, resources, versions
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

_VERSION = re.compile(r"v(?P<major>[0-9]+)((?P<stage>alpha|beta)(?P<minor>[0-9]+))?")
_EXTENSIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""kubectl reads this path before it reports that no server has a kind; without a response it reports only that something is not found."""
_STATUS_VERBS = ("get", "patch", "update")


def git_version(version: str) -> str:
    """Return the version that the server and its kubelets report."""
    return f"v{version}.0{'-alpha.0' if version in versions.PLANNED else ''}+drakit"


def _served(gates: FeatureGates) -> list[Resource]:
    return [resource for resource in resources.SERVED if gates.serves(resource)]


@functools.lru_cache(maxsize=32)
def documents(gates: FeatureGates) -> Mapping[str, Object]:
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
