"""The DRA services that a driver serves to the kubelet, handed to the claim engine.

Version v1beta1, for kubelets before 1.34, is version v1 without share ids: its messages are converted and answered by the v1 service. An error in the
engine becomes an error of the claims in that call; the process and the other calls continue.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import grpc

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit._proto import dra_v1beta1_pb2 as beta
from drakit._proto import dra_v1beta1_pb2_grpc as beta_services
from drakit.core import claim as claims
from drakit.core import errors, names, ports
from drakit.kubelet import codec, health, health_service, server
from drakit.telemetry import logs

SERVICE_V1, SERVICE_V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
ADVERTISED = (SERVICE_V1, SERVICE_V1BETA1, health_service.SERVICE_V1, health_service.SERVICE_V1ALPHA1)
"""gRPC services by name. The kubelet uses the first DRA service that it knows, so the newest comes first; it ignores names that it does not know."""

_log = logs.get_logger(__name__)
_request_ids = itertools.count(1)

Answer = TypeVar("Answer")


class GrpcCaller:
    """The kubelet's call as a ``core.ports.Caller``: it waits until it cancels or its deadline (45 s in the kubelet) passes."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def is_waiting(self) -> bool:
        left = self.seconds_left()
        return bool(self._context.is_active()) and (left is None or left > 0)

    def seconds_left(self) -> float | None:
        left: float | None = self._context.time_remaining()
        return left


class DraService(services.DRAPluginServicer):
    """NodePrepareResources and NodeUnprepareResources."""

    def __init__(self, engine: ports.ClaimEngine) -> None:
        self._engine = engine

    def register(self, grpc_server: grpc.Server) -> None:
        """Add the service to a server."""
        services.add_DRAPluginServicer_to_server(self, grpc_server)

    def NodePrepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodePrepareResourcesResponse:
        asked = codec.decode_claims(request.claims)
        answers = _ask(
            _Call("NodePrepareResources", asked, context),
            self._engine.prepare,
            lambda why: claims.Outcome(error=why),
            lambda outcome: {"error": outcome.error} if outcome.error else {"devices": [device.device for device in outcome.devices]},
        )
        return codec.encode_prepared(asked, answers)

    def NodeUnprepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodeUnprepareResourcesResponse:
        asked = codec.decode_claims(request.claims)
        answers = _ask(
            _Call("NodeUnprepareResources", asked, context), self._engine.unprepare, str, lambda error: {"error": error} if error else {}
        )
        return codec.encode_unprepared(asked, answers)


@dataclasses.dataclass(frozen=True)
class _Call:
    method: str
    asked: codec.Asked
    context: grpc.ServicerContext


def _ask(
    call: _Call,
    engine: Callable[[Sequence[claims.ClaimRef], ports.Caller], Mapping[names.ClaimUid, Answer]],
    failed: Callable[[str], Answer],
    said: Callable[[Answer], Mapping[str, object]],
) -> Mapping[names.ClaimUid, Answer]:
    """Pass the well-formed claims to the engine and log the result of each, all under one request id."""
    with logs.bound(request_id=next(_request_ids), method=call.method):
        for uid, fault in call.asked.refused.items():
            _log.warning("claim refused: malformed", claim_uid=uid, error=fault)
        if not call.asked.refs:
            return {}
        started = time.monotonic()
        answers = _contained(lambda: engine(call.asked.refs, GrpcCaller(call.context)), call.asked.refs, failed)
        seconds = round(time.monotonic() - started, 6)
        for ref in call.asked.refs:
            answer = said(answers[ref.uid]) if ref.uid in answers else {"error": codec.NO_ANSWER}
            write = _log.warning if "error" in answer else _log.info
            write("claim answered", claim=str(ref), claim_uid=ref.uid, seconds=seconds, **answer)
        return answers


def _contained(
    work: Callable[[], Mapping[names.ClaimUid, Answer]], refs: Sequence[claims.ClaimRef], failed: Callable[[str], Answer]
) -> Mapping[names.ClaimUid, Answer]:
    """Return the results of the work; if it raises, the same error for every claim."""
    try:
        return work()
    except errors.DrakitError as error:
        return {ref.uid: failed(str(error) or type(error).__name__) for ref in refs}
    except Exception as error:  # noqa: BLE001 - a bug in one call must not end the process
        _log.exception("claim engine failed", claims=[str(ref) for ref in refs])
        return {ref.uid: failed(f"internal error ({type(error).__name__}); see the driver's log") for ref in refs}


class DraV1Beta1Service(beta_services.DRAPluginServicer):
    """NodePrepareResources and NodeUnprepareResources as the v1 service answers them."""

    def __init__(self, answering: DraService) -> None:
        self._answering = answering

    def register(self, grpc_server: grpc.Server) -> None:
        """Add the service to a server."""
        beta_services.add_DRAPluginServicer_to_server(self, grpc_server)

    def NodePrepareResources(  # noqa: N802 - the wire's name
        self, request: beta.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> beta.NodePrepareResourcesResponse:
        answer = self._answering.NodePrepareResources(codec.convert(wire.NodePrepareResourcesRequest, request), context)
        return codec.convert(beta.NodePrepareResourcesResponse, answer)

    def NodeUnprepareResources(  # noqa: N802 - the wire's name
        self, request: beta.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> beta.NodeUnprepareResourcesResponse:
        answer = self._answering.NodeUnprepareResources(codec.convert(wire.NodeUnprepareResourcesRequest, request), context)
        return codec.convert(beta.NodeUnprepareResourcesResponse, answer)


def register(engine: ports.ClaimEngine, board: health.HealthBoard) -> server.Register:
    """Return a function that adds the DRA and health services to a gRPC server."""
    answering = DraService(engine)
    served = (
        answering,
        DraV1Beta1Service(answering),
        health_service.HealthV1Service(board),
        health_service.HealthV1Alpha1Service(board),
    )

    def add(grpc_server: grpc.Server) -> None:
        for service in served:
            service.register(grpc_server)

    return add
