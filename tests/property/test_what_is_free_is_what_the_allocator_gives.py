"""On small worlds ``drakit free`` counts what the allocator gives: as many devices of each kind, and sets that fit but have no room for one more."""

from collections.abc import Mapping

from hypothesis import HealthCheck, event, given, settings

from drakit.core.packing import Kind
from drakit_cluster.cel import selectors
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.explain import whatif
from drakit_tools.free import survey
from fakes import examples
from fakes.random_allocations import CLASSES, FEATURES, NODE, RandomAllocation, random_allocation

BOUNDED = settings(max_examples=examples.count(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZES = ("big", "small")
Counts = Mapping[tuple[str, Kind], int]


def typed(world: RandomAllocation) -> list[Object]:
    """Return the slices, in which every device has a profile."""
    slices = world.slices()
    for published in slices:
        for place, device in enumerate(json_types.objects(published, "spec", "devices")):
            attributes = json_types.mapping(device, "attributes")
            device["attributes"] = attributes | {"profile": {"string": SIZES[place % 2]}}
    return slices


def holding(world: RandomAllocation) -> list[Object]:
    """Return allocated claims that hold what is in use."""
    results: list[Object] = [{"driver": driver, "pool": "pool", "device": device} for driver, device in sorted(world.held)]
    for (driver, device), amount in world.shares.items():
        consumed: Object = {"bandwidth": str(amount)} if amount else {}
        results.append({"driver": driver, "pool": "pool", "device": device, "shareID": "share", "consumedCapacity": consumed})
    return [
        {"metadata": {"name": f"c{place}", "uid": f"u{place}"}, "status": {"allocation": {"devices": {"results": [result]}}}}
        for place, result in enumerate(results)
    ]


def asking(counts: Counts) -> Object:
    requests: list[Json] = []
    for place, ((driver, kind), count) in enumerate(counts.items()):
        shared = str(kind.shared).lower()
        expression = (
            f'device.driver == "{driver}" && device.attributes["{driver}"].profile == "{kind.name}"'
            f" && device.allowMultipleAllocations == {shared}"
        )
        exact: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
        requests.append({"name": f"r{place}", "exactly": exact | {"selectors": [{"cel": {"expression": expression}}]}})
    return {"metadata": {"name": "asking", "uid": "asking"}, "spec": {"devices": {"requests": requests}}}


@BOUNDED
@given(random_allocation())
def test_free_devices_are_those_that_the_allocator_gives(world: RandomAllocation) -> None:
    slices = typed(world)
    found = survey.survey(whatif.World(slices=slices, claims=holding(world), nodes=[NODE]), FEATURES)
    allocator = Allocator(slices, CLASSES, selectors.Selectors(FEATURES), FEATURES)

    def fits(counts: Counts) -> bool:
        wanted = {key: count for key, count in counts.items() if count}
        if not wanted:
            return True
        claims = [asking(wanted)]
        return allocator.allocate(claims=claims, node=NODE, allocated=world.allocated(), new_share_id=lambda: "share") is not None

    kinds = [(driver, Kind(name=size, shared=shared)) for driver in ("a", "b") for size in SIZES for shared in (False, True)]
    (node,) = found.nodes
    for driver, kind in kinds:
        alone = sum(board.alone[kind].counts.get(kind, 0) for board in node.boards if board.driver == driver and kind in board.alone)
        event(f"{min(alone, 3)} alone")
        assert fits({(driver, kind): alone})
        assert not fits({(driver, kind): alone + 1})
    for number in range(3):
        together: dict[tuple[str, Kind], int] = {}
        for board in node.boards:
            for kind, count in board.together[number].counts.items():
                together[board.driver, kind] = together.get((board.driver, kind), 0) + count
        assert fits(together)
        assert not any(fits(together | {key: together.get(key, 0) + 1}) for key in kinds)
