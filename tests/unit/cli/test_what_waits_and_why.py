"""The dashboard's list of what waits has every pod and claim without devices, once, with the reason that its next actor gives."""

import pathlib
from typing import Any

from drakit_tools.dashboard import cluster_state, model, server, text
from fakes import real_clock

PAGE_FILES = pathlib.Path(server.__file__).parent

REFUSED = "0/2 nodes are available: 2 cannot allocate all claims."


def claim(name: str, *, created: str = "2026-11-29T08:00:00Z", **status: Any) -> Any:
    exactly = {"deviceClassName": "mig-3g.20gb", "count": 2, "capacity": {"requests": {"memory": "10Gi"}}}
    return {
        "kind": "ResourceClaim",
        "metadata": {"namespace": "team-a", "name": name, "uid": name, "creationTimestamp": created},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": status,
    }


def pod(name: str, claims: list[Any], *, created: str = "2026-11-29T08:00:00Z", node: str = "", **status: Any) -> Any:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "team-a", "name": name, "uid": name, "creationTimestamp": created},
        "spec": {"resourceClaims": claims, "containers": [{"name": "c"}], **({"nodeName": node} if node else {})},
        "status": {"phase": "Pending", **status},
    }


def named(name: str) -> list[Any]:
    return [{"name": "gpu", "resourceClaimName": name}]


def refused(message: str, reason: str = "Unschedulable") -> list[Any]:
    return [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]


def warning(pod_name: str, reason: str, message: str, time: str) -> Any:
    about = {"kind": "Pod", "namespace": "team-a", "name": pod_name}
    return {"kind": "Event", "involvedObject": about, "type": "Warning", "reason": reason, "message": message, "lastTimestamp": time}


def waiting(**listing: Any) -> tuple[model.Waiting, ...]:
    return cluster_state.Reader("cluster").state(cluster_state.Listing(**listing)).waiting


def test_a_pod_and_its_claim_are_one_row_with_the_schedulers_reason() -> None:
    message = f"{REFUSED} still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    (row,) = waiting(pods=[pod("a", named("large"), conditions=refused(message))], claims=[claim("large")])
    assert (row.kind, row.name, row.asks, row.reason) == ("Pod", "team-a/a", "2 x mig-3g.20gb (memory 10Gi)", REFUSED)
    assert row.since == "2026-11-29T08:00:00Z"


def test_equal_pods_of_a_workload_have_one_reason() -> None:
    def replica(name: str) -> Any:
        message = f"0/1 nodes are available: node-1: claim team-a/{name}-gpu-x7, request gpu: needs 1 device, none available (2x in use)"
        made = [{"name": "gpu", "resourceClaimName": f"{name}-gpu-x7"}]
        entries = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        return pod(name, entries, conditions=refused(message), resourceClaimStatuses=made)

    rows = waiting(pods=[replica("a"), replica("b")])
    said = "0/1 nodes are available: node-1: its claim gpu, request gpu: needs 1 device, none available (2x in use)"
    assert [row.reason for row in rows] == [said, said]


def test_a_claim_without_a_pod_says_that_it_waits_for_one() -> None:
    (row,) = waiting(claims=[claim("alone")])
    assert (row.kind, row.name) == ("Claim", "team-a/alone")
    assert row.reason == "no pod uses it; a claim gets devices when a pod that names it is scheduled"


def test_a_claim_says_so_where_pods_cannot_be_listed() -> None:
    (row,) = waiting(claims=[claim("alone")], pods_are_known=False)
    assert row.reason == "its pods are unknown, because pods cannot be listed"


def test_a_claim_of_a_class_that_does_not_exist_says_so() -> None:
    other = {"kind": "DeviceClass", "metadata": {"name": "gpu", "uid": "1"}}
    (row,) = waiting(claims=[claim("alone")], classes=[other])
    assert row.reason.startswith("there is no DeviceClass mig-3g.20gb; no pod uses it")
    same = {"kind": "DeviceClass", "metadata": {"name": "mig-3g.20gb", "uid": "1"}}
    assert "DeviceClass" not in waiting(claims=[claim("alone")], classes=[same])[0].reason


def test_a_pod_on_a_node_has_the_kubelets_latest_warning() -> None:
    events = [
        warning("a", "FailedPrepareDynamicResources", "old", "2026-11-29T08:00:00Z"),
        warning("a", "FailedPrepareDynamicResources", "NVML does not answer", "2026-11-29T08:00:00.500000Z"),
    ]
    (row,) = waiting(pods=[pod("a", named("large"), node="node-1")], events=events[::-1])
    assert row.reason == "on node-1: FailedPrepareDynamicResources: NVML does not answer"


