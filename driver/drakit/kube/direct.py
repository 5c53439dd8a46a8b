"""Requests over connections that are kept, straight on the socket, at half the processor time of an HTTP library.

HTTP/1.1 as RFC 9112 has it and no more: one request, one answer whose body has a length, is chunked, or ends with the connection. Anything else is an
error, never a guess, and the connection is not used again. Every request has a deadline for the whole exchange and a limit for the answer's size,
whatever the server sends. A GET whose kept connection the server closed meanwhile is sent again on another; a write is sent once. Watches, and
servers behind a proxy, go through urllib3 (``client``).
"""

import collections
import contextlib
import re
import select
import socket
import ssl
import time
import urllib.parse
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from urllib3 import util

HEAD_MAX = 1 << 16
BODY_MAX = 1 << 28
_READ = 1 << 14
_CONTINUE, _OK, _NO_CONTENT, _NOT_MODIFIED = 100, 200, 204, 304
_LENGTH_DIGITS = 18
_SLACK_SECONDS = 0.05
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: ([^\r\n]*))?")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_SENDABLE = re.compile(r"[!-~]+")
_VALUE = re.compile(r"[ -~]*")
_UNSENDABLE = "the request has a character that HTTP cannot carry"


class Body(NamedTuple):
    """What a request carries."""

    content: bytes
    content_type: str


class Answer(NamedTuple):
    """What the server answered; ``reason`` is its own word for the status, often empty."""

    status: int
    reason: str
    body: bytes


class _StaleError(Exception):
    """A kept connection had been closed before anything was answered."""


class Direct:
    """Connections to one server, told apart by nothing; safe between threads. ``send`` raises OSError for whatever keeps an answer from coming.

    ``context`` is called for each new connection, because an authority's file may be replaced; connections are kept, so that is rare.
    """

    def __init__(
        self,
        server: str,
        *,
        keep: int,
        options: Sequence[tuple[int, int, int]],
        context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        tls_name: str | None = None,
    ) -> None:
        address = urllib.parse.urlsplit(server)
        self._is_secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._port = address.port or (443 if self._is_secure else 80)
        self._named = address.netloc.rpartition("@")[2]
        self._options = options
        self._context = context
        self._tls_name = tls_name or self._host
        self._idle: collections.deque[socket.socket] = collections.deque(maxlen=keep)
        self._head: tuple[Mapping[str, str], str] = ({}, "")
        self._closed = False
        weakref.finalize(self, _drain, self._idle)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        body: Body | None = None,
        connect_seconds: float,
        seconds: float,
        most: int = BODY_MAX,
    ) -> Answer:
        """Send a request for a path with its query. ``seconds`` is for the whole exchange; an answer of more than ``most`` bytes is an error."""
        request = self._request(method, target, headers, body)
        end = time.monotonic() + seconds
        is_repeatable = method == "GET"
        while (kept := self._kept()) is not None:
            try:
                return self._exchange(kept, request, _Reader(kept, end, most), is_repeatable=is_repeatable)
            except _StaleError:
                continue
        fresh = self._connect(min(connect_seconds, seconds))
        return self._exchange(fresh, request, _Reader(fresh, end, most), is_repeatable=False)

    def close(self) -> None:
        """Close idle connections; those in use are closed once their answer is there."""
        self._closed = True
        _drain(self._idle)

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> bytes:
        if not _SENDABLE.fullmatch(target):
            raise OSError(_UNSENDABLE)
        content, more = b"", ""
        if body is not None:
            content, more = body.content, f"Content-Type: {body.content_type}\r\nContent-Length: {len(body.content)}\r\n"
        return f"{method} {target} HTTP/1.1\r\nHost: {self._named}\r\n{self._lines(headers)}{more}\r\n".encode("ascii") + content

    def _lines(self, headers: Mapping[str, str]) -> str:
        """Headers as they are sent; those of the last request are known, because only a token changes, once in a while."""
        known, lines = self._head
        if headers != known:
            if not all(_SENDABLE.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.items()):
                raise OSError(_UNSENDABLE)
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            self._head = dict(headers), lines
        return lines

    def _kept(self) -> socket.socket | None:
        """A kept connection on which the server has said nothing: what it says unasked is not the answer to this request."""
        while self._idle:
            try:
                kept = self._idle.pop()
            except IndexError:  # Another thread was faster.
                break
            if not _is_readable(kept):
                return kept
            kept.close()
        return None

    def _connect(self, seconds: float) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), seconds)
        try:
            for option in self._options:
                plain.setsockopt(*option)
            return self._context().wrap_socket(plain, server_hostname=self._tls_name) if self._is_secure else plain
        except BaseException:
            plain.close()
            raise

    def _exchange(self, connection: socket.socket, request: bytes, reader: "_Reader", *, is_repeatable: bool) -> Answer:
        try:
            # Not sendall: with TLS it would give each record of a long request the time of the whole.
            unsent = memoryview(request)
            while unsent:
                reader.limit()
                unsent = unsent[connection.send(unsent) :]
            answer, is_reusable = reader.answer()
        except BaseException as error:
            connection.close()
            if is_repeatable and not reader.has_heard and isinstance(error, ConnectionError | ssl.SSLEOFError):
                raise _StaleError from error
            raise
        if is_reusable:
            self._keep(connection)
        else:
            connection.close()
        return answer

    def _keep(self, connection: socket.socket) -> None:
        if len(self._idle) == self._idle.maxlen:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:
            _drain(self._idle)


