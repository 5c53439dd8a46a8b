"""What several nodes say of one device stands side by side, and a condition holds when all say so."""

import itertools
import json

from drakit.core import claim_status
from drakit.kube import multi_node_status


def says(*, ready: bool = True, reason: str = "Prepared", message: str = "", **values: int) -> multi_node_status.NodeStatus:
    return multi_node_status.NodeStatus(
        conditions=(claim_status.Condition(type="Ready", status=ready, reason=reason, message=message),), values=dict(values)
    )


def test_a_condition_holds_only_once_every_node_says_so() -> None:
    whole = multi_node_status.MultiNodeStatus()
    for number in range(1, 5):
        whole = whole.with_part(f"node-{number}", says(), 4)
        [ready] = whole.conditions()
        assert (ready.status, ready.message) == ((False, f"{number} of 4 nodes") if number < 4 else (True, "all of 4 nodes"))
        assert ready.reason == ("Prepared" if ready.status else multi_node_status.WAITING)


def test_a_node_that_failed_is_named_before_those_that_are_missing() -> None:
    whole = (
        multi_node_status.MultiNodeStatus()
        .with_part("node-2", says(ready=False, reason="DeviceBusy", message="taken"), 4)
        .with_part("node-1", says())
    )
    [ready] = whole.conditions()
    assert (ready.status, ready.reason, ready.message) == (False, "DeviceBusy", "node-2: taken")
    for number in range(3, 9):
        whole = whole.with_part(f"node-{number}", says(ready=False, reason="Failed"))
    assert whole.conditions()[0].message == "node-2: taken; node-3: Failed; node-4: Failed; and 4 more"


def test_parts_are_independent_of_the_order_in_which_they_are_said() -> None:
    parts = {"a": says(worker=0), "b": says(ready=False, worker=1), "c": multi_node_status.NodeStatus(values={"x": 1})}
    records = []
    for order in itertools.permutations(parts):
        whole = multi_node_status.MultiNodeStatus()
        for node in order:
            whole = multi_node_status.read(whole.to_record()).with_part(node, parts[node], 3)
        records.append(whole.to_record())
    assert all(record == records[0] for record in records)
    assert multi_node_status.read(records[0]) == multi_node_status.MultiNodeStatus(parts=parts, count=3)


def test_a_part_that_says_nothing_is_gone_and_with_the_last_all_is() -> None:
    whole = multi_node_status.MultiNodeStatus().with_part("a", says(), 2).with_part("b", says())
    one = whole.with_part("a", multi_node_status.NodeStatus())
    assert list(one.parts) == ["b"]
    assert not one.with_part("b", multi_node_status.NodeStatus()).to_record()


def test_what_others_wrote_there_is_read_as_nothing_said() -> None:
    odd: list[object] = [
        None,
        "text",
        [],
        {"nodes": 5},
        {"nodes": {"a": 7, "b": {"conditions": [], "values": 3}}, "count": True},
        {"count": -1},
    ]
    for stored in odd:
        assert multi_node_status.read(stored) == multi_node_status.MultiNodeStatus()


def test_the_parts_of_64_nodes_stay_below_what_the_api_takes() -> None:
    whole = multi_node_status.MultiNodeStatus()
    for number in range(64):
        whole = whole.with_part(f"gke-cluster-1-tpu-pool-1-{number:08x}-abcd", says(worker=number), 64)
    assert len(json.dumps(whole.to_record(), separators=(",", ":"))) <= 10 * 1024
