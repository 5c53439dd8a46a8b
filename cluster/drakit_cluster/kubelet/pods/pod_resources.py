"""The kubelet's PodResources service: which devices the containers of this node have, share ids included.

Source: the kubelet's podresources API v1, with KubeletPodResourcesDynamicResources and KubeletPodResourcesGet as in 1.36. A container
lists every device of a claim that it uses, even if it names one request. Every device has only its own CDI names; a real kubelet of 1.36
also repeats those of the previous devices.
"""

import pathlib
from collections.abc import Callable, Sequence
from concurrent import futures

import grpc

from drakit._proto import podresources_v1_pb2 as wire
from drakit._proto import podresources_v1_pb2_grpc as services
from drakit_cluster.api.storage.store import Key
from drakit_cluster.client.informer import key_of
from drakit_cluster.kubelet.pods.preparation import Preparation
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object

_THREADS = 2
_MODE = 0o600


class PodResources(services.PodResourcesListerServicer):
    """The PodResources service, which answers from the prepared claims. ``pods`` returns the pods that the kubelet runs."""

    def __init__(self, preparation: Preparation, pods: Callable[[], Sequence[Object]]) -> None:
        self._preparation = preparation
        self._pods = pods

    def List(  # noqa: N802 - gRPC's name.
        self, _request: wire.ListPodResourcesRequest, _context: grpc.ServicerContext
    ) -> wire.ListPodResourcesResponse:
        return wire.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in sorted(self._pods(), key=key_of)])

    def GetAllocatableResources(  # noqa: N802 - gRPC's name.
        self, _request: wire.AllocatableResourcesRequest, _context: grpc.ServicerContext
    ) -> wire.AllocatableResourcesResponse:
        return wire.AllocatableResourcesResponse()

    def Get(  # noqa: N802 - gRPC's name.
        self, request: wire.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> wire.GetPodResourcesResponse:
        key = Key(request.pod_namespace, request.pod_name)
        matching_pod = next((pod for pod in self._pods() if key_of(pod) == key), None)
        if matching_pod is not None:
            return wire.GetPodResourcesResponse(pod_resources=self._pod(matching_pod))
        context.abort(
            grpc.StatusCode.UNKNOWN, f"pod {key.name} in namespace {key.namespace} not found"
        )  # The code that a real kubelet returns.
        return wire.GetPodResourcesResponse()

    def _pod(self, pod: Object) -> wire.PodResources:
        key = key_of(pod)
        containers = [*json_types.objects(pod, "spec", "initContainers"), *json_types.objects(pod, "spec", "containers")]
        return wire.PodResources(
            name=key.name, namespace=key.namespace, containers=[self._container(pod, container) for container in containers]
        )

    def _container(self, pod: Object, container: Object) -> wire.ContainerResources:
        by_claim: dict[Key, list[wire.ClaimResource]] = {}
        for claim, driver, device in self._preparation.claimed(pod, container):
            by_claim.setdefault(claim, []).append(_resource(driver, device))
        resources = [
            wire.DynamicResource(claim_name=claim.name, claim_namespace=claim.namespace, claim_resources=devices)
            for claim, devices in by_claim.items()
        ]
        return wire.ContainerResources(name=json_types.text(container, "name"), dynamic_resources=resources)


def serve(service: PodResources, socket: pathlib.Path) -> grpc.Server:
    """Serve on a unix socket for its owner only; the caller stops the server. Raises RuntimeError if the socket cannot be created."""
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="pod-resources"))
    services.add_PodResourcesListerServicer_to_server(service, server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    socket.chmod(_MODE)
    return server


def _resource(driver: str, device: PreparedDevice) -> wire.ClaimResource:
    return wire.ClaimResource(
        cdi_devices=[wire.CDIDevice(name=name) for name in device.cdi_ids],
        driver_name=driver,
        pool_name=device.pool,
        device_name=device.device,
        share_id=device.share_id,
    )
