"""What the kubelet tells of its containers' devices, on its PodResources socket."""

import json
import pathlib
import subprocess
import sys

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from e2e import objects, workspace
from e2e.driver import Driver
from e2e.workspace import Workspace

pytestmark = pytest.mark.gates("KubeletPodResourcesDynamicResources")

_SOCKET = "kubelet.sock"
_PROGRAM = """
import json, sys
import grpc
from google.protobuf import json_format
from drakit._proto import podresources_v1_pb2 as wire, podresources_v1_pb2_grpc as services
with grpc.insecure_channel(f"unix:{sys.argv[1]}") as channel:
    found = services.PodResourcesListerStub(channel).List(wire.ListPodResourcesRequest(), timeout=20)
print(json.dumps(json_format.MessageToDict(found)), flush=True)
"""


def listed(space: Workspace, driver: Driver, folder: str) -> list[Object]:
    """What the kubelet lists, asked on the node itself."""
    if driver.local is not None:
        words = [sys.executable, "-c", _PROGRAM, str(driver.local / "pod-resources" / _SOCKET)]
        text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    else:
        mount: list[Json] = [{"name": "socket", "mountPath": "/pod-resources"}]
        asking = objects.container("main", volumeMounts=mount)
        asking["command"] = ["python3", "-c", f"{_PROGRAM}\nimport time; time.sleep(600)", f"/pod-resources/{_SOCKET}"]
        volume: Object = {"name": "socket", "hostPath": {"path": str(pathlib.Path(folder) / "pod-resources")}}
        space.run(objects.pod("asking", containers=[asking], volumes=[volume]))
        text = space.api.wait("what the kubelet lists", lambda: space.output("asking").strip())
    return json_types.objects(json.loads(text), "podResources")


@pytest.mark.gates("DRAPartitionableDevices", "DRAConsumableCapacity")
def test_the_kubelet_lists_every_device_of_the_claims_of_a_container(space: Workspace, driver: Driver, pytestconfig: pytest.Config) -> None:
    containers = [objects.container("gpu", ("c", "gpu")), objects.container("both", "c"), objects.container("none")]
    space.run(
        objects.claim("c", objects.mig("gpu", "1g.5gb"), objects.share("net", "1G")), objects.pod("p", claims=["c"], containers=containers)
    )
    given = {json_types.text(one, "request"): json_types.text(one, "device") for one in workspace.results(space.claim("c"))}
    pods = listed(space, driver, pytestconfig.getoption("--kubelet-dir"))
    [pod] = [one for one in pods if one.get("name") == "p" and one.get("namespace") == space.namespace]
    seen = {
        json_types.text(container, "name"): sorted(
            json_types.text(device, "deviceName")
            for resource in json_types.objects(container, "dynamicResources")
            for device in json_types.objects(resource, "claimResources")
        )
        for container in json_types.objects(pod, "containers")
    }
    # The kubelet lists the whole claim, though the container "gpu" gets one request of it only.
    assert seen == {"gpu": sorted(given.values()), "both": sorted(given.values()), "none": []}