def test_a_pod_on_a_node_without_a_warning_has_its_containers_reason() -> None:
    statuses = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}]
    (row,) = waiting(pods=[pod("a", named("large"), node="node-1", containerStatuses=statuses)])
    assert row.reason == "on node-1: ImagePullBackOff: not found"


def test_only_where_a_pod_waits_for_allocation_is_there_a_command_that_explains_it() -> None:
    placed, unplaced = waiting(pods=[pod("a", named("large"), node="node-1"), pod("b", named("large"))])
    assert (placed.node, unplaced.node) == ("node-1", "")

    def last(row: model.Waiting) -> str:
        many = model.State(title="cluster", waiting=(row,) * 20)
        return [line.text for line in text.lines(many, now=real_clock.RealClock().now(), width=None)][-1]

    assert last(placed) == "  ... and 8 more"
    assert last(unplaced) == "  ... and 8 more (drakit allocate --live --why)"
    script = (PAGE_FILES / "page.js").read_text("utf-8")
    assert 'byId("waiting-why").hidden = !rows.some(([row]) => row.kind === "Pod" && !row.node);' in script


def test_a_pod_that_no_scheduler_tried_or_that_is_gated_says_so() -> None:
    gated = pod("b", named("large"), conditions=refused("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated"))
    rows = waiting(pods=[pod("a", named("large")), gated])
    assert [row.reason for row in rows] == ["no scheduler has tried it yet", "Scheduling is blocked due to non-empty scheduling gates"]


def test_a_template_without_a_claim_and_an_extended_resource_say_what_they_ask() -> None:
    template = pod("a", [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}])
    extended = pod("b", [])
    extended["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2", "cpu": "1", "hugepages.kubernetes.io/x": "1"}}
    assert [row.asks for row in waiting(pods=[template, extended])] == ["template one-gpu", "2 x nvidia.com/gpu"]


def test_pods_that_want_no_device_or_end_do_not_wait_for_one() -> None:
    ending = pod("b", named("large"))
    ending["metadata"]["deletionTimestamp"] = "2026-11-29T08:00:00Z"
    done = pod("c", named("large"))
    done["status"]["phase"] = "Succeeded"
    assert waiting(pods=[pod("a", []), ending, done]) == ()


def test_what_waits_longest_is_first_whatever_the_form_of_its_time() -> None:
    times = {"c": "2026-11-29T08:00:00.250000Z", "a": "2026-11-29T08:00:01Z", "d": "2026-11-29T09:59:00+02:00", "b": "2026-11-29T08:00:00Z"}
    rows = waiting(claims=[claim(name, created=time) for name, time in times.items()])
    assert [row.name for row in rows] == ["team-a/d", "team-a/b", "team-a/c", "team-a/a"]


def test_events_are_in_the_order_of_time_whatever_its_form() -> None:
    times = ["2026-11-29T08:00:00.250000Z", "2026-11-29T08:00:01Z", "2026-11-29T08:00:00Z"]
    events = [warning("a", "Failed", str(number), time) for number, time in enumerate(times)]
    state = cluster_state.Reader("cluster").state(cluster_state.Listing(events=events))
    assert [event.message for event in state.events] == ["1", "0", "2"]


def test_a_claim_is_counted_with_and_without_devices_and_in_deletion() -> None:
    allocation = {"devices": {"results": [{"request": "gpu", "driver": "gpu.drakit.dev", "pool": "n", "device": "gpu-0"}]}}
    held, lost, ending = claim("held", allocation=allocation), claim("lost", allocation=allocation), claim("ending")
    held["metadata"]["uid"] = "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
    gone = {"devices": {"results": [{"request": "gpu", "driver": "gone.example", "pool": "n", "device": "gpu-0"}]}}
    lost["metadata"]["uid"] = "7cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
    lost["status"]["allocation"] = gone
    ending["metadata"]["deletionTimestamp"] = "2026-11-29T08:00:00Z"
    published = {"driver": "gpu.drakit.dev", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    slices: list[Any] = [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
            "spec": {**published, "devices": [{"name": "gpu-0"}]},
        }
    ]
    state = cluster_state.Reader("cluster").state(cluster_state.Listing(slices=slices, claims=[held, lost, claim("new"), ending]))
    assert state.problem == ""
    assert {row.claim: (row.state, [device.device for device in row.devices]) for row in state.claims} == {
        "team-a/held": ("allocated", ["gpu-0"]),
        "team-a/lost": ("allocated", ["gpu-0"]),
        "team-a/new": ("waiting", []),
        "team-a/ending": ("deleting", []),
    }
    assert [row.name for row in state.waiting] == ["team-a/new"]


