"""GET /healthz, /readyz and /metrics over plain HTTP, on an address of the operator's choice or on a unix socket that only root may open.

Invariants: nothing but GET and HEAD of these paths is answered. A connection has one request and ``REQUEST_SECONDS`` from its start to its end,
however its client sends or reads. At most ``CONNECTIONS_MAX`` are open at a time; one more takes the place of the oldest that has sent no whole
request, so slow clients never keep a probe waiting. The answers hold no secret, and no request changes anything.
"""

import contextlib
import dataclasses
import errno
import http
import http.client
import http.server
import ipaddress
import os
import pathlib
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from drakit.core import errors
from drakit.serving import checks as checking
from drakit.telemetry import logs

REQUEST_SECONDS = 5.0
CONNECTIONS_MAX = 64
PORT_MAX = 65535
SERVER = "drakit"
"""What the Server header says, by which another instance of the driver is known."""
_SOCKET_MODE = 0o600
_ASK_SECONDS = 1.0
_ANSWER_MAX = 65536
_TEXT = "text/plain; charset=utf-8"

_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """One answer."""

    body: bytes
    content_type: str = _TEXT
    status: http.HTTPStatus = http.HTTPStatus.OK


Route = Callable[[], Page]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """Where to listen: an IP address of this machine, and a port (0: any free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Address":
        """``127.0.0.1:8080`` or ``[::1]:8080``; raises SettingsError naming ``key``."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.ip_address(bare)
        except ValueError as error:
            raise errors.SettingsError(f"{text!r} is not IP:PORT, for example 127.0.0.1:8080 or [::1]:8080", key=key) from error
        if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
            raise errors.SettingsError(f"{port!r} is not a port (0 to {PORT_MAX})", key=key)
        return cls(host=bare, port=int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Place = Address | pathlib.Path
"""Where a server listens: an address, or the path of a unix socket."""


def told(checks: checking.Checks) -> Route:
    """A page that says ok, or 503 with a line for each thing that is wrong."""

    def page() -> Page:
        failures = checks.failures()
        if not failures:
            return Page(body=b"ok\n")
        text = "".join(f"{name}: {' '.join(why.split())}\n" for name, why in failures.items())
        return Page(body=text.encode(), status=http.HTTPStatus.SERVICE_UNAVAILABLE)

    return page


@dataclasses.dataclass(kw_only=True, eq=False)
class _Connection:
    """An open connection: when it must be over, and whether its request is whole."""

    socket: socket.socket
    end: float
    has_asked: bool = False


class _Listener(http.server.ThreadingHTTPServer):
    """One thread a connection, bounded in number and time. Accepting never waits."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, place: Place, requests: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._guard = threading.Lock()
        self._open: list[_Connection] = []
        self._place = place
        if isinstance(place, Address):
            self.address_family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            super().__init__((place.host, place.port), requests)
        else:
            self.address_family = socket.AF_UNIX
            super().__init__(os.fspath(place), requests)  # type: ignore[arg-type] # the library knows TCP only

    def server_bind(self) -> None:
        """Bind, and ask no DNS for the host's name, as the library would. A socket is closed to others before anybody can connect."""
        socketserver.TCPServer.server_bind(self)
        if isinstance(self._place, pathlib.Path):
            self._place.chmod(_SOCKET_MODE)

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002 - the library's signature
        """Note the connection, in the place of a slow one where there is none free; whether it is served."""
        assert isinstance(request, socket.socket)  # noqa: S101 - the library types it as anything; this server has stream sockets only
        with self._guard:
            if len(self._open) >= CONNECTIONS_MAX:
                slow = next((one for one in self._open if not one.has_asked), None)
                if slow is None:
                    return False
                self._drop(slow)
            self._open.append(_Connection(socket=request, end=time.monotonic() + REQUEST_SECONDS))
        return True

    def asked(self, request: socket.socket) -> None:
        """Note that a connection's request is whole: it is not dropped for another one any more."""
        with self._guard:
            for one in self._open:
                if one.socket is request:
                    one.has_asked = True

    def service_actions(self) -> None:
        """Drop connections whose time is over; the library calls this twice a second."""
        now = time.monotonic()
        with self._guard:
            for one in [one for one in self._open if one.end <= now]:
                self._drop(one)

    def shutdown_request(self, request: object) -> None:
        with self._guard:
            self._open = [one for one in self._open if one.socket is not request]
        super().shutdown_request(request)  # type: ignore[arg-type] # the library's own types are narrower than what it passes

    def _drop(self, connection: _Connection) -> None:
        """Wake the connection's thread, which then ends; the caller holds the guard."""
        self._open.remove(connection)
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the library's signature
        _log.debug("a connection broke", client=str(client_address))


class HttpServer:
    """Serves ``routes`` (path to page) from ``start`` to ``stop``."""

    def __init__(self, place: Place, routes: Mapping[str, Route], *, key: str = "serve.address") -> None:
        self._wanted = place
        self._routes = dict(routes)
        self._key = key
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was found when 0 was asked for."""
        if not isinstance(self._wanted, Address):
            raise TypeError("a server on a unix socket has no address")
        if self._listener is None:
            return self._wanted
        return Address(host=self._wanted.host, port=self._listener.server_address[1])

    def start(self) -> bool:
        """Listen; return False where another process has the address. Raises SettingsError where nobody could listen there."""
        try:
            if isinstance(self._wanted, pathlib.Path):
                _make_way(self._wanted)
            self._listener = _Listener(self._wanted, _requests(self._routes))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and isinstance(self._wanted, Address):
                return False
            raise errors.SettingsError(f"cannot listen on {self._wanted}: {error.strerror or error}", key=self._key) from error
        self._thread = threading.Thread(target=self._listener.serve_forever, name="http", daemon=True)
        self._thread.start()
        where = str(self.address if isinstance(self._wanted, Address) else self._wanted)
        _log.info("serving HTTP", address=where, paths=sorted(self._routes))
        return True

    def stop(self) -> None:
        """Stop listening; safe to call twice and without start. A socket's file stays: the next start replaces it."""
        listener, self._listener = self._listener, None
        if listener is None or self._thread is None:
            return
        listener.shutdown()
        listener.server_close()
        self._thread.join()


def is_driver(address: Address) -> bool:
    """Whether what listens at an address is an instance of the driver."""
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(_Connecting(address)) as connection:
        connection.request("HEAD", "/healthz")
        return connection.getresponse().headers.get("Server", "").strip() == SERVER
    return False


def ask(place: Place, path: str) -> Page | None:
    """Return the answer of whoever listens at a place; None where nobody does. One who does not speak HTTP gives an empty 502."""
    try:
        with contextlib.closing(_Connecting(place)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return Page(body=answer.read(_ANSWER_MAX), status=http.HTTPStatus(answer.status))
    except (ConnectionRefusedError, FileNotFoundError):
        return None
    except (OSError, ValueError, http.client.HTTPException):
        return Page(body=b"", status=http.HTTPStatus.BAD_GATEWAY)


class _Connecting(http.client.HTTPConnection):
    """A client's connection to an address or a unix socket."""

    def __init__(self, place: Place) -> None:
        host, port = (place.host, place.port) if isinstance(place, Address) else ("localhost", 0)
        super().__init__(host, port, timeout=_ASK_SECONDS)
        self._place = place

    def connect(self) -> None:
        if isinstance(self._place, Address):
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ASK_SECONDS)
        self.sock.connect(os.fspath(self._place))


def _make_way(path: pathlib.Path) -> None:
    """Make the socket's folder, and remove the socket of an earlier process; raises OSError where something else is at the path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_ASK_SECONDS)
        if not is_socket or asking.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EEXIST, "another process listens there, or it is no socket; give this driver a path of its own")
    path.unlink()


def _requests(routes: Mapping[str, Route]) -> type[http.server.BaseHTTPRequestHandler]:
    """The class that answers requests; the library wants a class, so the routes are bound by making one."""

    class Requests(http.server.BaseHTTPRequestHandler):
        server_version = SERVER
        sys_version = ""
        timeout: ClassVar[float] = REQUEST_SECONDS

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            if isinstance(self.server, _Listener):
                self.server.asked(self.connection)
            page = _page(routes, self.path.partition("?")[0])
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if body:
                self.wfile.write(page.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's signature
            _log.debug("HTTP request", client=str(self.client_address), line=format % args)

    return Requests


def _page(routes: Mapping[str, Route], path: str) -> Page:
    route = routes.get(path)
    if route is None:
        return Page(body=f"no such page; there are {', '.join(sorted(routes))}\n".encode(), status=http.HTTPStatus.NOT_FOUND)
    try:
        return route()
    except Exception:  # noqa: BLE001 - a bug in one page is that page's
        _log.exception("bug in a page", path=path)
        return Page(body=b"internal error; see the log\n", status=http.HTTPStatus.INTERNAL_SERVER_ERROR)
