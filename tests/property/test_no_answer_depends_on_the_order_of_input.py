"""The answer for one claim is the same for every order in which slices, classes, rules, claims and nodes are read."""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator import known_errors
from drakit_cluster.scheduling.allocator.known_errors import KnownErrors
from drakit_cluster.scheduling.explain import whatif
from fakes import examples, random_allocations

BOUNDED = settings(
    max_examples=examples.count(1000), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
NODES = ("n1", "n2")
DRIVERS = ("a", "b")
POOLS = ("p", "q")
ORDERS = 4
PLACED = st.sampled_from([{"nodeName": "n1"}, {"nodeName": "n2"}, {"allNodes": True}, {"perDeviceNodeSelection": True}, None])
PLACED_ALONE: st.SearchStrategy[Object] = st.sampled_from([{"nodeName": "n1"}, {"nodeName": "n2"}, {"allNodes": True}])
SELECTED: st.SearchStrategy[dict[str, str]] = st.sampled_from([{}, {"driver": "a"}, {"driver": "a", "pool": "p"}, {"device": "d00"}])
ERRORS = st.sampled_from([known_errors.NONE, known_errors.NONE, replace(known_errors.KUBERNETES_1_36, max_steps=3_000)])


@dataclass(frozen=True)
class Input:
    """One world with one claim that has no devices yet."""

    world: whatif.World
    errors: KnownErrors
    gates: FeatureGates


@functools.cache
@st.composite
def pool(draw: st.DrawFn, driver: str, name: str) -> list[Object]:
    """The slices of one pool, most of them complete and of one generation. Names of slices are not in the order of nodes."""
    slices: list[Object] = []
    parts = draw(st.integers(0, 2))
    placed = draw(PLACED)
    counters = draw(st.booleans())
    for part in range(parts):
        place: Object = dict(placed or {"nodeName": draw(random_allocations.among(*NODES))})
        devices = [device | {"name": f"d{part}{number}"} for number, device in enumerate(draw(random_allocations.device_list()))]
        if draw(st.integers(0, 9)) == 0:
            devices = [device | {"name": "same"} for device in devices]
        if "perDeviceNodeSelection" in place:
            devices = [device | draw(PLACED_ALONE) for device in devices]
        slices.append(place | {"devices": json_types.from_objects(devices)})
    if counters:
        sets: list[Json] = [
            {"name": owner, "counters": {counter: {"value": str(draw(st.integers(1, 3)))} for counter in ("x", "y")}}
            for owner in random_allocations.SETS
        ]
        slices.append({"nodeName": draw(random_allocations.among(*NODES)), "sharedCounters": sets})
    made: list[Object] = []
    for part, spec in enumerate(slices):
        declared: Object = {
            "name": name,
            "generation": draw(random_allocations.among(1, 1, 1, 1, 2)),
            "resourceSliceCount": draw(random_allocations.among(*[len(slices)] * 6, len(slices) + 1, 1)),
        }
        label = f"{draw(st.integers(0, 9))}-{driver}-{name}-{part}"
        made.append({"metadata": {"name": label, "uid": label}, "spec": {"driver": driver, "pool": declared, **spec}})
    return made


@functools.cache
@st.composite
def held(draw: st.DrawFn, number: int) -> Object:
    results: list[Json] = []
    for _ in range(draw(st.integers(1, 2))):
        result: Object = {
            "request": "r",
            "driver": draw(random_allocations.among(*DRIVERS)),
            "pool": draw(random_allocations.among(*POOLS)),
            "device": f"d{draw(st.integers(0, 1))}{draw(st.integers(0, 2))}",
        }
        kind = draw(random_allocations.among("whole", "share", "counted share", "admin"))
        if kind == "admin":
            result["adminAccess"] = True
        if "share" in kind:
            result["shareID"] = f"share-{number}"
        if kind == "counted share":
            result["consumedCapacity"] = {"bandwidth": "1"}
        results.append(result)
    status: Object = {"allocation": {"devices": {"results": results}}}
    return {"metadata": {"namespace": "default", "name": f"held-{number}", "uid": f"held-{number}"}, "spec": {}, "status": status}


@functools.cache
@st.composite
def rule(draw: st.DrawFn, number: int) -> Object:
    chosen = draw(SELECTED)
    taint: Object = {
        "key": draw(random_allocations.among("broken", "other")),
        "effect": draw(random_allocations.among("NoSchedule", "NoExecute")),
    }
    return {"metadata": {"name": f"rule-{number}"}, "spec": {"deviceSelector": dict(chosen), "taint": taint}}


@functools.cache
@st.composite
def inputs(draw: st.DrawFn) -> Input:
    slices = [entry for driver in DRIVERS for name in POOLS for entry in draw(pool(driver, name))]
    wanted = draw(random_allocations.claim(0))
    json_types.child(wanted, "metadata")["namespace"] = "default"
    world = whatif.World(
        slices=slices,
        classes=list(random_allocations.CLASSES.values()),
        claims=[wanted, *(draw(held(number)) for number in range(draw(st.integers(0, 3))))],
        nodes=[{"metadata": {"name": name}} for name in NODES],
        taint_rules=[draw(rule(number)) for number in range(draw(random_allocations.among(0, 0, 1, 2)))],
    )
    errors = draw(ERRORS)
    return Input(world, errors, random_allocations.FEATURES)


def shuffled(objects: Sequence[Object], chance: random.Random) -> list[Object]:
    order = list(objects)
    chance.shuffle(order)
    return order


def answer(given_input: Input, world: whatif.World) -> tuple[str, object, str, object]:
    """Return node, devices, message and reasons."""
    scheduler = whatif.Scheduler(world, given_input.gates, world.known_nodes(), given_input.errors)
    (decision,) = scheduler.decide()
    devices = [
        {key: value for key, value in result.items() if key != "shareID"}
        for grant in decision.given
        for result in json_types.objects(grant.allocation, "devices", "results")
    ]
    return decision.node, devices, decision.message, decision.why


@BOUNDED
@given(inputs(), st.integers(0, 2**32))
def test_every_order_of_input_gives_the_same_answer(given_input: Input, seed: int) -> None:
    chance = random.Random(seed)
    first = answer(given_input, given_input.world)
    event("fits" if first[0] else "impossible" if "impossible" in first[2] else "does not fit")
    for _ in range(ORDERS):
        other = whatif.World(
            slices=shuffled(given_input.world.slices, chance),
            classes=shuffled(given_input.world.classes, chance),
            claims=shuffled(given_input.world.claims, chance),
            nodes=shuffled(given_input.world.nodes, chance),
            taint_rules=shuffled(given_input.world.taint_rules, chance),
        )
        assert answer(given_input, other) == first
