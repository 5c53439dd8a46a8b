"""The API server: the registry over HTTPS on 127.0.0.1, in a thread of its own.

It listens on no other address. The registry holds the objects, so a server that is stopped and started again has the same objects, port,
certificates and tokens. Certificates and tokens end with the process.
"""

import asyncio
import contextlib
import pathlib
import socket
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import uvicorn

from drakit_cluster.access import users
from drakit_cluster.access.authorizer import Authorizer
from drakit_cluster.access.tokens import Tokens
from drakit_cluster.api import tls
from drakit_cluster.api.http.app import App
from drakit_cluster.api.http.faulty import Faulty
from drakit_cluster.api.metrics import Metrics
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage.watching import BOOKMARK_SECONDS
from drakit_cluster.faults import ApiFaults

START_SECONDS = 10.0
STOP_SECONDS = 5.0
_BACKLOG = 128
_CLOSE_SECONDS = 0.05
_KEEP_ALIVE_SECONDS = 120


class StartError(RuntimeError):
    """The server could not be started; the message says why."""


class ApiServer:
    """Serves one registry. Use as a context manager, or call :meth:`start` and :meth:`stop`; both may be repeated.

    ``port`` 0 takes any free port, and keeps it over restarts. ``bookmark_every`` is in seconds. Roles, bindings and the
    node authorizer decide what a user may do; members of system:masters may do everything.
    ``faults`` holds the faults to inject into requests.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        port: int = 0,
        bookmark_every: float = BOOKMARK_SECONDS,
    ) -> None:
        self.registry = registry
        self._authorizer = Authorizer(store=registry.store)
        self.port = port
        self.faults = ApiFaults()
        self.tokens = Tokens()
        self.metrics = Metrics()
        self._authority = tls.authority()
        self._admin_token = self.tokens.issue(users.ADMIN_NAME, (users.MASTERS,))
        self._bookmark_every = bookmark_every
        self._running: _Server | None = None

    @property
    def url(self) -> str:
        """The base URL; valid once started."""
        return f"https://{tls.LOOPBACK}:{self.port}"

    @property
    def ca_pem(self) -> bytes:
        """The certificate that clients must trust."""
        return self._authority.pem

    def issue_token(self, user: str, groups: tuple[str, ...] = (), *, extra: Mapping[str, tuple[str, ...]] | None = None) -> str:
        """Return a bearer token for an identity such as ``system:node:n1`` in group ``system:nodes``.

        ``extra`` is the extra information in a review of the token, such as the node of the pod that it is bound to.
        """
        return self.tokens.issue(user, groups, extra)

    def issue_node_token(self, node: str) -> str:
        """Return a bearer token for a node's kubelet."""
        return self.tokens.issue(users.node_name(node), (users.NODES,))

    def write_kubeconfig(self, path: pathlib.Path, *, token: str = "", user: str = users.ADMIN_NAME) -> None:
        """Write a kubeconfig (0600) for ``token``, or for the administrator."""
        config = tls.kubeconfig(self.url, self.ca_pem, token or self._admin_token, user=user)
        tls.write_kubeconfig(path, config)

    def start(self) -> None:
        """Start serving; return when requests are answered. Raises StartError if the port is in use or the server does not start."""
        if self._running is not None:
            return
        app = App(
            self.registry,
            self.tokens,
            self._authorizer,
            self.metrics,
            bookmark_every=self._bookmark_every,
        )
        listener = _listen(self.port)
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(
            Faulty(app, self.faults),
            log_config=None,
            log_level="error",  # kubectl exec first asks for WebSocket, and uvicorn's warning advises to install packages.
            access_log=False,
            lifespan="off",
            http="h11",
            ws="none",
            loop="asyncio",
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            ssl_context_factory=lambda _config, _default: self._authority.server_context,
        )
        self._running = _Server(app, config, listener)
        try:
            self._running.launch()
        except StartError:
            self._running = None
            raise

    def hang_up(self) -> None:
        """Break every connection, even in the middle of a response; new connections are served."""
        if self._running is not None:
            self._running.hang_up()

    def stop(self) -> None:
        """End every watch, refuse new connections, and return when the thread has ended. Stopping twice is harmless."""
        running, self._running = self._running, None
        if running is not None:
            running.finish()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """One run of the server: its thread, its loop and its listening socket. It ends without waiting for idle connections."""

    def __init__(self, app: App, config: uvicorn.Config, listener: "_Listener") -> None:
        super().__init__(config)
        self._app = app
        self._listener = listener
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve_in_thread, name="cluster-apiserver", daemon=True)

    def launch(self) -> None:
        """Start; return when connections are accepted. Raises StartError."""
        self._thread.start()
        self._ready.wait(START_SECONDS)
        if not self.started:
            self.finish()
            raise StartError(f"the API server did not start: {self._error or 'no answer'}") from self._error

    def finish(self) -> None:
        """Stop; return when the thread has ended."""
        if self._thread.is_alive() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(STOP_SECONDS)
        self._listener.close()

    def hang_up(self) -> None:
        """Break every connection."""
        self._loop.call_soon_threadsafe(self._listener.hang_up)

    def _end(self) -> None:
        self._app.streams.end()
        self.should_exit = True
        self._ending.set()

    def _serve_in_thread(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self.serve(sockets=[self._listener]))
            except (OSError, SystemExit) as error:
                self._error = error
            finally:
                self._ready.set()

    async def main_loop(self) -> None:
        """Sleep until the end, where the base class wakes ten times a second to renew the Date header."""
        await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        await asyncio.sleep(0)  # Accepted sockets become connections first; a closed server could not do that.
        aborting = loop.call_later(_CLOSE_SECONDS, self._abort)
        try:
            await super().shutdown(sockets)
        finally:
            aborting.cancel()
        if self._listener.hang_up():
            await asyncio.sleep(_CLOSE_SECONDS)

    def _abort(self) -> None:
        """Drop the connections of clients that do not close their side of TLS, as idle clients never do."""
        for connection in tuple(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


class _Listener(socket.socket):
    """A listening socket that tracks the connections it accepted. The server does not know one in its handshake and would leave it open."""

    def __init__(self) -> None:
        # asyncio turns Nagle's delay off only for sockets whose protocol is set to TCP. The delay costs 44 ms per request.
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept one connection."""
        connection, address = super().accept()
        self._accepted.add(connection)
        return connection, address

    def hang_up(self) -> bool:
        """Shut down every connection that is still open, so that the loop sees its end; return whether there was one."""
        open_connections = [connection for connection in self._accepted if connection.fileno() >= 0]
        for connection in open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return bool(open_connections)


def _listen(port: int) -> _Listener:
    listener = _Listener()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((tls.LOOPBACK, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartError(f"cannot listen on {tls.LOOPBACK} port {port}: {error}") from error
    return listener
