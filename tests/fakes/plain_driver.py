"""A DRA driver in plain gRPC that shares no code with drakit's, for tests of the conformance suite; ``python plain_driver.py FOLDER [FAULT]``.

FOLDER has ``claims.json``, what the API server would know: ``{uid: [[request, pool, device], ...]}``. It serves on ``FOLDER/reg.sock`` and
``FOLDER/dra.sock``, writes CDI files to ``FOLDER/cdi``, and keeps what it prepared in ``FOLDER/prepared.json``, so that a new process knows it.
"""

import json
import os
import pathlib
import secrets
import signal
import sys
import threading
import time
import types
from concurrent import futures
from typing import Any

import grpc

if __name__ == "__main__":
    # The generated code alone: the package itself takes longer to import than all the rest.
    sys.modules["drakit"] = package = types.ModuleType("drakit")
    package.__path__ = [str(pathlib.Path(__file__).parents[2] / "driver" / "drakit")]

from drakit._proto import dra_v1_pb2, dra_v1_pb2_grpc
from drakit._proto import pluginregistration_v1_pb2 as registration_pb2
from drakit._proto import pluginregistration_v1_pb2_grpc as registration_grpc

NAME = "plain.example.com"
WORKERS = 8


class Registration(registration_grpc.RegistrationServicer):
    def __init__(self, folder: pathlib.Path, fault: str) -> None:
        self.folder, self.fault = folder, fault

    def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        versions = {"no versions": [], "semantic versions": ["1.0.0"]}
        return registration_pb2.PluginInfo(
            type="DevicePlugin" if self.fault == "wrong type" else "DRAPlugin",
            name=NAME,
            endpoint=str(self.folder / ("other.sock" if self.fault == "wrong endpoint" else "dra.sock")),
            supported_versions=versions.get(self.fault, ["v1.DRAPlugin"]),
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.fault == "refuses registration":
            context.abort(grpc.StatusCode.INTERNAL, "not now")
        return registration_pb2.RegistrationStatusResponse()


class Driver(dra_v1_pb2_grpc.DRAPluginServicer):
    """The two calls."""

    def __init__(self, folder: pathlib.Path, fault: str) -> None:
        self.folder, self.fault = folder, fault
        self.store = folder / "prepared.json"
        if fault in ("forgets", "forgets without a word") or not self.store.exists():
            self.store.write_text("{}")

    lock = threading.Lock()

    def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.fault == "hangs":
            time.sleep(4)
        if self.fault == "is slow":
            time.sleep(0.3)
        if self.fault == "ends":
            os._exit(3)
        with self.lock:
            known = json.loads((self.folder / "claims.json").read_text())
            if self.fault == "call fails for one claim" and any(claim.uid not in known for claim in request.claims):
                context.abort(grpc.StatusCode.NOT_FOUND, "get resource claims: not found")
            response = dra_v1_pb2.NodePrepareResourcesResponse()
            for claim in request.claims:
                self.answer(response.claims[claim.uid], claim, known)
            self.spoil(response, [claim.uid for claim in request.claims])
            return response

    def answer(self, entry: Any, claim: Any, known: dict[str, list[str]]) -> None:
        if claim.uid not in known:
            if self.fault == "prepares what does not exist":
                entry.SetInParent()
            else:
                entry.error = "the claim does not exist"
            return
        if self.fault == "hangs for a claim":
            time.sleep(4)
        for result in known[claim.uid][: 1 if self.fault == "a second request is left out" else None]:
            self.add(entry, claim.uid, *result)

    def add(self, entry: Any, uid: str, request: str, pool: str, name: str) -> None:
        device = entry.devices.add(request_names=[request], pool_name=pool, device_name=name)
        device.cdi_device_ids.append(self.prepared(uid, name))
        if self.fault == "first request for all":
            device.request_names[0] = entry.devices[0].request_names[0]
        if self.fault == "no request names":
            del device.request_names[:]
        if self.fault == "wrong device":
            device.device_name = f"{name}-0"
        if self.fault == "wrong request":
            device.request_names[0] = "gpu"
        if self.fault == "sub-request":
            device.request_names[0] = f"{request}/small"
        if self.fault == "malformed CDI id":
            device.cdi_device_ids[0] = device.cdi_device_ids[0].replace("/", "_")

    def prepared(self, uid: str, device: str) -> str:
        """The CDI id of a claim's device, whose file exists afterwards."""
        kept = json.loads(self.store.read_text())
        ids = kept.setdefault(uid, {})
        if device not in ids or self.fault == "not idempotent":
            ids[device] = f"claim-{uid[:8]}-{device}-{secrets.token_hex(2)}"
        self.store.write_text(json.dumps(kept))
        document = {
            "cdiVersion": "0.6.0",
            "kind": f"{NAME}/device",
            "devices": [{"name": ids[device], "containerEdits": self.edits(device)}],
        }
        file = self.folder / "cdi" / f"{uid}-{device}.json"
        if self.fault == "a late CDI file":
            threading.Timer(0.5, file.write_text, [json.dumps(document)]).start()
        elif self.fault != "no CDI file":
            file.write_text(json.dumps(document))
        if self.fault == "two CDI files":
            file.with_name(f"again-{file.name}").write_text(json.dumps(document))
        return f"{NAME}/device={ids[device]}"

    def edits(self, device: str) -> dict[str, Any]:
        variable = f"PLAIN_{device.upper().replace('-', '_')}"
        spoilt: dict[str, dict[str, Any]] = {
            "invalid CDI file": {"enviroment": ["PLAIN=1"]},
            "a variable without a value": {"env": ["PLAIN"]},
            "one variable for all devices": {"env": [f"PLAIN={device}"]},
            "a part is given twice": {"env": [f"{variable}_ENGINE=0"]},
            "no device node": {"deviceNodes": [{"path": "/dev/no-such-plain-device"}]},
            "no mounted file": {"mounts": [{"hostPath": "/no-such-plain-file", "containerPath": "/plain"}]},
        }
        return spoilt.get(self.fault, {"env": [f"{variable}=1"]})

    def spoil(self, response: Any, uids: list[str]) -> None:
        if len(uids) > 1 and self.fault == "mixed up answers":
            first, last = (self.copy(response.claims[uid]) for uid in (uids[0], uids[-1]))
            response.claims[uids[0]].CopyFrom(last)
            response.claims[uids[-1]].CopyFrom(first)
        if len(uids) > 1 and self.fault == "a claim is left out":
            del response.claims[uids[-1]]
        if self.fault == "a huge answer":
            response.claims[uids[0]].error = "x" * 5_000_000
        if self.fault == "an extra claim":
            response.claims["another"].SetInParent()
        if self.fault == "one bad claim fails all" and any(response.claims[uid].error for uid in uids):
            for uid in uids:
                response.claims[uid].error = "the call failed"

    def copy(self, message: Any) -> Any:
        return type(message).FromString(message.SerializeToString())

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self.lock:
            kept = json.loads(self.store.read_text())
            response = dra_v1_pb2.NodeUnprepareResourcesResponse()
            for claim in request.claims:
                response.claims[claim.uid].SetInParent()
                is_known = kept.pop(claim.uid, None) is not None
                if not is_known and self.fault in ("unknown claims fail unprepare", "forgets"):
                    response.claims[claim.uid].error = "no such claim"
                self.remove_files(claim.uid, is_known=is_known)
            self.store.write_text(json.dumps(kept))
            return response

    def remove_files(self, uid: str, *, is_known: bool) -> None:
        if self.fault == "leaves its CDI file" or (self.fault == "forgets without a word" and not is_known):
            return
        for file in (self.folder / "cdi").glob("*.json" if self.fault == "removes every CDI file" else f"*{uid}-*.json"):
            file.unlink(missing_ok=True)


def start(folder: pathlib.Path, fault: str) -> tuple[grpc.Server, grpc.Server]:
    """Serve in threads of this process, until both servers are stopped."""
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS))
    if fault != "v1 is not served":
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(Driver(folder, fault), server)
    server.add_insecure_port(f"unix:{folder / 'dra.sock'}")
    server.start()
    registrar = grpc.server(futures.ThreadPoolExecutor(1))
    registration_grpc.add_RegistrationServicer_to_server(Registration(folder, fault), registrar)
    registrar.add_insecure_port(f"unix:{folder / 'reg.sock'}")
    registrar.start()
    return server, registrar


def serve(folder: pathlib.Path, fault: str) -> None:
    """Serve until SIGTERM."""
    if fault == "ends at its start":
        sys.exit(4)
    running = start(folder, fault)  # A server that nothing refers to stops.
    signal.sigwait({signal.SIGTERM})
    del running


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    serve(pathlib.Path(sys.argv[1]), " ".join(sys.argv[2:]))
