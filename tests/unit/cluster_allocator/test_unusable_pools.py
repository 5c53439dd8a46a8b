"""A pool that one node cannot use: other nodes still serve the claim, except where Kubernetes 1.36 and 1.37 stop."""

import pytest

from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.explain import whatif
from fakes.allocation_objects import CLASSES, claim, device, request, resource_slice

FIRST, LAST = "n1", "n2"


def incomplete(node: str) -> list[Object]:
    return [resource_slice([device("d0")], name=f"{node}-0", pool=node, count=2, place={"nodeName": node})]


def invalid(node: str) -> list[Object]:
    return [resource_slice([device("d0"), device("d0")], name=f"{node}-0", pool=node, place={"nodeName": node})]


def disagreeing(node: str) -> list[Object]:
    return [
        resource_slice([device(f"d{count}")], name=f"{node}-{count}", pool=node, count=count, place={"nodeName": node}) for count in (1, 2)
    ]


def usable(node: str) -> list[Object]:
    return [resource_slice([device("d0")], name=f"{node}-0", pool=node, place={"nodeName": node})]


def decide(slices: list[Object], wanted: Object, errors: KnownErrors = known_errors.NONE) -> whatif.Decision:
    world = whatif.World(slices=slices, classes=list(CLASSES.values()), claims=[wanted])
    (decision,) = whatif.Scheduler(world, FeatureGates(), world.known_nodes(), errors).decide()
    return decision


@pytest.mark.parametrize("broken", [incomplete, invalid, disagreeing])
@pytest.mark.parametrize("bad, good", [(FIRST, LAST), (LAST, FIRST)])
@pytest.mark.parametrize("mode", ["All", "ExactCount"])
def test_a_claim_fits_on_the_other_node_whichever_node_has_the_unusable_pool(broken: object, bad: str, good: str, mode: str) -> None:
    assert callable(broken)
    for slices in ([*broken(bad), *usable(good)], [*usable(good), *reversed(broken(bad))]):
        decision = decide(slices, claim(request(mode=mode)))
        assert decision.node == good
        assert ("a request for all devices stops" in decision.difference) is (mode == "All")


@pytest.mark.parametrize("errors", [known_errors.KUBERNETES_1_36, known_errors.KUBERNETES_1_37])
@pytest.mark.parametrize("bad, good", [(FIRST, LAST), (LAST, FIRST)])
def test_kubernetes_tries_no_other_node_for_all_devices(errors: KnownErrors, bad: str, good: str) -> None:
    slices = [*incomplete(bad), *usable(good)]
    decision = decide(slices, claim(request(mode="All")), errors)
    assert not decision.fits
    assert f"pool drv/{bad} is incomplete: 1 of 2 slices" in decision.message
    assert "the claims fit on this node, but a request for all devices stops" in decision.why[good][0].text
    assert decide(slices, claim(request()), errors).node == good, "a request for a number of devices is not affected"


def test_a_pool_by_which_a_driver_tests_the_server_is_no_obstacle() -> None:
    probing = resource_slice([device("d0")], name="probe", pool=f"{FIRST}/probe", count=2, place={"nodeName": FIRST})
    decision = decide([*incomplete(LAST), probing], claim(request()))
    assert "pool drv/n2 is incomplete" in decision.message
    assert "probe" not in decision.message


def test_the_message_names_the_unusable_pool_of_every_node() -> None:
    decision = decide([*incomplete(FIRST), *invalid(LAST)], claim(request(mode="All")))
    assert decision.message.startswith("0/2 nodes are available: ")
    assert "pool drv/n1 is incomplete" in decision.message
    assert "pool drv/n2 is invalid" in decision.message
