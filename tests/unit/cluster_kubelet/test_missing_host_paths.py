"""A container whose CDI file names a path that the host lacks does not start, as with a real runtime."""

import json
import pathlib

import pytest

from drakit_cluster.runtime import Runtime
from drakit_cluster.runtime.containers import Config, Identity, RuntimeFailureError, State

POD = Identity(namespace="default", name="p", uid="u")


def start(folder: pathlib.Path, edits: dict[str, object]) -> State:
    spec = {"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": [{"name": "a", "containerEdits": edits}]}
    (folder / "x.json").write_text(json.dumps(spec))
    runtime = Runtime([folder], folder / "logs")
    runtime.run_sandbox(POD)
    return runtime.start("u", Config(name="main", env={}, cdi_devices=("example.com/gpu=a",))).state


@pytest.mark.parametrize(
    "edits, reason, message",
    [
        ({"mounts": [{"hostPath": "/gone/lib.so", "containerPath": "/lib.so"}]}, "StartError", "/gone/lib.so"),
        ({"mounts": [{"hostPath": "/gone/lib.so", "containerPath": "/lib.so", "options": ["ro", "bind"]}]}, "StartError", "/gone/lib.so"),
        ({"hooks": [{"hookName": "createContainer", "path": "/gone/hook"}]}, "StartError", "createContainer hook"),
        ({"deviceNodes": [{"path": "/dev/gone"}]}, "CreateContainerError", 'failed to stat CDI host device "/dev/gone"'),
        ({"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/gone"}]}, "CreateContainerError", "/dev/gone"),
        ({"deviceNodes": [{"path": "/dev/x", "hostPath": "/etc/passwd"}]}, "CreateContainerError", "is not a device node"),
    ],
)
def test_a_missing_host_path_stops_the_container(tmp_path: pathlib.Path, edits: dict[str, object], reason: str, message: str) -> None:
    with pytest.raises(RuntimeFailureError, match=message) as failure:
        start(tmp_path, edits)
    assert failure.value.reason == reason


@pytest.mark.parametrize(
    "edits",
    [
        {"mounts": [{"hostPath": "/etc/passwd", "containerPath": "/p"}]},
        {"mounts": [{"hostPath": "tmpfs", "containerPath": "/p", "type": "tmpfs", "options": ["nosuid"]}]},
        {"hooks": [{"hookName": "startContainer", "path": "/in/the/container"}, {"hookName": "poststop", "path": "/gone/hook"}]},
        {"deviceNodes": [{"path": "/dev/gone", "type": "c", "major": 195, "minor": 0}, {"path": "/dev/null"}]},
    ],
)
def test_a_path_that_the_runtime_creates_may_be_missing(tmp_path: pathlib.Path, edits: dict[str, object]) -> None:
    assert start(tmp_path, edits) is State.RUNNING
