"""``drakit top`` shows in 80 columns what the dashboard shows: what waits and why, what fits, and who uses which part of a GPU."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import termios
from typing import Any

import pytest

from drakit_cluster.objects import resources
from drakit_tools.dashboard import model, text, unused
from fakes import cluster_dashboard, command_line

NOW = datetime.datetime(2026, 11, 29, 8, 30, tzinfo=datetime.UTC)
WAITS = model.Waiting(kind="Pod", name="team-a/llm", asks="2 x mig-3g.20gb", reason="0/2 nodes are available", since="2026-11-29T08:00:00Z")
USE = model.Use(claim="team-a/train-gpu", pods=("team-a/train-0",), since="2026-11-29T08:29:00Z")
XID = model.Taint(text="gpu.drakit.dev/xid=79:NoExecute", since="2026-11-29T08:25:00Z", rule="maintenance")
GPU = model.Gpu(
    name="gpu-0",
    width=8,
    spans=(
        model.Span(start=0, size=2, device="gpu-0-mig-2g10gb-14-0", kind="2g.10gb", uses=(USE,)),
        model.Span(start=2, size=1, device="gpu-0-mig-1g5gb-19-2", kind="1g.5gb", uses=(model.Use(claim="team-b/x"),)),
        model.Span(start=7, size=1),
    ),
    together=({"3g.20gb": 1}, {"1g.5gb": 4}),
    largest={"3g.20gb": 1},
    smallest={"1g.5gb": 4},
    alone={"3g.20gb": 1, "1g.5gb": 4},
    fragmented="",
    health=model.Health(state="Unhealthy", message="Xid 79", taints=(XID,)),
    facts=model.Facts(model="NVIDIA A100-SXM4-40GB", memory="39.2 GiB", uuid="GPU-df3da50f-034b-5f42-9298-bc73471dc324"),
    readings=model.Readings(utilization=0.37, memory_used=12.25 * 2**30, temperature=61.0, power=212.4, power_limit=400.0),
)
NIC = model.Nic(
    name="nic0",
    interface="eth1",
    capacity=100 * 10**9,
    shares=(model.Share(use=USE, share="s", amount=25 * 10**9),),
    health=model.Health(),
)


def node(name: str, *gpus: model.Gpu, notes: tuple[str, ...] = ()) -> model.Node:
    return model.Node(name=name, pools=(model.Pool(driver="gpu.drakit.dev", name=name, gpus=gpus, nics=(NIC,)),), notes=notes)


def state(*nodes: model.Node) -> model.State:
    return model.State(title="cluster", nodes=nodes, waiting=(WAITS,), free=unused.free(nodes))


def shown(seen: model.State, width: int | None = 80) -> list[str]:
    return [line.text for line in text.lines(seen, now=NOW, width=width)]


def test_what_waits_is_first_with_its_reason_and_its_age() -> None:
    lines = shown(state(node("node-1", GPU)))
    assert lines[1] == "waiting 1 pod  unhealthy 1  GPUs 1 of 1 in use (4 of 8 slices)  0 claims"
    assert lines[3:6] == ["WAITING", "  0/2 nodes are available", "    pod team-a/llm  2 x mig-3g.20gb  30m"]


def test_claims_that_no_pod_uses_are_listed_apart_and_do_not_count_as_waiting() -> None:
    alone = model.Waiting(kind=model.CLAIM, name="team-a/old", asks="1 x gpu", reason="there is no DeviceClass gpu")
    lines = shown(dataclasses.replace(state(node("node-1", GPU)), waiting=(WAITS, alone)))
    assert lines[1].startswith("waiting 1 pod  ")
    first = lines.index("CLAIMS THAT NO POD USES")
    assert first > lines.index("WAITING")
    assert lines[first + 1 : first + 3] == ["  there is no DeviceClass gpu", "    claim team-a/old  1 x gpu"]


def test_each_part_of_a_gpu_names_pod_namespace_profile_and_age() -> None:
    lines = shown(state(node("node-1", GPU)), None)
    assert "    A 2g.10gb  pod team-a/train-0  claim team-a/train-gpu  60s" in lines
    assert "    B 1g.5gb  claim team-b/x" in lines
    assert "  gpu-0 |AAAAAAAAA|BBBB|....|....|....|....|xxxx|" in lines
    sensors = "37% busy  12.2 GiB used  61 C  212 of 400 W"
    assert f"    NVIDIA A100-SXM4-40GB  39.2 GiB  {sensors}  GPU-df3da50f-034b-5f42-9298-bc73471dc324" in lines
    assert "    Unhealthy  taint gpu.drakit.dev/xid=79:NoExecute  5m  DeviceTaintRule maintenance  Xid 79" in lines
    assert "    still fits 1 x 3g.20gb; or 4 x 1g.5gb" in lines
    bar = lines.index("  nic0 [######..................]  bandwidth 75G of 100G free")
    assert lines[bar + 1] == "    eth1"
    assert "    bandwidth 25G  pod team-a/train-0  claim team-a/train-gpu  60s" in lines
    full = dataclasses.replace(NIC, shares=(dataclasses.replace(NIC.shares[0], amount=100 * 10**9),))
    pool = model.Pool(driver="nic.drakit.dev", name="node-1", nics=(full,))
    assert "  nic0 [########################]  bandwidth 0 of 100G free" in shown(state(model.Node(name="node-1", pools=(pool,))), None)


@pytest.mark.parametrize("number", [1, 100])
def test_no_line_is_wider_than_80_columns(number: int) -> None:
    nodes = [node(f"gpu-node-{place:03}", *(8 * [GPU]), notes=("cordoned",)) for place in range(number)]
    assert max(map(len, shown(state(*nodes)))) <= 80


def test_of_many_nodes_each_is_one_line_and_one_node_is_shown_whole() -> None:
    seen = state(*(node(f"node-{place}", GPU) for place in range(9)))
    assert shown(seen)[-1] == "node-8  4*  0 of 1 unused  unhealthy"
    assert "    A 2g.10gb  pod team-a/train-0  claim team-a/train-gpu  60s" in shown(text.only(seen, ["node-3"]))


def test_on_a_cordoned_node_nothing_fits_and_every_line_says_so() -> None:
    whole = dataclasses.replace(GPU, spans=(), health=model.Health())
    closed = dataclasses.replace(node("node-1", whole), notes=("cordoned",), pools=(unused.closed(node("node-1", whole).pools[0]),))
    lines = shown(text.only(state(closed), ["node-1"]))
    assert "  NVIDIA A100-SXM4-40GB: 0 of 1 unused (1 cordoned or not ready)" in lines
    assert "    nothing more fits (cordoned)" in lines
    assert "bandwidth 75G of 100G unused (cordoned)" in " ".join(lines)
    fleet = shown(state(*(dataclasses.replace(closed, name=f"node-{place}") for place in range(9))))
    assert fleet[-1] == "node-8   0  0 of 1 unused  cordoned"


def test_on_a_screen_what_waits_has_a_third_and_unhealthy_nodes_are_first() -> None:
    reasons = [f"0/9 nodes are available: {place} of them cannot allocate all claims, " + "and so on " * 12 for place in range(14)]
    rows = tuple(dataclasses.replace(WAITS, name=f"team-a/llm-{place}", reason=reason) for place, reason in enumerate(reasons))
    well = dataclasses.replace(GPU, health=model.Health())
    seen = dataclasses.replace(state(*(node(f"node-{place}", GPU if place == 7 else well) for place in range(9))), waiting=rows)
    found = [line.text for line in text.lines(seen, now=NOW, width=80, height=40)]
    first = next(place for place, line in enumerate(found) if line.startswith("NODE"))
    assert found[first + 1].startswith("node-7"), found
    assert found.index("") < found.index("STILL FITS") <= 3 + 40 // 3
    assert "  ... and 12 more (drakit allocate --live --why)" in found
    assert len([line for line in shown(seen) if "pod team-a/llm-" in line]) == 12


def test_the_page_shows_a_gpu_as_it_is_printed() -> None:
    page = pathlib.Path(__file__).parents[3] / "docs" / "howto" / "dashboard.md"
    well = dataclasses.replace(GPU, health=model.Health(), readings=model.Readings())
    printed = shown(state(node("node-1", well)))
    first = next(place for place, line in enumerate(printed) if "gpu-0 |" in line)
    assert "\n".join(printed[first : first + 5]) in page.read_text()


def test_names_from_outside_cannot_control_the_terminal() -> None:
    lines = shown(state(node("node-1", GPU, notes=("not ready: \x1b[2J",))))
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    "since, age",
    [
        ("2026-11-29T08:29:31.5Z", "28s"),
        ("2026-11-29T08:27:00Z", "3m"),
        ("2026-11-29T04:30:00Z", "4h"),
        ("2026-11-20T08:30:00Z", "9d"),
        ("", ""),
        ("2026-11-29T09:30:00Z", "0s"),
    ],
)
def test_ages_are_short(since: str, age: str) -> None:
    assert text.age(since, NOW) == age


def test_a_mock_node_is_printed_once_without_colours_where_there_is_no_terminal(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), name="train")).status == 0
    ended = shell.on_node("top")
    assert ended.status == 0
    assert "\x1b" not in ended.out
    assert "    A 3g.20gb  claim default/train" in ended.out.splitlines()
    document = json.loads(shell.on_node("top", "-o", "json").out)
    (span,) = document["nodes"][0]["pools"][0]["gpus"][0]["spans"]
    assert (span["kind"], span["uses"]) == ("3g.20gb", [{"claim": "default/train"}])


def test_a_cluster_is_listed_once_with_its_pods_that_wait(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        store, _ = stack.enter_context(cluster_dashboard.api_server(tmp_path))
        spec: Any = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "large"}]}
        pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        store.create(resources.POD, pod, namespace="default")
        ended = shell.run("top", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json")
        assert ended.status == 0, ended.err
        (row,) = json.loads(ended.out)["waiting"]
        assert (row["name"], row["reason"]) == ("default/p", "no scheduler has tried it yet")
        ended = shell.run("top", "--live", "--kubeconfig", str(tmp_path / "kubeconfig"), "--node", "none")
        assert (ended.status, ended.err) == (2, "drakit: --node: no node 'none' has devices; known are none\n")


def test_files_keep_the_ages_of_their_objects(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "a", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, deployment]}))
    ended = shell.run("top", str(tmp_path / "objects.json"), "-o", "json")
    (row,) = json.loads(ended.out)["waiting"]
    assert (row["name"], row["asks"], row["since"]) == ("a/c", "1 x gpu", "2020-01-01T00:00:00Z")
    assert "skipped: Deployment d" in ended.err


def test_two_sources_are_refused(shell: command_line.CommandLine) -> None:
    ended = shell.run("top", "--live", "--mock", command_line.MACHINE)
    assert (ended.status, ended.err) == (2, "drakit: --live, --mock and files exclude each other; choose one\n")


@pytest.mark.process
def test_on_a_terminal_it_refreshes_until_a_signal_and_restores_the_screen(tmp_path: pathlib.Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (12, 80))
    words = ["top", "--mock", command_line.MACHINE, "--node", "node-1", "--folder", str(tmp_path / "node"), "--interval", "0.5"]
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "drakit", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        written = b""
        while written.count(b"node node-1") < 2:
            written += os.read(ours, 65536)
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # The other end is closed.
            while piece := os.read(ours, 65536):
                written += piece
        assert running.wait() == 0
    os.close(ours)
    assert written.count(b"\x1b[?1049h") == 1
    assert b"\x1b[?1049l" in written
    assert re.search(rb"\d more lines; print all with --once, or one node with --node NAME", written)
    assert all(len(line.rstrip()) <= 80 for line in written.decode().splitlines() if "\x1b" not in line)