def slices_of(nodes: str) -> list[Any]:
    """The slice of each node, with one device."""
    return [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {
                "driver": "d",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a"}],
            },
        }
        for name in nodes
    ]


def test_a_node_says_that_it_is_cordoned_or_not_ready() -> None:
    unknown = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]
    nodes: list[Any] = [
        {"kind": "Node", "metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": {"conditions": unknown}},
        {"kind": "Node", "metadata": {"name": "m"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ]
    slices = slices_of("nm")
    state = cluster_state.Reader("cluster").state(cluster_state.Listing(slices=slices, nodes=nodes))
    assert {node.name: node.notes for node in state.nodes} == {
        "m": (),
        "n": ("cordoned", "not ready: Kubelet stopped posting node status."),
    }
    (free,) = state.free
    assert (free.unused, free.total, free.closed) == (1, 2, 1), "no pod can start on the other node"


def test_pools_that_did_not_change_are_not_made_again() -> None:
    spec: Any = {
        "driver": "d",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "a"}],
    }
    published: Any = {"kind": "ResourceSlice", "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"}, "spec": spec}
    reader = cluster_state.Reader("cluster")
    first = reader.state(cluster_state.Listing(slices=[published])).nodes[0].pools[0]
    assert reader.state(cluster_state.Listing(slices=[published])).nodes[0].pools[0] is first
    changed: Any = {**published, "spec": {**spec, "devices": [{"name": "a"}, {"name": "b"}]}}
    assert len(reader.state(cluster_state.Listing(slices=[changed])).nodes[0].pools[0].others) == 2


def down(state: model.State) -> dict[str, list[str]]:
    return {node.name: [pool.note for pool in node.pools if pool.is_down] for node in state.nodes}


def test_a_node_whose_driver_lost_its_slices_stays_and_is_unhealthy() -> None:
    slices = slices_of("nm")
    nodes: list[Any] = [{"kind": "Node", "metadata": {"name": name}} for name in "nmo"]
    reader = cluster_state.Reader("cluster")
    assert down(reader.state(cluster_state.Listing(slices=slices, nodes=nodes), at="1")) == {"m": [], "n": []}
    for at in ("2", "3"):
        state = reader.state(cluster_state.Listing(slices=slices[:1], nodes=nodes), at=at)
        assert down(state) == {"m": ["no slices of d since 2; check that its driver runs on this node"], "n": []}
        assert {node.name: sum(pool.unwell for pool in node.pools) for node in state.nodes} == {"m": 1, "n": 0}
    assert down(reader.state(cluster_state.Listing(slices=slices, nodes=nodes), at="4")) == {"m": [], "n": []}
    gone = reader.state(cluster_state.Listing(slices=slices[:1], nodes=nodes[:1]), at="5")
    assert down(gone) == {"n": []}, "a node that left the cluster is not shown"


def test_a_node_is_shown_whose_claims_have_devices_of_a_driver_without_slices() -> None:
    allocation = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n", "device": "gpu-0"}]}}
    held = claim("held", allocation=allocation)
    held["metadata"]["uid"] = "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
    nodes: list[Any] = [{"kind": "Node", "metadata": {"name": name}} for name in "nm"]
    reader = cluster_state.Reader("cluster")
    state = reader.state(cluster_state.Listing(claims=[held], nodes=nodes))
    assert down(state) == {"n": ["no slices of d, and claims have devices of it; check that its driver runs on this node"]}
    assert [(row.claim, row.node) for row in state.claims] == [("team-a/held", "n")]
    ((pool,),) = (node.pools for node in state.nodes)
    assert [(device.name, [use.claim for use in device.uses]) for device in pool.unpublished] == [("gpu-0", ["team-a/held"])]
    (total,) = state.namespaces
    assert (total.devices, total.memory, total.not_counted) == ({}, 0, 1)
    lines = [line.text for line in text.lines(state, now=real_clock.RealClock().now(), width=None)]
    assert lines[1] == "waiting 0 pods  unhealthy 1  not counted 1 device or share without slices  1 claim"
    assert "  team-a:  1 device or share not counted" in lines
    assert any(line.startswith("    gpu-0  claim team-a/held  ") for line in lines)
    assert down(reader.state(cluster_state.Listing(nodes=nodes))) == {}
