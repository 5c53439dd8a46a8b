"""``drakit free`` says what is free by type and node, what fits together, and names what is not counted; its exit status says whether anything is."""

import json
import pathlib
import re
from typing import Any

import pytest
import yaml

from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Object
from fakes import command_line, stub_api


def resource_slice(*devices: object, name: str = "s-0", **spec: object) -> dict[str, object]:
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "dev.example.com",
            "nodeName": "node-1",
            "pool": pool,
            **({"devices": list(devices)} if devices else {}),
            **spec,
        },
    }


def device(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "attributes": {"type": {"string": "card"}}, **fields}


def claim(name: str, device_name: str = "", **metadata: object) -> dict[str, object]:
    made: dict[str, object] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "demo", "uid": f"uid-{name}", **metadata},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "card"}}]}},
    }
    if device_name:
        result = {"request": "r", "driver": "dev.example.com", "pool": "node-1", "device": device_name}
        made["status"] = {"allocation": {"devices": {"results": [result]}}}
    return made


def write(shell: command_line.CommandLine, *objects: object) -> str:
    file = shell.folder / "objects.yaml"
    file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    return str(file)


def asked(shell: command_line.CommandLine, *objects: object) -> dict[str, Any]:
    """Return the answer as JSON."""
    ran = shell.run("free", write(shell, *objects), "-o", "json")
    answer: dict[str, Any] = json.loads(ran.out)
    return answer


