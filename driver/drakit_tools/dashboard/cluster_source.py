"""The state of a cluster, from watches of its ResourceSlices, ResourceClaims, DeviceClasses, DeviceTaintRules, waiting Pods, Nodes and Events."""

import threading
from collections.abc import Iterator, Mapping, Sequence

from drakit.core import errors, ports
from drakit.kube import api_objects, transport, watch
from drakit_tools.dashboard import cluster_state, model, rules

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
PODS, WAITING = "/api/v1/pods", "status.phase=Pending"
"""Pods that run are named in their claims, so only those that wait are read."""
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
KINDS: Mapping[str, str] = {
    SLICES: "",
    CLAIMS: "",
    CLASSES: "claims of classes that do not exist are not named",
    PODS: "pods that wait are not shown",
    NODES: "cordons and nodes that are not ready are not shown",
    EVENTS: "no events are shown",
}
"""The collections, with what is not shown if the user may not list one. Slices and claims are always needed."""


class _Collection:
    """The objects of one collection by UID, which a thread keeps up to date."""

    def __init__(self, api: transport.Transport, path: str, clock: ports.Clock, stop: threading.Event, selector: str = "") -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, transport.Object] = {}
        following = watch.objects(api, path, clock=clock, stop=stop, selector=selector)
        threading.Thread(target=self._run, args=(following,), name=f"dashboard {path.rpartition('/')[2]}", daemon=True).start()

    def items(self) -> Sequence[transport.Object]:
        """Return the current objects."""
        with self._lock:
            return list(self._objects.values())

    def _run(self, following: Iterator[watch.ObservedObject | None]) -> None:
        for seen in following:
            with self._lock:
                if seen is None:
                    self._objects.clear()
                    continue
                uid = api_objects.metadata_text(seen.object, "uid")
                if seen.is_deleted:
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = seen.object


class ClusterSource:
    """Watches a cluster until ``close``. It needs the rights to list and watch slices and claims in all namespaces.

    Without the rights for DeviceClasses, DeviceTaintRules, pods, nodes and events the state lacks them and says so.
    """

    def __init__(self, api: transport.Transport, clock: ports.Clock, title: str) -> None:
        # A request in the caller's thread, so that the command fails with a wrong kubeconfig or a missing right.
        self._missing = [f"{lacks}: {error}" for path, lacks in KINDS.items() if (error := _refusal(api, path, is_needed=not lacks))]
        self._rules = rules.find(api)
        self._reader = cluster_state.Reader(title)
        self._stop = threading.Event()
        paths = (*KINDS, *filter(None, [self._rules.path]))
        self._collections = {path: _Collection(api, path, clock, self._stop, WAITING if path == PODS else "") for path in paths}

    def close(self) -> None:
        """Stop the watches."""
        self._stop.set()

    def state(self) -> model.State:
        """Return the current state. Its problem names the objects that cannot be read, and kinds that cannot be listed. Not thread-safe."""
        items = {path: collection.items() for path, collection in self._collections.items()}
        return self._reader.state(listing(items, self._missing, self._rules))


def listing(items: Mapping[str, Sequence[transport.Object]], missing: Sequence[str], served: rules.Served) -> cluster_state.Listing:
    """Return the objects by their collections."""
    return cluster_state.Listing(
        slices=items[SLICES],
        claims=items[CLAIMS],
        classes=items.get(CLASSES, ()),
        pods=items.get(PODS, ()),
        nodes=items.get(NODES, ()),
        events=items.get(EVENTS, ()),
        rules=items.get(served.path, ()),
        taints_every_device=served.taints_every_device,
        missing=(*missing, *filter(None, [served.problem])),
        note=served.note,
        pods_are_known=not any(text.startswith(KINDS[PODS]) for text in missing),
    )


def _refusal(api: transport.Transport, path: str, *, is_needed: bool) -> str:
    """Return why a collection cannot be listed, "" if this user may list it. Raise ApiError if it is needed."""
    try:
        api.request("GET", path, query={"limit": "1"})
    except errors.ApiError as error:
        if is_needed:
            raise
        return str(error)
    return ""
