"""The connection to the API server. Where ``access`` cannot tell how to reach it, the official client's configuration and authentication do.

Objects travel as plain JSON: the official client's models drop fields they do not know, and cost ten times as much. Importing that client takes
time and memory, so it is imported only when it is needed.
"""

import contextlib
import json
import os
import pathlib
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import urllib3
import yaml

from drakit.core import errors, records
from drakit.kube import access, direct, keys, transport

if TYPE_CHECKING:
    from kubernetes.client import configuration as configurations

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
MESSAGE_MAX = 500
LINE_MAX = 16 << 20
_ERROR_BODY_MAX = 1 << 16
_USER_AGENT = "drakit"
_OK, _MULTIPLE_CHOICES = 200, 300


def connect(kubeconfig: pathlib.Path | None = None, *, context: str = "", seconds: float = REQUEST_SECONDS) -> "Client":
    """A client for the kubeconfig given, else for the one named by ``KUBECONFIG``, else for the cluster this process runs in.

    Nothing is sent yet. ``seconds`` is the longest wait for one answer. Raises SettingsError when there is no configuration or it cannot be used.
    """
    named = str(kubeconfig or os.environ.get("KUBECONFIG", ""))
    access.check_kubeconfig(named)
    plain = access.of_kubeconfig(pathlib.Path(named), context) if named else access.in_cluster()
    return Client(plain or _official(named, context), seconds)


def connect_to(server: str, *, token: str, ca_file: pathlib.Path) -> "Client":
    """A client for one server, known by its certificate authority, with a bearer token."""
    return Client(access.plain(server, lambda: token, ca_file=ca_file))


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
        self.reads = None
        self.pools: urllib3.PoolManager = rest.RESTClientObject(settings).pool_manager

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
        body: transport.Object | None = None,
        content_type: str = transport.JSON_TYPE,
        timeout: float | None = None,
    ) -> transport.Object:
        """Send one request; raises ApiError. ``timeout`` is in seconds, the client's own unless given."""
        if method == "GET" and body is None and self._access.reads is not None:
            return _object(self._read(self._access.reads, _target(f"{self._base}{path}", query or {}), timeout or self._seconds))
        headers = {"Content-Type": content_type} if body is not None else {}
        content = None if body is None else json.dumps(records.thaw(body), separators=(",", ":")).encode()
        answer = self._send(method, path, query or {}, headers=headers, content=content, seconds=timeout or self._seconds)
        try:
            return _object(answer.data)
        except urllib3.exceptions.HTTPError as error:
            raise _no_answer(error) from error

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> "Watch":
        """Start a watch; ``timeout`` is the longest silence in seconds. Raises ApiError."""
        return Watch(self._send("GET", path, query, headers={}, content=None, seconds=timeout))

    def close(self) -> None:
        """Close idle connections."""
        self._access.pools.clear()
        if self._access.reads is not None:
            self._access.reads.close()

    def _read(self, reads: direct.Direct, target: str, seconds: float) -> bytes:
        """The body of the answer to a GET, asked for the short way."""
        try:
            answer = reads.get(target, self._identification(), connect_seconds=CONNECT_SECONDS, seconds=seconds)
        except OSError as error:
            raise _no_answer(error) from error
        if _OK <= answer.status < _MULTIPLE_CHOICES:
            return answer.body
        raise _refusal(answer.status, answer.reason, answer.body[:_ERROR_BODY_MAX])

    def _send(
        self, method: str, path: str, query: Mapping[str, str], *, headers: dict[str, str], content: bytes | None, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        try:
            answer = self._pool.urlopen(
                method,
                _target(f"{self._base}{path}", query),
                body=content,
                headers=headers | self._identification(),
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if _OK <= answer.status < _MULTIPLE_CHOICES:
                return answer
            told = answer.read(_ERROR_BODY_MAX, decode_content=True)
            answer.close()
            raise _refusal(answer.status, answer.reason or "", told)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(error) from error

    def _identification(self) -> dict[str, str]:
        return {"User-Agent": _USER_AGENT, "Accept": transport.JSON_TYPE, **self._access.identity()}


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
        for chunk in self._answer.stream(amt=1 << 16):
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > LINE_MAX:
                raise errors.ApiError(f"the API server sent an event of more than {LINE_MAX} bytes")
            yield from filter(None, lines)
            if self._closed.is_set():
                return


def _object(data: bytes) -> transport.Object:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.ApiError(f"the API server answered something that is not JSON: {_one_line(str(error))}") from error
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
    except ValueError:
        found = None
    told = found if isinstance(found, dict) else {"message": text}
    message = _one_line(str(told.get("message") or reason or "no reason given"))
    return errors.ApiError(f"the API server answered {status}: {message}", status=status, reason=str(told.get("reason") or ""))


def _no_answer(error: Exception) -> errors.ApiError:
    return errors.ApiError(f"no answer from the API server: {_one_line(str(error)) or type(error).__name__}")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX else f"{line[: MESSAGE_MAX - 3]}..."
