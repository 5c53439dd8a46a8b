"""The objects that the dashboard shows, listed once: from files, or from a cluster without watching it."""

import uuid
from collections.abc import Sequence

from drakit.core import errors
from drakit.kube import api_objects, transport
from drakit_tools import manifests
from drakit_tools.dashboard import cluster_source, cluster_state, rules

_PAGE = 500
_SHOWN = {
    ("resource.k8s.io/v1", "ResourceSlice"): cluster_source.SLICES,
    ("resource.k8s.io/v1", "ResourceClaim"): cluster_source.CLAIMS,
    ("resource.k8s.io/v1", "DeviceClass"): cluster_source.CLASSES,
    ("v1", "Pod"): cluster_source.PODS,
    ("v1", "Node"): cluster_source.NODES,
    ("v1", "Event"): cluster_source.EVENTS,
    **{(version, "DeviceTaintRule"): rules.IN_FILES for version in rules.VERSIONS},
}
"""The collections by API version and kind."""


def of_files(files: Sequence[str]) -> tuple[cluster_state.Listing, str]:
    """Return the objects of files as they are, so with their ages, and a note on those that are not shown. Raise ConfigError.

    Objects that no API server has stored yet get a UID and a version, which decoding needs.
    """
    by_kind: dict[str, list[transport.Object]] = {}
    skipped = []
    for document in manifests.read(files):
        kind, version = document.body.get("kind"), document.body.get("apiVersion")
        if (version, kind) in _SHOWN:
            by_kind.setdefault(str(kind), []).append(_stored(document.body, document.number))
        else:
            skipped.append(document)
    items = {path: by_kind.get(kind, []) for (_, kind), path in _SHOWN.items()}
    return cluster_source.listing(items, (), rules.Served(path=rules.IN_FILES)), manifests.skip_notice(skipped)


def of_cluster(api: transport.Transport) -> cluster_state.Listing:
    """Return the objects of a cluster. Raise ApiError if slices or claims cannot be listed."""
    missing: list[str] = []
    items: dict[str, Sequence[transport.Object]] = {}
    for path, lacks in cluster_source.KINDS.items():
        try:
            items[path] = _listed(api, path, cluster_source.WAITING if path == cluster_source.PODS else "")
        except errors.ApiError as error:
            if not lacks:
                raise
            missing.append(f"{lacks}: {error}")
    served = rules.find(api)
    if served.path:
        items[served.path] = _listed(api, served.path, "")
    return cluster_source.listing(items, missing, served)


def _listed(api: transport.Transport, path: str, selector: str) -> list[transport.Object]:
    query = {"limit": str(_PAGE)} | ({"fieldSelector": selector} if selector else {})
    found: list[transport.Object] = []
    while True:
        page = api_objects.FORMAT.decode(api_objects.ObjectList, api.request("GET", path, query=query))
        found += [item for item in page.items if isinstance(item, dict)]
        query["continue"] = page.continue_
        if not page.continue_:
            return found


def _stored(item: transport.Object, number: int) -> transport.Object:
    metadata = item.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    added = {"uid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{item.get('kind')} {number}")), "resourceVersion": "1"}
    return {**item, "metadata": {**added, **known}}
