"""Claims, templates, classes and requests: the concepts of dynamic resource allocation."""

import time
from collections.abc import Iterator

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.api import Api
from e2e.workspace import Workspace

MIG = pytest.mark.gates("DRAPartitionableDevices")
_UNBOUND_SECONDS = 2
RESOURCE, CLASS = "e2e.drakit.dev/partition", "e2e-partition"


@MIG
def test_pods_and_containers_share_a_claim_that_outlives_them(space: Workspace) -> None:
    both = [objects.container("a", "c"), objects.container("b", "c")]
    space.run(
        objects.claim("c", objects.mig("gpu", "1g.5gb")), objects.pod("p", claims=["c"], containers=both), objects.pod("q", claims=["c"])
    )
    assert sorted(workspace.reserved_for(space.claim("c"))) == ["p", "q"]
    assert space.view("p", "a").gpus() == space.view("p", "b").gpus() == space.view("q").gpus()
    space.end("p", "q")
    space.api.wait("the claim's devices given back", lambda: not workspace.results(space.claim("c")))
    space.run(objects.pod("r", claims=["c"]))


@MIG
def test_a_template_makes_a_claim_for_each_pod_that_goes_with_it(space: Workspace) -> None:
    space.run(objects.template("t", objects.mig("gpu", "1g.5gb")), objects.pod("p", templates=["t"]), objects.pod("q", templates=["t"]))
    first, second = space.claim_of("p"), space.claim_of("q")
    assert workspace.devices(first) != workspace.devices(second)
    space.end("p")
    name = json_types.text(first, "metadata", "name")
    space.api.wait("the end of the claim", lambda: space.api.find("ResourceClaim", name, space.namespace) is None)
    assert workspace.devices(space.claim_of("q")) == workspace.devices(second)


@MIG
def test_a_finished_pod_gives_its_devices_back(space: Workspace) -> None:
    done = objects.container("main", "c", command=["true"])
    space.create(objects.claim("c", objects.mig("gpu", "7g.40gb")), objects.pod("p", claims=["c"], containers=[done]))
    space.api.wait("the pod's end", lambda: json_types.text(space.pod("p"), "status", "phase") == "Succeeded")
    space.api.wait("the claim's devices given back", lambda: not workspace.results(space.claim("c")))


@MIG
def test_a_pod_waits_for_a_claim_that_does_not_exist(space: Workspace) -> None:
    space.create(objects.pod("p", claims=["later"]))
    # Kubernetes sets no condition and writes no event while the claim does not exist.
    time.sleep(_UNBOUND_SECONDS)
    assert json_types.text(space.pod("p"), "spec", "nodeName") == ""
    space.create(objects.claim("later", objects.mig("gpu", "1g.5gb")))
    space.running("p")


@MIG
@pytest.mark.gates("DRAPrioritizedList")
@pytest.mark.parametrize("first, taken", [("2g.10gb", "large"), ("99g.990gb", "small")])
def test_a_prioritized_list_gives_the_first_choice_that_there_is(space: Workspace, first: str, taken: str) -> None:
    profiles = {"large": first, "small": "1g.5gb"}
    choices: list[Object] = [
        {"name": name, **objects.choice(objects.MIG, cel=(f'device.attributes["{objects.GPU}"].profile == "{profile}"',))}
        for name, profile in profiles.items()
    ]
    space.run(objects.claim("c", {"name": "gpu", "firstAvailable": list(choices)}), objects.pod("p", claims=["c"]))
    [given] = workspace.results(space.claim("c"))
    assert json_types.text(given, "request") == f"gpu/{taken}"
    assert len(space.view("p").gpus()) == 1


def test_all_devices_of_a_class_are_given_where_all_are_asked_for(space: Workspace) -> None:
    space.run(objects.claim("c", objects.request("all", objects.GPU, allocationMode="All")), objects.pod("p", claims=["c"]))
    assert workspace.devices(space.claim("c")) == ["gpu-0", "gpu-1"]
    assert len(space.view("p").gpus()) == 2


def test_no_device_is_given_where_the_selector_of_a_claim_fails(space: Workspace) -> None:
    request = objects.request("gpu", objects.GPU, cel=('device.attributes["gpu.drakit.dev"].nothing == "x"',))
    space.create(objects.claim("c", request), objects.pod("p", claims=["c"]))
    assert "nothing" in space.pending("p", "no such key", "nothing")


@pytest.mark.gates("DRAAdminAccess")
def test_admin_access_needs_a_namespace_that_allows_it(space: Workspace) -> None:
    words = space.refused(objects.claim("c", objects.request("gpu", objects.GPU, adminAccess=True)))
    assert "admin-access" in words


@pytest.mark.gates("DRAAdminAccess")
def test_an_admin_sees_devices_that_are_in_use(space: Workspace) -> None:
    admin = space.within(workspace.LABELLED)
    request = objects.request("nic", objects.NIC, allocationMode="All", adminAccess=True)
    space.run(objects.claim("user", objects.request("net", objects.NIC)), objects.pod("p", claims=["user"]))
    admin.run(objects.claim("all", request), objects.pod("watcher", claims=["all"]))
    assert len(workspace.devices(admin.claim("all"))) == 2


@pytest.fixture
def partition_class(api: Api) -> Iterator[None]:
    """A class that stands for an extended resource."""
    cel = f'device.driver == "{objects.GPU}" && device.attributes["{objects.GPU}"].?profile.orValue("") == "1g.5gb"'
    api.create(objects.device_class(CLASS, cel, extendedResourceName=RESOURCE))
    yield
    api.delete("DeviceClass", CLASS)


def resource_pod(resource: str, amount: int) -> Object:
    amounts: Object = {resource: str(amount)}
    return objects.pod("p", containers=[objects.container("main", resources={"limits": amounts, "requests": dict(amounts)})])


@MIG
@pytest.mark.gates("DRAExtendedResource")
@pytest.mark.usefixtures("partition_class")
@pytest.mark.parametrize("resource", [RESOURCE, f"deviceclass.resource.kubernetes.io/{CLASS}"])
def test_an_extended_resource_gives_a_pod_devices_without_a_claim_of_its_own(space: Workspace, resource: str) -> None:
    space.run(resource_pod(resource, 2))
    assert len(space.view("p").gpus()) == 2
    claim = space.claim_of("p")
    assert len(workspace.devices(claim)) == 2
    space.end("p")
    name = json_types.text(claim, "metadata", "name")
    space.api.wait("the end of its claim", lambda: space.api.find("ResourceClaim", name, space.namespace) is None)


@MIG
def test_a_pod_that_was_given_a_node_runs_once_its_claim_is_allocated(space: Workspace) -> None:
    space.create(objects.claim("c", objects.mig("gpu", "1g.5gb")), objects.pod("early", claims=["c"], nodeName=space.node))
    space.run(objects.pod("p", claims=["c"]))
    space.running("early")
    assert space.view("early").gpus() == space.view("p").gpus()


@MIG
def test_claims_of_both_drivers_meet_in_one_pod(space: Workspace) -> None:
    space.run(
        objects.claim("one", objects.mig("gpu", "1g.5gb"), objects.request("net", objects.NIC)),
        objects.claim("two", objects.mig("gpu", "2g.10gb")),
        objects.pod("p", claims=["one", "two"]),
    )
    seen = space.view("p")
    assert len(seen.gpus()) == 2
    assert len(seen.nics("DEVICE")) == 1
