"""KEP-5075, consumable capacity: claims share an interface by bandwidth, each with a share of its own."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import objects, workspace
from e2e.workspace import Workspace

pytestmark = pytest.mark.gates("DRAConsumableCapacity")

MEGA = 10**6


def share_of(claim: Object) -> str:
    [given] = workspace.results(claim)
    return json_types.text(given, "shareID")


def test_claims_share_one_interface_and_each_has_an_id_that_its_container_sees(space: Workspace) -> None:
    names = ("a", "b", "c")
    space.create(*(objects.claim(name, objects.share("net", "10G")) for name in names))
    space.run(*(objects.pod(f"p-{name}", claims=[name]) for name in names))
    given = {name: space.claim(name) for name in names}
    assert len({tuple(workspace.devices(claim)) for claim in given.values()}) == 1
    assert len({share_of(claim) for claim in given.values()}) == 3
    for name, claim in given.items():
        variable = f"DRAKIT_NIC_NET_{share_of(claim).upper().replace('-', '_')}_BANDWIDTH"
        assert space.view(f"p-{name}").env[variable] == str(10_000 * MEGA)


def test_an_amount_is_rounded_up_to_what_the_device_has_and_none_is_its_default(space: Workspace) -> None:
    asked = {"default": "", "least": "1", "third": "33333M"}
    space.create(*(objects.claim(name, objects.share(name, amount)) for name, amount in asked.items()))
    space.run(objects.pod("p", claims=list(asked)))
    given = {name.split("_")[2]: int(value) for name, value in space.view("p").env.items() if name.endswith("_BANDWIDTH")}
    assert given == {"DEFAULT": 100 * MEGA, "LEAST": 10 * MEGA, "THIRD": 33_340 * MEGA}


def test_a_pod_that_requests_more_than_is_left_waits_and_starts_after_a_release(space: Workspace) -> None:
    space.run(objects.claim("most", objects.share("net", "80G")), objects.pod("p", claims=["most"]))
    space.create(objects.claim("more", objects.share("net", "30G")), objects.pod("q", claims=["more"]))
    space.pending("q")
    space.end("p")
    space.running("q")


def test_two_requests_of_one_claim_may_share_an_interface(space: Workspace) -> None:
    space.run(objects.claim("c", objects.share("x", "1G"), objects.share("y", "2G")), objects.pod("p", claims=["c"]))
    given = workspace.results(space.claim("c"))
    assert len({json_types.text(one, "device") for one in given}) == 1
    assert len({json_types.text(one, "shareID") for one in given}) == 2
    assert space.view("p").nics("BANDWIDTH") == [str(1000 * MEGA), str(2000 * MEGA)]


def test_a_distinct_attribute_keeps_two_requests_on_two_interfaces(space: Workspace) -> None:
    requests = [objects.share(name, "1G", interface="") for name in ("x", "y")]
    constraint: Object = {"requests": ["x", "y"], "distinctAttribute": f"{objects.NIC}/ifName"}
    space.run(objects.claim("c", *requests, constraints=[constraint]), objects.pod("p", claims=["c"]))
    assert space.view("p").nics("NIC") == ["eth1", "eth2"]


def test_pods_of_one_claim_have_its_one_share(space: Workspace) -> None:
    space.run(objects.claim("c", objects.share("net", "10G")), objects.pod("p", claims=["c"]), objects.pod("q", claims=["c"]))
    assert space.view("p").nics("BANDWIDTH") == space.view("q").nics("BANDWIDTH") == [str(10_000 * MEGA)]
    share = share_of(space.claim("c"))
    space.end("p")
    assert share_of(space.claim("c")) == share
    space.run(objects.pod("r", claims=["c"]))
    assert share_of(space.claim("c")) == share


def test_a_claim_may_ask_that_no_other_shares_by_cel(space: Workspace) -> None:
    cel = ("!device.allowMultipleAllocations",)
    space.create(objects.claim("alone", objects.request("net", objects.NIC, cel=cel)), objects.pod("p", claims=["alone"]))
    space.pending("p")
