"""A listener of HTTP connections with one thread for each, which is limited in threads and time and outlives every error.

A connection lasts at most ``REQUEST_SECONDS`` by default. At most ``connections_max`` connections are open, each until its thread ends, so requests
that hang do not add up. A further connection replaces the oldest without a complete request, so slow clients never block a probe; where all requests
are complete, it is closed and counted. Accepting never blocks.
"""

import contextlib
import dataclasses
import http.server
import os
import pathlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable

from drakit.serving import accepting
from drakit.telemetry import logs

REQUEST_SECONDS = 5.0
_SOCKET_MODE = 0o600

Tls = Callable[[], ssl.SSLContext]
"""A function that returns the TLS settings of the next connection."""

_log = logs.get_logger(__name__)


@dataclasses.dataclass(kw_only=True, eq=False)
class _Connection:
    """An open connection: its deadline, whether its request is complete, and whether it was shut down."""

    socket: socket.socket
    end: float
    is_complete: bool = False
    is_dropped: bool = False


class Listener(http.server.ThreadingHTTPServer):
    """The listener of an IP address and port, or of the path of a unix socket. ``requests`` handles the single request of a connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        place: tuple[str, int] | pathlib.Path,
        requests: type["Requests"],
        *,
        connections_max: int,
        overload: accepting.Overload,
        tls: Tls | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.overload = overload
        self._connections_max = connections_max
        self._tls = tls
        self._seconds = seconds
        self._guard = threading.Condition()
        self._open: list[_Connection] = []
        self._place = place
        self._is_stopping = threading.Event()
        if isinstance(place, tuple):
            self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            super().__init__(place, requests)
        else:
            self.address_family = socket.AF_UNIX
            super().__init__(os.fspath(place), requests)  # type: ignore[arg-type] # the library knows TCP only

    def serve(self) -> None:
        """Serve until ``shutdown``, whatever fails meanwhile."""
        while not self._is_stopping.is_set():
            try:
                self.serve_forever()
            except Exception as error:  # noqa: BLE001 - probes are answered only while this thread runs
                self.overload.failed(error, pause=self._is_stopping.wait)

    def shutdown(self) -> None:
        self._is_stopping.set()
        super().shutdown()

    def server_bind(self) -> None:
        """Bind without the DNS request of the library. A unix socket gets mode 0600 before any client can connect."""
        socketserver.TCPServer.server_bind(self)
        if isinstance(self._place, pathlib.Path):
            self._place.chmod(_SOCKET_MODE)

    def server_activate(self) -> None:
        super().server_activate()
        self.socket.setblocking(False)  # A client may leave between poll(2) and accept(2).

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; its own thread does the TLS handshake. Raises OSError, which the library ignores."""
        try:
            connection, client = super().get_request()
        except OSError as error:
            self.overload.failed(error, pause=self._is_stopping.wait)
            raise
        if self._tls is not None:
            try:
                connection = self._tls().wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            except BaseException:
                connection.close()
                raise
        return connection, client

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - the library's signature
        """Add the connection, in place of a slow one if all are in use; return whether it is served."""
        assert isinstance(request, socket.socket)  # noqa: S101 - the library types it as anything; this server has stream sockets only
        with self._guard:
            # The thread of a dropped connection without a complete request ends at once.
            present = [connection for connection in self._open if connection.is_complete or not connection.is_dropped]
            if len(present) >= self._connections_max:
                slow = next((connection for connection in present if not connection.is_complete), None)
                if slow is None:
                    self.overload.refuse(accepting.Cause.CONNECTIONS)
                    return False
                _drop(slow)
            self._open.append(_Connection(socket=request, end=time.monotonic() + self._seconds))
        return True

    def process_request(self, request: object, client_address: object) -> None:
        """Serve a connection in a thread; close it where no thread can be started."""
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type] # the library's own types are narrower
        except RuntimeError as error:
            self.shutdown_request(request)
            self.overload.failed(error, pause=self._is_stopping.wait)

    def request_complete(self, request: socket.socket) -> None:
        """Mark a connection's request as complete, so that no other connection replaces it. Raises ConnectionError where one has."""
        with self._guard:
            for connection in self._open:
                if connection.socket is request:
                    if connection.is_dropped:
                        raise ConnectionAbortedError("the connection was replaced, or its time is over")
                    connection.is_complete = True

    def service_actions(self) -> None:
        """Shut down connections after their deadline; the library calls this twice a second."""
        now = time.monotonic()
        with self._guard:
            for connection in self._open:
                if connection.end <= now and not connection.is_dropped:
                    _drop(connection)

    def shutdown_request(self, request: object) -> None:
        super().shutdown_request(request)  # type: ignore[arg-type] # the library's own types are narrower than what it passes
        with self._guard:
            self._open = [connection for connection in self._open if connection.socket is not request]
            self._guard.notify_all()

    def finish(self, seconds: float) -> None:
        """Wait until the open connections have ended, at most ``seconds``."""
        with self._guard:
            self._guard.wait_for(lambda: not self._open, seconds)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the library's signature
        _log.debug("connection failed", client=str(client_address))


class Requests(http.server.BaseHTTPRequestHandler):
    """The handler of the single request of a connection. A subclass calls ``self.server.request_complete`` before it works."""

    server: Listener
    server_version = "drakit"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def setup(self) -> None:
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's signature
        _log.debug("HTTP request", client=str(self.client_address), line=format % args)


def _drop(connection: _Connection) -> None:
    """Wake the connection's thread, which then ends unless its page hangs. The caller holds the guard."""
    connection.is_dropped = True
    with contextlib.suppress(OSError):
        # The method of SSLSocket would also end TLS, so the connection's thread could then send plain text.
        socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)
