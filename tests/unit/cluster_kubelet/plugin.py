"""A small DRA plugin on plain grpcio, which does as it is told and remembers how it was called. It knows nothing of the driver under judgement."""

import json
import pathlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit._proto import dra_v1_pb2_grpc as dra_services
from drakit._proto import pluginregistration_v1_pb2 as registration
from drakit._proto import pluginregistration_v1_pb2_grpc as registration_services
from drakit_cluster.client.api import Api
from drakit_cluster.cluster_node import NodeFolder
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM

DRIVER = "gpu.example.com"
PREPARE = "prepare"
UNPREPARE = "unprepare"


@dataclass(kw_only=True)
class Call:
    """One call: which, for which claim UIDs, and when it came."""

    method: str
    uids: tuple[str, ...]
    time: float = field(default_factory=time.monotonic)


class Plugin(dra_services.DRAPluginServicer, registration_services.RegistrationServicer):
    """A driver instance. Hooks change single answers: ``on_prepare`` and ``on_unprepare`` may alter or fail a whole response."""

    def __init__(self, api: Api, folder: NodeFolder, *, name: str = DRIVER, instance: str = "") -> None:
        self.api = api
        self.folder = folder
        self.name = name
        self.type = "DRAPlugin"
        self.versions = ["v1.DRAPlugin"]
        self.service_socket = folder.plugins / name / f"dra{instance}.sock"
        self.registration_socket = folder.registry / f"{name}{instance}-reg.sock"
        self.calls: list[Call] = []
        self.statuses: list[registration.RegistrationStatus] = []
        self.on_prepare: Callable[[dra.NodePrepareResourcesResponse, grpc.ServicerContext], None] = lambda _response, _context: None
        self.on_unprepare: Callable[[dra.NodeUnprepareResourcesResponse, grpc.ServicerContext], None] = lambda _response, _context: None
        self.services: list[Callable[[grpc.Server], None]] = [lambda server: dra_services.add_DRAPluginServicer_to_server(self, server)]
        self.notify_fails = 0
        self.cancelled = 0
        self._lock = threading.Lock()
        self._servers: list[grpc.Server] = []

    def start(self) -> "Plugin":
        self.serve()
        self.register()
        return self

    def serve(self) -> None:
        """Serve DRA calls."""
        self.service_socket.parent.mkdir(exist_ok=True, parents=True)
        server = grpc.server(futures.ThreadPoolExecutor(8))
        for add in self.services:
            add(server)
        server.add_insecure_port(f"unix:{self.service_socket}")
        server.start()
        self._servers.append(server)

    def register(self) -> None:
        """Serve registration."""
        server = grpc.server(futures.ThreadPoolExecutor(2))
        registration_services.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self.registration_socket}")
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        """Stop serving, the service first; both sockets go."""
        for server in self._servers:
            server.stop(0).wait()
        self._servers.clear()

    def stop_service(self) -> None:
        """Stop answering DRA calls but stay registered, as a process that was killed seems to the kubelet."""
        self._servers.pop(0).stop(0).wait()

    def uids(self, method: str) -> list[str]:
        """Return the claims of all calls of one method, in order."""
        with self._lock:
            return [uid for call in self.calls if call.method == method for uid in call.uids]

    def count(self, method: str) -> int:
        with self._lock:
            return sum(call.method == method for call in self.calls)

    def GetInfo(  # noqa: N802 - gRPC's name.
        self, request: registration.InfoRequest, context: grpc.ServicerContext
    ) -> registration.PluginInfo:
        return registration.PluginInfo(type=self.type, name=self.name, endpoint=str(self.service_socket), supported_versions=self.versions)

    def NotifyRegistrationStatus(  # noqa: N802 - gRPC's name.
        self, request: registration.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration.RegistrationStatusResponse:
        self.statuses.append(request)
        if self.notify_fails:
            self.notify_fails -= 1
            context.abort(grpc.StatusCode.INTERNAL, "not now")
        return registration.RegistrationStatusResponse()

    def NodePrepareResources(  # noqa: N802 - gRPC's name.
        self, request: dra.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra.NodePrepareResourcesResponse:
        self._note(PREPARE, [claim.uid for claim in request.claims])
        response = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].CopyFrom(self._prepare(claim))
        self.on_prepare(response, context)
        if not context.is_active():
            self.cancelled += 1
        return response

    def NodeUnprepareResources(  # noqa: N802 - gRPC's name.
        self, request: dra.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra.NodeUnprepareResourcesResponse:
        self._note(UNPREPARE, [claim.uid for claim in request.claims])
        response = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self.cdi_file(claim.uid).unlink(missing_ok=True)
            response.claims[claim.uid].SetInParent()
        self.on_unprepare(response, context)
        return response

    def cdi_file(self, uid: str) -> pathlib.Path:
        return self.folder.cdi / f"{self.name}-{uid}.json"

    def _note(self, method: str, uids: list[str]) -> None:
        with self._lock:
            self.calls.append(Call(method=method, uids=tuple(uids)))

    def _prepare(self, claim: dra.Claim) -> dra.NodePrepareResourceResponse:
        """Give each result of the claim a CDI device of its own that sets one variable."""
        found = self.api.get(CLAIM, claim.name, claim.namespace)
        results = json_types.objects(found, "status", "allocation", "devices", "results")
        mine = [result for result in results if result.get("driver") == self.name]
        self._write_cdi(claim.uid, mine)
        answer = dra.NodePrepareResourceResponse()
        for index, result in enumerate(mine):
            device = answer.devices.add(
                request_names=[json_types.text(result, "request").partition("/")[0]],
                pool_name=json_types.text(result, "pool"),
                device_name=json_types.text(result, "device"),
                cdi_device_ids=[f"example.com/gpu={claim.uid}-{index}"],
            )
            if "shareID" in result:
                device.share_id = json_types.text(result, "shareID")
        return answer

    def _write_cdi(self, uid: str, results: list[Object]) -> None:
        devices = [
            {
                "name": f"{uid}-{index}",
                "containerEdits": {"env": [f"DEVICE_{str(result['request']).upper()}={result['device']}"]},
            }
            for index, result in enumerate(results)
        ]
        spec = {"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": devices}
        temporary = self.folder.cdi / f".{uid}-{threading.get_ident()}.tmp"  # The same claim may come twice at the same moment.
        temporary.write_text(json.dumps(spec))
        temporary.replace(self.cdi_file(uid))
