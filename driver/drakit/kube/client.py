"""The connection to the API server. Where ``access`` cannot tell how to reach it, the official client's configuration and authentication do.

Objects travel as plain JSON: the official client's models drop fields they do not know, and cost ten times as much. Importing that client takes
time and memory, so it is imported only when it is needed.
"""

import contextlib
import functools
import json
import os
import pathlib
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import urllib3
import yaml

from drakit.core import errors, records
from drakit.kube import access, direct, fields, keys, transport
from drakit.telemetry import secrets

if TYPE_CHECKING:
    from kubernetes.client import configuration as configurations

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
MESSAGE_MAX = 500
LINE_MAX = 16 << 20
WRITE_ANSWER_MAX = 16 << 20
"""Bytes of the answer to a write; it is one object, and the API server takes none of more than 3 MiB."""
_PIECE = 1 << 14
_ERROR_BODY_MAX = 1 << 16
_USER_AGENT = "drakit"
_OK, _MULTIPLE_CHOICES = 200, 300


def connect(kubeconfig: pathlib.Path | None = None, *, context: str = "", seconds: float = REQUEST_SECONDS) -> "Client":
    """A client for the kubeconfig given, else for the one named by ``KUBECONFIG``, else for the cluster this process runs in.

    Nothing is sent yet. ``seconds`` is the longest wait for one answer. Raises SettingsError when there is no configuration or it cannot be used.
    """
    named = str(kubeconfig or os.environ.get("KUBECONFIG", ""))
    plain = access.of_kubeconfig(access.read_kubeconfigs(named), context) if named else access.in_cluster()
    return Client(plain or _official(named, context), seconds)


def connect_to(server: str, *, token: str, ca_file: pathlib.Path) -> "Client":
    """A client for one server, known by its certificate authority, with a bearer token."""
    return Client(access.plain(server, lambda: token, ca_file=ca_file))


class Later:
    """``transport.Transport`` that looks for its configuration at the first request, for what most commands never send.

    A configuration that cannot be used fails the request with an ApiError, and the next request looks again.
    """

    def __init__(self, connection: Callable[[], transport.Transport]) -> None:
        self._connection = connection
        self._connected: transport.Transport | None = None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: transport.Body | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        """Send one request; raises ApiError."""
        return self._client().request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        """Start a watch; raises ApiError."""
        return self._client().stream(path, query=query, timeout=timeout)

    def _client(self) -> transport.Transport:
        if self._connected is None:
            try:
                self._connected = self._connection()
            except errors.SettingsError as error:
                raise errors.ApiError(f"no connection to the API server: {error}") from error
        return self._connected


def _official(named: str, context: str) -> access.Access:
    """What the official client makes of a kubeconfig or of the pod's service account; raises SettingsError."""
    from kubernetes import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes.client import configuration  # noqa: PLC0415

    settings, place = configuration.Configuration(), keys.folder() if named else None
    try:
        if named:
            config.load_kube_config(
                config_file=named,
                context=context or None,
                client_configuration=settings,
                persist_config=False,
                temp_file_path=str(place) if place else None,
            )
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        hint = f"cannot use kubeconfig {named}" if named else "no kubeconfig is given, and this process does not run in a cluster"
        raise errors.SettingsError(f"{hint}: {_one_line(str(error))}", key="kubeconfig") from error
    return _Official(settings)


class _Official:
    """``access.Access`` by the official client."""

    def __init__(self, settings: "configurations.Configuration") -> None:
        from kubernetes.client import rest  # noqa: PLC0415 - see the module's docstring

        settings.socket_options = access.KEEPALIVE
        settings.connection_pool_maxsize = access.CONNECTIONS
        if access.is_loopback(settings.host):
            settings.proxy = None
        self._settings = settings
        self._authenticating = threading.Lock()
        self.pools: urllib3.PoolManager = rest.RESTClientObject(settings).pool_manager
        self.straight = None if settings.proxy or settings.assert_hostname is not None else _straight(settings)

    @property
    def server(self) -> str:
        return self._settings.host

    @property
    def is_proxied(self) -> bool:
        return bool(self._settings.proxy)

    def identity(self) -> Mapping[str, str]:
        """Whatever the configuration says; a token that is about to expire is renewed here, by one thread at a time."""
        with self._authenticating:
            credentials = self._settings.auth_settings().values()
        return {one["key"]: one["value"] for one in credentials if one["value"]}


def _straight(settings: "configurations.Configuration") -> direct.Direct:
    """The short way to the server of the official client's configuration."""
    context = functools.partial(
        direct.context,
        ca_file=settings.ssl_ca_cert,
        ca_data=settings.ca_cert_data,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        is_verified=settings.verify_ssl,
    )
    return direct.Direct(
        settings.host, keep=access.CONNECTIONS, options=access.KEEPALIVE, context=context, tls_name=settings.tls_server_name
    )


