"""The client of the API server: it lists, watches and writes plain JSON objects, over urllib3.

Every request has one deadline for the whole exchange and a limit for the size of its answer. Every failure is an ApiError.
Objects are plain JSON, because the models of the official client drop unknown fields and are ten times as slow.
"""

import contextlib
import http
import http.client
import io
import json
import os
import pathlib
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import urllib3
from urllib3 import connection as connections

from drakit.core import errors, records
from drakit.kube import access, transport
from drakit.telemetry import logs, secrets

_log = logs.get_logger(__name__)

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 15.0
LOGIN_SECONDS = 10.0
LIST_ANSWER_MAX = 256 << 20
OBJECT_ANSWER_MAX = 16 << 20
"""The largest size of one object in bytes: the answer to a write, or one event of a watch. The API server stores at most 3 MiB."""
_ERROR_BODY_MAX = 1 << 16
_CHUNK = 1 << 14
_USER_AGENT = "drakit"
_OK, _MULTIPLE_CHOICES = 200, 300
_HEADER_VALUE = re.compile(r"[ -~]*")


def connect(kubeconfig: pathlib.Path | None = None, *, context: str = "", seconds: float = REQUEST_SECONDS) -> "Client":
    """Return a client for ``kubeconfig``, else for the one named by ``KUBECONFIG``, else for the cluster that this process runs in.

    No request is sent yet. ``seconds`` is the time limit of one request. Raise SettingsError for a missing or unusable configuration.
    """
    named = _named(kubeconfig)

    def log_in() -> access.Access:
        return access.of_kubeconfig(named, context) if named else access.in_cluster() or access.of_service_account()

    return Client(log_in(), seconds, log_in=log_in)


def is_kubeconfig_given(kubeconfig: pathlib.Path | None) -> bool:
    """Return whether ``connect`` would read a file, the given one or that of ``KUBECONFIG``."""
    return bool(_named(kubeconfig))


def _named(kubeconfig: pathlib.Path | None) -> str:
    return str(kubeconfig or os.environ.get("KUBECONFIG", ""))


def connect_to(server: str, *, token: str, ca_file: pathlib.Path) -> "Client":
    """Return a client for one server, with its certificate authority and a bearer token."""
    return Client(access.by_token(server, lambda: token, ca_file=ca_file))