class _Reader:
    """Reads one answer off a connection."""

    def __init__(self, connection: socket.socket, end: float, most: int) -> None:
        self._connection = connection
        self._end = end
        self._most = most
        self._buffer = b""
        self._limited = 0.0
        self.has_heard = False

    def limit(self) -> None:
        """Let the next step take no longer than what is left of the time, or was left a moment ago: to say so is a call of the kernel.

        Raises TimeoutError when nothing is left: a server that always has something to say would never let a step run out of its own time.
        """
        now = time.monotonic()
        if now >= self._end:
            raise TimeoutError("the answer was not whole in time")
        if now - self._limited > _SLACK_SECONDS:
            self._connection.settimeout(self._end - now)
            self._limited = now

    def answer(self) -> tuple[Answer, bool]:
        """The answer, and whether the connection can be used again."""
        status = _CONTINUE
        while status < _OK:
            version, status, reason, headers = self._head()
        coding = headers.get(b"transfer-encoding", b"").lower()
        length = headers.get(b"content-length")
        is_reusable = version == 1 and b"close" not in headers.get(b"connection", b"").lower()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity" or coding not in {b"", b"chunked"}:
            raise OSError("the answer is coded in a way that was not asked for")
        if status in {_NO_CONTENT, _NOT_MODIFIED}:
            body = b""
        elif coding:
            body = self._chunks()
        elif length is not None:
            body = self._exactly(self._whole(length))
        else:
            body, is_reusable = self._rest(), False
        return Answer(status, reason, body), is_reusable and not self._buffer

    def _head(self) -> tuple[int, int, str, dict[bytes, bytes]]:
        first, *lines = self._until(b"\r\n\r\n").split(b"\r\n")
        match = _STATUS.fullmatch(first)
        if match is None:
            raise OSError("the answer is not HTTP/1.1")
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            key, said = name.lower(), value.strip()
            if headers.setdefault(key, said) != said and key in {b"content-length", b"transfer-encoding"}:
                raise OSError("the answer names its length twice")
        return int(match[1]), int(match[2]), (match[3] or b"").decode("latin-1"), headers

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        total = 0
        while True:
            size = _SIZE.match(self._until(b"\r\n"))
            if size is None:
                raise OSError("the answer breaks the rules of chunks")
            count = int(size[0], 16)
            if count == 0:
                break
            total += count
            if total > self._most:
                raise OSError(f"the answer has more than {self._most} bytes")
            parts.append(self._exactly(count))
            if self._exactly(2) != b"\r\n":
                raise OSError("the answer breaks the rules of chunks")
        while self._until(b"\r\n"):
            pass
        return b"".join(parts)

    def _until(self, mark: bytes) -> bytes:
        while (found := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_MAX:
                raise OSError(f"the answer's head has more than {HEAD_MAX} bytes")
            self._buffer += self._more()
        taken, self._buffer = self._buffer[:found], self._buffer[found + len(mark) :]
        return taken

    def _exactly(self, count: int) -> bytes:
        parts, missing = [self._buffer], count - len(self._buffer)
        while missing > 0:
            parts.append(self._more())
            missing -= len(parts[-1])
        whole = b"".join(parts)
        self._buffer = whole[count:]
        return whole[:count]

    def _rest(self) -> bytes:
        parts, total = [self._buffer], len(self._buffer)
        with contextlib.suppress(ConnectionResetError):
            while total <= self._most:
                parts.append(self._more())
                total += len(parts[-1])
        if total > self._most:
            raise OSError(f"the answer has more than {self._most} bytes")
        self._buffer = b""
        return b"".join(parts)

    def _whole(self, text: bytes) -> int:
        if not text.isdigit() or len(text) > _LENGTH_DIGITS or int(text) > self._most:
            raise OSError(f"the answer's length is no number of at most {self._most}")
        return int(text)

    def _more(self) -> bytes:
        self.limit()
        more = self._connection.recv(_READ)
        if not more:
            raise ConnectionResetError("the connection was closed before the answer was whole")
        self.has_heard = True
        return more


def context(
    *,
    ca_file: str | None = None,
    ca_data: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    is_verified: bool = True,
) -> ssl.SSLContext:
    """Return the TLS context that urllib3 makes of the same settings, so that both ways trust the same."""
    made = util.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if is_verified else ssl.CERT_NONE)
    if ca_file or ca_data:
        made.load_verify_locations(cafile=ca_file, cadata=ca_data)
    elif is_verified:
        made.load_default_certs()
    if cert_file:
        made.load_cert_chain(cert_file, key_file)
    return made


def _drain(idle: collections.deque[socket.socket]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            idle.pop().close()


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