def fits(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return how many of each type fit, and of how many."""
    return {row["type"]: (row["fits"], row["of"]) for row in answer["types"]}


def test_a_mock_machine_has_what_its_prepared_claims_leave(shell: command_line.CommandLine) -> None:
    partition = command_line.mig("gpu-0-mig-1g5gb-me-20-0")
    assert shell.on_node("prepare", shell.claim_file(partition, command_line.share("30G"))).status == 0
    ran = shell.on_node("free")
    assert ran.status == 0
    rows = {" ".join(line.split()) for line in ran.out.splitlines()}
    assert {"== gpu.drakit.dev: NVIDIA A100-SXM4-40GB", "1g.5gb+me 1 of 2", "1g.5gb 13 of 14"} <= rows
    assert {"== nic.drakit.dev: nic 100G", "physical shared 2 of 2 1700 bandwidth 170G of 200G"} <= rows
    assert "node-1 1 x gpu, 1 x 3g.20gb, 1 x 2g.10gb, 1 x 1g.5gb; or 13 x 1g.5gb" in rows


def test_a_mock_machine_has_the_settings_of_options_and_of_a_file(shell: command_line.CommandLine) -> None:
    layouts = [{"match": "gpu-*", "partitions": {"3g.20gb": 1, "1g.5gb": 3}}]
    file = shell.folder / "settings.yaml"
    file.write_text(yaml.dump({"gpu": {"mig_layouts": layouts}}, Dumper=yaml.CSafeDumper))
    for given in (("--set", f"gpu.mig_layouts={json.dumps(layouts)}"), ("--config", str(file))):
        ran = shell.run("free", "--mock", "dgx-a100-40gb-2gpu", *given, "-o", "json")
        assert {kind: of for kind, (_, of) in fits(json.loads(ran.out)).items() if "g." in kind} == {"3g.20gb": 2, "1g.5gb": 6}


def test_the_allocators_view_of_a_node_is_what_show_says_of_it(shell: command_line.CommandLine) -> None:
    given = [command_line.mig("gpu-0-mig-3g20gb-9-0"), command_line.mig("gpu-1-mig-2g10gb-14-4", request="other")]
    assert shell.on_node("prepare", shell.claim_file(*given)).status == 0
    (shown, _) = json.loads(shell.on_node("show", "-o", "json").out)
    (node,) = json.loads(shell.on_node("free", "-o", "json").out)["nodes"]
    boards = {board["name"]: board for board in node["boards"] if board["driver"] == "gpu.drakit.dev"}
    assert boards.keys() == shown["fitting"].keys()
    for name, board in boards.items():
        assert board["together"] == shown["fitting"][name]["together"]
        assert {kind: count for kind, count in board["alone"].items() if count} == {
            kind: count for kind, count in shown["fitting"][name]["alone"].items() if count
        }


def test_taints_of_drivers_and_of_rules_are_named_with_their_devices(shell: command_line.CommandLine) -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1alpha3",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": {"device": "c"}, "taint": {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}},
    }
    harmless = {"key": "example.com/note", "effect": "None"}
    tainted = {"key": "example.com/hot", "effect": "NoSchedule"}
    devices = [device("a", taints=[harmless]), device("b", taints=[tainted, harmless]), device("c")]
    file = write(shell, resource_slice(*devices), rule)
    assert fits(json.loads(shell.run("free", file, "-o", "json").out)) == {"card": (1, 3)}
    said = shell.run("free", file).out
    assert "node-1: 1 device tainted example.com/hot:NoSchedule (b)" in said
    assert "node-1: 1 device tainted example.com/broken=yes:NoExecute (c)" in said


def test_an_incomplete_pool_is_not_free_and_is_named(shell: command_line.CommandLine) -> None:
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 2}
    ran = shell.run("free", write(shell, resource_slice(device("a"), pool=pool)))
    assert ran.status == 1
    assert "There is no device." in ran.out
    assert "node-1: pool dev.example.com/node-1 is incomplete: 1 of 2 slices of generation 1" in ran.out


def test_claims_that_wait_are_named(shell: command_line.CommandLine) -> None:
    objects = resource_slice(device("a"), device("b")), claim("held", "a"), claim("waiting")
    answer = asked(shell, *objects)
    assert (fits(answer), answer["pending"]) == ({"card": (1, 2)}, ["demo/waiting"])
    assert "1 claim without devices may take some first: demo/waiting" in shell.run("free", write(shell, *objects)).out


def test_nothing_free_is_status_1(shell: command_line.CommandLine) -> None:
    ran = shell.run("free", write(shell, resource_slice(device("a")), claim("c", "a")))
    assert (ran.status, "card  0 of 1" in ran.out, "nothing" in ran.out) == (1, True, True)


def test_shares_count_requests_for_the_default_and_what_is_left(shell: command_line.CommandLine) -> None:
    policy = {"default": "10", "validRange": {"min": "1"}}
    shared = device("a", allowMultipleAllocations=True, capacity={"units": {"value": "64", "requestPolicy": policy}})
    free = device("b", allowMultipleAllocations=True)
    holder = claim("c", "a")
    holder["status"]["allocation"]["devices"]["results"][0] |= {  # type: ignore[index]  # what the claim is made of
        "shareID": "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c",
        "consumedCapacity": {"units": "50"},
    }
    (one,) = asked(shell, resource_slice(shared), holder)["types"]
    assert (one["fits"], one["shares"], one["capacity"]) == (1, 1, {"units": {"free": "14", "of": "64"}})
    (_, unlimited) = asked(shell, resource_slice(shared, free), holder)["types"]
    assert (unlimited["fits"], unlimited["shares"]) == (1, None)
    assert "any number" in shell.run("free", write(shell, resource_slice(free))).out


def test_a_share_smaller_than_the_default_may_still_fit_and_is_shown(shell: command_line.CommandLine) -> None:
    policy = {"default": "40", "validRange": {"min": "1"}}
    shared = device("a", allowMultipleAllocations=True, capacity={"units": {"value": "64", "requestPolicy": policy}})
    holder = claim("c", "a")
    holder["status"]["allocation"]["devices"]["results"][0] |= {  # type: ignore[index]  # what the claim is made of
        "shareID": "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c",
        "consumedCapacity": {"units": "40"},
    }
    (row,) = asked(shell, resource_slice(shared), holder)["types"]
    assert (row["fits"], row["shares"], row["capacity"]) == (0, 0, {"units": {"free": "24", "of": "64"}})


def test_a_pool_of_several_nodes_is_counted_once(shell: command_line.CommandLine) -> None:
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    everywhere = resource_slice(device("a"), device("b"), name="s-1", pool=pool)
    everywhere["spec"] = {key: value for key, value in everywhere["spec"].items() if key != "nodeName"} | {"allNodes": True}  # type: ignore[attr-defined]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}} for number in (1, 2)]
    answer = asked(shell, resource_slice(device("c")), everywhere, *nodes)
    assert fits(answer) == {"card": (3, 3)}
    assert [(node["name"], len(node["boards"])) for node in answer["nodes"]] == [("node-1", 1), ("node-2", 0), ("", 2)]


def test_a_cordoned_node_is_named_and_equal_nodes_are_listed_together(shell: command_line.CommandLine) -> None:
    slices = []
    for number in range(5):
        pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
        slices.append(resource_slice(device("a"), name=f"s-{number}", nodeName=f"node-{number}", pool=pool))
    nodes: list[dict[str, object]] = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}} for number in range(5)]
    nodes[4]["spec"] = {"unschedulable": True}
    said = shell.run("free", write(shell, *slices, *nodes)).out
    assert "node-0, node-1, node-2 and 1 more" in said
    assert "node-4: cordoned: new pods do not come here, so its devices are not free" in said
    assert re.search(r"^node-4 +nothing \(cordoned\)$", said, re.MULTILINE)
    assert re.search(r"^card +4 of 5 +4 +1$", said, re.MULTILINE)


def test_nothing_is_free_on_nodes_that_are_cordoned_or_not_ready(shell: command_line.CommandLine) -> None:
    shared = device("b", allowMultipleAllocations=True, capacity={"units": {"value": "64"}})
    away = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    node: dict[str, object] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": away}
    ran = shell.run("free", write(shell, resource_slice(device("a"), shared), node), "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.status, [row["fits"] for row in answer["types"]], [row["of"] for row in answer["types"]]) == (1, [0, 0], [1, 1])
    assert answer["types"][1]["capacity"] == {"units": {"free": "0", "of": "64"}}
    assert answer["nodes"][0]["notes"] == ["not ready: new pods do not come here, so its devices are not free"]


@pytest.mark.parametrize("cordoned", [0, 1])
def test_a_pool_of_several_nodes_is_free_while_one_of_them_takes_pods(shell: command_line.CommandLine, cordoned: int) -> None:
    everywhere = resource_slice(device("a"), pool={"name": "fabric", "generation": 1, "resourceSliceCount": 1})
    everywhere["spec"] = {key: value for key, value in everywhere["spec"].items() if key != "nodeName"} | {"allNodes": True}  # type: ignore[attr-defined]
    nodes: list[dict[str, object]] = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}} for number in (0, 1)]
    nodes[cordoned]["spec"] = {"unschedulable": True}
    assert fits(asked(shell, everywhere, *nodes)) == {"card": (1, 1)}


def test_slices_of_a_node_that_does_not_exist_do_not_count_and_are_named(shell: command_line.CommandLine) -> None:
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}}
    ran = shell.run("free", write(shell, resource_slice(device("a")), other))
    assert (ran.status, "node-1: there is no node of this name, so its slices do not count" in ran.out) == (1, True)


def test_taints_of_nodes_and_drivers_without_slices_are_named(shell: command_line.CommandLine) -> None:
    taints = [{"key": "gpu", "value": "only", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "spec": {"taints": taints}} for number in (1, 2)]
    result = {"request": "r", "driver": "dev.example.com", "pool": "node-2", "device": "a"}
    lost = claim("held") | {"status": {"allocation": {"devices": {"results": [result]}}}}
    said = shell.run("free", write(shell, resource_slice(device("a")), lost, *nodes)).out
    assert "node-1, node-2: has the taint gpu=only:NoSchedule: only pods that tolerate it get these devices" in said
    assert "node-2: no slices of dev.example.com, and claims have devices of it; check that its driver runs on this node" in said


def test_text_of_devices_reaches_the_terminal_without_control_characters(shell: command_line.CommandLine) -> None:
    hostile = device("a", attributes={"type": {"string": "card\x1b[31m"}, "productName": {"string": "GPU\x1b[31m\u202e"}})
    said = shell.run("free", write(shell, resource_slice(hostile))).out
    assert ("\x1b" in said, "\u202e" in said, "GPU" in said) == (False, False, True)


def test_only_the_chosen_node_is_counted(shell: command_line.CommandLine) -> None:
    pool = {"name": "node-2", "generation": 1, "resourceSliceCount": 1}
    other = resource_slice(device("a"), device("b"), name="s-1", nodeName="node-2", pool=pool)
    ran = shell.run("free", write(shell, resource_slice(device("a")), other), "--node", "node-2", "-o", "yaml")
    assert fits(yaml.load(ran.out, Loader=yaml.CSafeLoader)) == {"card": (2, 2)}
    ran = shell.run("free", str(shell.folder / "objects.yaml"), "--node", "node-1", "--node", "node-2", "-o", "json")
    assert fits(json.loads(ran.out)) == {"card": (3, 3)}


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "there are no devices; add --live, --mock MACHINE, or FILE"),
    "unknown machine": (("--mock", "dgx-z9"), "dgx-z9"),
    "mock and files": (("--mock", command_line.MACHINE, "-"), "--mock is a node of its own; leave it out with --live and with files"),
    "two mock nodes": (("--mock", command_line.MACHINE, "--node", "a", "--node", "b"), "--node: a mock machine is one node, not a and b"),
    "no file": (("-f", "/no/such/file"), "/no/such/file: cannot be read"),
    "no cluster": (("--kubeconfig", "/no/such/kubeconfig"), "/no/such/kubeconfig"),
    "unknown gate": (("--mock", command_line.MACHINE, "--gate", "DRAFoo=true"), "unknown feature gates DRAFoo"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_status_2_and_one_line(shell: command_line.CommandLine, arguments: tuple[str, ...], message: str) -> None:
    ran = shell.run("free", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("drakit: ")
    assert message in ran.err


def test_an_unknown_node_is_status_2(shell: command_line.CommandLine) -> None:
    ran = shell.run("free", write(shell, resource_slice(device("a"))), "--node", "node-9")
    assert (ran.status, "--node: no node 'node-9'; did you mean node-1?" in ran.err) == (2, True)


def test_a_live_cluster_is_read_and_its_claims_in_deletion_still_hold_devices(
    shell: command_line.CommandLine, tmp_path: pathlib.Path
) -> None:
    memory = registry.Registry()
    memory.create(resources.SLICE, as_object(resource_slice(device("a"), device("b"))))
    memory.create(resources.NAMESPACE, {"metadata": {"name": "demo"}})
    kept = as_object(claim("held", finalizers=["resource.kubernetes.io/delete-protection"]))
    made = memory.create(resources.CLAIM, kept, namespace="demo")
    allocation: Object = {"allocation": as_object(claim("held", "b"))["status"]["allocation"]}  # type: ignore[index,call-overload]
    memory.update(resources.CLAIM, {**made, "status": allocation}, subresource="status")
    memory.delete(resources.CLAIM, "held", namespace="demo")
    with apiserver.ApiServer(memory) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        live = ("free", "--live", "--kubeconfig", str(kubeconfig))
        ran, said = shell.run(*live, "-o", "json"), shell.run(*live).out
    answer = json.loads(ran.out)
    assert (ran.status, fits(answer), answer["deleting"]) == (0, {"card": (1, 2)}, ["demo/held"])
    assert "1 claim in deletion still holds devices: demo/held" in said


@pytest.mark.parametrize("version", stub_api.RULES)
@pytest.mark.parametrize("status, count, certain", [(200, 1, True), (403, 2, False)])
def test_taint_rules_of_every_version_count_or_their_absence_is_named(
    shell: command_line.CommandLine, version: str, status: int, count: int, *, certain: bool
) -> None:
    rule: Object = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "a"}, "taint": {"key": "example.com/broken", "effect": "NoSchedule"}},
    }
    objects = {"resourceslices": [as_object(resource_slice(device("a"), device("b")))], "devicetaintrules": [rule]}
    statuses = {"devicetaintrules": status} if status != 200 else {}
    with stub_api.serving(stub_api.StubApi(version=version, objects=objects, statuses=statuses), shell.folder) as kubeconfig:
        ran = shell.run("free", "--kubeconfig", str(kubeconfig), "-o", "json")
        said = shell.run("free", "--kubeconfig", str(kubeconfig)).out
    answer = json.loads(ran.out)
    assert (fits(answer), answer.get("certain", True)) == ({"card": (count, 2)}, certain)
    assert ("warning: this answer may be wrong: devicetaintrules may not be listed (403)" in said) is not certain


def as_object(value: dict[str, object]) -> Object:
    made: Object = json.loads(json.dumps(value))
    return made
