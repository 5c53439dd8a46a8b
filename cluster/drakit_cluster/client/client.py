"""The API over HTTPS: the same verbs as the registry, for the kubelet and for tests."""

import base64
import contextlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, Unpack

import httpx

from drakit.inputs import documents, files
from drakit_cluster.api import tls
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.watching import Event, EventType
from drakit_cluster.client import api
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
        self._http = httpx.Client(
            base_url=server,
            verify=tls.client_context(ca_pem),
            headers={"authorization": f"Bearer {token}", "accept": "application/json", "user-agent": "drakit-cluster/1"},
            timeout=timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=False,
        )
        self._guard = threading.Lock()
        self._sending = 0
        self._closed = False

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
        http_timeout = httpx.Timeout(REQUEST_SECONDS, read=None)
        request = self._http.build_request("GET", path, params=parameters, timeout=http_timeout)
        try:
            with self._request():
                response = self._http.send(request, stream=True)
            if response.is_error:
                response.read()
        except httpx.TransportError as error:
            raise UnreachableError(f"watch {resource.plural}: {error}") from error
        _raise_for(response)
        return HttpWatch(response)

    def close(self) -> None:
        """Send no more requests, and close all connections once no request is in flight.

        Closed earlier, the library would leave open a connection that is being established.
        """
        with self._guard:
            self._closed = True
            is_idle = not self._sending
        if is_idle:
            self._http.close()

    @contextlib.contextmanager
    def _request(self) -> Iterator[None]:
        """Count a request in flight; raise RuntimeError after ``close``."""
        with self._guard:
            if self._closed:
                raise RuntimeError("this client has been closed")
            self._sending += 1
        try:
            yield
        finally:
            self._finish_request()

    def _finish_request(self) -> None:
        with self._guard:
            self._sending -= 1
            is_last = self._closed and not self._sending
        if is_last:
            self._http.close()

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
            with self._request():
                response = self._http.request(method, path, params=parameters, content=content, headers=headers)
        except httpx.TransportError as error:
            raise UnreachableError(f"{method} {path}: {error}") from error
        _raise_for(response)
        answer: Json = response.json()
        return json_types.mapping(answer)


class HttpWatch:
    """A watch over HTTPS. ``close`` works from any thread: it shuts the connection down, which wakes a waiting reader."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._lines: Iterator[str] = response.iter_lines()
        self._closed = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            line = next(self._lines)
        except StopIteration:
            self._response.close()
            raise
        except (httpx.TransportError, httpx.StreamError, OSError) as error:
            self._response.close()
            if self._closed.is_set():
                raise StopIteration from error
            raise UnreachableError(f"the watch broke: {error}") from error
        event: Json = json.loads(line)
        return Event(EventType(json_types.text(event, "type")), json_types.mapping(event, "object"))

    def close(self) -> None:
        """End the watch."""
        self._closed.set()
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                return


def _raise_for(response: httpx.Response) -> None:
    if response.is_error:
        try:
            status: Json = response.json()
        except ValueError:
            status = {"message": f"HTTP {response.status_code}: {response.text[:200]}"}
        raise errors.from_status(status)


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
