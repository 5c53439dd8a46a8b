"""Answers of a server byte by byte: what HTTP/1.1 allows is read whole, anything else is an ApiError in time; good connections are reused."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from drakit.core import errors, records
from drakit.kube import access, client
from fakes import waits

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CLOSE = b""
"""Stands for: close the connection without a word."""


class Script:
    """A server that answers the requests of all connections, in the order in which they come, with these bytes; it closes after the last."""

    def __init__(self, *answers: bytes, closing: bool = False) -> None:
        self._answers = list(answers)
        self._closing = closing
        self.requests: list[bytes] = []
        self.connections = 0
        self.sent = threading.Semaphore(0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listening.accept()[0]
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while self._answers and (request := connection.recv(1 << 16)):
                self.requests.append(request)
                answer = self._answers.pop(0)
                if answer == CLOSE:
                    return
                try:
                    for byte in range(0, len(answer), 7):
                        connection.sendall(answer[byte : byte + 7])
                finally:
                    # Whoever asked may have heard enough and have closed its end already.
                    self.sent.release()
                if self._closing:
                    return
            while not self._closing and connection.recv(1):
                pass

    def close(self) -> None:
        self._listening.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def scripted(*answers: bytes, closing: bool = False) -> Iterator[tuple[Script, client.Client]]:
    server = Script(*answers, closing=closing)
    connection = client.Client(access.by_token(server.url, lambda: "token"))
    try:
        yield server, connection
    finally:
        connection.close()
        server.close()


def get(connection: client.Client, seconds: float = 10.0) -> records.Record:
    return connection.request("GET", "/x", timeout=seconds)


def test_a_request_names_path_host_and_identity() -> None:
    with scripted(OK) as (server, connection):
        assert get(connection) == {}
        lines = server.requests[0].decode().split("\r\n")
        assert lines[0] == "GET /x HTTP/1.1"
        assert {f"Host: {server.url.removeprefix('http://')}", "Accept: application/json", "Authorization: Bearer token"} <= {*lines}


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\ncontent-length:7\r\n\r\n{"a":1}',
        b'HTTP/1.1 200\r\nContent-Length: 7\r\n\r\n{"a":1}',
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\n{"a\r\n4\r\n":1}\r\n0\r\nTrailer: 1\r\n\r\n',
        b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n{"a":1}',
    ],
    ids=["lower case", "no reason", "chunks", "continue", "length twice"],
)
def test_an_answer_is_read_whole_and_its_connection_is_used_again(answer: bytes) -> None:
    with scripted(answer, answer) as (server, connection):
        assert get(connection) == {"a": 1}
        assert get(connection) == {"a": 1}
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_a_connection_that_ends_is_not_used_again(answer: bytes) -> None:
    with scripted(answer, OK) as (server, connection):
        assert get(connection) == {}
        assert server.sent.acquire(timeout=waits.SECONDS)
        assert get(connection) == {}
        assert server.connections == 2


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    with scripted(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}', closing=True) as (_, connection):
        assert get(connection) == {"a": 1}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"x" * 70_000,
        CLOSE,
    ],
)
def test_an_answer_that_breaks_the_rules_or_breaks_off_is_an_error(answer: bytes) -> None:
    with scripted(answer, answer, closing=True) as (_, connection), pytest.raises(errors.ApiError, match="answer"):
        get(connection)


def test_a_get_is_sent_again_where_the_server_closed_the_connection() -> None:
    with scripted(OK, CLOSE, OK) as (server, connection):
        assert get(connection) == {}
        assert get(connection) == {}
        assert (server.connections, len(server.requests)) == (2, 3)


def test_a_get_is_sent_again_only_once_and_a_write_never() -> None:
    with scripted(CLOSE, CLOSE, CLOSE, OK) as (server, connection):
        with pytest.raises(errors.ApiError, match="no answer"):
            get(connection)
        assert len(server.requests) == 2
        with pytest.raises(errors.ApiError, match="no answer"):
            connection.request("POST", "/x", body={})
        assert len(server.requests) == 3


@contextlib.contextmanager
def talking(say: Callable[[socket.socket], None]) -> Iterator[client.Client]:
    """Asks a server that says this to the first request, until it is done or nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection = listening.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                say(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield client.Client(access.by_token(f"http://127.0.0.1:{listening.getsockname()[1]}", lambda: "token"))
        thread.join(waits.SECONDS)


def test_the_time_is_for_the_whole_answer_however_it_dribbles() -> None:
    release = threading.Event()

    def dribble(connection: socket.socket) -> None:
        while not release.wait(0.02):
            connection.sendall(b"H")

    with talking(dribble) as connection:
        with pytest.raises(errors.ApiError, match=r"time"):
            get(connection, seconds=0.2)
        release.set()


@pytest.mark.parametrize(
    "head, unit",
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
    ],
)
def test_the_timeout_covers_the_whole_answer_even_if_the_server_never_stops_sending(head: bytes, unit: bytes) -> None:
    whole = threading.Event()

    def say(connection: socket.socket) -> None:
        connection.sendall(head + unit * ((1 << 26) // len(unit)))
        whole.set()

    with talking(say) as connection:
        with pytest.raises(errors.ApiError, match=r"time"):
            get(connection, seconds=0.2)
        assert not whole.is_set(), "the request ended before the server was done"


@pytest.mark.parametrize("token", ["v\r\nX: 1", "ü€"])
def test_what_http_cannot_carry_is_not_sent(token: str) -> None:
    with scripted(OK) as (server, _):
        connection = client.Client(access.by_token(server.url, lambda: token))
        with pytest.raises(errors.ApiError):
            get(connection)
        assert server.requests == []


@pytest.mark.parametrize("token", ["opaque-first-line\nopaque-second-line", "opaque-first-line\ropaque-second-line", "opaque-first-line€"])
def test_a_token_that_http_cannot_carry_is_not_in_the_error(token: str) -> None:
    connection = client.Client(access.by_token("http://127.0.0.1:1", lambda: token))
    with pytest.raises(errors.ApiError, match="credentials have a character that HTTP cannot carry") as refused:
        get(connection)
    with pytest.raises(errors.ApiError, match="credentials have a character that HTTP cannot carry") as refused_watch:
        connection.stream("/api", query={}, timeout=1)
    for error in (refused.value, refused_watch.value):
        assert "opaque" not in f"{error} {error.__cause__!r}"


def test_a_space_in_a_path_is_escaped() -> None:
    with scripted(OK) as (server, connection):
        connection.request("GET", "/a b")
        assert server.requests[0].startswith(b"GET /a%20b HTTP/1.1\r\n")
