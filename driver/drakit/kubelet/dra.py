"""The DRA service, version v1: the kubelet's two calls, handed to the claim engine.

Whatever goes wrong in the engine becomes an error of the claims asked for; the process and the other calls live on.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import grpc

from drakit._proto import dra_v1_pb2 as wire
from drakit._proto import dra_v1_pb2_grpc as services
from drakit.core import claim as claims
from drakit.core import errors, names, outcome, ports
from drakit.kubelet import codec
from drakit.telemetry import logs

SERVICE = "v1.DRAPlugin"

_log = logs.get_logger(__name__)
_request_ids = itertools.count(1)

Answer = TypeVar("Answer")


class GrpcCaller:
    """The kubelet's call as a ``core.ports.Caller``: it waits until it cancels or its deadline (45 s in the kubelet) passes."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def is_waiting(self) -> bool:
        left = self._context.time_remaining()
        return bool(self._context.is_active()) and (left is None or left > 0)


class DraService(services.DRAPluginServicer):
    """NodePrepareResources and NodeUnprepareResources."""

    def __init__(self, engine: ports.ClaimEngine) -> None:
        self._engine = engine

    def register(self, server: grpc.Server) -> None:
        """Add the service to a server."""
        services.add_DRAPluginServicer_to_server(self, server)

    def NodePrepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodePrepareResourcesResponse:
        asked = codec.decode_claims(request.claims)
        answers = _ask(
            _Call("NodePrepareResources", asked, context),
            self._engine.prepare,
            lambda why: outcome.Outcome(error=why),
            lambda told: {"error": told.error} if told.error else {"devices": [device.device for device in told.devices]},
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
    """Let the engine work on the well-formed claims and log what became of each, all under one request id."""
    with logs.bound(request_id=next(_request_ids), method=call.method):
        for uid, fault in call.asked.refused.items():
            _log.warning("malformed claim refused", claim_uid=uid, error=fault)
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
    """What the work answers; if it raises, the same error for every claim."""
    try:
        return work()
    except errors.DrakitError as error:
        return {ref.uid: failed(str(error) or type(error).__name__) for ref in refs}
    except Exception as error:  # noqa: BLE001 - a bug in one call must not end the process
        _log.exception("bug in the claim engine", claims=[str(ref) for ref in refs])
        return {ref.uid: failed(f"internal error ({type(error).__name__}); see the driver's log") for ref in refs}
