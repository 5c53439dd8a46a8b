"""Requests over HTTPS on connections that are used again, by urllib3, which the driver uses too."""

import json
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import urllib3

FAILURES = (urllib3.exceptions.HTTPError, OSError)
"""The errors of a request that got no whole answer."""
_IDLE_MAX = 32
_CHUNK = 1 << 14
_BAD_REQUEST = 400


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes

    @property
    def is_error(self) -> bool:
        """Whether the request was refused or failed."""
        return self.status >= _BAD_REQUEST

    def json(self) -> Any:
        """Return the document in the body. Raises ValueError if it is no JSON."""
        return json.loads(self.body)


class Stream:
    """An answer that goes on. One thread reads it and closes it; any thread may shut it down."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._pending = b""

    def readline(self) -> bytes:
        """Return the next line, b"" at the end. Raises one of FAILURES."""
        parts = [self._pending]
        while b"\n" not in parts[-1]:
            chunk = self._response.read1(_CHUNK)
            if not chunk:
                break
            parts.append(chunk)
        line, newline, self._pending = b"".join(parts).partition(b"\n")
        return line + newline

    def shut_down(self) -> None:
        """End the connection, which wakes a waiting reader."""
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            return  # It has ended already.

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


class Server:
    """The server of a URL. Safe to use from several threads.

    ``headers`` are those of every request. ``seconds`` limits each single wait for the server. Raises ValueError for another URL than of HTTPS.
    """

    def __init__(self, url: str, context: ssl.SSLContext, *, headers: Mapping[str, str], seconds: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"{url!r} is no URL of an HTTPS server")
        self._headers = dict(headers)
        self._seconds = seconds
        self._pool = urllib3.HTTPSConnectionPool(parts.hostname, parts.port, maxsize=_IDLE_MAX, ssl_context=context)
        self._closed = threading.Event()

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
        return _whole(self._send(method, path, parameters, urllib3.Timeout(self._seconds), content, headers))

    def stream(self, path: str, parameters: Mapping[str, str]) -> Stream | Answer:
        """Get a quoted path; return the answer as it comes, with no limit of time, but an error as a whole. Raises as :meth:`request` does."""
        response = self._send("GET", path, parameters, urllib3.Timeout(connect=self._seconds, read=None))
        return _whole(response) if response.status >= _BAD_REQUEST else Stream(response)

    def close(self) -> None:
        """Send no more requests, and close all connections, each as soon as its answer is there."""
        self._closed.set()
        self._pool.close()

    def _send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        timeout: urllib3.Timeout,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer with an unread body."""
        if self._closed.is_set():
            raise RuntimeError("this client has been closed")
        return self._pool.urlopen(
            method,
            f"{path}?{urllib.parse.urlencode(parameters)}" if parameters else path,
            body=content,
            headers={**self._headers, **(headers or {})},
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )


def _whole(response: urllib3.BaseHTTPResponse) -> Answer:
    """Read an answer to its end, and keep the connection for other requests."""
    try:
        body = response.read(decode_content=False)
    except BaseException:
        response.close()
        raise
    response.release_conn()
    return Answer(status=response.status, body=body)
