"""Serve gRPC health (grpc.health.v1) on a TCP port for the kubelet's grpc probes, with the same results as /healthz and /readyz.

The service names ``""`` and ``liveness`` check liveness, ``readiness`` checks readiness; another name is NOT_FOUND, as in the protocol.
``Watch`` is not implemented, because probes do not use it.
"""

import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from concurrent import futures

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drakit.core import errors
from drakit.serving import worker_threads
from drakit.telemetry import logs

THREADS = 2
STOP_SECONDS = 5.0
LIVENESS, READINESS = "liveness", "readiness"

_log = logs.get_logger(__name__)

Question = Callable[[], bool]


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package has no types
    """The health service, with one check for each service name."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = dict(questions)

    def Check(  # noqa: N802 - the wire's name
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        question = self._questions.get(request.service)
        if question is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}; there are {', '.join(sorted(filter(None, self._questions)))}"
            )
            raise AssertionError("abort raises")
        kind = health_pb2.HealthCheckResponse
        return kind(status=kind.SERVING if question() else kind.NOT_SERVING)


class HealthServer:
    """A gRPC server of its own on ``host:port``, so that a flood of claims cannot starve a probe."""

    def __init__(self, address: str, questions: Mapping[str, Question]) -> None:
        self._address = address
        self._service = HealthService(questions)
        self._server: grpc.Server | None = None
        self._pool: futures.ThreadPoolExecutor | None = None
        self.port = 0

    def start(self) -> bool:
        """Listen, or return False if another process has the address. Raise SettingsError for an address that cannot be used."""
        with contextlib.ExitStack() as undo:
            pool = worker_threads.started(THREADS, "health")
            undo.callback(pool.shutdown, wait=False)
            server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
            health_pb2_grpc.add_HealthServicer_to_server(self._service, server)
            try:
                self.port = server.add_insecure_port(self._address)
            except RuntimeError as error:
                if _is_taken(self._address):
                    return False
                raise errors.SettingsError(
                    f"cannot listen on {self._address}; check that it is an address of this machine", key="serve.grpc_health"
                ) from error
            server.start()
            self._server, self._pool = server, pool
            undo.pop_all()
        _log.info("gRPC health server started", address=self._address, port=self.port)
        return True

    def stop(self) -> None:
        """Stop at once. Safe to call twice and without start."""
        if self._server is not None:
            self._server.stop(0).wait(STOP_SECONDS)
            self._server = None
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def _is_taken(address: str) -> bool:
    """Return whether another process has an address, because the error of gRPC does not say so."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as asking:
        try:
            asking.bind((host.strip("[]"), int(port)))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
