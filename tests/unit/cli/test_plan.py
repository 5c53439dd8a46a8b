"""``drakit plan`` says which nodes to add or which claims to move, whether fewer would do, and why."""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from fakes import command_line, stub_api
from fakes import simulated_fleets as fleets

SMALL = "dgx-a100-40gb-2gpu"


def cluster(folder: pathlib.Path, devices: tuple[str, ...]) -> str:
    """Write what kubectl shows of one node on which each of some devices has a claim."""
    items: list[object] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **one} for one in fleets.slices_of(SMALL, "node-1")
    ]
    for number, device in enumerate(devices):
        selector = {"cel": {"expression": f'device.attributes["{fleets.GPU}"].profile == "1g.5gb"'}}
        request = {"name": "r", "exactly": {"deviceClassName": "mig.drakit.dev", "selectors": [selector]}}
        result = {"request": "r", "driver": fleets.GPU, "pool": "node-1", "device": device}
        items.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"held-{number}", "namespace": "default", "uid": f"u-{number}"},
                "spec": {"devices": {"requests": [request]}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }
        )
    file = folder / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


def test_the_least_number_of_nodes_is_shown_with_its_proof(shell: command_line.CommandLine) -> None:
    result = shell.run("plan", "--ask", "mig=3g.20gb:9", "--buy", SMALL, "--why")
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    assert lines[:3] == [
        f"9 pods: add 3 {SMALL} (the fewest)",
        "verified: a simulation with first fit places 9 pods",
        "why: with 2 instead of 3: there are 9 pods of mig=3g.20gb, but at most 8 fit on the nodes",
    ]
    assert sum("gpu.drakit.dev/gpu-" in line for line in lines) == 9


def test_a_document_has_nodes_placements_and_certainty(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    (tmp_path / "w.csv").write_text("name,template,gang,arrival\ntrain,gpu=2,2,1h\n")
    found = json.loads(shell.run("plan", "-w", str(tmp_path / "w.csv"), "--buy", SMALL, "-m", SMALL, "-o", "json").out)
    assert (found["possible"], found["exact"], found["nodes"]) == (True, True, [{"machine": SMALL, "count": 1}])
    assert [(one["pod"], one["node"]) for one in found["placements"]] == [
        ("train #1", f"{SMALL}-0000"),
        ("train #2", f"new-{SMALL}-0000"),
    ]


def test_the_move_that_makes_room_is_shown(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = cluster(tmp_path, ("gpu-0-mig-1g5gb-19-6", "gpu-1-mig-1g5gb-19-0"))
    result = shell.run("plan", "-f", file, "--ask", "gpu=1", "--move", "--why")
    assert result.status == 0, result.err
    assert result.out.startswith("1 pod: move 1 pod or claim (the fewest)\nverified: ")
    assert "why: gpu=1 fits on an empty node, but other pods use the devices that it needs on every node" in result.out
    found = json.loads(shell.run("plan", "-f", file, "--ask", "gpu=1", "--move", "-o", "json").out)
    (move,) = found["moves"]
    assert found["verified"] is True
    needed = shell.run("plan", "-f", file, "--ask", "gpu=1", "--buy", SMALL, "--why").out
    assert "why: without it: gpu=1 has no place on the nodes" in needed.splitlines()
    assert move["from"]["devices"] != move["to"]["devices"]
    assert found["placements"][0]["pod"] == "gpu=1"


def test_the_search_ends_after_the_most_moves_that_are_allowed(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    fleet = cluster(tmp_path, ("gpu-0-mig-1g5gb-19-6", "gpu-1-mig-1g5gb-19-6"))
    question = ("plan", "-f", fleet, "--ask", "gpu=1", "--move", "--max-moves")
    assert shell.run(*question, "0").out == "1 pod: no plan with at most 0 moves makes room\n"
    assert shell.run(*question, "1").out.startswith("1 pod: move 1 pod or claim (the fewest)\n")
    wrong = shell.run("plan", "--ask", "gpu=1", "--buy", SMALL, "--max-moves", "1")
    assert (wrong.status, wrong.err) == (2, "drakit: --max-moves limits the search of --move; leave it out with --buy\n")


def test_cordoned_nodes_are_named_as_a_reason(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = cluster(tmp_path, ())
    objects = json.loads(pathlib.Path(file).read_text())
    objects["items"].append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "spec": {"unschedulable": True}})
    pathlib.Path(file).write_text(json.dumps(objects))
    bought = shell.run("plan", "-f", file, "--ask", "gpu=1", "--buy", SMALL, "--why")
    assert "no pod goes to 1 cordoned node: node-1" in bought.out.splitlines()
    moved = shell.run("plan", "-f", file, "--ask", "gpu=1", "--move", "--why")
    assert "gpu=1 fits on no node, even an empty one: the node is cordoned" in moved.out


def two_nodes(folder: pathlib.Path, held: Sequence[tuple[str, str, str]]) -> str:
    """Write two nodes of two GPUs, on which each claim has a device: name of its pod, node, device."""
    items: list[object] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **entry}
        for node in ("node-1", "node-2")
        for entry in fleets.slices_of(SMALL, node)
    ]
    for number, (pod, node, device) in enumerate(held):
        driver, device_class = (fleets.NIC, "nic.drakit.dev") if device.startswith("pci") else (fleets.GPU, "gpu.drakit.dev")
        result = {"request": "r", "driver": driver, "pool": node, "device": device}
        items.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u-{number}"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}},
                "status": {
                    "allocation": {"devices": {"results": [result]}},
                    "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
                },
            }
        )
    file = folder / "two.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


