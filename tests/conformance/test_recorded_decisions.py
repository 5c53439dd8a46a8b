"""Kubernetes 1.36.2's recorded decisions, asked of the adapter: one test per kind, naming the cases that differ."""

import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from conformance import adapter
from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.json_types import Json, Object

CASES = pathlib.Path(__file__).parent / "cases"
KINDS = ("allocate", "capacity", "cel", "toleration", "validate")


def recorded(kind: str) -> Iterator[Object]:
    with (CASES / f"{kind}.jsonl").open() as lines:
        yield from map(json.loads, lines)


def same_allocation(answer: Object, expected: Object) -> bool:
    if answer["outcome"] != expected["outcome"]:
        return False
    return answer["outcome"] != "allocated" or list(map(essence, json_types.objects(answer, "results"))) == list(
        map(essence, json_types.objects(expected, "results"))
    )


def essence(result: Object) -> Json:
    """Return an AllocationResult with share ids reduced to their presence and quantities to their values."""
    devices: list[Json] = [
        {
            **{name: value for name, value in one.items() if value},
            "shareID": bool(one.get("shareID")),
            "consumedCapacity": {name: quantity.parse(value).nanos for name, value in json_types.mapping(one, "consumedCapacity").items()},
        }
        for one in json_types.objects(result, "devices", "results")
    ]
    found: Object = {
        "devices": devices,
        "config": json_types.items(result, "devices", "config"),
        "nodeSelector": result.get("nodeSelector"),
    }
    return found


def same_value(answer: Object, expected: Object) -> bool:
    return answer["value"] == expected["value"]


def same_verdict(answer: Object, expected: Object) -> bool:
    return answer["outcome"] == expected["outcome"] and (answer["outcome"] != "match" or answer["match"] == expected["match"])


def same_toleration(answer: Object, expected: Object) -> bool:
    return answer["tolerated"] == expected["tolerated"]


def same_failures(answer: Object, expected: Object) -> bool:
    found = {(one["type"], one["field"]) for one in json_types.objects(answer, "failures")}
    return found == {(pair[0], pair[1]) for pair in json_types.items(expected, "failures") if isinstance(pair, list)}


SAME: dict[str, Callable[[Object, Object], bool]] = {
    "allocate": same_allocation,
    "capacity": same_value,
    "cel": same_verdict,
    "toleration": same_toleration,
    "validate": same_failures,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_decision_is_ours_too(kind: str) -> None:
    differing = []
    asked = 0
    for case in recorded(kind):
        expected = json_types.mapping(case, "expect")
        answer = adapter.answer(asked_of(case))
        asked += 1
        if not SAME[kind](answer, expected):
            differing.append(f"{case['name']}: {answer}, recorded {expected}")
    assert asked > 100
    assert not differing, "\n".join(differing)


def test_each_recorded_error_of_1_36_is_reproduced_only_on_request() -> None:
    """Each case is one in which Kubernetes' allocator gives another answer than the right one."""
    cases = list(recorded("allocate-errors-1.36"))
    repeated = [case["name"] for case in cases if same_allocation(adapter.answer(asked_of(case)), json_types.mapping(case, "expect"))]
    assert repeated == [case["name"] for case in cases]
    right = [adapter.answer(asked_of(case) | {"asKubernetes": ""}) for case in cases]
    assert len(right) == 60
    assert not [case["name"] for case, one in zip(cases, right, strict=True) if same_allocation(one, json_types.mapping(case, "expect"))]


def asked_of(case: Object) -> Object:
    return {name: value for name, value in case.items() if name != "expect"}


def test_a_kind_without_an_owner_is_refused_by_name() -> None:
    with pytest.raises(adapter.NotSupportedError, match="'no-such-kind'"):
        adapter.answer({"kind": "no-such-kind"})