class LazyClient:
    """A ``transport.Transport`` that connects at the first request, for commands that usually send none.

    If the configuration cannot be used, the request fails with an ApiError, and the next request tries again.
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
        """Send one request. Raise ApiError."""
        return self._client().request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> transport.Stream:
        """Start a watch. Raise ApiError."""
        return self._client().stream(path, query=query, timeout=timeout)

    def connect_now(self) -> None:
        """Connect, so that the first request need not wait for it. A configuration that cannot be used fails with the first request."""
        with contextlib.suppress(errors.ApiError):
            self._client()

    def _client(self) -> transport.Transport:
        if self._connected is None:
            try:
                self._connected = self._connection()
            except errors.SettingsError as error:
                raise errors.ApiError(f"no connection to the API server: {error}") from error
        return self._connected


class Client:
    """A ``kube.transport.Transport`` over HTTPS; thread-safe.

    If the API server refuses the credentials, ``log_in`` reads the configuration again, and the request is sent once more: a token or a client
    certificate may have been replaced, and a login program may have a new one.
    """

    def __init__(
        self, server_access: access.Access, seconds: float = REQUEST_SECONDS, *, log_in: Callable[[], access.Access] | None = None
    ) -> None:
        self._seconds = seconds
        self._log_in = log_in
        self._logging_in = threading.Lock()
        self._logged_in_at = float("-inf")
        self._use(server_access)

    def _use(self, server_access: access.Access) -> None:
        base = server_access.server.rstrip("/")
        pool = server_access.pools.connection_from_url(base)
        pool.ConnectionCls = _HttpsConnection if isinstance(pool, urllib3.HTTPSConnectionPool) else _HttpConnection
        # A proxy over plain HTTP needs the whole URL in each request.
        self._base = base if server_access.is_proxied and base.startswith("http:") else urllib.parse.urlsplit(base).path
        self._access, self._pool = server_access, pool

    @property
    def server(self) -> str:
        """Return the address of the API server."""
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
        """Send one request and return the object of the answer. Raise ApiError. ``timeout`` is in seconds, by default the client's own.

        A GET is retried once if the server closes the connection before it answers, which it may do at any time; a write is sent once.
        """
        content = None if body is None else json.dumps(records.thaw(body), separators=(",", ":")).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        target, deadline = _target(f"{self._base}{path}", query or {}), time.monotonic() + (timeout or self._seconds)
        limit = LIST_ANSWER_MAX if method == "GET" else OBJECT_ANSWER_MAX
        try:
            try:
                answer = self._send(method, target, deadline, content, headers)
            except urllib3.exceptions.ProtocolError as error:
                if method != "GET" or not isinstance(error.args[-1], ConnectionError):
                    raise
                answer = self._send(method, target, deadline, content, headers)
            with contextlib.closing(answer):
                return _object(_read(answer, limit))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _no_answer(error) from error

    def stream(self, path: str, *, query: Mapping[str, str], timeout: float) -> "Watch":
        """Start a watch that ends after at most ``timeout`` seconds. Raise ApiError."""
        try:
            return Watch(self._send("GET", _target(f"{self._base}{path}", query), time.monotonic() + timeout))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _no_answer(error) from error

    def close(self) -> None:
        """Close idle connections."""
        self._access.pools.clear()

    def _send(
        self,
        method: str,
        target: str,
        deadline: float,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_repeated: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer with an unread body. Raise ApiError for an error status, and the errors of urllib3."""
        seconds = max(deadline - time.monotonic(), 0.001)
        used, pool = self._access, self._pool
        answer = pool.urlopen(
            method,
            target,
            body=content,
            headers={**(headers or {}), **_identity_headers(used)},
            timeout=urllib3.Timeout(total=seconds, connect=min(CONNECT_SECONDS, seconds)),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        if _OK <= answer.status < _MULTIPLE_CHOICES:
            return answer
        with contextlib.closing(answer):
            if answer.status == http.HTTPStatus.UNAUTHORIZED and not is_repeated and self._is_logged_in_again(used):
                return self._send(method, target, deadline, content, headers, is_repeated=True)
            raise _refusal(answer.status, answer.reason or "", _read(answer, _ERROR_BODY_MAX, is_cut=True))

    def _is_logged_in_again(self, refused: access.Access) -> bool:
        """Return whether there are other credentials than the refused ones: another thread read them, or this one does, at most every ten seconds."""
        with self._logging_in:
            if self._access is not refused:
                return True
            if self._log_in is None or time.monotonic() - self._logged_in_at < LOGIN_SECONDS:
                return False
            try:
                renewed = self._log_in()
            except errors.SettingsError as error:
                _log.warning("configuration not read again after a refusal", error=str(error))
                return False
            finally:
                self._logged_in_at = time.monotonic()
            if renewed.server != refused.server:
                return False  # Another cluster may have other objects of the same names.
            self._use(renewed)
            refused.pools.clear()
            return True


def _identity_headers(used: access.Access) -> dict[str, str]:
    """Return the headers of the client and its credentials. Raise ValueError for credentials that are no valid header value."""
    identity = used.identity()
    for value in identity.values():
        if not _HEADER_VALUE.fullmatch(value):
            # The library would also reject the value, but its error message would contain the secret.
            raise ValueError("the credentials have a character that HTTP cannot carry")
        secrets.hide(value.rpartition(" ")[2])
    return {"User-Agent": _USER_AGENT, "Accept": transport.JSON_TYPE, **identity}


class _TimedReader(io.RawIOBase):
    """A reader with one deadline for all reads of a connection; the library itself applies the time limit to each single read."""

    def __init__(self, below: io.RawIOBase, connection: socket.socket, seconds: float) -> None:
        self._below = below
        self._connection = connection
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._connection.settimeout(remaining)
        return self._below.readinto(buffer)

    def close(self) -> None:
        self._below.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer whose head and body must arrive within the time limit that the connection has at its creation."""

    def __init__(self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None) -> None:
        super().__init__(sock, debuglevel, method, url)
        seconds = sock.gettimeout()
        if seconds is not None:
            self.fp = io.BufferedReader(_TimedReader(self.fp.detach(), sock, seconds), _CHUNK)


class _HttpConnection(connections.HTTPConnection):
    response_class = _TimedResponse


class _HttpsConnection(connections.HTTPSConnection):
    response_class = _TimedResponse


class Watch:
    """The ``kube.transport.Stream`` of a streamed answer with one JSON object a line."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[transport.Object]:
        """Yield events until the server ends the answer or ``close`` is called. Raise ApiError when the connection breaks."""
        try:
            for line in self._lines():
                yield _object(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # A connection that is shut down during a read fails in many ways; after ``close`` none of them is an error.
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
        while chunk := self._answer.read1(_CHUNK, decode_content=False):
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > OBJECT_ANSWER_MAX:
                raise errors.ApiError(f"the API server sent an event of more than {OBJECT_ANSWER_MAX} bytes")
            yield from filter(None, lines)
            if self._closed.is_set():
                return


def _read(answer: urllib3.BaseHTTPResponse, limit: int, *, is_cut: bool = False) -> bytes:
    """Return the body of an answer. If it has more than ``limit`` bytes, cut it if ``is_cut``, else raise OSError."""
    chunks, total = [], 0
    while chunk := answer.read1(_CHUNK, decode_content=False):
        chunks.append(chunk)
        total += len(chunk)
        if total > limit:
            if is_cut:
                break
            raise OSError(f"the answer has more than {limit} bytes")
    return b"".join(chunks)[:limit]


def _object(data: bytes) -> transport.Object:
    try:
        decoded = records.parse_limited(data)
    except ValueError as error:
        message = f"the API server answered something that is not JSON: {secrets.one_line(str(error))}"
        raise errors.ApiError(message, reason=transport.UNREADABLE) from error
    if not isinstance(decoded, dict):
        raise errors.ApiError("the API server answered JSON that is not an object")
    return decoded


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _refusal(status: int, reason: str, body: bytes) -> errors.ApiError:
    """Return the ApiError for an answer that is not 2xx; Kubernetes itself sends a metav1.Status in the body."""
    text = body.decode("utf-8", "replace")
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        decoded = None
    details = decoded if isinstance(decoded, dict) else {"message": text}
    message, code = (value if isinstance(value := details.get(key), str) else "" for key in ("message", "reason"))
    message = secrets.one_line(message or reason or "no reason given")
    return errors.ApiError(f"the API server answered {status}: {message}", status=status, reason=secrets.one_line(code))


def _no_answer(error: Exception) -> errors.ApiError:
    return errors.ApiError(f"no answer from the API server: {secrets.one_line(str(error)) or type(error).__name__}")