def test_pods_of_a_drained_node_get_devices_on_other_nodes(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = two_nodes(tmp_path, [("a", "node-1", "gpu-0"), ("a", "node-1", "pci-0000-0c-00-0"), ("b", "node-2", "gpu-0")])
    result = shell.run("plan", "-f", file, "--drain", "node-1")
    assert result.status == 0, result.err
    assert result.out.splitlines()[:2] == [
        "1 pod of node-1: all fit on other nodes; no other pod has to move",
        "verified: in a simulation, every pod gets its devices",
    ]
    both = shell.run("plan", "-f", file, "--drain", "node-1", "--drain", "node-2", "--buy", SMALL, "--why")
    assert both.out.startswith(f"2 pods of node-1 and node-2: add 1 {SMALL} (the fewest)\n")
    assert "cordoned" not in both.out
    (placed,) = json.loads(shell.run("plan", "-f", file, "--drain", "node-1", "-o", "json").out)["placements"]
    assert (placed["pod"], placed["node"]) == ("pod default/a", "node-2")
    assert len(placed["devices"]) == 2, "the claims of one pod stay together"


def test_pods_of_a_drained_node_that_have_no_place_are_named(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = two_nodes(tmp_path, [("a", "node-1", "gpu-0"), ("b", "node-1", "gpu-1"), ("c", "node-2", "gpu-0")])
    result = shell.run("plan", "-f", file, "--drain", "node-1")
    assert result.status == 1
    assert result.out.splitlines()[:2] == [
        "2 pods of node-1: no moves make room",
        "if no other pod moves, 1 of 2 fit elsewhere; without a place: pod default/b",
    ]
    assert json.loads(shell.run("plan", "-f", file, "--drain", "node-1", "-o", "json").out)["withoutAPlace"] == ["pod default/b"]
    assert shell.run("plan", "-f", file, "--drain", "node-1", "--buy", SMALL).out.startswith(f"2 pods of node-1: add 1 {SMALL} (")


def test_a_drain_finds_an_order_with_more_places_and_names_what_takes_the_rest(
    shell: command_line.CommandLine, tmp_path: pathlib.Path
) -> None:
    def needs_two(items: list[Object]) -> None:
        held_of(items, "c0")["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2

    file = changed(two_nodes(tmp_path, [("big", "node-1", "gpu-0"), ("b", "node-1", "gpu-1"), ("c", "node-1", "gpu-1")]), needs_two)
    result = shell.run("plan", "-f", file, "--drain", "node-1", "--why")
    lines = result.out.splitlines()
    assert lines[1] == "if no other pod moves, 2 of 3 fit elsewhere; without a place: pod default/big"
    assert lines[2].endswith("it needs on every node: pod default/b (moved before it), pod default/c (moved before it)")


def test_a_node_without_claims_has_nothing_to_move(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = two_nodes(tmp_path, [("c", "node-2", "gpu-0")])
    result = shell.run("plan", "-f", file, "--drain", "node-1")
    assert (result.status, result.out) == (0, "no pod or claim has devices on node-1, so nothing has to move\n"), result.err
    wrong = shell.run("plan", "-f", file, "--drain", "node-9")
    assert (wrong.status, wrong.err) == (2, "drakit: --drain: no node 'node-9'; did you mean node-2?\n")
    both = shell.run("plan", "-f", file, "--drain", "node-1", "--ask", "gpu=1")
    assert (both.status, both.err) == (2, "drakit: --drain asks for the pods of a node; leave out --ask and --workload\n")


def changed(file: str, change: Callable[[list[Object]], None]) -> str:
    """Change the objects of a file."""
    listed = json.loads(pathlib.Path(file).read_text())
    change(listed["items"])
    pathlib.Path(file).write_text(json.dumps(listed))
    return file


def held_of(items: list[Object], name: str) -> Any:
    (found,) = [entry for entry in items if json_types.text(entry, "metadata", "name") == name]
    return found


@pytest.mark.parametrize("how", [("--move",), ("--buy", SMALL)])
def test_a_drain_is_refused_where_a_pool_serves_several_nodes(
    shell: command_line.CommandLine, tmp_path: pathlib.Path, how: tuple[str, ...]
) -> None:
    def for_all_nodes(items: list[Object]) -> None:
        spec: Object = {"driver": "net.example.com", "allNodes": True, "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1}}
        spec["devices"] = [{"name": "nic"}]
        items.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "net"}, "spec": spec})
        held_of(items, "c0")["status"]["allocation"]["devices"]["results"][0] |= {
            "driver": "net.example.com",
            "pool": "net",
            "device": "nic",
        }

    file = changed(two_nodes(tmp_path, [("a", "node-1", "gpu-0")]), for_all_nodes)
    result = shell.run("plan", "-f", file, "--drain", "node-1", *how)
    assert (result.status, result.out) == (2, "")
    assert result.err == "drakit: --drain: moves cannot be planned if a pool offers devices to several nodes\n"


@pytest.mark.parametrize("how, more", [((), {"moves": [], "withoutAPlace": []}), (("--buy", SMALL), {"nodes": []})])
def test_a_node_with_nothing_to_move_is_an_empty_document(
    shell: command_line.CommandLine, tmp_path: pathlib.Path, how: tuple[str, ...], more: dict[str, object]
) -> None:
    file = two_nodes(tmp_path, [("c", "node-2", "gpu-0")])
    result = shell.run("plan", "-f", file, "--drain", "node-1", *how, "-o", "json")
    assert (result.status, result.err) == (0, "")
    waits = shell.run("plan", "-f", file, *(how or ("--move",)))
    assert (waits.status, waits.out.partition(";")[0]) == (0, "no pod and no claim waits for devices"), waits.err
    found = json.loads(result.out)
    expected = {"possible": True, "exact": True, "placements": [], **more}
    assert {name: found[name] for name in expected} == expected


def test_admin_access_alone_does_not_move_but_goes_with_the_pods_other_claims(
    shell: command_line.CommandLine, tmp_path: pathlib.Path
) -> None:
    def watch(items: list[Object]) -> None:
        claim = held_of(items, "c0")
        claim["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
        claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        labels: Object = {"resource.kubernetes.io/admin-access": "true"}
        items.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}})

    file = changed(two_nodes(tmp_path, [("monitor", "node-1", "gpu-0")]), watch)
    result = shell.run("plan", "-f", file, "--drain", "node-1")
    assert (result.status, result.out) == (0, "no pod or claim has devices on node-1, so nothing has to move\n"), result.err
    file = changed(two_nodes(tmp_path, [("a", "node-1", "gpu-0"), ("a", "node-1", "gpu-1")]), watch)
    (placed,) = json.loads(shell.run("plan", "-f", file, "--drain", "node-1", "-o", "json").out)["placements"]
    assert (placed["pod"], placed["node"], len(placed["devices"])) == ("pod default/a", "node-2", 2)


