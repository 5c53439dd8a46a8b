"""What drakit reports to users: status.devices of claims, and events."""

import functools

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.workspace import Workspace

MIG = pytest.mark.gates("DRAPartitionableDevices")
SHARES = pytest.mark.gates("DRAConsumableCapacity")
STATUS = pytest.mark.gates("DRAResourceClaimDeviceStatus")
FAILED = "FailedPrepareDynamicResources"


def statuses(space: Workspace, claim: str) -> list[Object]:
    return json_types.objects(space.claim(claim), "status", "devices")


def ready(status: Object) -> Object:
    return next((one for one in json_types.objects(status, "conditions") if one.get("type") == "Ready"), {})


@SHARES
@STATUS
def test_each_share_has_a_status_with_its_id_address_and_condition(space: Workspace) -> None:
    config = objects.opaque(objects.NIC, "NicConfig", "net", interfaceName="fast0", addresses=["10.99.1.3/16"])
    space.create(objects.claim("a", objects.share("net", "1G"), config=[config]), objects.claim("b", objects.share("net", "2G")))
    space.run(objects.pod("p", claims=["a"]), objects.pod("q", claims=["b"]))
    for name in ("a", "b"):
        [status] = space.api.wait(f"the status of the device of {name}", functools.partial(statuses, space, name))
        [given] = workspace.results(space.claim(name))
        assert {key: status.get(key) for key in ("driver", "pool", "device", "shareID")} == {
            key: given[key] for key in ("driver", "pool", "device", "shareID")
        }
        assert ready(status).get("status") == "True"
    [status] = statuses(space, "a")
    assert json_types.text(status, "networkData", "interfaceName") == "fast0"
    assert json_types.strings(status, "networkData", "ips") == ["10.99.1.3/16"]


@SHARES
def test_a_config_that_is_wrong_is_named_in_an_event_of_the_pod(space: Workspace) -> None:
    config = objects.opaque(objects.NIC, "NicConfig", mtu=12)
    space.create(objects.claim("c", objects.share("net", "1G"), config=[config]), objects.pod("p", claims=["c"]))
    assert "parameters.mtu" in space.event(FAILED, "p", "mtu")
    assert not workspace.is_running(space.pod("p"))


@SHARES
@STATUS
def test_a_claim_that_could_not_be_prepared_says_so_in_its_status(space: Workspace) -> None:
    config = objects.opaque(objects.NIC, "NicConfig", interfacename="x")
    space.create(objects.claim("c", objects.share("net", "1G"), config=[config]), objects.pod("p", claims=["c"]))
    [status] = space.api.wait("a status of the device", lambda: statuses(space, "c"))
    assert ready(status).get("status") == "False"
    assert "interfaceName" in json_types.text(ready(status), "message")


@SHARES
def test_a_field_of_the_class_alone_is_refused_in_a_claim(space: Workspace) -> None:
    config = objects.opaque(objects.NIC, "NicConfig", ceil="5G")
    space.create(objects.claim("c", objects.share("net", "1G"), config=[config]), objects.pod("p", claims=["c"]))
    assert "DeviceClass" in space.event(FAILED, "p", "ceil")


@MIG
def test_a_claim_with_two_partitions_for_one_container_warns_its_user(space: Workspace) -> None:
    space.run(objects.claim("c", objects.mig("a", "1g.5gb"), objects.mig("b", "1g.5gb")), objects.pod("p", claims=["c"]))
    space.event("SeveralMigDevices", "p")


@SHARES
def test_a_pod_whose_claim_failed_starts_when_the_claim_is_made_anew(space: Workspace) -> None:
    config = objects.opaque(objects.NIC, "NicConfig", mtu=12)
    space.create(objects.claim("c", objects.share("net", "1G"), config=[config]), objects.pod("p", claims=["c"]))
    space.event(FAILED, "p")
    space.end("p")
    space.api.delete("ResourceClaim", "c", space.namespace)
    space.api.wait("the end of the claim", lambda: space.api.find("ResourceClaim", "c", space.namespace) is None)
    space.run(objects.claim("c", objects.share("net", "1G")), objects.pod("p", claims=["c"]))
