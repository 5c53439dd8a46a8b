from collections.abc import Iterator

import grpc

from drakit._proto import dra_health_v1alpha1_pb2

class DRAResourceHealthStub:
    def __init__(self, channel: grpc.Channel) -> None: ...
    def NodeWatchResources(self, request: dra_health_v1alpha1_pb2.NodeWatchResourcesRequest, timeout: float | None = ..., wait_for_ready: bool | None = ...) -> grpc.Call: ...

class DRAResourceHealthServicer:
    def NodeWatchResources(self, request: dra_health_v1alpha1_pb2.NodeWatchResourcesRequest, context: grpc.ServicerContext) -> Iterator[dra_health_v1alpha1_pb2.NodeWatchResourcesResponse]: ...

def add_DRAResourceHealthServicer_to_server(servicer: DRAResourceHealthServicer, server: grpc.Server) -> None: ...
