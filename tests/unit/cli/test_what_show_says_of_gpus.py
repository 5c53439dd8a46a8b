"""``drakit show`` tells the truth of a GPU's memory slices: who has which, by which form of a device, and how badly what is in use lies."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from drakit import machines
from drakit import settings as values
from drakit.cli import options
from drakit_gpu import port
from drakit_gpu.mock import mock_gpus
from drakit_tools.demo import node_view
from fakes import command_line

SHARING = ("--set", "gpu.share_memory=true", "--set", "gpu.shares=4", "--set", "gpu.share_mig=true")
OTHER = "5cf8db2d-06c0-4d70-9a51-e59b25b2c16c"
SHARE = "6cf8db2d-06c0-4d70-9a51-e59b25b2c16c"


def lines_of(shell: command_line.CommandLine, *more: str) -> dict[str, list[str]]:
    """What is said of each GPU: the figure, the map's cells, and what else is said."""
    result = [line.strip() for line in shell.on_node("show", "--family", "gpu", *more).out.splitlines()]
    found: dict[str, list[str]] = {}
    for index, line in enumerate(result):
        if "-counter-set: " in line:
            name, _, figure = line.partition(": ")
            more_said = [result[index + 5]] if result[index + 5].startswith("fragmented") else []
            found[name] = [figure, result[index + 3].replace(" ", ""), *more_said]
    return found


def fitting(shell: command_line.CommandLine) -> Mapping[str, Any]:
    (result,) = json.loads(shell.on_node("show", "--family", "gpu", "-o", "json").out)
    return result["fitting"]["gpu-0-counter-set"]  # type: ignore[no-any-return]  # what json gives is of no type


# By hand from NVIDIA's placements of an A100 40GB: 4g.20gb starts at 0 only, 3g.20gb at 0 and 4, 2g.10gb at 0, 2 and 4.
@pytest.mark.parametrize(
    "device,together,gains",
    [
        ("3g20gb-9-0", [{"3g.20gb": 1}, {"1g.5gb": 3}], {"4g.20gb": 1, "1g.5gb": 4, "2g.10gb": 2}),
        ("3g20gb-9-4", [{"4g.20gb": 1}, {"1g.5gb": 4}], {}),
        ("1g5gb-19-0", [{"3g.20gb": 1, "2g.10gb": 1, "1g.5gb+me": 1}, {"1g.5gb": 6}], {"4g.20gb": 1, "2g.10gb": 3}),
        ("1g5gb-19-6", [{"4g.20gb": 1, "2g.10gb": 1}, {"1g.5gb": 6}], {}),
        ("7g40gb-0-0", [], {}),
    ],
)
def test_what_fits_together_is_what_nvidias_placements_allow(
    shell: command_line.CommandLine, device: str, together: list[dict[str, int]], gains: dict[str, int]
) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(f"gpu-0-mig-{device}"))).status == 0
    document = fitting(shell)
    assert document["together"] == together
    assert document["afterDefragmentation"] == gains
    said = lines_of(shell)["gpu-0-counter-set"]
    words = "; or ".join(", ".join(f"{count} x {kind}" for kind, count in counts.items()) for counts in together)
    assert said[0] == (f"still fits {words}" if together else "nothing more fits")
    largest = next(iter(gains), "")
    assert said[2:] == ([f"fragmented: {gains[largest]} x {largest} would fit after defragmentation"] if gains else [])


def test_media_engines_are_counted_once_whatever_the_number_of_placements(shell: command_line.CommandLine) -> None:
    assert fitting(shell)["alone"]["1g.5gb+me"] == 1
    assert shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0-mig-1g5gb-me-20-0"))).status == 0
    assert fitting(shell)["alone"]["1g.5gb+me"] == 0


def test_several_partitions_are_moved_together(shell: command_line.CommandLine) -> None:
    """3g at 0 and 1g at 6 leave slices 4 and 5; 3g at 4 and 1g at 0 would leave 1, 2 and 3."""
    both = shell.claim_file(command_line.mig(), command_line.mig("gpu-0-mig-1g5gb-19-6", request="small"))
    assert shell.on_node("prepare", both).status == 0
    document = fitting(shell)
    assert (document["alone"]["1g.5gb"], document["afterDefragmentation"]) == (2, {"1g.5gb": 3})


def test_a_partition_with_shares_counts_as_taken(shell: command_line.CommandLine) -> None:
    consumed = {"memory": "5Gi", "shares": "1"}
    partition = command_line.mig("gpu-0-mig-2g10gb-14-4-shared", shareID=OTHER, consumedCapacity=consumed)
    whole = command_line.mig("gpu-1-shared", shareID=SHARE, consumedCapacity=consumed)
    assert shell.on_node("prepare", shell.claim_file(partition, name="part"), *SHARING).status == 0
    assert shell.on_node("prepare", shell.claim_file(whole, name="whole", uid=OTHER), *SHARING).status == 0
    said = lines_of(shell, *SHARING)
    assert said["gpu-0-counter-set"][:2] == [
        "still fits 1 x 4g.20gb, 1 x 1g.10gb; or 5 x 1g.5gb; or 1 x 4g.20gb shared, 1 x 1g.10gb shared",
        "|.|.|.|.|part|.|.|",
    ]
    assert said["gpu-1-counter-set"][:2] == ["nothing more fits", "|whole|"]


def test_an_admins_instance_counts_as_taken_and_is_not_moved(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0-mig-1g5gb-19-6"))).status == 0
    (state,) = (shell.folder / "node").rglob("gpus.json")
    hardware = mock_gpus.MockGpus(machines.Choice(name=command_line.MACHINE, directory=state.parent, owner="node-1"))
    gpu = hardware.gpus()[0].uuid
    made = hardware.create_gpu_instance(gpu, 14, port.Placement(start=0, size=2))
    hardware.create_compute_instance(gpu, made.id, 1)
    assert lines_of(shell)["gpu-0-counter-set"][1] == "|admin|.|.|.|.|claim|.|"


def test_the_demo_reports_the_same_fragmentation_as_show(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0-mig-3g20gb-9-0"))).status == 0
    given = {"mock.machine": command_line.MACHINE, "node.name": "node-1", **options.places(shell.folder / "node")}
    result = node_view.NodeView(values.load(given, environ={})).memory_map()
    assert result[0] == "gpu-0-counter-set: still fits 1 x 3g.20gb; or 3 x 1g.5gb"
    assert result[5] == "fragmented: 1 x 4g.20gb would fit after defragmentation"
    assert result[6] == "gpu-1-counter-set: still fits 1 x gpu; or 7 x 1g.5gb"
