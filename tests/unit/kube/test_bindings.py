"""Which claims wait to be bound, read from the claims themselves."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from drakit.core import claim as core_claim
from drakit.core import names, records
from drakit.kube import claims, transport
from fakes import real_clock

UID = names.ClaimUid("00000000-0000-4000-8000-000000000001")
DEVICE = {"driver": "fpga.example.com", "pool": "node-1", "device": "fpga-0"}
RESULT = {"request": "r", **DEVICE, "bindingConditions": ["ready", "more"], "bindingFailureConditions": ["broken"]}


def claim(*results: Mapping[str, object], devices: list[Any] | None = None) -> transport.Object:
    status = {"allocation": {"devices": {"results": [*results]}}, "devices": devices or []}
    metadata = {"name": "c", "namespace": "n", "uid": UID, "resourceVersion": "5"}
    return records.freeze_record({"metadata": metadata, "status": status if results else {}})


def said(**conditions: str) -> list[Any]:
    return [{**DEVICE, "conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]}]


class Listing:
    """A server with these claims and no news."""

    def __init__(self, *items: transport.Object) -> None:
        self.items = items

    def request(self, *arguments: Any, **options: Any) -> transport.Object:
        del arguments, options
        return {"metadata": {"resourceVersion": "9"}, "items": list(self.items)}

    def stream(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("the test ends before the watch")


def standings(*items: transport.Object) -> list[core_claim.BindingState | None]:
    stop, found = threading.Event(), list[core_claim.BindingState | None]()
    api = claims.ApiBindings(Listing(*items), driver="fpga.example.com", pool="node-1", clock=real_clock.RealClock())
    following: Iterator[core_claim.BindingState | None] = api.follow(stop)
    for _ in range(1 + len(items)):
        found.append(next(following))
    stop.set()
    return found


@pytest.mark.parametrize(
    "found,allocated,waits",
    [
        (claim(), False, False),
        (claim({**RESULT, "pool": "node-2"}), False, False),
        (claim({**RESULT, "driver": "other.example.com"}), False, False),
        (claim(RESULT), True, True),
        (claim(RESULT, devices=said(ready="False")), True, True),
        (claim(RESULT, devices=said(more="True")), True, True),
        (claim(RESULT, devices=said(ready="True")), True, False),
        (claim(RESULT, devices=said(broken="True")), True, False),
        (claim({"request": "r", **DEVICE}), True, False),
        (claim(RESULT, {**RESULT, "device": "fpga-1"}, devices=said(ready="True")), True, True),
    ],
)
def test_a_claim_waits_for_the_first_condition_of_each_of_our_devices(found: transport.Object, allocated: bool, waits: bool) -> None:  # noqa: FBT001
    first, standing = standings(found)
    assert first is None
    assert standing is not None
    assert (standing.claim.uid, standing.allocated, standing.waits) == (UID, allocated, waits)


def test_a_claim_that_makes_no_sense_is_passed_over() -> None:
    nonsense = records.freeze_record({"metadata": {"name": "C!", "namespace": "n", "uid": UID}})
    stop = threading.Event()
    api = claims.ApiBindings(Listing(nonsense, claim(RESULT)), driver="fpga.example.com", pool="node-1", clock=real_clock.RealClock())
    following = api.follow(stop)
    assert next(following) is None
    found = next(following)
    assert found is not None
    assert found.waits
