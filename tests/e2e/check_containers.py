"""What a container sees of the devices of its claims."""

import json
import re

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.driver import Driver
from e2e.workspace import Workspace

MIG = pytest.mark.gates("DRAPartitionableDevices")
SHARES = pytest.mark.gates("DRAConsumableCapacity")
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_METADATA = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/{claim}/{request}/gpu.drakit.dev-metadata.json"


def test_a_whole_gpu_is_named_by_its_uuid_that_the_slice_has(space: Workspace, driver: Driver) -> None:
    space.run(objects.claim("whole", objects.request("gpu", objects.GPU)), objects.pod("p", claims=["whole"]))
    [name] = workspace.devices(space.claim("whole"))
    uuid = json_types.text(driver.device("gpu.drakit.dev", name), "attributes", "uuid", "string")
    seen = space.view("p")
    assert list(seen.gpus().values()) == [uuid]
    assert seen.env["NVIDIA_VISIBLE_DEVICES"] == "void"


@MIG
def test_each_container_sees_the_partition_of_its_request_and_no_other(space: Workspace) -> None:
    space.run(
        objects.claim("two", objects.mig("left", "1g.5gb"), objects.mig("right", "2g.10gb")),
        objects.pod(
            "p",
            claims=["two"],
            containers=[
                objects.container("a", ("two", "left")),
                objects.container("b", ("two", "right")),
                objects.container("both", "two"),
                objects.container("none"),
            ],
        ),
    )
    seen = {name: space.view("p", name).gpus() for name in ("a", "b", "both", "none")}
    assert [len(variables) for variables in seen.values()] == [1, 1, 2, 0]
    assert {**seen["a"], **seen["b"]} == seen["both"]
    assert all(_UUID.fullmatch(uuid) for uuid in seen["both"].values())


@MIG
def test_an_init_container_sees_the_device_too(space: Workspace) -> None:
    init = objects.container("first", "c", command=["sh", "-c", "env | grep GPU_DEVICE"])
    space.run(objects.claim("c", objects.mig("gpu", "1g.5gb")), objects.pod("p", claims=["c"], initContainers=[init]))
    [(name, uuid)] = space.view("p").gpus().items()
    assert space.output("p", "first").strip() == f"{name}={uuid}"


@SHARES
def test_a_share_is_reported_by_device_interface_and_rate(space: Workspace) -> None:
    space.run(objects.claim("net", objects.share("fast", "5G")), objects.pod("p", claims=["net"]))
    seen = space.view("p")
    [given] = workspace.results(space.claim("net"))
    assert seen.nics("DEVICE") == [json_types.text(given, "device")]
    assert seen.nics("NIC") == ["eth1"]
    assert seen.nics("BANDWIDTH") == ["5000000000"]
    share = json_types.text(given, "shareID").upper().replace("-", "_")
    assert seen.env[f"DRAKIT_NIC_FAST_{share}_NIC"] == "eth1"


@MIG
@pytest.mark.real
def test_device_nodes_of_a_partition_are_those_of_its_gpu_and_its_capabilities(space: Workspace) -> None:
    space.run(objects.claim("c", objects.mig("gpu", "1g.5gb")), objects.pod("p", claims=["c"]), objects.pod("bare"))
    given, bare = space.view("p").devices, space.view("bare").devices
    [name] = workspace.devices(space.claim("c"))
    own = {path: node for path, node in given.items() if path not in bare}
    minor = name.split("-")[1]
    capabilities = [path for path in own if path.startswith("/dev/nvidia-caps/nvidia-cap")]
    assert set(own) - set(capabilities) == {
        f"/dev/nvidia{minor}",
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    }
    assert len(capabilities) == 2
    assert own[f"/dev/nvidia{minor}"].startswith(f"195:{minor} ")
    assert {own[path].split()[1] for path in capabilities} == {"444"}


@pytest.mark.real
def test_the_drivers_files_are_mounted_read_only(space: Workspace) -> None:
    space.run(objects.claim("whole", objects.request("gpu", objects.GPU)), objects.pod("p", claims=["whole"]), objects.pod("bare"))
    bare = space.view("bare").mounts
    own = {path: options for path, options in space.view("p").mounts.items() if path not in bare}
    assert any("libcuda.so" in path for path in own)
    assert any(path.endswith("/nvidia-smi") for path in own)
    assert all("ro" in options.split(",") for options in own.values())


@MIG
@pytest.mark.real
def test_a_metadata_file_has_the_attributes_of_the_device(space: Workspace, driver: Driver) -> None:
    space.run(objects.claim("c", objects.mig("gpu", "2g.10gb")), objects.pod("p", claims=["c"]))
    [name] = workspace.devices(space.claim("c"))
    texts = space.view("p").files
    path = _METADATA.format(claim="c", request="gpu")
    # The path in the container may be below /run, to which /var/run is a link.
    [text] = [text for place, text in texts.items() if place.endswith(path.removeprefix("/var"))]
    newest: Object = json.JSONDecoder().raw_decode(text)[0]
    assert newest["kind"] == "DeviceMetadata"
    [request] = json_types.objects(newest, "requests")
    [device] = json_types.objects(request, "devices")
    assert (request["name"], device["name"], device["driver"]) == ("gpu", name, "gpu.drakit.dev")
    published = json_types.mapping(driver.device("gpu.drakit.dev", name), "attributes")
    assert json_types.mapping(device, "attributes")["profile"] == published["profile"]


@MIG
@pytest.mark.real
def test_a_restarted_container_sees_the_same_device(space: Workspace) -> None:
    space.run(objects.claim("c", objects.mig("gpu", "1g.5gb")), objects.pod("p", claims=["c"], restartPolicy="Always"))
    before = space.view("p")
    space.execute("p", "python3", "-c", "import os, signal; os.kill(1, signal.SIGTERM)", check=False)

    def restarted() -> bool:
        [status] = json_types.objects(space.pod("p"), "status", "containerStatuses")
        return json_types.number(status, "restartCount") > 0

    space.api.wait("a restart", restarted)
    space.running("p")
    assert space.view("p").gpus() == before.gpus()
    assert space.view("p").devices == before.devices


@MIG
@SHARES
@pytest.mark.real
def test_nothing_of_a_claim_is_left_on_the_node_when_its_pod_has_ended(space: Workspace, driver: Driver) -> None:
    def files(uid: str) -> list[str]:
        found = []
        for name in ("gpu.drakit.dev", "nic.drakit.dev"):
            result = driver.execute(name, "find", "/var/run/cdi", f"/var/lib/kubelet/plugins/{name}", check=False)
            found += [line for line in result.splitlines() if uid in line]
        return found

    space.run(objects.claim("c", objects.mig("gpu", "1g.5gb"), objects.share("net", "1G")), objects.pod("p", claims=["c"]))
    uid = json_types.text(space.claim("c"), "metadata", "uid")
    assert any(path.startswith("/var/run/cdi/") for path in files(uid))
    space.end("p")
    assert files(uid) == []
