"""Claims and container edits as values: what belongs to whom, in which order, under which name."""

import pytest

from drakit.core import claim as claims
from drakit.core import edits, names, quantity

UID = names.ClaimUid("a671734a-e8e5-11e4-8fde-42010af09327")
SHARE = names.ShareId("b671734a-e8e5-11e4-8fde-42010af09327")
CLASS, CLAIM = claims.ConfigSource.CLASS, claims.ConfigSource.CLAIM


def config(driver: str, source: claims.ConfigSource, level: int) -> claims.OpaqueConfig:
    return claims.OpaqueConfig(driver=driver, source=source, parameters={"level": level})


def result(request: str, driver: str) -> claims.AllocationResult:
    return claims.AllocationResult(request=request, driver=driver, pool="node", device="a")


A_CLAIM = claims.Claim(
    ref=claims.ClaimRef(uid=UID, namespace="ns", name="c"),
    results=(result("r1/large", "gpu"), result("r2", "nic"), result("r3", "gpu")),
    configs=(config("gpu", CLAIM, 1), config("nic", CLASS, 2), config("gpu", CLASS, 3), config("gpu", CLAIM, 4), config("gpu", CLASS, 5)),
)


def test_results_of_other_drivers_are_left_out() -> None:
    assert [one.request for one in A_CLAIM.results_of("gpu")] == ["r1/large", "r3"]
    assert A_CLAIM.results_of("tpu") == ()


def test_configurations_are_ordered_from_weakest_to_strongest() -> None:
    assert [one.parameters["level"] for one in A_CLAIM.configs_of("gpu")] == [3, 5, 1, 4]


def test_the_kubelet_knows_requests_without_subrequests() -> None:
    assert [one.base_request for one in A_CLAIM.results] == ["r1", "r2", "r3"]
    assert str(A_CLAIM.ref) == "ns/c"


def test_amounts_handed_in_cannot_change_a_result_later() -> None:
    amounts = {"bandwidth": quantity.ONE}
    made = claims.AllocationResult(request="r", driver="d", pool="p", device="a", consumed_capacity=amounts)
    amounts["bandwidth"] = quantity.ZERO
    assert made.consumed_capacity == {"bandwidth": quantity.ONE}


def test_environments_handed_in_cannot_change_edits_later() -> None:
    env = {"A": "1"}
    made = edits.Edits(env=env, hooks=(edits.Hook(name=edits.HookName.CREATE_RUNTIME, path="/bin/true", env=env),))
    env["A"] = "2"
    assert made.env == made.hooks[0].env == {"A": "1"}


def test_edits_are_false_only_when_nothing_changes() -> None:
    assert not edits.Edits()
    assert edits.Edits(env={"A": ""})
    assert edits.Edits(net_devices=(edits.NetDevice(host_interface_name="eth1", name="net1"),))


@pytest.mark.parametrize(
    "name, qualified",
    [
        (edits.CdiName(driver="gpu.drakit.dev", claim_uid=UID, device="gpu-0"), f"gpu.drakit.dev/claim={UID}-gpu-0"),
        (edits.CdiName(driver="nic.drakit.dev", claim_uid=UID, device="eth0", share_id=SHARE), f"nic.drakit.dev/claim={UID}-eth0-{SHARE}"),
    ],
)
def test_a_cdi_name_is_unique_by_claim_device_and_share(name: edits.CdiName, qualified: str) -> None:
    assert name.qualified == qualified
