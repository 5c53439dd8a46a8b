"""Commands on a node whose kernel module is absent read the journals that are there, as after NVIDIA's driver was removed or failed to load."""

import json
import pathlib

import pytest

from drakit import machines
from drakit_gpu import host
from fakes import command_line

pytestmark = pytest.mark.skipif(host.Host(pathlib.Path("/")).has_driver(), reason="GPUs are served here")

CANNOT_LOAD = "cannot load"


@pytest.fixture
def node(shell: command_line.CommandLine) -> command_line.CommandLine:
    """A node on which a claim has a partition of this boot, and whose GPU driver is then gone."""
    file = shell.claim_file(command_line.mig())
    assert shell.on_node("prepare", file).status == shell.on_node("unprepare", command_line.UID).status == 0
    (boot,) = (shell.folder / "node").rglob(machines.BOOT_ID)
    boot.write_text(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert shell.on_node("prepare", file).status == 0
    (shell.folder / "node" / "plugins_registry").mkdir(mode=0o755, exist_ok=True)
    return shell


def run(node: command_line.CommandLine, *arguments: str, nics: bool = False) -> command_line.Result:
    """Run a command with the settings of a DaemonSet for GPUs, or of one for both families, on real hardware."""
    given = ["--folder", str(node.folder / "node"), "--node", "node-1", "--set", f"nic.enabled={str(nics).lower()}"]
    given += ["--set", f"gpu.kernel_root={node.folder}", "--set", f"gpu.library={node.folder}/libnvidia-ml.so.1"]
    return node.run(*arguments, *given)


@pytest.mark.parametrize("nics", [False, True], ids=["gpus-only", "both"])
def test_the_journals_commands_read_the_journal(node: command_line.CommandLine, *, nics: bool) -> None:
    listed = run(node, "journal", "show", "-o", "json", nics=nics)
    assert [row["uid"] for row in json.loads(listed.out)] == [command_line.UID], listed.err
    assert run(node, "journal", "show", command_line.UID, nics=nics).status == 0
    (row,) = [row for row in json.loads(run(node, "journal", "verify", "-o", "json", nics=nics).out) if row["driver"] == "gpu.drakit.dev"]
    assert row["problems"] == []


@pytest.mark.parametrize("nics", [False, True], ids=["gpus-only", "both"])
def test_show_lists_the_claims_and_says_why_it_lists_no_devices(node: command_line.CommandLine, *, nics: bool) -> None:
    shown = run(node, "show", "-o", "json", nics=nics)
    assert shown.status == 1
    assert CANNOT_LOAD in shown.err
    (gpu,) = [document for document in json.loads(shown.out) if document["driver"] == "gpu.drakit.dev"]
    assert [claim["uid"] for claim in gpu["claims"]] == [command_line.UID]
    assert gpu["pool"] == "node-1"
    assert command_line.UID in run(node, "show", nics=nics).out


def test_doctor_names_the_claims_that_wait_for_the_hardware(node: command_line.CommandLine) -> None:
    checked = run(node, "doctor", "--no-api", "-o", "json")
    findings = [entry for entry in json.loads(checked.out) if entry["subject"] == "gpu.drakit.dev"]
    assert [entry["verdict"] for entry in findings if entry["topic"] in {"devices", "journal"}] == ["failed", "ok"]
    assert "the journal has 1 claim" in findings[0]["message"]


def test_unprepare_does_not_count_the_claim_as_released(node: command_line.CommandLine) -> None:
    """It names the hardware that it cannot open, and only for the claims of that driver."""
    ran = run(node, "unprepare", command_line.UID)
    assert ran.status == 1
    assert CANNOT_LOAD in ran.err
    assert "not prepared" not in ran.out + ran.err
    other = run(node, "unprepare", command_line.UID.replace("4", "5"))
    assert other.status == 0, other.err


def test_uninstall_node_names_the_claim_that_it_cannot_release_and_keeps_it(node: command_line.CommandLine) -> None:
    listed = json.loads(run(node, "uninstall-node", "--no-api", "-o", "json").out)["items"]
    assert [item["kind"] for item in listed] == ["claim", "CDI file", "folder"]
    ran = run(node, "uninstall-node", "--no-api", "-o", "json", "--yes", "--force")
    assert ran.status == 1
    assert CANNOT_LOAD in ran.out + ran.err
    assert [row["uid"] for row in json.loads(run(node, "journal", "show", "-o", "json").out)] == [command_line.UID]


def test_commands_succeed_in_a_folder_without_claims(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    assert shell.on_node("unprepare", command_line.UID).status == 0
    assert run(shell, "show").status == 0
