"""A ClaimDriver prepares all devices of a claim in one call, with the promises of a claim that is prepared device by device."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

import drakit
from drakit import testing
from drakit.core import lifecycle

Grants = Sequence[drakit.Grant[drakit.NoConfig]]


@dataclasses.dataclass
class Arrays:
    """Arrays of disks, by name; ``calls`` are the disks of each prepare; ``fail`` is called in the middle of one."""

    made: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    calls: list[list[str]] = dataclasses.field(default_factory=list)
    fail: Callable[[Grants], None] = lambda _: None
    bound: list[str] = dataclasses.field(default_factory=list)


class ArrayDriver(drakit.ClaimDriver[drakit.NoConfig], drakit.Binder[drakit.NoConfig]):
    """Makes one array of all disks of a claim."""

    name = "array.example.com"

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def discover(self) -> drakit.Inventory:
        conditions = {"binding_conditions": ("a.example.com/ok",), "binding_failure_conditions": ("a.example.com/bad",)}
        last = drakit.Device(name="disk-3", **conditions)  # type: ignore[arg-type] # A dict of texts.
        return drakit.Inventory.of([*(drakit.Device(name=f"disk-{number}") for number in range(3)), last])

    def plan(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Record:
        return {"place": len(self.planned(grant.device)), "disk": grant.device.name}

    def bind(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        self.arrays.bound.append(grant.device.name)

    def prepare_claim(self, grants: Grants) -> Sequence[drakit.Prepared]:
        self.arrays.calls.append([grant.device.name for grant in grants])
        array = grants[0].claim.uid
        self.arrays.made.setdefault(array, [])
        for grant in grants:
            assert grant.intent["disk"] == grant.device.name
            if grant.device.name not in self.arrays.made[array]:
                self.arrays.made[array].append(grant.device.name)
            self.arrays.fail(grants)
        return [drakit.Prepared(edits=drakit.Edits(env={"DISKS": str(len(grants))}), record={"in": array}) for _ in grants]

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        self.arrays.made.pop(grant.claim.uid, None)


def a_node(arrays: Arrays) -> testing.Node:
    return testing.Node(lambda: ArrayDriver(arrays))


def test_all_devices_of_a_claim_come_in_one_call_in_the_order_of_the_allocation() -> None:
    arrays = Arrays()
    with a_node(arrays) as node:
        claim = node.claim("disk-2", "disk-0")
        assert node.prepare(claim).env == {"DISKS": "2"}
        assert arrays.calls == [["disk-2", "disk-0"]]
        assert [kept.record["in"] for kept in node.entries[0].grants] == [claim.uid] * 2
        node.unprepare(claim)
        assert (node.is_clean, arrays.made) == (True, {})


def test_a_prepared_claim_is_verified_as_a_whole_also_by_a_later_process() -> None:
    arrays = Arrays()
    with a_node(arrays) as node:
        claim = node.claim("disk-0", "disk-1")
        first = node.prepare(claim)
        node.restart()
        assert node.prepare(claim) == first
        assert arrays.calls == [["disk-0", "disk-1"]] * 2


def test_an_error_undoes_every_device() -> None:
    arrays = Arrays()

    def refuse(grants: Grants) -> None:
        raise drakit.ConfigError(f"{len(grants)} disks make no array")

    arrays.fail = refuse
    with a_node(arrays) as node:
        answer = node.try_prepare(node.claim("disk-0", "disk-1"))
        assert "2 disks make no array" in answer.error
        assert (node.is_clean, arrays.made) == (True, {})


def test_a_record_that_is_lost_brings_the_whole_claim_again() -> None:
    arrays, seen = Arrays(), list[list[bool]]()

    class Losing(ArrayDriver):
        def prepare_claim(self, grants: Grants) -> Sequence[drakit.Prepared]:
            prepared = super().prepare_claim(grants)
            seen.append([bool(grant.record) for grant in grants])
            return [dataclasses.replace(made, record={}) for made in prepared] if len(seen) == 2 else prepared

    with testing.Node(lambda: Losing(arrays)) as node:
        claim = node.claim("disk-0", "disk-1")
        node.prepare(claim)
        node.prepare(claim)
        assert seen == [[False, False], [True, True], [False, False]]
        assert all(kept.record for kept in node.entries[0].grants)
        assert node.entries[0].state is lifecycle.State.PREPARED


def test_what_has_binding_conditions_is_bound_before_the_claim_is_prepared() -> None:
    arrays = Arrays()
    with a_node(arrays) as node:
        node.prepare(node.claim("disk-0", "disk-3"))
        assert (arrays.bound, arrays.calls) == (["disk-3"], [["disk-0", "disk-3"]])


class OneForAll(ArrayDriver):
    def prepare_claim(self, grants: Grants) -> Sequence[drakit.Prepared]:
        return super().prepare_claim(grants)[:1]


class Mapping(ArrayDriver):
    def prepare_claim(self, grants: Grants) -> Sequence[drakit.Prepared]:
        return dict.fromkeys(grant.device.name for grant in grants)  # type: ignore[return-value] # What authors may try.


@pytest.mark.parametrize(
    "kind, message",
    [
        (OneForAll, "prepare_claim() returned 1 results for 2 grants; return one for each grant, in their order"),
        (Mapping, "prepare_claim() returned dict; return a list of drakit.Prepared, one for each grant"),
    ],
)
def test_results_that_are_not_one_for_each_grant_are_an_error_with_the_fix(kind: type[ArrayDriver], message: str) -> None:
    arrays = Arrays()
    with testing.Node(lambda: kind(arrays)) as node:
        assert message in node.try_prepare(node.claim("disk-0", "disk-1")).error
        assert node.is_clean


def test_a_caller_that_leaves_is_seen_inside_the_call_and_the_next_call_is_answered() -> None:
    arrays, waited = Arrays(), list[tuple[bool, float | None]]()

    def leave(grants: Grants) -> None:
        waited.append((grants[0].caller.is_waiting(), grants[-1].caller.seconds_left()))
        node.caller.waits, node.caller.seconds = False, 0.0

    arrays.fail = leave
    with a_node(arrays) as node:
        node.caller.seconds = 45.0
        claim = node.claim("disk-0", "disk-1")
        node.try_prepare(claim)
        assert waited == [(True, 45.0), (False, 0.0)]
        node.caller.waits = True
        assert node.prepare(claim).env == {"DISKS": "2"}
        assert len(arrays.calls) == 1, "what was finished too late is kept for the next call"


def test_a_driver_that_gives_up_once_nobody_waits_leaves_nothing() -> None:
    arrays = Arrays()

    def give_up(grants: Grants) -> None:
        node.caller.waits = False
        if not grants[0].caller.is_waiting():
            raise drakit.RetryError("not complete yet", after=1.0)

    arrays.fail = give_up
    with a_node(arrays) as node:
        assert "not complete yet" in node.try_prepare(node.claim("disk-0", "disk-1")).error
        assert (node.is_clean, arrays.made) == (True, {})


class Told(ArrayDriver):
    device_metadata = True


def test_device_metadata_is_mounted_for_each_device_of_a_whole_claim() -> None:
    with testing.Node(lambda: Told(Arrays())) as node:
        given = node.prepare(node.claim("disk-0", "disk-1"))
        assert [path.split("/")[-2] for _, path in given.mounts] == ["request-0", "request-1"]


def test_a_driver_of_whole_claims_keeps_the_contract() -> None:
    arrays = Arrays()
    report = testing.check_driver(
        lambda: ArrayDriver(arrays), hardware=lambda: repr(arrays.made), device_names=["disk-1", ("disk-0", "disk-2")], every=29
    )
    assert ["disk-0", "disk-2"] in arrays.calls
    assert report.crash_points > 15


def test_two_devices_of_one_claim_are_tried_without_being_asked() -> None:
    arrays = Arrays()
    testing.check_driver(lambda: ArrayDriver(arrays), every=1000)
    assert ["disk-0", "disk-1"] in arrays.calls


class Leaving(ArrayDriver):
    """Leaves its array where it gives up."""

    def prepare_claim(self, grants: Grants) -> Sequence[drakit.Prepared]:
        if not grants[0].caller.is_waiting():
            self.arrays.made["left"] = []
            raise drakit.RetryError("nobody waits", after=1.0)
        return super().prepare_claim(grants)


def test_a_driver_that_leaves_something_for_a_caller_that_left_is_found() -> None:
    arrays = Arrays()
    with pytest.raises(testing.CheckError, match="FAIL  a kubelet that stops waiting at any moment leaves nothing behind"):
        testing.check_driver(lambda: Leaving(arrays), hardware=lambda: sorted(arrays.made), every=1000)
