"""``drakit plan --move``: the fewest pods that move are found, with chains, and the plan holds when it is carried out."""

import itertools
from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import strategies

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.simulation.engine.nodes import Nodes
from drakit_cluster.simulation.plan import moves
from drakit_cluster.simulation.workload import templates
from drakit_cluster.simulation.workload.templates import PodTemplate
from fakes import examples
from fakes import simulated_fleets as fleets

SMALL = "dgx-a100-40gb-2gpu"


def held(name: str, text: str, node: str, device: str) -> Object:
    spec = json_types.mapping(templates.from_shorthand(text).claims[0], "spec")
    result: Object = {"request": text.partition("=")[0], "driver": fleets.GPU, "pool": node, "device": device}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": spec,
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def planned(counts: dict[str, int], claims: list[Object], *texts: str, known: Sequence[Object] = ()) -> moves.Plan:
    nodes = Nodes(fleets.fleet_of(counts, claims))
    before = [node.used.snapshot() for node in nodes.all]
    pods = moves.pods_of(nodes, claims, known)
    wanted = [(f"new-{number}", templates.from_shorthand(text)) for number, text in enumerate(texts)]
    plan = moves.MovePlanner(nodes, pods).plan(wanted)
    assert not plan.found or moves.verified(nodes, plan, pods, wanted)
    assert [node.used.snapshot() for node in nodes.all] == before
    return plan


def name(number: int) -> str:
    return f"{SMALL}-{number:04}"


def test_moving_a_small_partition_frees_a_whole_gpu() -> None:
    claims = [held(f"c{gpu}", "mig=1g.5gb", name(0), f"gpu-{gpu}-mig-1g5gb-19-6") for gpu in (0, 1)]
    plan = planned({SMALL: 1}, claims, "gpu=1")
    assert plan.exact
    (move,) = plan.moves
    assert (move.moved_from, move.node) == (name(0), name(0))
    assert move.devices != move.devices_before
    (new,) = [one for one in plan.placed if not one.moved_from]
    assert new.devices[0].removeprefix("gpu.drakit.dev/") == move.devices_before[0].removeprefix("gpu.drakit.dev/").partition("-mig")[0]


def test_a_pod_with_a_device_that_no_slice_offers_stays_where_it_is() -> None:
    claims = [held("gone", "gpu=1", name(0), "gpu-7"), held("c", "mig=1g.5gb", name(0), "gpu-1-mig-1g5gb-19-2")]
    assert not planned({SMALL: 1}, claims, "gpu=2").found
    (move,) = planned({SMALL: 1}, claims, "gpu=1", "mig=4g.20gb").moves
    assert move.name == "claim default/c"


def test_nothing_moves_where_everything_fits() -> None:
    plan = planned({SMALL: 1}, [held("c", "mig=1g.5gb", name(0), "gpu-0-mig-1g5gb-19-6")], "gpu=1", "mig=3g.20gb")
    assert (plan.found, plan.exact, plan.moves) == (True, True, [])


def test_an_impossible_plan_is_proven_impossible() -> None:
    claims = [held(f"c{gpu}", "gpu=1", name(0), f"gpu-{gpu}") for gpu in (0, 1)]
    plan = planned({SMALL: 1}, claims, "mig=1g.5gb")
    assert (plan.found, plan.exact) == (False, True)


def test_pods_of_several_claims_move_together() -> None:
    claims = [held(f"c{gpu}", "mig=1g.5gb", name(0), f"gpu-{gpu}-mig-1g5gb-19-6") for gpu in (0, 1)]
    for claim in claims:
        json_types.mapping(claim, "status")["reservedFor"] = [{"resource": "pods", "name": "both", "uid": "u"}]
    plan = planned({SMALL: 2}, claims, "gpu=1", "gpu=1", "gpu=1")
    assert [(move.name, len(move.devices)) for move in plan.moves] == [("pod default/both", 2)]


PLACES = [("mig=3g.20gb", "3g20gb-9-4"), ("mig=3g.20gb", "3g20gb-9-0"), ("mig=1g.5gb", "1g5gb-19-6"), ("mig=2g.10gb", "2g10gb-14-2")]


