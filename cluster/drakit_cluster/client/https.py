"""Requests over HTTPS by the standard library, on connections that are used again.

A library for HTTP takes several times as long for a request, and the kubelets of a cluster make many.
"""

import http
import http.client
import json
import select
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FAILURES = (OSError, http.client.HTTPException)
"""The errors of a request that got no whole answer."""
_IDLE_MAX = 32
_PORT = 443


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes

    @property
    def is_error(self) -> bool:
        """Whether the request was refused or failed."""
        return self.status >= http.HTTPStatus.BAD_REQUEST

    def json(self) -> Any:
        """Return the document in the body. Raises ValueError if it is no JSON."""
        return json.loads(self.body)


class Stream:
    """An answer that goes on. One thread reads it and closes it; any thread may shut it down."""

    def __init__(self, connection: ssl.SSLSocket, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def readline(self) -> bytes:
        """Return the next line, b"" at the end. Raises one of FAILURES."""
        return self._response.readline()

    def shut_down(self) -> None:
        """End the connection, which wakes a waiting reader."""
        try:
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close the connection."""
        _close(self._connection, self._response)


class Server:
    """The server of a URL. Safe to use from several threads.

    ``headers`` are those of every request. ``seconds`` limits each single wait for the server. Raises ValueError for another URL than of HTTPS,
    and for a header that HTTP cannot carry.
    """

    def __init__(self, url: str, context: ssl.SSLContext, *, headers: Mapping[str, str], seconds: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{url!r} is no URL of an HTTPS server")
        self._address = parts.hostname, parts.port or _PORT
        self._context = context
        self._seconds = seconds
        self._headers = _lines({"host": parts.netloc, **headers})
        self._lock = threading.Lock()
        self._idle: list[ssl.SSLSocket] = []
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request for a quoted path and return the answer. Raises one of FAILURES, or RuntimeError after ``close``."""
        connection, response = self._send(method, path, parameters, content, headers)
        return self._whole(connection, response)

    def stream(self, path: str, parameters: Mapping[str, str]) -> Stream | Answer:
        """Get a quoted path; return the answer as it comes, with no limit of time, but an error as a whole. Raises as :meth:`request` does."""
        connection, response = self._send("GET", path, parameters, None, None)
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            return self._whole(connection, response)
        connection.settimeout(None)
        return Stream(connection, response)

    def close(self) -> None:
        """Send no more requests, and close all connections, each as soon as its answer is there."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(
        self, method: str, path: str, parameters: Mapping[str, str] | None, content: bytes | None, headers: Mapping[str, str] | None
    ) -> tuple[ssl.SSLSocket, http.client.HTTPResponse]:
        """Send a request in one piece, and return the connection with the beginning of the answer."""
        target = f"{path}?{urllib.parse.urlencode(parameters)}" if parameters else path
        own = dict(headers or {})
        if content is not None:
            own["content-length"] = str(len(content))
        request = f"{method} {target} HTTP/1.1\r\n{self._headers}{_lines(own)}\r\n".encode("ascii")
        connection = self._idle_connection() or self._connect()
        response = http.client.HTTPResponse(connection, method=method)
        try:
            connection.sendall(request + (content or b""))
            response.begin()
        except BaseException:
            _close(connection, response)
            raise
        return connection, response

    def _whole(self, connection: ssl.SSLSocket, response: http.client.HTTPResponse) -> Answer:
        """Read an answer to its end, and keep the connection for other requests."""
        try:
            answer = Answer(status=response.status, body=response.read())
        except BaseException:
            _close(connection, response)
            raise
        with self._lock:
            is_kept = not self._closed and not response.will_close and len(self._idle) < _IDLE_MAX
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        return answer

    def _idle_connection(self) -> ssl.SSLSocket | None:
        """Return a connection that no request uses and that the server has not closed, None if there is none."""
        while True:
            with self._lock:
                if self._closed:
                    raise RuntimeError("this client has been closed")
                if not self._idle:
                    return None
                connection = self._idle.pop()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()

    def _connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(self._address, self._seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=self._address[0])
        except BaseException:
            plain.close()
            raise


def _close(connection: ssl.SSLSocket, response: http.client.HTTPResponse) -> None:
    """Close a connection at once: an answer that is still open would keep it."""
    response.close()
    connection.close()


def _lines(headers: Mapping[str, str]) -> str:
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise ValueError("a header has a character that HTTP cannot carry")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
