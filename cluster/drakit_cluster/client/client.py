"""The API over HTTPS: the same verbs as the registry, for the kubelet and for tests."""

import base64
import json
import pathlib
import threading
import urllib.parse
from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from drakit.inputs import documents, files
from drakit_cluster.api import tls
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.watching import Event, EventType
from drakit_cluster.client import api, https
from drakit_cluster.client.api import Listing
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource

REQUEST_SECONDS = 10.0
_KUBECONFIG_MAX = 4 << 20


class UnreachableError(errors.ApiError, reason="Unreachable"):
    """The server did not answer: it has stopped, or the connection broke. A write may or may not have happened."""


class ApiClient:
    """A client for one identity. Safe to use from several threads; close it, or use it as a context manager."""

    def __init__(self, *, server: str, ca_pem: bytes, token: str, timeout: float = REQUEST_SECONDS) -> None:
        headers = {"authorization": f"Bearer {token}", "accept": "application/json", "user-agent": "drakit-cluster/1"}
        self._server = https.Server(server, tls.client_context(ca_pem), headers=headers, seconds=timeout)

    @classmethod
    def from_kubeconfig(cls, path: pathlib.Path, *, timeout: float = REQUEST_SECONDS) -> Self:
        """Return a client for the current context of a kubeconfig with inline certificate authority and token."""
        config: Json = documents.load(files.read_text(path, limit=_KUBECONFIG_MAX))
        current = json_types.text(config, "current-context")
        context = json_types.mapping(_named(config, "contexts", current), "context")
        cluster = json_types.mapping(_named(config, "clusters", json_types.text(context, "cluster")), "cluster")
        user = json_types.mapping(_named(config, "users", json_types.text(context, "user")), "user")
        pem = base64.b64decode(json_types.text(cluster, "certificate-authority-data"))
        server = json_types.text(cluster, "server")
        return cls(server=server, ca_pem=pem, token=json_types.text(user, "token"), timeout=timeout)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """Return one object."""
        return self._object("GET", resource.path(namespace, name))

    def list(self, resource: Resource, **options: Unpack[api.ListOptions]) -> Listing:
        """Return the objects of a selection; items get the apiVersion and kind that lists leave out."""
        return _listing(resource, self._object("GET", *_selected(resource, options)))

    def create(self, resource: Resource, obj: Object, *, namespace: str = "") -> Object:
        """Store a new object."""
        target_namespace = namespace or json_types.text(obj, "metadata", "namespace")
        if resource.namespaced and not target_namespace:
            raise errors.BadRequestError(f"metadata.namespace: a {resource.kind} needs a namespace")
        return self._object("POST", resource.path(target_namespace), body=_typed(resource, obj))

    def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object or its status."""
        name, namespace = json_types.text(obj, "metadata", "name"), json_types.text(obj, "metadata", "namespace")
        return self._object("PUT", resource.path(namespace, name, subresource), body=_typed(resource, obj))

    def patch(
        self, resource: Resource, name: str, patch: Json, *, namespace: str = "", kind: PatchKind, **options: Unpack[api.PatchOptions]
    ) -> Object:
        """Change an object."""
        parameters = {"fieldManager": manager} if (manager := options.get("manager")) else {}
        if options.get("force"):
            parameters["force"] = "true"
        path = resource.path(namespace, name, options.get("subresource", ""))
        return self._object("PATCH", path, parameters, body=patch, media_type=kind.value)

    def delete(self, resource: Resource, name: str, *, namespace: str = "", **options: Unpack[api.DeleteOptions]) -> Object:
        """Delete an object; kinds that do not answer with the object give a metav1 Status."""
        preconditions = {"uid": options.get("uid"), "resourceVersion": options.get("resource_version")}
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if (grace := options.get("grace_seconds")) is not None:
            body["gracePeriodSeconds"] = grace
        return self._object("DELETE", resource.path(namespace, name), body=body)

    def delete_collection(self, resource: Resource, **options: Unpack[api.ListOptions]) -> Listing:
        """Delete all objects of a selection. Namespaced kinds need a namespace."""
        if resource.namespaced and not options.get("namespace"):
            raise errors.BadRequestError(f"metadata.namespace: deleting {resource.plural} needs a namespace")
        return _listing(resource, self._object("DELETE", *_selected(resource, options)))

    def watch(
        self, resource: Resource, *, since: str, bookmarks: bool = False, timeout: float | None = None, **options: Unpack[api.ListOptions]
    ) -> "HttpWatch":
        """Return the changes after ``since``; the connection is open when this returns."""
        path, parameters = _selected(resource, options)
        parameters["watch"] = "true"
        if since:
            parameters["resourceVersion"] = since
        if bookmarks:
            parameters["allowWatchBookmarks"] = "true"
        if timeout is not None:
            parameters["timeoutSeconds"] = str(max(1, round(timeout)))
        try:
            answer = self._server.stream(urllib.parse.quote(path), parameters)
        except https.FAILURES as error:
            raise UnreachableError(f"watch {resource.plural}: {error}") from error
        if isinstance(answer, https.Answer):
            raise _refusal(answer)
        return HttpWatch(answer)

    def close(self) -> None:
        """Send no more requests, and close all connections, each as soon as its answer is there."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _object(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        body: Json = None,
        media_type: str = "application/json",
    ) -> Object:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if content is None else {"content-type": media_type}
        try:
            answer = self._server.request(method, urllib.parse.quote(path), parameters, content=content, headers=headers)
        except https.FAILURES as error:
            raise UnreachableError(f"{method} {path}: {error}") from error
        if answer.is_error:
            raise _refusal(answer)
        return json_types.mapping(answer.json())


