"""A GPU has a fault: pods see it in their status, new ones stay away, and those that cannot go on are evicted."""

from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.api import Api
from e2e.driver import Driver
from e2e.gates import Gates
from e2e.workspace import Workspace

MIG = pytest.mark.gates("DRAPartitionableDevices")
TAINTS = pytest.mark.gates("DRADeviceTaints")
GPU = objects.GPU
FIRST, SECOND = "0000:07:00.0", "0000:0f:00.0"
XID = f"{GPU}/xid"
MILD, GRAVE = 48, 79
"""Xids: one that keeps new pods away, and one that no program survives."""


def on(address: str, **fields: object) -> Object:
    cel = (f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"',)
    return objects.request("gpu", objects.GPU, cel=cel, **fields)  # type: ignore[arg-type]


def taints(driver: Driver, device: str = "gpu-0") -> set[tuple[str, str]]:
    found = json_types.objects(driver.device(GPU, device), "taints")
    return {(json_types.text(one, "key"), json_types.text(one, "effect")) for one in found}


@pytest.fixture
def faulty(driver: Driver, space: Workspace) -> Iterator[Driver]:
    """The driver, whose first GPU is well again afterwards."""
    yield driver
    driver.gpu("reset", 0)
    space.api.wait("a GPU that is well again", lambda: bool(driver.device(GPU, "gpu-0")) and not taints(driver))


def health(space: Workspace, pod: str) -> list[tuple[str, str]]:
    """The health of every device of a pod's first container, with its message."""
    [status, *_] = json_types.objects(space.pod(pod), "status", "containerStatuses")
    return [
        (json_types.text(one, "health"), json_types.text(one, "message"))
        for resource in json_types.objects(status, "allocatedResourcesStatus")
        for one in json_types.objects(resource, "resources")
    ]


@pytest.mark.gates("ResourceHealthStatus")
def test_the_health_of_a_device_is_in_the_status_of_its_pod(space: Workspace, faulty: Driver) -> None:
    space.run(objects.claim("c", on(FIRST)), objects.pod("p", claims=["c"]))
    space.api.wait("a healthy device in the pod's status", lambda: [one for one, _ in health(space, "p")] == ["Healthy"])
    faulty.gpu("report_xid", 0, MILD)
    space.api.wait("an unhealthy device in the pod's status", lambda: [one for one, _ in health(space, "p")] == ["Unhealthy"])
    faulty.gpu("reset", 0)
    space.api.wait("a healthy device again", lambda: [one for one, _ in health(space, "p")] == ["Healthy"])


@TAINTS
@pytest.mark.slow
def test_a_fault_keeps_new_pods_away_and_leaves_those_that_run(space: Workspace, faulty: Driver) -> None:
    space.run(objects.claim("c", on(FIRST)), objects.pod("p", claims=["c"]))
    faulty.gpu("report_xid", 0, MILD)
    space.api.wait("the taint", lambda: (XID, "NoSchedule") in taints(faulty))
    space.end("p")
    space.create(objects.claim("d", on(FIRST)), objects.pod("q", claims=["d"]))
    space.pending("q")
    space.run(objects.claim("e", on(SECOND)), objects.pod("r", claims=["e"]))
    faulty.gpu("reset", 0)
    space.running("q")


@TAINTS
@pytest.mark.slow
def test_a_claim_that_tolerates_the_fault_gets_the_gpu(space: Workspace, faulty: Driver) -> None:
    faulty.gpu("report_xid", 0, MILD)
    space.api.wait("the taint", lambda: (XID, "NoSchedule") in taints(faulty))
    tolerated = on(FIRST, tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])
    space.run(objects.claim("c", tolerated), objects.pod("p", claims=["c"]))


@TAINTS
@pytest.mark.slow
def test_a_fault_that_no_program_survives_evicts_the_pods_of_its_gpu_alone(space: Workspace, faulty: Driver) -> None:
    space.run(objects.claim("c", on(FIRST)), objects.pod("p", claims=["c"]), objects.claim("d", on(SECOND)), objects.pod("q", claims=["d"]))
    faulty.gpu("report_xid", 0, GRAVE)
    space.api.wait("the pod's eviction", lambda: space.api.find("Pod", "p", space.namespace) is None)
    assert workspace.is_running(space.pod("q"))
    assert (XID, "NoExecute") in taints(faulty)


@TAINTS
@pytest.mark.slow
def test_a_pod_that_tolerates_such_a_fault_stays(space: Workspace, faulty: Driver) -> None:
    tolerated = on(FIRST, tolerations=[{"operator": "Exists", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}])
    space.run(objects.claim("c", tolerated), objects.pod("p", claims=["c"]), objects.claim("d", on(SECOND)), objects.pod("q", claims=["d"]))
    faulty.gpu("report_xid", 0, GRAVE)
    space.api.wait("the taint", lambda: (XID, "NoExecute") in taints(faulty))
    assert workspace.is_running(space.pod("p"))


@pytest.mark.gates("DRADeviceTaints", "DRADeviceTaintRules")
def test_a_rule_of_an_admin_evicts_the_pods_of_a_device(api: Api, space: Workspace, gates: Gates) -> None:
    path = f"/apis/resource.k8s.io/{gates.taint_rules_version()}/devicetaintrules"
    selector: Object = {"driver": GPU, "pool": space.node, "device": "gpu-0"}
    rule: Object = {
        "apiVersion": f"resource.k8s.io/{gates.taint_rules_version()}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "e2e"},
        "spec": {"deviceSelector": selector, "taint": {"key": "example.com/service", "effect": "NoExecute"}},
    }
    space.run(objects.claim("c", on(FIRST)), objects.pod("p", claims=["c"]))
    api.request("POST", path, body=rule)
    try:
        space.api.wait("the pod's eviction", lambda: space.api.find("Pod", "p", space.namespace) is None)
    finally:
        api.request("DELETE", f"{path}/e2e")
