"""Devices prepared by hand, shown, and given back, with no Kubernetes at all."""

import io
import json
import pathlib
import sys
from typing import Any

import pytest

from fakes import command_line

OTHER = "00000000-0000-4000-8000-000000000001"


def shown(shell: command_line.CommandLine) -> dict[str, dict[str, object]]:
    """What ``drakit show`` says, by driver."""
    return {document["driver"]: document for document in json.loads(shell.on_node("show", "-o", "json").out)}


def test_prepare_show_and_unprepare_are_a_round_trip(shell: command_line.CommandLine) -> None:
    empty = shown(shell)
    file = shell.claim_file(command_line.mig())
    (row,) = json.loads(shell.on_node("prepare", file, "-o", "json").out)
    assert (row["claim"], row["uid"], row["device"]) == ("default/claim", command_line.UID, "gpu-0-mig-3g20gb-9-0")
    (cdi,) = (shell.folder / "node" / "cdi").glob("*.json")
    assert row["cdiDirectory"] == str(cdi.parent)
    spec = json.loads(cdi.read_text())
    assert [f"{spec['kind']}={device['name']}" for device in spec["devices"]] == row["cdiDevices"]

    busy = shown(shell)["gpu.drakit.dev"]
    assert [(claim["uid"], claim["state"]) for claim in busy["claims"]] == [(command_line.UID, "prepared")]  # type: ignore[attr-defined]
    alone = [state["fitting"]["gpu-0-counter-set"]["alone"]["1g.5gb"] for state in (empty["gpu.drakit.dev"], busy)]  # type: ignore[index]
    assert alone == [7, 3]
    assert busy["fitting"]["gpu-1-counter-set"] == empty["gpu.drakit.dev"]["fitting"]["gpu-1-counter-set"]  # type: ignore[index]

    assert shell.on_node("unprepare", file).out == f"unprepared {command_line.UID}\n"
    assert shown(shell) == empty
    assert not list((shell.folder / "node" / "cdi").glob("*.json"))


def test_prepare_and_unprepare_can_be_repeated(shell: command_line.CommandLine) -> None:
    file = shell.claim_file(command_line.mig())
    first, again = shell.on_node("prepare", file), shell.on_node("prepare", file)
    assert (first.status, first) == (0, again)
    assert [shell.on_node("unprepare", command_line.UID).status for _ in range(2)] == [0, 0]