class HttpWatch:
    """A watch over HTTPS. ``close`` works from any thread: it shuts the connection down, which wakes a waiting reader."""

    def __init__(self, stream: https.Stream) -> None:
        self._stream = stream
        self._reading = threading.Lock()
        self._closed = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        with self._reading:
            line = self._line()
            if not line:
                self._stream.close()
                raise StopIteration
        event: Json = json.loads(line)
        return Event(EventType(json_types.text(event, "type")), json_types.mapping(event, "object"))

    def close(self) -> None:
        """End the watch."""
        self._closed.set()
        if self._reading.acquire(blocking=False):
            self._stream.close()
            self._reading.release()
        else:
            self._stream.shut_down()  # The reader closes it.

    def _line(self) -> bytes:
        """Return the next line, b"" at the end or after ``close``."""
        if self._closed.is_set():
            return b""
        try:
            return self._stream.readline()
        except https.FAILURES as error:
            if self._closed.is_set():
                return b""
            self._stream.close()
            raise UnreachableError(f"the watch broke: {error}") from error


def _refusal(answer: https.Answer) -> errors.ApiError:
    try:
        status: Json = answer.json()
    except ValueError:
        status = {"message": f"HTTP {answer.status}: {answer.body.decode(errors='replace')[:200]}"}
    return errors.from_status(status)


def _named(config: Json, group: str, name: str) -> Object:
    entries = [entry for entry in json_types.objects(config, group) if json_types.text(entry, "name") == name]
    if not entries:
        raise errors.BadRequestError(f"kubeconfig: {group} has no entry named {name!r}")
    return entries[0]


def _selected(resource: Resource, options: api.ListOptions) -> tuple[str, dict[str, str]]:
    selectors = {"fieldSelector": options.get("field_selector"), "labelSelector": options.get("label_selector")}
    return resource.path(options.get("namespace") or ""), {key: value for key, value in selectors.items() if value}


def _listing(resource: Resource, body: Object) -> Listing:
    metadata = json_types.mapping(body, "metadata")
    return Listing(
        items=[_typed(resource, element) for element in json_types.objects(body, "items")],
        resource_version=json_types.text(metadata, "resourceVersion"),
    )


def _typed(resource: Resource, obj: Object) -> Object:
    """Return the object with its apiVersion and kind, without changing the caller's."""
    return {"apiVersion": resource.api_version, "kind": resource.kind} | obj
