"""Read and write the ResourceSlices of one driver at the API server: those of one node, or those of cluster pools."""

import http
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from drakit.core import errors, ports, records
from drakit.core.slices import resource_slice
from drakit.kube import api_objects, discovery, slice_codec, transport
from drakit.kube import watch as watching
from drakit.telemetry import logs

PATH = f"/apis/{slice_codec.API_VERSION}/resourceslices"
LIST_PATIENCE_SECONDS = 1.0
"""The time that a watch waits for its reader to list the slices before it lists them itself."""
UNREADABLE_POOL = "unreadable"
"""The pool name for a stored slice with an unreadable pool."""
_KEPT_METADATA = ("name", "uid", "resourceVersion", "generateName", "labels", "annotations", "ownerReferences", "finalizers")

_log = logs.get_logger(__name__)

Read = TypeVar("Read")


class ApiSlices:
    """The ``core.ports.SliceStore`` of one driver on one node, or of its cluster pools where ``node`` is empty.

    The node owns its slices, so that they are deleted with it; slices of cluster pools have no owner. Metadata that other programs set on a slice
    survives an update. The node's UID is read before the first create after a list, so that slices of a recreated node get the right owner.
    """

    def __init__(
        self, api: transport.Transport, *, driver: str, node: str = "", clock: ports.Clock, meter: ports.Meter | None = None
    ) -> None:
        self._api = api
        self._node = node
        self._driver = driver
        self._selector = f"spec.driver={driver},spec.nodeName={node}"
        self._clock = clock
        self._description = discovery.Description(api, clock)
        self._meter = meter
        self._node_uid = ""
        self._metadata: dict[str, records.Record] = {}
        self._version = ""
        self._is_listed = threading.Event()

    def list(self) -> Sequence[resource_slice.Published]:
        """Return all slices of this driver on this node, or without a node. Raise ApiError."""
        answer = self._api.request("GET", PATH, query={"fieldSelector": self._selector})
        self._node_uid = ""
        self._metadata = {}
        self._version = api_objects.metadata_text(answer, "resourceVersion")
        self._is_listed.set()
        items = _readable(lambda: api_objects.FORMAT.decode(api_objects.ObjectList, answer).items)
        return [published for item in items for published in self._listed(item)]

    def create(self, wanted: resource_slice.Create) -> resource_slice.Published:
        """Create one slice. Raise ApiError, with status 404 when the node does not exist."""
        return self._decoded(self._api.request("POST", PATH, body=self._new(wanted)))

    def try_create(self, wanted: resource_slice.Create) -> None:
        """Let the API server validate and admit one slice without storing it. Raise ApiError as ``create`` does."""
        self._api.request("POST", PATH, query={"dryRun": "All"}, body=self._new(wanted))

    def update(self, wanted: resource_slice.Update) -> resource_slice.Published:
        """Replace one slice, if it is still as published. Raise ApiError, with status 409 when it has changed."""
        published = wanted.published
        metadata = {**self._metadata_of(published), "uid": published.uid, "resourceVersion": published.version}
        answer = self._api.request("PUT", f"{PATH}/{published.name}", body=_object(metadata, wanted.spec))
        return self._decoded(answer)

    def delete(self, published: resource_slice.Published) -> None:
        """Delete one slice, if it exists and is still as published. Raise ApiError, with status 409 when it has changed."""
        preconditions: records.Record = {"uid": published.uid, "resourceVersion": published.version}
        body: records.Record = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            self._api.request("DELETE", f"{PATH}/{published.name}", body=body)
        except errors.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
        self._metadata.pop(published.uid, None)

    def server(self) -> ports.ApiServer:
        """Return the server's version and the gates that its schema lacks; none where that is unknown. Never raise."""
        return self._description.current()

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield once for every change by another program, and where changes may have been missed, until ``stop`` is set.

        The watch starts at the version of the list that the reader makes then. A list with ``limit=1`` only for the version would be read from etcd,
        where the selector makes the server scan the slices of all nodes.
        """
        changes = watching.changes(
            self._api, PATH, selector=self._selector, version=self._next_version, clock=self._clock, stop=stop, meter=self._meter
        )
        for observed in changes:
            if observed is None or self._is_foreign_change(observed):
                yield

    def _next_version(self) -> str:
        """Return the version of a new list by the reader, or list here if the reader does not soon."""
        if not self._is_listed.wait(LIST_PATIENCE_SECONDS):
            self.list()
        self._is_listed.clear()
        return self._version

    def _is_foreign_change(self, observed: watching.ObservedObject) -> bool:
        """Return whether another program made the change, of a slice that is not a probe; every process creates and deletes probes at its start."""
        try:
            is_probe = slice_codec.pool_name(observed.object).endswith(resource_slice.PROBE_SUFFIX)
        except errors.ConfigError:
            return True
        if is_probe:
            return False
        stored = self._metadata.get(api_objects.metadata_text(observed.object, "uid"))
        if observed.is_deleted or stored is None:
            return observed.is_deleted is (stored is not None)
        return stored.get("resourceVersion") != api_objects.metadata_text(observed.object, "resourceVersion")

    def _new(self, wanted: resource_slice.Create) -> records.Record:
        return _object({"generateName": wanted.prefix, **self._ownership()}, wanted.spec)

    def _ownership(self) -> records.Record:
        if not self._node:
            return records.EMPTY
        owner: records.Record = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._owner_uid(), "controller": True}
        return {"ownerReferences": [owner]}

    def _owner_uid(self) -> str:
        if not self._node_uid:
            try:
                node = self._api.request("GET", f"/api/v1/nodes/{self._node}")
            except errors.ApiError as error:
                if error.status == http.HTTPStatus.NOT_FOUND:
                    message = f"there is no node {self._node!r} in this cluster; check the node name"
                    raise errors.ApiError(message, status=error.status, reason=error.reason) from error
                raise
            self._node_uid = _readable(lambda: api_objects.FORMAT.decode(api_objects.Identity, node)).uid
        return self._node_uid

    def _metadata_of(self, published: resource_slice.Published) -> records.Record:
        """Return the slice's last known metadata, after a list if this process does not know the slice."""
        if published.uid not in self._metadata:
            self.list()
        return self._metadata.get(published.uid, {"name": published.name})

    def _listed(self, item: object) -> Sequence[resource_slice.Published]:
        """Return the slice. An unreadable one gets the pool ``UNREADABLE_POOL``, so that the publisher removes it, or is ignored without identity."""
        try:
            return (self._decoded(item),)
        except errors.ApiError as error:
            name, uid, version = (api_objects.metadata_text(item, key) for key in ("name", "uid", "resourceVersion"))
            has_identity = bool(name and uid and version)
            _log.warning("slice ignored: cannot be read", slice=api_objects.name_of(item), error=str(error), removed=has_identity)
            if not has_identity:
                return ()
            pool = resource_slice.Pool(name=UNREADABLE_POOL, generation=0, count=0)
            spec = resource_slice.SliceSpec(driver=self._driver, node=self._node, pool=pool, page=resource_slice.Page())
            return (resource_slice.Published(name=name, uid=uid, version=version, spec=spec),)

    def _decoded(self, stored: Any) -> resource_slice.Published:
        published = _readable(lambda: slice_codec.decode(stored))
        metadata = stored["metadata"]
        self._metadata[published.uid] = {key: metadata[key] for key in _KEPT_METADATA if key in metadata}
        return published


def _object(metadata: records.Record, spec: resource_slice.SliceSpec) -> records.Record:
    return {"apiVersion": slice_codec.API_VERSION, "kind": slice_codec.KIND, "metadata": metadata, "spec": slice_codec.encode(spec)}


def _readable(read: Callable[[], Read]) -> Read:
    """Return the result of ``read``, and raise its errors as ApiError, because the API server sent an invalid answer."""
    try:
        return read()
    except errors.ApiError:
        raise
    except api_objects.UNREADABLE as error:
        raise errors.ApiError(f"the API server sent an object that cannot be read: {error}") from error
