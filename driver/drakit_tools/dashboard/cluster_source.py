"""The state of a cluster, from watches of its ResourceSlices, ResourceClaims, waiting Pods, Nodes and Events."""

import threading
from collections.abc import Iterator, Sequence

from drakit.core import errors, ports
from drakit.kube import api_objects, transport, watch
from drakit_tools.dashboard import cluster_state, model

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_PODS, _WAITING = "/api/v1/pods", "status.phase=Pending"
"""Pods that run are named in their claims, so only those that wait are read."""
_NODES = "/api/v1/nodes"
_EVENTS = "/api/v1/events"
_OPTIONAL = {
    _PODS: "pods that wait are not shown",
    _NODES: "cordons and nodes that are not ready are not shown",
    _EVENTS: "no events are shown",
}
"""What the page lacks if the user may not list a kind."""


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

    Without the rights for pods, nodes and events the state lacks them and says so.
    """

    def __init__(self, api: transport.Transport, clock: ports.Clock, title: str) -> None:
        # A request in the caller's thread, so that the command fails with a wrong kubeconfig or a missing right.
        for path in (_SLICES, _CLAIMS):
            api.request("GET", path, query={"limit": "1"})
        refused = {path: error for path in _OPTIONAL if (error := _refusal(api, path))}
        self._missing = tuple(f"{_OPTIONAL[path]}: {error}" for path, error in refused.items())
        self._pods_are_known = _PODS not in refused
        self._reader = cluster_state.Reader(title)
        self._stop = threading.Event()
        self._collections = {
            path: _Collection(api, path, clock, self._stop, _WAITING if path == _PODS else "")
            for path in (_SLICES, _CLAIMS, _PODS, _NODES, _EVENTS)
        }

    def close(self) -> None:
        """Stop the watches."""
        self._stop.set()

    def state(self) -> model.State:
        """Return the current state. Its problem names the objects that cannot be read, and kinds that cannot be listed. Not thread-safe."""
        items = {path: collection.items() for path, collection in self._collections.items()}
        return self._reader.state(
            cluster_state.Listing(
                slices=items[_SLICES],
                claims=items[_CLAIMS],
                pods=items[_PODS],
                nodes=items[_NODES],
                events=items[_EVENTS],
                missing=self._missing,
                pods_are_known=self._pods_are_known,
            )
        )


def _refusal(api: transport.Transport, path: str) -> str:
    """Return why a collection cannot be listed, "" if this user may list it."""
    try:
        api.request("GET", path, query={"limit": "1"})
    except errors.ApiError as error:
        return str(error)
    return ""