def test_a_claim_known_only_from_cdi_files_is_released_with_a_message(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    journal = shell.folder / "node" / "plugins" / "gpu.drakit.dev" / "journal.db"
    journal.write_bytes(b"not a database" * 100)
    assert (
        shell.on_node("unprepare", command_line.UID, OTHER).out
        == f"unprepared {command_line.UID}\n{OTHER} is not prepared; nothing to release\n"
    )
    assert not list((shell.folder / "node" / "cdi").glob("*.json"))


def test_the_map_shows_which_memory_slices_are_taken_and_the_bar_which_bandwidth(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G"), name="both")).status == 0
    lines = shell.on_node("show").out.splitlines()
    start = lines.index("gpu-0-counter-set: still fits 1 x 3g.20gb; or 3 x 1g.5gb")
    assert lines[start + 3].replace(" ", "") == "|both|.|.|.|.|"
    bar = lines[lines.index("pci-0000-0c-00-0") + 1]
    assert bar == f"  [{'A' * 12}{'.' * 38}] 100G in all, 75G free"
    assert any("25G of 100G used" in line for line in lines)


def metadata_file(shell: command_line.CommandLine, driver: str, request: str) -> pathlib.Path:
    """Return the file that the container of the one prepared claim finds about its device."""
    (cdi,) = (shell.folder / "node" / "cdi").glob("*.json")
    devices = json.loads(cdi.read_text())["devices"]
    mounts = {mount["containerPath"]: mount for device in devices for mount in device["containerEdits"]["mounts"]}
    seen = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/claim/{request}/{driver}-metadata.json"
    assert "ro" in mounts[seen]["options"]
    return pathlib.Path(mounts[seen]["hostPath"])


def described(file: pathlib.Path) -> dict[str, object]:
    """Return what the file says of its one device."""
    facts, _ = json.JSONDecoder().raw_decode(file.read_text())
    ((device,),) = [result["devices"] for result in facts["requests"]]
    assert isinstance(device, dict)
    return device


def test_a_container_with_a_gpu_finds_a_file_about_it_that_goes_with_the_claim(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    file = metadata_file(shell, "gpu.drakit.dev", "gpu")
    device = described(file)
    assert (device["driver"], device["name"]) == ("gpu.drakit.dev", "gpu-0-mig-3g20gb-9-0")
    attributes: Any = device["attributes"]
    assert attributes["profile"] == {"string": "3g.20gb"}
    assert attributes["parentUUID"]["string"].startswith("GPU-")
    assert shell.on_node("unprepare", command_line.UID).status == 0
    assert not file.exists()


def test_a_container_finds_a_file_about_its_nic_share_that_is_removed_with_the_claim(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.share("1G"))).status == 0
    file = metadata_file(shell, "nic.drakit.dev", "net")
    device = described(file)
    assert (device["driver"], device["name"]) == ("nic.drakit.dev", "pci-0000-0c-00-0")
    attributes: Any = device["attributes"]
    assert attributes["form"] == {"string": "shared"}
    assert shell.on_node("unprepare", command_line.UID).status == 0
    assert not file.exists()


def test_a_device_in_two_claims_goes_to_the_first(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), name="first")).status == 0
    refused = shell.on_node("prepare", shell.claim_file(command_line.mig("gpu-0-mig-7g40gb-0-0"), name="second", uid=OTHER))
    assert refused.status == 1
    assert refused.err.startswith("drakit: default/second: ")
    assert [claim["name"] for claim in shown(shell)["gpu.drakit.dev"]["claims"]] == ["first"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["show", "slices"])
def test_read_only_commands_create_no_file_of_a_driver(shell: command_line.CommandLine, command: str) -> None:
    assert shell.on_node(command).status == 0
    assert not (shell.folder / "node" / "plugins").exists()
    assert not (shell.folder / "node" / "cdi").exists()


def test_output_in_a_pipe_is_plain(shell: command_line.CommandLine) -> None:
    for command in ("show", "slices"):
        written = shell.on_node(command).out
        assert written.isprintable() or {char for char in written if not char.isprintable()} == {"\n"}
        assert written.isascii()


def test_a_mock_machine_without_a_folder_keeps_its_state_in_the_users_own(shell: command_line.CommandLine) -> None:
    assert shell.run("show", "--mock", command_line.MACHINE).status == 0
    assert (shell.folder / "state" / "drakit" / command_line.MACHINE / "mock").is_dir()


def test_claims_may_be_given_with_and_without_f_and_from_standard_input(
    shell: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shell.claim_file(command_line.mig(), name="first")
    second = shell.claim_file(command_line.mig("gpu-1-mig-3g20gb-9-0"), name="second", uid=OTHER)
    rows = json.loads(shell.on_node("prepare", first, "-f", second, "-o", "json").out)
    assert [row["claim"] for row in rows] == ["default/first", "default/second"]
    assert shell.on_node("unprepare", command_line.UID, "-f", second).out == f"unprepared {command_line.UID}\nunprepared {OTHER}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pathlib.Path(first).read_bytes())))
    (row,) = json.loads(shell.on_node("prepare", "-f", "-", "-o", "json").out)
    assert row["claim"] == "default/first"


@pytest.mark.parametrize("command", ["prepare", "unprepare"])
def test_a_command_without_claims_is_a_usage_error(shell: command_line.CommandLine, command: str) -> None:
    result = shell.on_node(command)
    assert (result.status, result.out) == (2, "")
    assert "-f CLAIM.yaml" in result.err
