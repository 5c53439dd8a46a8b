"""The connection to the API server: the official client's configuration, authentication and transport, and nothing else of it.

Objects travel as plain JSON: the official client's models drop fields they do not know, and cost ten times as much. Importing that client takes
about 0.3 s, so it is imported when the first connection is made, and a command that needs no API server does not pay for it.
"""

import contextlib
import http
import ipaddress
import json
import os
import pathlib
import socket
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import urllib3
import yaml

from drakit.core import errors, records
from drakit.kube import transport

if TYPE_CHECKING:
    from kubernetes.client import configuration as configurations

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
MESSAGE_MAX = 500
LINE_MAX = 16 << 20
_ERROR_BODY_MAX = 1 << 16
_USER_AGENT = "drakit"
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]


def connect(kubeconfig: pathlib.Path | None = None, *, context: str = "", seconds: float = REQUEST_SECONDS) -> "Client":
    """A client for the kubeconfig given, else for the one named by ``KUBECONFIG``, else for the cluster this process runs in.

    Nothing is sent yet. ``seconds`` is the longest wait for one answer. Raises SettingsError when there is no configuration or it cannot be used.
    """
    from kubernetes import config  # noqa: PLC0415 - see the module's docstring
    from kubernetes.client import configuration  # noqa: PLC0415

    settings = configuration.Configuration()
    named = str(kubeconfig or os.environ.get("KUBECONFIG", ""))
    try:
        if named:
            config.load_kube_config(config_file=named, context=context or None, client_configuration=settings, persist_config=False)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        hint = f"cannot use kubeconfig {named}" if named else "no kubeconfig is given, and this process does not run in a cluster"
        raise errors.SettingsError(f"{hint}: {_one_line(str(error))}", key="kubeconfig") from error
    return Client(settings, seconds)


def connect_to(server: str, *, token: str, ca_file: pathlib.Path) -> "Client":
    """A client for one server, known by its certificate authority, with a bearer token."""
    from kubernetes.client import configuration  # noqa: PLC0415 - see the module's docstring

    settings = configuration.Configuration(host=server)
    settings.ssl_ca_cert = str(ca_file)
    settings.api_key["BearerToken"] = f"Bearer {token}"
    return Client(settings)


class Client:
    """``kube.transport.Transport`` over HTTPS; safe to use from several threads."""

    def __init__(self, settings: "configurations.Configuration", seconds: float = REQUEST_SECONDS) -> None:
        from kubernetes.client import rest  # noqa: PLC0415 - see the module's docstring

        settings.socket_options = _KEEPALIVE
        if _is_loopback(settings.host):
            settings.proxy = None
        self._settings = settings
        self._seconds = seconds
        self._authenticating = threading.Lock()
        self._pool = rest.RESTClientObject(settings).pool_manager

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._settings.host

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
        self._pool.clear()

    def _send(
        self, method: str, path: str, query: Mapping[str, str], *, headers: dict[str, str], content: bytes | None, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        target = f"{self._settings.host.rstrip('/')}{path}"
        try:
            answer = self._pool.request(
                method,
                f"{target}?{urllib.parse.urlencode(query)}" if query else target,
                body=content,
                headers=headers | self._identification(),
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if http.HTTPStatus.OK <= answer.status < http.HTTPStatus.MULTIPLE_CHOICES:
                return answer
            raise _refusal(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(error) from error

    def _identification(self) -> dict[str, str]:
        """Headers that say who asks; a token that is about to expire is renewed here, by one thread at a time."""
        with self._authenticating:
            credentials = self._settings.auth_settings().values()
        return {"User-Agent": _USER_AGENT, "Accept": transport.JSON_TYPE} | {
            one["key"]: one["value"] for one in credentials if one["value"]
        }


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


def _is_loopback(server: str) -> bool:
    """Whether a server is on this machine; no proxy of the environment can reach it then."""
    host = urllib.parse.urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _object(data: bytes) -> transport.Object:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.ApiError(f"the API server answered something that is not JSON: {_one_line(str(error))}") from error
    if not isinstance(found, dict):
        raise errors.ApiError("the API server answered JSON that is no object")
    return found


def _refusal(answer: urllib3.BaseHTTPResponse) -> errors.ApiError:
    """The error in an answer that is not 2xx; its body is a metav1.Status where Kubernetes itself wrote it."""
    text = answer.read(_ERROR_BODY_MAX, decode_content=True).decode("utf-8", "replace")
    answer.close()
    try:
        status = json.loads(text)
    except ValueError:
        status = None
    told = status if isinstance(status, dict) else {"message": text}
    message = _one_line(str(told.get("message") or answer.reason or "no reason given"))
    return errors.ApiError(
        f"the API server answered {answer.status}: {message}", status=answer.status, reason=str(told.get("reason") or "")
    )


def _no_answer(error: Exception) -> errors.ApiError:
    return errors.ApiError(f"no answer from the API server: {_one_line(str(error)) or type(error).__name__}")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX else f"{line[: MESSAGE_MAX - 3]}..."
