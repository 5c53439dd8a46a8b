"""The DRA services that a driver serves to the kubelet; they pass claims to the claim engine.

An error in the engine becomes an error of the claims in that call; the process and the other calls continue.
"""

import itertools
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import grpc

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.kubelet import codec, health, health_service, server
from drakit.telemetry import logs

SERVICE_V1 = "v1.DRAPlugin"
ADVERTISED = (SERVICE_V1, health_service.SERVICE_V1, health_service.SERVICE_V1ALPHA1)
"""The names of the gRPC services. The kubelet ignores unknown names."""

_log = logs.get_logger(__name__)
_request_ids = itertools.count(1)

Answer = TypeVar("Answer")


class GrpcCaller:
    """The kubelet's call as a ``core.ports.Caller``: it waits until it cancels or its deadline (45 s in the kubelet) passes."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def is_waiting(self) -> bool:
        seconds = self.seconds_left()
        return bool(self._context.is_active()) and (seconds is None or seconds > 0)

    def seconds_left(self) -> float | None:
        seconds: float | None = self._context.time_remaining()
        return seconds


class InFlightCalls:
    """The number of calls that the engine works on; each is one ``with`` block."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0

    def __enter__(self) -> None:
        with self._changed:
            self._running += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until no call runs, at most ``seconds``; return whether none runs."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)


class DraService(services.DRAPluginServicer):
    """The DRA service v1: NodePrepareResources and NodeUnprepareResources."""

    def __init__(self, engine: ports.ClaimEngine, in_flight: InFlightCalls | None = None) -> None:
        self._engine = engine
        self._in_flight = in_flight or InFlightCalls()

    def register(self, grpc_server: grpc.Server) -> None:
        """Add the service to a server."""
        services.add_DRAPluginServicer_to_server(self, grpc_server)

    def NodePrepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodePrepareResourcesResponse:
        decoded = codec.decode_claims(request.claims)
        with self._in_flight:
            answers = _run("NodePrepareResources", decoded, context, self._engine.prepare, _failed, _log_fields)
        return codec.encode_prepared(decoded, answers)

    def NodeUnprepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodeUnprepareResourcesResponse:
        decoded = codec.decode_claims(request.claims)
        with self._in_flight:
            answers = _run(
                "NodeUnprepareResources", decoded, context, self._engine.unprepare, str, lambda error: {"error": error} if error else {}
            )
        return codec.encode_unprepared(decoded, answers)


def _failed(error: str) -> claims.Outcome:
    return claims.Outcome(error=error)


def _log_fields(outcome: claims.Outcome) -> Mapping[str, object]:
    return {"error": outcome.error} if outcome.error else {"devices": [device.device for device in outcome.devices]}


def _run(
    method: str,
    request: codec.Request,
    context: grpc.ServicerContext,
    work: Callable[[Sequence[claims.ClaimRef], ports.Caller], Mapping[names.ClaimUid, Answer]],
    failed: Callable[[str], Answer],
    log_fields: Callable[[Answer], Mapping[str, object]],
) -> Mapping[names.ClaimUid, Answer]:
    """Pass the well-formed claims to the engine and log the result of each, all under one request id.

    If the engine raises, every claim gets the same error.
    """
    with logs.bound(request_id=next(_request_ids), method=method):
        for uid, fault in request.refused.items():
            _log.warning("claim refused: malformed", claim_uid=uid, error=fault)
        if not request.refs:
            return {}
        started = time.monotonic()
        answers: Mapping[names.ClaimUid, Answer]
        try:
            answers = work(request.refs, GrpcCaller(context))
        except errors.DrakitError as error:
            answers = {ref.uid: failed(str(error) or type(error).__name__) for ref in request.refs}
        except Exception as error:  # noqa: BLE001 - a bug in one call must not end the process
            _log.exception("claim engine failed", claims=[str(ref) for ref in request.refs])
            answers = {ref.uid: failed(f"internal error ({type(error).__name__}); see the driver's log") for ref in request.refs}
        seconds = round(time.monotonic() - started, 6)
        for ref in request.refs:
            fields = log_fields(answers[ref.uid]) if ref.uid in answers else {"error": codec.NO_ANSWER}
            log = _log.warning if "error" in fields else _log.info
            log("claim answered", claim=str(ref), claim_uid=ref.uid, seconds=seconds, **fields)
        return answers


def register(engine: ports.ClaimEngine, board: health.HealthBoard, in_flight: InFlightCalls | None = None) -> server.Register:
    """Return a function that adds the DRA and health services to a gRPC server."""
    registered = (
        DraService(engine, in_flight),
        health_service.HealthV1Service(board),
        health_service.HealthV1Alpha1Service(board),
    )

    def add(grpc_server: grpc.Server) -> None:
        for service in registered:
            service.register(grpc_server)

    return add
