"""Everything that a driver serves to the kubelet on its own socket, and how it is advertised.

The names advertised are gRPC service names with a short version. The kubelet takes the first DRA service that it knows, so the newest stands first;
names that it does not know do no harm.
"""

import grpc

from drakit.core import ports
from drakit.kubelet import dra, dra_v1beta1, health, health_service, kinds

ADVERTISED = (dra.SERVICE, dra_v1beta1.SERVICE, health_service.SERVICE_V1, health_service.SERVICE_V1ALPHA1)


def register(engine: ports.ClaimEngine, board: health.HealthBoard) -> kinds.Register:
    """What adds all services to a gRPC server."""
    answering = dra.DraService(engine)
    served = (
        answering,
        dra_v1beta1.DraV1Beta1Service(answering),
        health_service.HealthV1Service(board),
        health_service.HealthV1Alpha1Service(board),
    )

    def add(grpc_server: grpc.Server) -> None:
        for service in served:
            service.register(grpc_server)

    return add
