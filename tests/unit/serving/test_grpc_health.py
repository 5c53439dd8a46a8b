"""gRPC health answers the kubelet's probes truly."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drakit.core import errors
from drakit.serving import grpc_health
from fakes import channels, waits


def ask(port: int, service: str) -> int:
    with channels.insecure(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=waits.SECONDS).status)


def test_a_probe_gets_the_current_state_and_unknown_services_are_not_found() -> None:
    well = {"ready": False}
    server = grpc_health.HealthServer("127.0.0.1:0", {"": lambda: True, "readiness": lambda: well["ready"]})
    server.start()
    kind = health_pb2.HealthCheckResponse
    assert ask(server.port, "") == kind.SERVING
    assert ask(server.port, "readiness") == kind.NOT_SERVING
    well["ready"] = True
    assert ask(server.port, "readiness") == kind.SERVING
    with pytest.raises(grpc.RpcError) as raised:
        ask(server.port, "other")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert not grpc_health.HealthServer(f"127.0.0.1:{server.port}", {}).start(), "another process has the address"
    with pytest.raises(errors.SettingsError, match=r"serve\.grpc_health: cannot listen on"):
        grpc_health.HealthServer("192.0.2.1:1", {}).start()
    server.stop()
    server.stop()
