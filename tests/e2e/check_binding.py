"""KEP-5007, binding conditions: a pod is bound once its driver has made the device ready. The driver is examples/fpga, in drakit's image."""

import subprocess
from collections.abc import Iterator

import pytest
import yaml

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from e2e import driver as drivers
from e2e import objects, workspace
from e2e.driver import Driver
from e2e.workspace import Workspace

pytestmark = [pytest.mark.real, pytest.mark.gates("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")]

NAME = "fpga.example.com"
NAMESPACE = "fpga-driver"
FOLDER = drivers.ROOT / "examples" / "fpga"
HARDWARE = "/var/lib/fpga-driver"
_MAKE_BOARDS = (
    f"cd {HARDWARE} && rm -rf boards bitstreams && mkdir -p boards/board-0 boards/board-1 bitstreams && "
    "echo example-9 | tee boards/board-0/model boards/board-1/model && touch bitstreams/fft.bit bitstreams/passthrough.bit"
)


def manifests() -> list[Object]:
    """The example's own manifests, with its package from a ConfigMap, in drakit's image."""
    ran = subprocess.run(["kubectl", "kustomize", FOLDER / "deploy"], capture_output=True, text=True, check=True)
    found = [json_types.mapping(one) for one in yaml.safe_load_all(ran.stdout)]
    [daemonset] = [one for one in found if one.get("kind") == "DaemonSet"]
    sources: Object = {file.name: file.read_text() for file in (FOLDER / "fpga_driver").glob("*.py")}
    found.insert(1, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "package", "namespace": NAMESPACE}, "data": sources})
    pod = json_types.mapping(daemonset, "spec", "template", "spec")
    json_types.items(pod, "volumes").append({"name": "package", "configMap": {"name": "package"}})
    [container] = json_types.objects(pod, "containers")
    json_types.items(container, "volumeMounts").append({"name": "package", "mountPath": "/package/fpga_driver"})
    json_types.items(container, "env").append({"name": "PYTHONPATH", "value": "/package"})
    container |= {"command": ["python3", "-m", "fpga_driver", "run"], "imagePullPolicy": "IfNotPresent"}
    return found


def boards(space: Workspace, script: str) -> None:
    """Change the boards of the node, which are files."""
    mount: list[Json] = [{"name": "boards", "mountPath": HARDWARE}]
    worker = objects.container("main", command=["sh", "-c", script], volumeMounts=mount)
    volume: Object = {"name": "boards", "hostPath": {"path": HARDWARE, "type": "DirectoryOrCreate"}}
    space.create(objects.pod("boards", containers=[worker], volumes=[volume]))
    space.api.wait("a change of the boards", lambda: json_types.text(space.pod("boards"), "status", "phase") == "Succeeded")
    space.end("boards")


@pytest.fixture
def fpga(driver: Driver, space: Workspace) -> Iterator[None]:
    """Two boards, and the driver that serves them."""
    boards(space, _MAKE_BOARDS)
    image = driver.image
    found = manifests()
    for item in found:
        for container in json_types.objects(item, "spec", "template", "spec", "containers"):
            container["image"] = image
    text = yaml.safe_dump_all(found)
    driver.api.kubectl("apply", "-f", "-", stdin=text)
    try:
        space.api.wait("the boards offered", lambda: len(driver.devices(NAME)) == 2, seconds=90)
        yield
    finally:
        space.clear()
        driver.api.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=text)
        boards(space, f"rm -rf {HARDWARE}/*")


def board_claim(bitstream: str) -> Object:
    return objects.claim("c", objects.request("board", NAME), config=[objects.opaque(NAME, "FpgaConfig", bitstream=bitstream)])


@pytest.mark.usefixtures("fpga")
def test_a_pod_is_bound_once_its_board_is_programmed(space: Workspace) -> None:
    boards(space, f"touch {HARDWARE}/boards/board-0/slow {HARDWARE}/boards/board-1/slow")
    space.create(board_claim("fft"), objects.pod("p", claims=["c"]))
    space.api.wait("a board that is chosen", lambda: workspace.devices(space.claim("c")))
    assert json_types.text(space.pod("p"), "spec", "nodeName") == ""
    boards(space, f"rm {HARDWARE}/boards/*/slow")
    space.running("p")
    assert [value for name, value in space.view("p").env.items() if name.startswith("FPGA_BOARD")] == ["fft"]
    [status] = json_types.objects(space.claim("c"), "status", "devices")
    assert [
        json_types.text(one, "type") for one in json_types.objects(status, "conditions") if json_types.text(one, "status") == "True"
    ] == ["Ready", f"{NAME}/programmed"]


@pytest.mark.usefixtures("fpga")
def test_another_board_is_taken_where_one_cannot_be_programmed(space: Workspace) -> None:
    boards(space, f"touch {HARDWARE}/boards/board-0/slow {HARDWARE}/boards/board-1/slow")
    space.create(board_claim("fft"), objects.pod("p", claims=["c"]))
    [first] = space.api.wait("a board that is chosen", lambda: workspace.devices(space.claim("c")))
    boards(space, f"touch {HARDWARE}/boards/{first}/broken; rm {HARDWARE}/boards/*/slow")
    space.running("p")
    [second] = workspace.devices(space.claim("c"))
    assert second != first
