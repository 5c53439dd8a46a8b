"""On small worlds ``drakit free`` counts what the allocator gives: on each board as many devices of each kind, and sets that fit together.

A set has no room for one more on any board. With other sets on other boards, which compatibility groups allow, a node may have room for more.
"""

from collections.abc import Mapping, Sequence

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
Counts = Mapping[tuple[int, Kind], int]
"""How many devices of which kind, on the board of which number."""


def typed(world: RandomAllocation) -> list[Object]:
    """Return the slices, in which every device has a profile."""
    slices = world.slices()
    for published in slices:
        for place, device in enumerate(json_types.objects(published, "spec", "devices")):
            attributes = json_types.mapping(device, "attributes")
            device["attributes"] = attributes | {"profile": {"string": SIZES[place % 2]}, "name": {"string": device["name"]}}
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


def asking(boards: Sequence[survey.Board], counts: Counts) -> Object:
    requests: list[Json] = []
    for place, ((number, kind), count) in enumerate(counts.items()):
        board = boards[number]
        shared = str(kind.shared).lower()
        names = ", ".join(f'"{device.device}"' for device in sorted(board.devices))
        expression = (
            f'device.driver == "{board.driver}" && device.attributes["{board.driver}"].name in [{names}]'
            f' && device.attributes["{board.driver}"].profile == "{kind.name}" && device.allowMultipleAllocations == {shared}'
        )
        exact: Object = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
        requests.append({"name": f"r{place}", "exactly": exact | {"selectors": [{"cel": {"expression": expression}}]}})
    return {"metadata": {"name": "asking", "uid": "asking"}, "spec": {"devices": {"requests": requests}}}


@BOUNDED
@given(random_allocation())
def test_free_devices_are_those_that_the_allocator_gives(world: RandomAllocation) -> None:
    slices = typed(world)
    found = survey.survey(whatif.World(slices=slices, claims=holding(world), nodes=[NODE]), FEATURES)
    (node,) = found.nodes
    allocator = Allocator(slices, CLASSES, selectors.Selectors(FEATURES), FEATURES)

    def fits(counts: Counts) -> bool:
        wanted = {key: count for key, count in counts.items() if count}
        if not wanted:
            return True
        claims = [asking(node.boards, wanted)]
        return allocator.allocate(claims=claims, node=NODE, allocated=world.allocated(), new_share_id=lambda: "share") is not None

    kinds = [(place, Kind(name=size, shared=shared)) for place in range(len(node.boards)) for size in SIZES for shared in (False, True)]
    for place, kind in kinds:
        board = node.boards[place]
        alone = board.alone[kind].counts.get(kind, 0) if kind in board.alone else 0
        event(f"{min(alone, 3)} alone")
        assert fits({(place, kind): alone})
        assert not fits({(place, kind): alone + 1})
    for number in range(3):
        together = {
            (place, kind): count for place, board in enumerate(node.boards) for kind, count in board.together[number].counts.items()
        }
        assert fits(together)
        assert not any(fits(together | {key: together.get(key, 0) + 1}) for key in kinds)
