"""Reading straight off the socket: what HTTP/1.1 allows is read whole, what it does not is an error, and only good connections are kept."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from drakit.kube import direct

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
def scripted(*answers: bytes, closing: bool = False) -> Iterator[tuple[Script, direct.Direct]]:
    server = Script(*answers, closing=closing)
    asking = direct.Direct(server.url, keep=2, options=())
    try:
        yield server, asking
    finally:
        asking.close()
        server.close()


def get(asking: direct.Direct, seconds: float = 10.0) -> direct.Answer:
    return asking.send("GET", "/x", {"Accept": "application/json"}, connect_seconds=5.0, seconds=seconds)


def test_a_request_names_path_host_and_headers() -> None:
    with scripted(OK) as (server, asking):
        assert get(asking) == direct.Answer(200, "OK", b"{}")
        host = server.url.removeprefix("http://")
        assert server.requests == [f"GET /x HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n\r\n".encode()]


@pytest.mark.parametrize(
    "answer, body",
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
            b"abc0123456789",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", b"a"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_an_answer_is_read_whole_and_its_connection_is_used_again(answer: bytes, body: bytes) -> None:
    with scripted(answer, answer) as (server, asking):
        assert get(asking).body == body
        assert get(asking).body == body
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_connection_that_ends_or_says_more_than_was_asked_is_not_used_again(answer: bytes) -> None:
    with scripted(answer, OK) as (server, asking):
        assert get(asking).body == b"a"
        assert server.sent.acquire(timeout=10)
        assert get(asking).body == b"{}"
        assert server.connections == 2


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    with scripted(b"HTTP/1.1 200 OK\r\n\r\nall of it", closing=True) as (_, asking):
        assert get(asking).body == b"all of it"


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
        b"x" * (direct.HEAD_MAX + 100),
        CLOSE,
    ],
)
def test_an_answer_that_breaks_the_rules_or_breaks_off_is_an_error(answer: bytes) -> None:
    with scripted(answer, closing=True) as (_, asking), pytest.raises(OSError, match="answer"):
        get(asking)


def test_a_kept_connection_that_the_server_closed_is_passed_over() -> None:
    with scripted(OK, CLOSE, OK) as (server, asking):
        assert get(asking).status == 200
        assert get(asking).status == 200
        assert (server.connections, len(server.requests)) == (2, 3)


def test_a_new_connection_that_is_closed_at_once_is_not_tried_again() -> None:
    with scripted(CLOSE, OK) as (server, asking):
        with pytest.raises(OSError, match="closed"):
            get(asking)
        assert len(server.requests) == 1


@contextlib.contextmanager
def talking(say: Callable[[socket.socket], None]) -> Iterator[direct.Direct]:
    """Asks a server that says this to the first request, until it is done or nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection = listening.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                say(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield direct.Direct(f"http://127.0.0.1:{listening.getsockname()[1]}", keep=1, options=())
        thread.join(10)


def test_the_time_is_for_the_whole_answer_however_it_dribbles() -> None:
    release = threading.Event()

    def dribble(connection: socket.socket) -> None:
        while not release.wait(0.02):
            connection.sendall(b"H")

    with talking(dribble) as asking:
        with pytest.raises(TimeoutError):
            get(asking, seconds=0.2)
        release.set()


@pytest.mark.parametrize(
    "head, unit",
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
    ],
)
def test_the_time_is_for_the_whole_answer_even_where_the_server_always_has_more_to_say(head: bytes, unit: bytes) -> None:
    whole = threading.Event()

    def say(connection: socket.socket) -> None:
        connection.sendall(head + unit * ((1 << 26) // len(unit)))
        whole.set()

    with talking(say) as asking:
        with pytest.raises(TimeoutError):
            get(asking, seconds=0.2)
        assert not whole.is_set(), "the request ended before the server was done"


@pytest.mark.parametrize("target, value", [("/a b", "v"), ("/a\r\nX: 1", "v"), ("/a", "v\r\nX: 1"), ("/ü", "v"), ("/a", "ü")])
def test_what_http_cannot_carry_is_not_sent(target: str, value: str) -> None:
    with scripted(OK) as (server, asking):
        with pytest.raises(OSError, match="character"):
            asking.send("GET", target, {"Authorization": value}, connect_seconds=1.0, seconds=1.0)
        assert server.connections == 0


def test_after_close_nothing_is_kept() -> None:
    with scripted(OK, OK) as (server, asking):
        asking.close()
        assert get(asking).status == 200
        assert get(asking).status == 200
        assert server.connections == 2