class Client:
    """``kube.transport.Transport`` over HTTPS; safe to use from several threads."""

    def __init__(self, reached: access.Access, seconds: float = REQUEST_SECONDS) -> None:
        self._access = reached
        self._seconds = seconds
        base = reached.server.rstrip("/")
        # One server, so its pool is looked up once; only a proxy asked over plain HTTP wants the whole address in each request.
        self._pool = reached.pools.connection_from_url(base)
        self._base = base if reached.is_proxied and base.startswith("http:") else urllib.parse.urlsplit(base).path

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._access.server

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: transport.Body | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        """Send one request; raises ApiError. ``timeout`` is in seconds, the client's own unless given."""
        content = None if body is None else direct.Body(json.dumps(records.thaw(body), separators=(",", ":")).encode(), content_type)
        target, seconds = _target(f"{self._base}{path}", query or {}), timeout or self._seconds
        most = direct.BODY_MAX if method == "GET" else WRITE_ANSWER_MAX
        if self._access.straight is not None:
            return _object(self._send_straight(self._access.straight, method, target, content, seconds, most))
        end = time.monotonic() + seconds
        answer = self._send(method, target, content, seconds)
        try:
            return _object(b"".join(_bounded(answer, end, most)))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(error) from error
        finally:
            answer.close()

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> "Watch":
        """Start a watch; ``timeout`` is the longest silence in seconds. Raises ApiError."""
        return Watch(self._send("GET", _target(f"{self._base}{path}", query), None, timeout))

    def close(self) -> None:
        """Close idle connections."""
        self._access.pools.clear()
        if self._access.straight is not None:
            self._access.straight.close()

    def _send_straight(
        self, straight: direct.Direct, method: str, target: str, body: direct.Body | None, seconds: float, most: int
    ) -> bytes:
        """The body of the answer to a request that goes the short way."""
        identity, connect_seconds = self._identification(), min(CONNECT_SECONDS, seconds)
        try:
            answer = straight.send(method, target, identity, body=body, connect_seconds=connect_seconds, seconds=seconds, most=most)
        except (OSError, ValueError) as error:
            raise _no_answer(error) from error
        if _OK <= answer.status < _MULTIPLE_CHOICES:
            return answer.body
        raise _refusal(answer.status, answer.reason, answer.body[:_ERROR_BODY_MAX])

    def _send(self, method: str, target: str, body: direct.Body | None, seconds: float) -> urllib3.BaseHTTPResponse:
        """The answer to a watch, or to any request to a server behind a proxy; its body is still to be read."""
        end = time.monotonic() + seconds
        headers = {} if body is None else {"Content-Type": body.content_type}
        try:
            answer = self._pool.urlopen(
                method,
                target,
                body=None if body is None else body.content,
                headers=headers | self._identification(),
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if _OK <= answer.status < _MULTIPLE_CHOICES:
                return answer
            with contextlib.closing(answer):
                told = b"".join(_bounded(answer, end, _ERROR_BODY_MAX, is_cut=True))
            raise _refusal(answer.status, answer.reason or "", told[:_ERROR_BODY_MAX])
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _no_answer(error) from error

    def _identification(self) -> dict[str, str]:
        identity = self._access.identity()
        for value in identity.values():
            secrets.hide(value.rpartition(" ")[2])
        return {"User-Agent": _USER_AGENT, "Accept": transport.JSON_TYPE, **identity}


class Watch:
    """``kube.transport.Stream``: JSON objects, one a line, of an answer that stays open."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[transport.Object]:
        """Events until the server ends the answer or ``close`` is called; raises ApiError when the connection breaks."""
        try:
            for line in self._lines():
                yield _object(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # A connection shut down under a waiting reader fails in many ways; all of them mean the same once close was called.
            if not self._closed.is_set():
                raise _no_answer(error) from error
        finally:
            self._answer.close()

    def close(self) -> None:
        """End the iteration, from any thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._answer.shutdown()

    def _lines(self) -> Iterator[bytes]:
        pending = b""
        while chunk := self._answer.read1(_PIECE, decode_content=False):
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > LINE_MAX:
                raise errors.ApiError(f"the API server sent an event of more than {LINE_MAX} bytes")
            yield from filter(None, lines)
            if self._closed.is_set():
                return


def _object(data: bytes) -> transport.Object:
    try:
        found = fields.parse(data)
    except ValueError as error:
        message = f"the API server answered something that is not JSON: {_one_line(str(error))}"
        raise errors.ApiError(message, reason=transport.UNREADABLE) from error
    if not isinstance(found, dict):
        raise errors.ApiError("the API server answered JSON that is no object")
    return found


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _refusal(status: int, reason: str, body: bytes) -> errors.ApiError:
    """The error in an answer that is not 2xx; its body is a metav1.Status where Kubernetes itself wrote it."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    told = found if isinstance(found, dict) else {"message": text}
    message, code = (value if isinstance(value := told.get(key), str) else "" for key in ("message", "reason"))
    message = _one_line(message or reason or "no reason given")
    return errors.ApiError(f"the API server answered {status}: {message}", status=status, reason=_one_line(code))


def _no_answer(error: Exception) -> errors.ApiError:
    return errors.ApiError(f"no answer from the API server: {_one_line(str(error)) or type(error).__name__}")


def _bounded(answer: urllib3.BaseHTTPResponse, end: float, most: int, *, is_cut: bool = False) -> Iterator[bytes]:
    """The pieces of a body; raises OSError for one that is longer than ``most``, unless it is to be cut, and one that is not whole in time."""
    total = 0
    while piece := answer.read1(_PIECE, decode_content=False):
        total += len(piece)
        if total > most and not is_cut:
            raise OSError(f"the answer has more than {most} bytes")
        if time.monotonic() >= end:
            raise TimeoutError("the answer was not whole in time")
        yield piece
        if total > most:
            return


def _one_line(text: str) -> str:
    line = " ".join(secrets.redacted(text).split())
    return line if len(line) <= MESSAGE_MAX else f"{line[: MESSAGE_MAX - 3]}..."