def test_pods_of_a_daemon_set_stay_and_are_named(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    def of_daemon_set(items: list[Object]) -> None:
        owner: Object = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
        head: Object = {"name": "agent-1", "namespace": "default", "uid": "agent-1", "ownerReferences": [owner]}
        spec: Object = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec})

    said = "a drain does not end pods of a DaemonSet; on node-1 stay: pod default/agent-1"
    alone = changed(two_nodes(tmp_path, [("agent-1", "node-1", "gpu-0")]), of_daemon_set)
    result = shell.run("plan", "-f", alone, "--drain", "node-1")
    assert (result.status, result.out) == (0, f"nothing has to move from node-1\n{said}\n"), result.err
    both = changed(two_nodes(tmp_path, [("agent-1", "node-1", "gpu-0"), ("a", "node-1", "gpu-1")]), of_daemon_set)
    lines = shell.run("plan", "-f", both, "--drain", "node-1").out.splitlines()
    assert lines[0] == "1 pod of node-1: all fit on other nodes; no other pod has to move"
    assert said in lines


def test_all_pods_of_a_claim_are_named_and_counted(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    def shared(items: list[Object]) -> None:
        held_of(items, "c0")["status"]["reservedFor"].append({"resource": "pods", "name": "b", "uid": "b"})

    held = [("a", "node-1", "gpu-0"), ("b", "node-1", "pci-0000-0c-00-0"), ("c", "node-2", "gpu-0")]
    fits = changed(two_nodes(tmp_path, held), shared)
    assert shell.run("plan", "-f", fits, "--drain", "node-1").out.startswith("2 pods of node-1: all fit on other nodes")
    (placed,) = json.loads(shell.run("plan", "-f", fits, "--drain", "node-1", "-o", "json").out)["placements"]
    assert (placed["pod"], len(placed["devices"])) == ("pods default/a, default/b", 2), "pods that share a claim stay together"
    full = changed(two_nodes(tmp_path, [*held, ("d", "node-2", "gpu-1")]), shared)
    said = shell.run("plan", "-f", full, "--drain", "node-1").out.splitlines()[1]
    assert said == "if no other pod moves, 0 of 2 fit elsewhere; without a place: pods default/a, default/b"


def test_a_plan_obeys_the_node_selectors_of_the_pods_that_move(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    def pinned(selector: Object) -> Callable[[list[Object]], None]:
        def change(items: list[Object]) -> None:
            items.extend(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"host": name}}} for name in ("node-1", "node-2")
            )
            spec: Object = {"nodeSelector": selector, "containers": [{"name": "c", "image": "i"}]}
            head: Object = {"name": "a", "namespace": "default", "uid": "a"}
            items.append({"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": {**spec, "nodeName": "node-1"}})

        return change

    anywhere = changed(two_nodes(tmp_path, [("a", "node-1", "gpu-0")]), pinned({"host": "node-2"}))
    assert shell.run("plan", "-f", anywhere, "--drain", "node-1").out.startswith("1 pod of node-1: all fit on other nodes")
    held = [("a", "node-1", "gpu-0"), ("b", "node-1", "gpu-1"), ("c", "node-2", "gpu-0")]
    here = changed(two_nodes(tmp_path, held), pinned({"host": "node-1"}))
    result = shell.run("plan", "-f", here, "--drain", "node-1")
    assert (result.status, result.out.splitlines()[1]) == (
        1,
        "if no other pod moves, 1 of 2 fit elsewhere; without a place: pod default/a",
    )
    apart = changed(two_nodes(tmp_path, [("a", "node-1", "gpu-0"), ("b", "node-2", "gpu-0")]), pinned({"host": "node-1"}))
    (move,) = json.loads(shell.run("plan", "-f", apart, "--ask", "gpu=2", "--move", "-o", "json").out)["moves"]
    assert (move["pod"], move["to"]["node"]) == ("pod default/b", "node-1")


