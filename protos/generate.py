"""Generate the Python code of the kubelet's APIs from the .proto files beside this script.

Run it as ``.venv/bin/python protos/generate.py [FOLDER]``. FOLDER, by default ``driver``, becomes the root of the generated package
``drakit._proto``. The same input and the pinned grpcio-tools give the same bytes; a test compares them with what is committed.
"""  # noqa: INP001 - a script beside the files it reads, not a package

import pathlib
import sys
import tempfile
from collections.abc import Iterator

from google.protobuf import descriptor_pb2
from grpc_tools import protoc  # type: ignore[import-untyped] # grpcio-tools ships no types

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path("drakit", "_proto")


def generate(root: pathlib.Path) -> None:
    """Write the messages, the services and the stubs of both under ``root/drakit/_proto``."""
    sources = sorted(str(path.relative_to(HERE)) for path in (HERE / PACKAGE).glob("*.proto"))
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        described = pathlib.Path(scratch, "all.binpb")
        outputs = [f"--{kind}_out={root}" for kind in ("python", "pyi", "grpc_python")]
        _run([f"--proto_path={HERE}", *outputs, f"--descriptor_set_out={described}", *sources])
        files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    for file in files:
        path = root / file.name.replace(".proto", "_pb2_grpc.pyi")
        path.write_text("\n".join(_service_stubs(file)) + "\n", encoding="utf-8")


def _run(arguments: list[str]) -> None:
    status = protoc.main(["protoc", *arguments])
    if status:
        raise SystemExit(f"protoc ended with status {status}")


def _service_stubs(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """Types of the generated services, which grpcio-tools leaves out."""
    messages = f"{pathlib.PurePath(file.name).stem}_pb2"
    if any(method.server_streaming for service in file.service for method in service.method):
        yield from ("from collections.abc import Iterator", "")
    yield from ("import grpc", "", f"from {'.'.join(PACKAGE.parts)} import {messages}")
    for service in file.service:
        yield from _client_stub(service, messages)
        yield from _servicer_stub(service, messages)
        yield f"def add_{service.name}Servicer_to_server(servicer: {service.name}Servicer, server: grpc.Server) -> None: ..."


def _client_stub(service: descriptor_pb2.ServiceDescriptorProto, messages: str) -> Iterator[str]:
    yield from ("", f"class {service.name}Stub:", "    def __init__(self, channel: grpc.Channel) -> None: ...")
    for method in service.method:
        asked, answered = (f"{messages}.{_short(kind)}" for kind in (method.input_type, method.output_type))
        answers = "grpc.Call" if method.server_streaming else answered
        yield f"    def {method.name}(self, request: {asked}, timeout: float | None = ..., wait_for_ready: bool | None = ...) -> {answers}: ..."


def _servicer_stub(service: descriptor_pb2.ServiceDescriptorProto, messages: str) -> Iterator[str]:
    yield from ("", f"class {service.name}Servicer:")
    for method in service.method:
        asked, answered = (f"{messages}.{_short(kind)}" for kind in (method.input_type, method.output_type))
        answers = f"Iterator[{answered}]" if method.server_streaming else answered
        yield f"    def {method.name}(self, request: {asked}, context: grpc.ServicerContext) -> {answers}: ..."
    yield ""


def _short(type_name: str) -> str:
    return type_name.rpartition(".")[2]


if __name__ == "__main__":
    generate(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE.parent / "driver")
