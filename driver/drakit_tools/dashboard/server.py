"""The dashboard's web server: one page and its data, for the browser of the user who started it.

Invariants: it listens only on 127.0.0.1 and answers only GET and HEAD. Data needs the token, which is random for each start and is in the fragment of
the page's address, so that no log and no other site sees it. A request with another Host (DNS rebinding) or Origin is rejected. The page can run only
its own script and loads nothing from other hosts.
"""

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import http
import importlib.resources
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from drakit.core import errors
from drakit.serving import accepting, listener
from drakit_tools.dashboard import model

HOST = "127.0.0.1"
FRESH_SECONDS = 0.5
"""The minimum time between two reads of the state, for any number of open pages."""
_CONNECTIONS_MAX = 64
_REQUEST_SECONDS = 60.0
"""The longest time of a request. The state of a large cluster may take long to read."""
_FINISH_SECONDS = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """A response of the server."""

    status: http.HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    policy: str = "default-src 'none'"
    etag: str = ""


class Dashboard:
    """Answers requests; ``read`` returns the current state. Thread-safe."""

    def __init__(self, read: Callable[[], model.State]) -> None:
        self.token = secrets.token_urlsafe(24)
        self._read = read
        self._page, self._policy = _page()
        self._lock = threading.Lock()
        self._state = b""
        self._read_at = float("-inf")

    def answer(self, path: str, headers: Mapping[str, str], port: int) -> Answer:
        """Return the answer to a GET of ``path``."""
        headers = {name.lower(): value for name, value in headers.items()}
        hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if headers.get("host") not in hosts or headers.get("origin", f"http://{HOST}:{port}").removeprefix("http://") not in hosts:
            return Answer(status=http.HTTPStatus.FORBIDDEN, body=b"this address serves only its own page\n")
        if path == "/":
            return Answer(status=http.HTTPStatus.OK, body=self._page, content_type="text/html; charset=utf-8", policy=self._policy)
        if path != "/state":
            return Answer(status=http.HTTPStatus.NOT_FOUND, body=b"not found\n")
        if not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self.token}".encode()):
            return Answer(status=http.HTTPStatus.UNAUTHORIZED, body=b"open the address that drakit dashboard printed\n")
        state = self._current()
        etag = f'"{hashlib.sha256(state).hexdigest()[:16]}"'
        if headers.get("if-none-match") == etag:
            return Answer(status=http.HTTPStatus.NOT_MODIFIED, etag=etag)
        return Answer(status=http.HTTPStatus.OK, body=state, content_type="application/json", etag=etag)

    def _current(self) -> bytes:
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                try:
                    state = self._read()
                except errors.DrakitError as error:
                    state = model.State(title="", problem=str(error))
                self._state = json.dumps(dataclasses.asdict(state), separators=(",", ":")).encode()
                self._read_at = time.monotonic()
            return self._state


class _Server(listener.Listener):
    def __init__(self, port: int, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        overload = accepting.Overload("dashboard")
        super().__init__((HOST, port), _Requests, connections_max=_CONNECTIONS_MAX, overload=overload, seconds=_REQUEST_SECONDS)


class _Requests(listener.Requests):
    server: "_Server"

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        self._answer(with_body=True)

    def do_HEAD(self) -> None:  # noqa: N802 - the library's name
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.server.request_complete(self.connection)
        answer = self.server.dashboard.answer(self.path.partition("?")[0], dict(self.headers.items()), self.server.server_address[1])
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": answer.policy,
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **({"ETag": answer.etag} if answer.etag else {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)


@contextlib.contextmanager
def serving(dashboard: Dashboard, port: int) -> Iterator[str]:
    """Serve inside the block; yield the address of the page, token included. Raises SettingsError."""
    try:
        server = _Server(port, dashboard)
    except OSError as error:
        raise errors.SettingsError(f"cannot listen on {HOST}:{port}: {error.strerror}", key="--port") from error
    thread = threading.Thread(target=server.serve, name="dashboard", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/#{dashboard.token}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        server.finish(_FINISH_SECONDS)


def _page() -> tuple[bytes, str]:
    """Return the page with its style and script, and the content security policy that allows only these."""
    folder = importlib.resources.files(__package__ or __name__.rpartition(".")[0])
    html, style, script = ((folder / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return html.replace("/* page.css */", style).replace("/* page.js */", script).encode(), policy


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
