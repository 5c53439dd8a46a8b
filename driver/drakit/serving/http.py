"""A small HTTP server for probes, metrics and reviews, on a configured address, with TLS if it has a certificate, or on a unix socket for root only.

Invariants: the server answers only GET and HEAD of ``routes`` and POST to ``reviews``. A connection has one request and the time
that ``listener`` gives it, with the TLS handshake, whether its client is slow or not. A body has at most ``BODY_MAX`` bytes. ``listener`` limits
connections and threads, and at most ``PAGE_THREADS`` requests for one page run at a time. Answers have no secret, and no request changes state.
"""

import dataclasses
import errno
import functools
import http
import http.client
import ipaddress
import pathlib
import threading
import types
from collections.abc import Callable, Mapping

from drakit.core import errors
from drakit.serving import accepting, unix_sockets
from drakit.serving import checks as checking
from drakit.serving import listener as listening
from drakit.telemetry import logs

CONNECTIONS_MAX = 64
PAGE_THREADS = 8
"""The most requests for one page at a time."""
BODY_MAX = 1 << 20
"""The largest request body in bytes. A claim with 32 configurations of 10 KiB, before and after an update, has 640 KiB."""
FINISH_SECONDS = 1.0
"""The longest wait for requests in progress when the server stops."""
PORT_MAX = 65535
SERVER = "drakit"
"""The value of the Server header, which identifies another instance of the driver."""
_TEXT = "text/plain; charset=utf-8"
_CHUNK = 1 << 16
_DIGITS_MAX = 12

_log = logs.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Page:
    """The answer to a request."""

    body: bytes
    content_type: str = _TEXT
    status: http.HTTPStatus = http.HTTPStatus.OK