def test_claims_of_a_driver_that_is_down_have_to_move_too(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    def without_slices(items: list[Object]) -> None:
        items[:] = [entry for entry in items if json_types.at(entry, "spec", "nodeName") != "node-1"]
        items.extend({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("node-1", "node-2"))

    file = changed(two_nodes(tmp_path, [("a", "node-1", "gpu-0")]), without_slices)
    result = shell.run("plan", "-f", file, "--drain", "node-1")
    assert (result.status, result.out.splitlines()[0]) == (0, "1 pod of node-1: all fit on other nodes; no other pod has to move")


def test_only_pods_without_a_place_are_explained(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    held = [("a", "node-1", "gpu-0"), ("b", "node-2", "gpu-0")]
    result = shell.run("plan", "-f", two_nodes(tmp_path, held), "--ask", "nic=10G", "--ask", "gpu=2", "--move", "--why")
    assert (result.status, result.out.splitlines()[0]) == (0, "2 pods: move 1 pod or claim (the fewest)"), result.err
    used = "other pods use the devices that it needs on every node: pod default/a, pod default/b"
    why = f"why: gpu=2 fits on an empty node, but {used}"
    assert [line for line in result.out.splitlines() if line.startswith("why: ")] == [why]


def test_an_impossible_plan_exits_with_status_1_and_the_reason(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    bought = shell.run("plan", "--ask", "gpu=3", "--buy", SMALL)
    assert bought.status == 1
    assert "1 pod: no number of nodes is enough" in bought.out
    moved = shell.run("plan", "-f", cluster(tmp_path, ("gpu-0-mig-1g5gb-19-6",)), "--ask", "gpu=3", "--move", "--why")
    assert moved.status == 1
    assert "no moves make room" in moved.out
    assert "gpu=3 fits on no node, even an empty one" in moved.out


def pending(name: str, device_class: str) -> Object:
    exactly: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def test_other_users_pending_claims_do_not_change_the_answer_to_what_was_asked(shell: command_line.CommandLine) -> None:
    waiting = [pending("broken", "gpu.nvidia.com"), pending("good", "gpu.drakit.dev")]
    api = stub_api.StubApi(version="1.36", objects={"resourceslices": fleets.slices_of(SMALL, "node-1"), "resourceclaims": waiting})
    with stub_api.serving(api, shell.folder) as kubeconfig:
        asked = shell.run("plan", "--kubeconfig", str(kubeconfig), "--ask", "gpu=1", "--move")
        unasked = shell.run("plan", "--kubeconfig", str(kubeconfig), "--move")
        document = json.loads(shell.run("plan", "--kubeconfig", str(kubeconfig), "--move", "-o", "json").out)
    assert (asked.status, asked.out.splitlines()[0]) == (0, "1 pod: the fleet has enough room; no move is needed")
    assert "claim" not in asked.out.replace("CLAIM", "")
    assert unasked.status == 1
    assert unasked.out.startswith("1 claim: the fleet has enough room; no move is needed")
    assert "\nclaim default/broken can never be allocated: request r: there is no DeviceClass gpu.nvidia.com" in unasked.out
    assert [never["claim"] for never in document["never"]] == ["claim default/broken"]
    assert [placed["pod"] for placed in document["placements"]] == ["claim default/good"]


def pod(name: str, claims: Sequence[str], **spec: Any) -> Object:
    """Return a pod that names claims."""
    named: list[Json] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    container: Object = {"name": "c", "image": "i"}
    head: Object = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": {"containers": [container], "resourceClaims": named, **spec}}


def test_a_waiting_pod_keeps_its_claims_together_where_its_node_selector_allows_it(
    shell: command_line.CommandLine, tmp_path: pathlib.Path
) -> None:
    def waiting(*pods: Object) -> Callable[[list[Object]], None]:
        def change(items: list[Object]) -> None:
            nodes: list[Object] = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("node-1", "node-2")]
            named = dict.fromkeys(entry["name"] for item in pods for entry in json_types.objects(item, "spec", "resourceClaims"))
            names = [str(name) for name in named if name != "c0"]
            items.extend([*nodes, *pods, *(pending(name, "gpu.drakit.dev") for name in names)])

        return change

    held = [("a", "node-1", "gpu-0"), ("b", "node-2", "gpu-0")]
    picky = changed(two_nodes(tmp_path, held), waiting(pod("picky", ["x"], nodeSelector={"pool": "h100"}), pod("any", ["y"])))
    for how in (("--move",), ("--buy", SMALL)):
        result = shell.run("plan", "-f", picky, *how)
        assert (result.status, result.out.splitlines()[0].partition(":")[0]) == (1, "1 pod"), result.err
        why = "the node lacks the labels pool=h100 of the pod's nodeSelector"
        assert result.out.splitlines()[-1] == f"pod default/picky can never be allocated: {why}"
    pair = changed(two_nodes(tmp_path, held), waiting(pod("pair", ["x", "y"])))
    assert shell.run("plan", "-f", pair, "--move").out.startswith("1 pod: move 1 pod or claim (the fewest)\n")
    assert shell.run("plan", "-f", pair, "--buy", SMALL).out.startswith(f"1 pod: add 1 {SMALL} (the fewest)\n")

    def bound(items: list[Object]) -> None:
        field: Object = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
        held_of(items, "c0")["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}

    sharing = changed(two_nodes(tmp_path, [("b", "node-2", "gpu-0")]), waiting(pod("shares", ["c0", "x"])))
    (place,) = json.loads(shell.run("plan", "-f", changed(sharing, bound), "--move", "-o", "json").out)["placements"]
    assert (place["pod"], place["node"]) == ("pod default/shares", "node-2")
    full = changed(two_nodes(tmp_path, [("b", "node-2", "gpu-0"), ("k", "node-2", "gpu-1")]), waiting(pod("shares", ["c0", "x"])))
    (move,) = json.loads(shell.run("plan", "-f", changed(full, bound), "--move", "-o", "json").out)["moves"]
    assert move["from"]["devices"] == ["gpu.drakit.dev/gpu-1"], "who uses the pod's own claim stays"


def test_a_pod_that_is_deleted_needs_no_place(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    held = json.loads(pathlib.Path(two_nodes(tmp_path, [("a", "node-1", "gpu-0")])).read_text())["items"]
    running = pod("a", ["c0"], nodeName="node-1")
    running["metadata"] = {**json_types.mapping(running, "metadata"), "deletionTimestamp": "2026-01-01T00:00:00Z"}
    objects = {
        "resourceslices": [entry for entry in held if entry["kind"] == "ResourceSlice"],
        "resourceclaims": [entry for entry in held if entry["kind"] == "ResourceClaim"],
        "pods": [running],
    }
    with stub_api.serving(stub_api.StubApi(version="1.36", objects=objects), shell.folder) as kubeconfig:
        result = shell.run("plan", "--kubeconfig", str(kubeconfig), "--drain", "node-1")
    said = "nothing has to move from node-1\nthese need no place, because they end already: pod default/a\n"
    assert (result.status, result.out.partition("warning:")[0]) == (0, said), result.err


def test_a_file_with_only_claims_that_fit_nowhere_has_no_plan(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "claim.json"
    file.write_text(json.dumps(pending("broken", "gpu.nvidia.com")))
    result = shell.run("plan", "-f", str(file), "--buy", SMALL)
    assert (result.status, result.out.splitlines()[0].partition(":")[0]) == (1, "claim default/broken can never be allocated")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--ask", "gpu=1"), "add either --buy MACHINE or --move"),
        (("--buy", SMALL), "there are no pods; add --ask TEMPLATE:COUNT"),
        ((), "add either --buy MACHINE or --move, and what needs room: --ask TEMPLATE:COUNT, --workload FILE, or -f FILE with claims"),
        (("--ask", "gpu=1", "--move"), "there are no nodes"),
        (("--ask", "large:2", "--buy", SMALL), "large: no template of this name"),
        (("--ask", "mig=3g.20gb:x", "--buy", SMALL), "--ask mig=3g.20gb:x: 'x' is no count; write TEMPLATE:COUNT with a count from 1 to"),
        (("--ask", "gpu=1:0", "--buy", SMALL), "--ask gpu=1:0: '0' is no count"),
        (("--ask", f"gpu=1:{'9' * 5000}", "--buy", SMALL), "is no count"),
        (
            ("--ask", "mig=3g", "--buy", SMALL),
            "mig=3g: no GPU of these nodes has MIG profile '3g'; they have 1g.10gb, 1g.5gb, 1g.5gb+me, 2g.10gb,",
        ),
        (
            ("--ask", "mig=3g.20gb+nic=1G", "--mock", "server-a30", "--move"),
            "no GPU of these nodes has MIG profile '3g.20gb'; they have 1g.6gb",
        ),
        (("--ask", "mig=1g.5gb", "--mock", "server-h100-pcie", "--buy", SMALL, "--move"), "add either --buy MACHINE or --move"),
    ],
)
def test_a_wrong_input_is_one_line_and_status_2(shell: command_line.CommandLine, arguments: tuple[str, ...], message: str) -> None:
    result = shell.run("plan", *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
