"""``drakit plan``: the smallest number of nodes to add is proven where it is said to be exact, and simulated in any case."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from drakit_cluster.objects import json_types
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.simulation.engine.nodes import Nodes, PlacedType
from drakit_cluster.simulation.plan import purchase
from drakit_cluster.simulation.workload import templates
from drakit_cluster.simulation.workload.templates import PodTemplate
from fakes import examples
from fakes import simulated_fleets as fleets

SMALL, A30 = "dgx-a100-40gb-2gpu", "server-a30"
ASKS = [templates.from_shorthand(text) for text in ("mig=3g.20gb", "mig=4g.20gb", "mig=2g.10gb", "gpu=1", "gpu=2", "mig=1g.6gb", "nic=60G")]


def planned(pods: list[PodTemplate], *machines: str, fleet: dict[str, int] | None = None) -> purchase.Purchase:
    shown = fleets.fleet_of(dict.fromkeys(machines, 1)).groups
    return purchase.Planner(fleets.fleet_of(fleet or {}), shown, pods).plan()


def fits_together(placed: PlacedType, pods: tuple[PodTemplate, ...]) -> bool:
    claims = [claim for pod in pods for claim in pod.claims]
    return (
        placed.allocator().allocate(claims=claims, node=placed.node, allocated=AllocatedState(), new_share_id=lambda: "share") is not None
    )


def fewest_by_brute_force(pods: list[PodTemplate], machine: str) -> int:
    """Try every way to share the pods out over nodes."""
    (placed,) = Nodes(fleets.fleet_of({machine: 1})).types
    known: dict[tuple[PodTemplate, ...], bool] = {}
    for count in itertools.count(1):
        for owners in itertools.product(range(count), repeat=len(pods)):
            groups = [tuple(pod for pod, owner in zip(pods, owners, strict=True) if owner == node) for node in range(count)]
            if all(known.setdefault(group, fits_together(placed, group)) if group not in known else known[group] for group in groups):
                return count
    raise AssertionError


@hypothesis.settings(max_examples=examples.count(40), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(pods=strategies.lists(strategies.sampled_from([ASKS[0], ASKS[1], ASKS[2], ASKS[3], ASKS[6]]), min_size=1, max_size=6))
def test_an_exact_answer_is_that_of_brute_force(pods: list[PodTemplate]) -> None:
    found = planned(pods, SMALL)
    fewest = fewest_by_brute_force(pods, SMALL)
    assert found.total >= fewest
    assert all(outcome.started is not None for outcome in found.outcomes)
    assert found.exact == (found.total == fewest)


def test_counting_proves_the_least_number_and_says_why() -> None:
    found = planned([ASKS[0]] * 9, SMALL)
    assert (found.total, found.exact) == (3, True)
    assert found.why == "there are 9 pods of mig=3g.20gb, but at most 8 fit on the nodes"
    assert {grant.node.name for outcome in found.outcomes for grant in outcome.grants} == {
        f"new-{SMALL}-000{number}" for number in range(3)
    }


def test_pods_that_first_fit_packs_badly_get_an_estimate_that_says_so() -> None:
    """1g, 1g, 4g, 4g fit on two GPUs, but not after the two 1g went to the one and a 3g to the other."""
    order = [templates.from_shorthand(text) for text in ("mig=3g.20gb", "mig=3g.20gb", "mig=4g.20gb", "mig=4g.20gb")]
    found = planned(order, SMALL)
    assert (found.total, found.exact) == (2, False)
    assert found.why == f"1 {SMALL} would be enough with the right node for each pod, which first fit in this order does not find"


def test_several_machines_are_mixed() -> None:
    assert planned([ASKS[5], ASKS[5]], SMALL, A30).nodes == [(A30, 1)]
    assert planned([ASKS[0], ASKS[5]], SMALL, A30).nodes == [(SMALL, 1), (A30, 1)]


def test_what_the_fleet_has_left_is_used_first() -> None:
    assert planned([ASKS[3]] * 2, SMALL, fleet={SMALL: 1}).total == 0
    found = planned([ASKS[3]] * 4, SMALL, fleet={SMALL: 1})
    assert (found.total, found.exact) == (1, True)


def test_what_no_machine_can_serve_is_named() -> None:
    found = planned([templates.from_shorthand("gpu=3"), ASKS[0]], SMALL)
    assert [reason.partition(":")[0] for reason in found.impossible] == ["gpu=3"]
    assert "request gpu: needs 3 devices, 2 available" in found.impossible[0]


def test_a_nic_that_is_too_small_is_the_reason_and_not_the_devices_of_another_kind() -> None:
    found = planned([templates.from_shorthand("nic=500G")], SMALL)
    (reason,) = found.impossible
    policy = "500G is against its policy, at least 10M at most 100G in steps of 10M"
    assert reason == f"nic=500G: {SMALL}: request nic: needs 1 device, none available (2x capacity bandwidth: {policy})"


def test_parts_of_one_kind_have_names_of_their_own() -> None:
    claim = templates.from_shorthand("mig=1g.5gb+nic=5G+mig=2g.10gb").claims[0]
    assert [request["name"] for request in json_types.objects(claim, "spec", "devices", "requests")] == ["mig-1", "nic", "mig-3"]


@pytest.mark.parametrize("count", [57, 500])
def test_many_pods_need_as_many_nodes_as_counting_says(count: int) -> None:
    found = planned([templates.from_shorthand("mig=1g.5gb")] * count, "dgx-a100-40gb")
    assert (found.total, found.exact) == (-(-count // 56), True)