Route = Callable[[], Page]
Review = Callable[[bytes], Page]
"""A function that returns the answer to the body of a POST."""
Tls = listening.Tls


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """An address to listen on: an IP address of this machine, and a port (0: any free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Address":
        """Return the address in a text such as ``127.0.0.1:8080`` or ``[::1]:8080``. Raises SettingsError naming ``key``."""
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
"""The place of a server: an address, or the path of a unix socket."""


def checks_page(checks: checking.Checks) -> Route:
    """Return a page with ok, or with status 503 and a line for each failed check; a line for each note follows."""

    def page() -> Page:
        failures = checks.failures()
        text = _lines(failures) if failures else "ok\n"
        status = http.HTTPStatus.SERVICE_UNAVAILABLE if failures else http.HTTPStatus.OK
        return Page(body=(text + _lines(checks.notes())).encode(), status=status)

    return page


def _lines(texts: Mapping[str, str]) -> str:
    return "".join(f"{name}: {' '.join(text.split())}\n" for name, text in texts.items())


class _Listener(listening.Listener):
    """The listener of an ``HttpServer``."""

    def __init__(
        self,
        place: Place,
        routes: Mapping[str, Route],
        reviews: Mapping[str, Review],
        *,
        connections_max: int,
        overload: accepting.Overload,
        tls: Tls | None,
    ) -> None:
        self.routes = {path: _limited(route, overload, path) for path, route in routes.items()}
        self.reviews = reviews
        address = (place.host, place.port) if isinstance(place, Address) else place
        super().__init__(address, _Requests, connections_max=connections_max, overload=overload, tls=tls)


def _limited(route: Route, overload: accepting.Overload, path: str) -> Route:
    """Return a page that is made at most ``PAGE_THREADS`` times at once, so that a page that hangs leaves threads for the others."""
    threads = threading.BoundedSemaphore(PAGE_THREADS)

    def page() -> Page:
        if not threads.acquire(blocking=False):
            overload.refuse(accepting.Cause.PAGE, path=path)
            body = f"{PAGE_THREADS} requests for this page are in progress; try again later\n".encode()
            return Page(body=body, status=http.HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            return route()
        finally:
            threads.release()

    return page


class _Requests(listening.Requests):
    """The handler of the single request of a connection."""

    server: _Listener

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        self._answer(_page(self.server.routes, self._completed_path()))

    def do_HEAD(self) -> None:  # noqa: N802 - the library's name
        self._answer(_page(self.server.routes, self._completed_path()), body=False)

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        if not self.server.reviews:
            self.send_error(http.HTTPStatus.NOT_IMPLEMENTED)
            return
        body = self._body()
        if isinstance(body, bytes):
            body = _page({path: functools.partial(review, body) for path, review in self.server.reviews.items()}, self._completed_path())
        self._answer(body)

    def _completed_path(self) -> str:
        """Mark the request as complete, and return its path."""
        self.server.request_complete(self.connection)
        return self.path.partition("?")[0]

    def _body(self) -> bytes | Page:
        """Return the body of a request, or the page that rejects it."""
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
            return Page(body=b"send the body with a Content-Length\n", status=http.HTTPStatus.LENGTH_REQUIRED)
        length = int(text)
        if length > BODY_MAX:
            # Without reading the body, the client would get a reset instead of the answer.
            while length > 0 and (chunk := self.rfile.read(min(length, _CHUNK))):
                length -= len(chunk)
            return Page(
                body=f"the body has {text} bytes, over the limit of {BODY_MAX}\n".encode(),
                status=http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("the client closed the connection in the middle of its request")
        return body

    def _answer(self, page: Page, *, body: bool = True) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(page.body)


class HttpServer:
    """A server of ``routes`` (path to page) and ``reviews``, from ``start`` to ``stop``; ``key`` is the setting of its address."""

    def __init__(
        self,
        place: Place,
        routes: Mapping[str, Route],
        *,
        reviews: Mapping[str, Review] = types.MappingProxyType({}),
        tls: Tls | None = None,
        connections_max: int = CONNECTIONS_MAX,
        key: str = "serve.address",
        overload: accepting.Overload | None = None,
    ) -> None:
        self._overload = overload or accepting.Overload("http")
        self._wanted = place
        self._routes = dict(routes)
        self._reviews = dict(reviews)
        self._tls = tls
        self._connections_max = connections_max
        self._key = key
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> Address:
        """Return the address, with the actual port where port 0 was requested."""
        if not isinstance(self._wanted, Address):
            raise TypeError("a server on a unix socket has no address")
        if self._listener is None:
            return self._wanted
        return Address(host=self._wanted.host, port=self._listener.server_address[1])

    def start(self) -> bool:
        """Listen, or return False if another process has the address. Raises SettingsError for an address that cannot be used."""
        try:
            if isinstance(self._wanted, pathlib.Path):
                unix_sockets.check_path(self._wanted, self._key)
                _prepare_path(self._wanted)
            self._listener = _Listener(
                self._wanted,
                self._routes,
                self._reviews,
                connections_max=self._connections_max,
                overload=self._overload,
                tls=self._tls,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE and isinstance(self._wanted, Address):
                return False
            raise errors.SettingsError(f"cannot listen on {self._wanted}: {error.strerror or error}", key=self._key) from error
        self._thread = threading.Thread(target=self._listener.serve, name="http", daemon=True)
        self._thread.start()
        where = str(self.address if isinstance(self._wanted, Address) else self._wanted)
        _log.info("HTTP server started", address=where, paths=sorted({*self._routes, *self._reviews}), tls=self._tls is not None)
        return True

    def stop(self) -> None:
        """Stop listening, and wait for requests in progress. Safe to call twice and without start. The next start replaces the socket's file."""
        listener, self._listener = self._listener, None
        if listener is None or self._thread is None:
            return
        listener.shutdown()
        listener.server_close()
        self._thread.join(FINISH_SECONDS)
        listener.finish(FINISH_SECONDS)


def _prepare_path(path: pathlib.Path) -> None:
    """Create the socket's folder, and remove the socket of an earlier process. Raises OSError if another file or a listener is at the path."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    in_use = unix_sockets.occupant(path)
    if in_use in {unix_sockets.Occupant.LISTENER, unix_sockets.Occupant.OTHER}:
        raise OSError(errno.EEXIST, f"the path is in use by a {in_use.value}; give this driver a path of its own")
    path.unlink(missing_ok=True)


def _page(routes: Mapping[str, Route], path: str) -> Page:
    route = routes.get(path)
    if route is None:
        return Page(body=f"no such page; there are {', '.join(sorted(routes))}\n".encode(), status=http.HTTPStatus.NOT_FOUND)
    try:
        return route()
    except Exception:  # noqa: BLE001 - a bug in one page must not affect the others
        _log.exception("page failed", path=path)
        return Page(body=b"internal error; see the log\n", status=http.HTTPStatus.INTERNAL_SERVER_ERROR)
