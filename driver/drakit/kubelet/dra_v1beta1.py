"""The DRA service, version v1beta1, for kubelets before 1.34: version v1 without share ids, over the same engine."""

import grpc

from drakit._proto import dra_v1_pb2 as v1
from drakit._proto import dra_v1beta1_pb2 as wire
from drakit._proto import dra_v1beta1_pb2_grpc as services
from drakit.kubelet import dra, rewire

SERVICE = "v1beta1.DRAPlugin"


class DraV1Beta1Service(services.DRAPluginServicer):
    """NodePrepareResources and NodeUnprepareResources as the v1 service answers them."""

    def __init__(self, answering: dra.DraService) -> None:
        self._answering = answering

    def register(self, server: grpc.Server) -> None:
        """Add the service to a server."""
        services.add_DRAPluginServicer_to_server(self, server)

    def NodePrepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodePrepareResourcesResponse:
        answer = self._answering.NodePrepareResources(rewire.into(v1.NodePrepareResourcesRequest, request), context)
        return rewire.into(wire.NodePrepareResourcesResponse, answer)

    def NodeUnprepareResources(  # noqa: N802 - the wire's name
        self, request: wire.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> wire.NodeUnprepareResourcesResponse:
        answer = self._answering.NodeUnprepareResources(rewire.into(v1.NodeUnprepareResourcesRequest, request), context)
        return rewire.into(wire.NodeUnprepareResourcesResponse, answer)
