"""``drakit simulate`` reads fleets and workloads, compares policies, and writes tables, documents and a page."""

import json
import pathlib

import pytest
import yaml

from fakes import command_line
from fakes import simulated_fleets as fleets

SAMPLES = pathlib.Path(__file__).parents[3] / "driver" / "drakit_tools" / "samples"
SMALL = ("simulate", "--mock", "dgx-a100-40gb-2gpu:2")


def test_policies_are_compared_side_by_side(shell: command_line.CommandLine) -> None:
    result = shell.run(*SMALL, "--tasks", "60", "--span", "1h", "--seed", "5", "-p", "first-fit", "-p", "least-allocated")
    assert result.status == 0, result.err
    head, *lines = result.out.splitlines()
    assert head.startswith("2 nodes (2 dgx-a100-40gb-2gpu), 60 tasks, the last arrives after ")
    table = lines[: lines.index("Devices, until the last arrival")]
    assert [line.split()[0] for line in table if line.startswith(("first-fit", "least-allocated"))] == ["first-fit", "least-allocated"]
    assert lines[-1].startswith("first-fit is best: ")
    gpus = [line.split() for line in lines if line.startswith("NVIDIA A100")]
    assert [cells[2:4] for cells in gpus] == [["first-fit", "4"], ["least-allocated", "4"]]


def test_a_workload_file_with_templates_gives_the_same_document_twice(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "whole"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drakit.dev"}}]}}},
    }
    (tmp_path / "claims.yaml").write_text(yaml.dump(template, Dumper=yaml.CSafeDumper))
    (tmp_path / "day.csv").write_text("name,arrival,duration,template\na,0,10m,whole\nb,1m,10m,whole+nic=1G\nc,2m,10m,mig=2g.10gb\n")
    asked = ("simulate", "-m", "dgx-a100-40gb-2gpu", "-f", str(tmp_path / "claims.yaml"), "-w", str(tmp_path / "day.csv"))
    first, second = (shell.run(*asked, "-o", "json", "--placements") for _ in range(2))
    assert first.status == 0, first.err
    assert first.out == second.out
    (policy,) = json.loads(first.out)["policies"]
    assert [one["started"] for one in policy["placements"]] == [0, 60, 600]
    assert policy["placements"][1]["pods"][0]["devices"] == ["gpu.drakit.dev/gpu-1", "nic.drakit.dev/pci-0000-0c-00-0 (bandwidth 1G)"]


def test_a_fleet_of_kubectl_output_keeps_what_is_allocated(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    slices = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **one}
        for node in ("a", "b")
        for one in fleets.slices_of("dgx-a100-40gb-2gpu", node)
    ]
    results = [{"request": "gpu", "driver": fleets.GPU, "pool": "a", "device": f"gpu-{number}"} for number in range(2)]
    held = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "held", "namespace": "default", "uid": "u-1"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.drakit.dev", "count": 2}}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    content = {"apiVersion": "v1", "kind": "List", "items": [*slices, held]}
    (tmp_path / "now.json").write_text(json.dumps(content))
    (tmp_path / "w.csv").write_text("template\ngpu=1\ngpu=1\ngpu=1\n")
    result = shell.run("simulate", "-f", str(tmp_path / "now.json"), "-w", str(tmp_path / "w.csv"), "-o", "json", "--placements")
    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert found["fleet"]["nodes"] == 2
    pods = [one["pods"] for one in found["policies"][0]["placements"]]
    assert [one[0]["node"] if one else None for one in pods] == ["b", "b", None]


def test_simulate_writes_an_html_page(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "day.html"
    result = shell.run(*SMALL, "--tasks", "20", "--report", str(file))
    assert result.status == 0, result.err
    assert file.read_text().startswith("<!DOCTYPE html>")


def test_several_seeds_are_simulated_and_the_conclusion_names_them(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    asked = (*SMALL, "--tasks", "20", "--seed", "3", "--seeds", "2", "-p", "first-fit", "-p", "least-allocated")
    document = json.loads(shell.run(*asked, "-o", "json").out)
    assert document["seeds"] == [3, 4]
    assert "mix mig=1g.5gb:4" in document["tasks"]
    assert "rules of Kubernetes 1.37" in document["versions"]
    printed = shell.run(*asked).out
    assert "Seeds; the tables above are of the first" in printed
    assert [line.split()[:2] for line in printed.splitlines() if line.startswith("mean ")] == [
        ["mean", "first-fit"],
        ["mean", "least-allocated"],
    ]
    assert printed.endswith(f"\n{document['conclusion']['text']} {document['conclusion']['doubt']}\n")
    (tmp_path / "w.csv").write_text("template\ngpu=1\n")
    ended = shell.run(*SMALL, "-w", str(tmp_path / "w.csv"), "--seeds", "2")
    assert (ended.status, ended.err) == (2, "drakit: --seeds: the tasks of --workload have no seed; leave one out\n")


def test_repeating_the_errors_of_a_version_changes_the_decisions(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    """Four partitions of one GPU: 1.36 does not find them once the first GPU is partly used."""
    (tmp_path / "w.csv").write_text("template,arrival\nmig=1g.5gb,0\nfour-partitions,1\n")
    asked = (*SMALL[:2], "dgx-a100-40gb-2gpu", "-f", str(SAMPLES / "10-mig-partitions.yaml"), "-w", str(tmp_path / "w.csv"), "-o", "json")
    right, wrong = (json.loads(shell.run(*asked, *more).out)["policies"][0] for more in ((), ("--kubernetes", "1.36")))
    assert (right["started"], wrong["started"]) == (2, 1)
    assert right["refused"] == []
    assert wrong["refused"][0]["template"] == "four-partitions"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((*SMALL, "--mix", "mig=3g:1"), "mig=3g: no GPU of these nodes has MIG profile '3g'; they have 1g.10gb, 1g.5gb"),
        (("simulate",), "there are no nodes; add --mock MACHINE:COUNT"),
        (("simulate", "-m", "dgx-a101"), "no mock machine 'dgx-a101'; did you mean"),
        (("simulate", "-m", "server-a30:0"), "--mock server-a30:0: '0' is no count; write MACHINE:COUNT"),
        ((*SMALL, "-p", "fast"), "'fast' is unknown; known are first-fit"),
        ((*SMALL, "-p", "first-fit,layout=4g.20gb*2"), "do not fit together on one GPU"),
        ((*SMALL, "-w", "no-such.csv"), "no-such.csv: cannot be read"),
        ((*SMALL, "--span", "soon"), "'soon' is not a time"),
        ((*SMALL, "--mix", "gpu=1:many"), "'many' is not a weight"),
        ((*SMALL, "--gangs", "two:1"), "--gangs: 'two' is not a number of pods"),
        ((*SMALL, "--kubernetes", "1.1"), "unknown Kubernetes version '1.1'"),
    ],
)
def test_a_wrong_input_is_one_line_and_status_2(shell: command_line.CommandLine, arguments: tuple[str, ...], message: str) -> None:
    result = shell.run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
