"""Questions on which an exhaustive search explodes are answered in a bounded number of steps."""

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.search import Search
from drakit_cluster.scheduling.allocator.state import AllocatedState
from fakes.allocation_objects import ALL_FEATURES, CLASSES, NODE, claim, device, partitioned, request, resource_slice, strings
from fakes.simple_selectors import SimpleSelectors

PROFILES = {"1g": (1, 1, range(7)), "2g": (2, 2, (0, 2, 4)), "3g": (3, 4, (0, 4)), "7g": (7, 8, (0,))}
MATCH: Object = {"matchAttribute": "drv/parent"}


def gpu(number: int) -> list[Object]:
    """Return every placement of every profile on one GPU of 7 engines and 8 memory slices."""
    return [
        device(
            f"gpu-{number}-{profile}-{start}",
            draws={f"gpu-{number}.engines": str(engines)} | {f"gpu-{number}.slice{place}": "1" for place in range(start, start + length)},
            attributes=strings(profile=profile, parent=f"GPU-{number}"),
        )
        for profile, (engines, length, starts) in PROFILES.items()
        for start in starts
    ]


def machine(gpus: int) -> list[Object]:
    counters = {f"gpu-{number}.engines": "7" for number in range(gpus)}
    counters |= {f"gpu-{number}.slice{place}": "1" for number in range(gpus) for place in range(8)}
    return partitioned([one for number in range(gpus) for one in gpu(number)], counters)


def profile(name: str, kind: str, count: int = 1) -> Object:
    return request(name, count=count, selectors=[{"cel": {"expression": f'device.attributes["drv"].profile == "{kind}"'}}])


def effort(slices: list[Object], wanted: Object) -> tuple[int, bool]:
    """Return the steps of a search that learns, and whether it found a solution."""
    allocator = Allocator(slices, CLASSES, SimpleSelectors(), ALL_FEATURES)
    search = Search(allocator.problem(claims=[wanted], node=NODE, allocated=AllocatedState()), learning=True)
    picks = search.run()
    return search.visited, picks is not None


@pytest.mark.parametrize(
    "wanted, steps",
    [
        (claim(*(profile(f"r{number}", "7g") for number in range(9))), 10),
        (claim(*(profile(f"r{number}", "3g") for number in range(17))), 10),
        (claim(profile("r", "1g", count=25), *(profile(f"s{number}", "7g") for number in range(5))), 60),
        (claim(*(profile(f"r{number}", "1g") for number in range(8)), constraints=[MATCH]), 1500),
        (claim(*(profile(f"r{number}", "2g") for number in range(15)), *(profile(f"s{number}", "3g") for number in range(9))), 2000),
    ],
)
def test_an_impossible_claim_is_refused_in_few_steps(wanted: Object, steps: int) -> None:
    visited, found = effort(machine(8), wanted)
    assert not found
    assert visited <= steps


def test_a_solution_behind_backtracking_is_found_in_few_steps() -> None:
    wanted = claim(*(profile(f"r{number}", "3g") for number in range(8)), *(profile(f"s{number}", "2g") for number in range(16)))
    visited, found = effort(machine(8), wanted)
    assert found
    assert visited <= 2000


def test_unrelated_requests_before_a_hopeless_one_are_not_permuted() -> None:
    nics = [device(f"nic-{number}", attributes=strings(profile=f"nic{number % 3}", parent=f"NIC-{number}")) for number in range(24)]
    slices = [*machine(2), resource_slice(nics, name="nics", pool="nics")]
    gpu_requests = [f"r{number}" for number in range(8)]
    wanted = claim(
        *(profile(f"n{number}", f"nic{number % 3}", count=2) for number in range(6)),
        *(profile(name, "1g") for name in gpu_requests),
        constraints=[{**MATCH, "requests": json_types.from_strings(gpu_requests)}],
    )
    visited, found = effort(slices, wanted)
    assert not found
    assert visited <= 1500