@pytest.mark.parametrize(
    "metadata, moving",
    [
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}, "claim default/c1"),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}]}, "pod default/p"),
    ],
    ids=["a DaemonSet", "a Deployment"],
)
def test_pods_that_would_start_again_on_their_node_do_not_move(metadata: Object, moving: str) -> None:
    claims = [held(f"c{gpu}", "mig=1g.5gb", name(0), f"gpu-{gpu}-mig-1g5gb-19-6") for gpu in (0, 1)]
    json_types.mapping(claims[0], "status")["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    pod: Object = {"metadata": {"name": "p", "namespace": "default", **metadata}}
    (move,) = planned({SMALL: 1}, claims, "gpu=1", known=[pod]).moves
    assert move.name == moving


def fewest_by_brute_force(counts: dict[str, int], claims: list[Object], wanted: list[PodTemplate]) -> int | None:
    """Try every set of pods to move, and every node for each pod that needs one; a node's new pods are one decision."""
    for size in range(len(claims) + 1):
        for moving in itertools.combinations(claims, size):
            staying = [claim for claim in claims if claim not in moving]
            nodes = Nodes(fleets.fleet_of(counts, staying))
            asked = [*wanted, *(PodTemplate(name="moved", claims=[claim]) for claim in moving)]
            for owners in itertools.product(nodes.all, repeat=len(asked)):
                fit = True
                for node in nodes.all:
                    together = [claim for pod, owner in zip(asked, owners, strict=True) if owner is node for claim in pod.claims]
                    if together:
                        grant = nodes.allocate(PodTemplate(name="all", claims=together), node)
                        fit = fit and grant is not None
                        if grant is not None:
                            nodes.release(grant)
                if fit:
                    return size
    return None


@hypothesis.settings(max_examples=examples.count(40), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(
    places=strategies.lists(
        strategies.tuples(strategies.integers(0, 1), strategies.integers(0, 1), strategies.sampled_from(PLACES)), max_size=4
    ),
    texts=strategies.lists(
        strategies.sampled_from(["gpu=1", "gpu=2", "mig=4g.20gb", "mig=7g.40gb", "mig=3g.20gb"]), min_size=1, max_size=2
    ),
)
def test_the_fewest_moves_are_those_of_brute_force(places: list[tuple[int, int, tuple[str, str]]], texts: list[str]) -> None:
    claims: list[Object] = []
    taken: set[tuple[int, int, int]] = set()
    for number, (node, gpu, (text, place)) in enumerate(places):
        conflicts = {"3g20gb-9-4": {4, 5, 6, 7}, "3g20gb-9-0": {0, 1, 2, 3}, "1g5gb-19-6": {6}, "2g10gb-14-2": {2, 3}}[place]
        slots = {(node, gpu, slot) for slot in conflicts}
        if not slots & taken:
            taken |= slots
            claims.append(held(f"c{number}", text, name(node), f"gpu-{gpu}-mig-{place}"))
    plan = planned({SMALL: 2}, claims, *texts)
    expected = fewest_by_brute_force({SMALL: 2}, claims, [templates.from_shorthand(text) for text in texts])
    assert (len(plan.moves) if plan.found else None) == expected
    assert plan.exact


def test_a_search_that_would_take_too_long_gives_an_estimate() -> None:
    claims = [
        held(f"c{node}-{gpu}-{place}", "mig=1g.5gb", name(node), f"gpu-{gpu}-mig-1g5gb-19-{place}")
        for node in range(2)
        for gpu in (0, 1)
        for place in range(6)
    ]
    taken = [held(f"w{gpu}", "gpu=1", name(2), f"gpu-{gpu}") for gpu in (0, 1)]
    nodes = Nodes(fleets.fleet_of({SMALL: 3}, [*claims, *taken]))
    planner = moves.MovePlanner(nodes, moves.pods_of(nodes, [*claims, *taken], ()), budget=250)
    plan = planner.plan([("new", templates.from_shorthand("mig=4g.20gb"))])
    assert (plan.found, plan.exact, len(plan.moves)) == (True, False, 4)


def test_pools_that_span_nodes_are_refused() -> None:
    fleet = fleets.fleet_of({SMALL: 1})
    spanning = type(fleet)(groups=fleet.groups, shared=fleet.groups[0].slices, classes=fleet.classes)
    with pytest.raises(templates.WorkloadError, match="cannot be planned if a pool offers devices to several nodes"):
        moves.MovePlanner(Nodes(spanning), [])
