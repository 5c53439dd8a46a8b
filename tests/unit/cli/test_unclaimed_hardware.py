"""Hardware that no claim of the journal has: doctor and the metric name it, ``unprepare --unclaimed`` releases it, and claims keep theirs."""

import json
import pathlib
from typing import Any

import pytest

from drakit import machines
from drakit.core import advanced
from drakit.kubelet import checkpoint
from drakit.node import metrics
from drakit_gpu import driver as gpu_driver
from drakit_gpu import identity
from drakit_gpu import port as gpu_port
from drakit_gpu.mock import mock_gpus
from drakit_gpu.sharing.mps import daemon_folder
from drakit_nic import driver as nic_driver
from drakit_nic import mock_port, pod_interfaces, port
from fakes import command_line, demo, metrics_page, mps_pods

SHARE = "11111111-0000-4000-8000-000000000001"


def choice(shell: command_line.CommandLine) -> machines.Choice:
    return machines.Choice(name=command_line.MACHINE, directory=shell.folder / "node" / "mock", owner="node-1")


def gpus(shell: command_line.CommandLine) -> mock_gpus.MockGpus:
    return mock_gpus.MockGpus(choice(shell))


def nics(shell: command_line.CommandLine) -> mock_port.MockPort:
    return mock_port.MockPort(choice(shell))


def instances(shell: command_line.CommandLine) -> list[gpu_port.GpuInstance]:
    hardware = gpus(shell)
    return [instance for gpu in hardware.gpus() for instance in hardware.gpu_instances(gpu.uuid)]


@pytest.fixture
def node(shell: command_line.CommandLine) -> command_line.CommandLine:
    """A node with a prepared claim, and with a share and a MIG instance that no claim has."""
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G"))).status == 0
    hardware, network = gpus(shell), nics(shell)
    second = hardware.gpus()[1]
    hardware.create_gpu_instance(second.uuid, 9, gpu_port.Placement(start=0, size=4))
    interface = next(interface for interface in network.interfaces() if interface.name == "eth1")
    uplink = port.Uplink(interface="eth1", ifindex=interface.ifindex, mac=interface.mac, speed=10**11)
    stray = port.Share(id=SHARE, interface="eth1", ifindex=interface.ifindex, mac="02:00:00:00:00:01", bandwidth=10**9, minor=0x77)
    network.install(uplink, stray)
    return shell


def listed(node: command_line.CommandLine, *arguments: str) -> dict[str, dict[str, Any]]:
    ran = node.on_node("unprepare", "--unclaimed", "-o", "json", *arguments)
    assert ran.status == 0, ran.err
    return {row["kind"]: row for row in json.loads(ran.out)}


def test_unclaimed_hardware_is_listed_and_nothing_changes(node: command_line.CommandLine) -> None:
    before = (instances(node), nics(node).shares())
    found = listed(node)
    assert set(found) == {"NIC share", "MIG instance"}
    share, instance = found["NIC share"], found["MIG instance"]
    assert (share["name"], share["driver"], share["marked"], share["blocks"]) == (SHARE, "nic.drakit.dev", True, "")
    assert "HTB class 1:77 of eth1" in share["detail"]
    assert (instance["driver"], instance["marked"]) == ("gpu.drakit.dev", False)
    assert instance["blocks"] == "unclaimed, maybe an admin's; name it to release it"
    assert (instances(node), nics(node).shares()) == before
    assert "Nothing was released. To release them, add --yes; what must be named is kept." in node.on_node("unprepare", "--unclaimed").out


def test_without_a_name_only_hardware_with_the_drivers_mark_is_released(node: command_line.CommandLine) -> None:
    released = listed(node, "--yes")
    assert released["NIC share"]["released"]
    assert not released["MIG instance"]["released"]
    assert len(instances(node)) == 2
    assert [share.id for share in nics(node).shares()] == ["5cf8db2d-06c0-4d70-9a51-e59b25b2c16c"], "the claim keeps its share"
    name = released["MIG instance"]["name"]
    by_name = node.on_node("unprepare", "--unclaimed", name, "--yes")
    assert by_name.status == 0, by_name.err
    assert "unclaimed device released" in by_name.err, "each release is logged"
    assert len(instances(node)) == 1, "the claim keeps its instance"
    assert "no hardware state without a claim" in node.on_node("unprepare", "--unclaimed").out


def test_hardware_of_a_claim_is_not_released(node: command_line.CommandLine) -> None:
    held = next(instance for instance in gpus(node).gpu_instances(gpus(node).gpus()[0].uuid))
    for name in (f"gpu-0/gi-{held.id}", "5cf8db2d-06c0-4d70-9a51-e59b25b2c16c", "gpu-7/gi-1"):
        ran = node.on_node("unprepare", "--unclaimed", name, "--yes")
        assert ran.status != 0
        assert f"{name} is not unclaimed: a claim has it" in ran.err
    assert len(instances(node)) == 2
    assert len(nics(node).shares()) == 2


def test_doctor_names_unclaimed_hardware(node: command_line.CommandLine) -> None:
    found = json.loads(node.on_node("doctor", "--no-api", "-o", "json").out)
    unclaimed = {entry["subject"]: entry for entry in found if entry["topic"] == "unclaimed"}
    assert unclaimed["nic.drakit.dev"]["verdict"] == "warning"
    assert SHARE in unclaimed["nic.drakit.dev"]["message"]
    assert "unprepare --unclaimed --yes" in unclaimed["nic.drakit.dev"]["fix"]
    assert unclaimed["gpu.drakit.dev"]["verdict"] == "ok", "an admin's instance is no fault"
    assert "maybe an admin's" in unclaimed["gpu.drakit.dev"]["message"]


def test_a_node_without_unclaimed_shares_has_no_finding(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G"))).status == 0
    found = json.loads(shell.on_node("doctor", "--no-api", "-o", "json").out)
    assert [entry for entry in found if entry["topic"] == "unclaimed"] == []


def test_yes_is_for_unclaimed_hardware_only(shell: command_line.CommandLine) -> None:
    ran = shell.on_node("unprepare", command_line.UID, "--yes")
    assert ran.status != 0
    assert "--yes is only for --unclaimed" in ran.err


def test_an_instance_with_a_marker_is_the_drivers_own(shell: command_line.CommandLine, tmp_path: pathlib.Path) -> None:
    """The claim is removed from the journal, and the instance and its marker stay, as after a journal that was restored from a backup."""
    from drakit_gpu import driver as gpu_driver
    from drakit_gpu.mig import markers as mig_markers

    hardware = gpus(shell)
    gpu = hardware.gpus()[0]
    made = hardware.create_gpu_instance(gpu.uuid, 9, gpu_port.Placement(start=0, size=4))
    markers = mig_markers.MarkerStore(folder=tmp_path / "instances")
    author = gpu_driver.GpuDriver(hardware, resources=gpu_driver.HostResources(made=markers))
    (found,) = author.unclaimed()
    assert not found.is_marked
    author._unclaimed._marker(hardware.boot_id(), gpu, made).write(made)
    (found,) = author.unclaimed()
    assert found.is_marked
    author.reclaim(found)
    author.reclaim(found)
    assert author.unclaimed() == []
    assert list((tmp_path / "instances").iterdir()) == []


def test_an_unclaimed_mps_daemon_is_found_and_stopped(shell: command_line.CommandLine) -> None:
    with demo.short_folder() as folder, mps_pods.daemons(folder, gpus(shell).driver_root()) as daemons:
        author = gpu_driver.GpuDriver(gpus(shell), resources=gpu_driver.HostResources(daemons=daemons))
        daemons.ensure("claim/gpu-0/", "GPU-0", identity.Mps())
        daemons.check("claim/gpu-0/")
        (found,) = author.unclaimed()
        assert (found.kind, found.name, found.needs_name) == ("MPS daemon", daemon_folder.name_of("claim/gpu-0/"), False)
        held = gpu_driver.GpuDriver(
            gpus(shell), resources=gpu_driver.HostResources(daemons=daemons), intents=lambda claim=None: [{"holder": "claim/gpu-0/"}]
        )
        assert held.unclaimed() == [], "a claim has this daemon"
        author.reclaim(found)
        assert not mps_pods.living(folder / "mps")
        assert author.unclaimed() == []
        author.reclaim(found)


def test_the_mark_of_a_whole_interface_that_no_claim_has_is_removed(shell: command_line.CommandLine) -> None:
    """Such a mark keeps the interface from every claim."""
    machine = nics(shell)
    author = nic_driver.NicDriver(machine, node="node-1")
    state = machine.host_state("eth1")
    assert state is not None
    machine.mark(state, pod_interfaces.mark_of("gone"))
    (found,) = author.unclaimed()
    assert (found.kind, found.name, found.detail) == ("mark of a whole interface", "eth1", "drakit whole gone")
    author.reclaim(found)
    assert author.unclaimed() == []


def test_the_metric_counts_leftovers_by_mark() -> None:
    class Node(metrics_page.Shown):
        def unclaimed(self) -> list[advanced.Leftover]:
            return [advanced.Leftover(kind="NIC share", name="a"), advanced.Leftover(kind="NIC share", name="b", is_marked=False)]

    page = metrics.Metrics()
    metrics.add_gauges(Node(), page.of("nic.drakit.dev"))
    assert 'drakit_unclaimed{driver="nic.drakit.dev",marked="true"} 1.0' in page.text().decode()
    assert 'drakit_unclaimed{driver="nic.drakit.dev",marked="false"} 1.0' in page.text().decode()


def test_without_a_journal_hardware_is_released_only_by_name(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    node, before = shell.folder / "node", instances(shell)
    for file in (*node.rglob("journal.db*"), *(node / "cdi").iterdir()):
        file.unlink()
    ran = shell.on_node("unprepare", "--unclaimed", "--yes", "-o", "json")
    assert instances(shell) == before, ran.out
    (row,) = json.loads(ran.out)
    assert "the journal is missing, so a claim may have it" in row["blocks"]
    assert shell.on_node("unprepare", "--unclaimed", row["name"], "--yes").status == 0
    assert instances(shell) == []


def test_with_a_journal_made_by_a_command_hardware_is_released_only_by_name(shell: command_line.CommandLine) -> None:
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G"))).status == 0
    node = shell.folder / "node"
    (node / checkpoint.FILE).write_text("{}")
    for file in (*node.rglob("journal.db*"), *(node / "cdi").iterdir()):
        file.unlink()
    before = (instances(shell), nics(shell).shares())
    assert shell.on_node("unprepare", "--unclaimed", "gpu-0/no-such-thing", "--yes").status == 2
    for _ in range(2):
        assert shell.on_node("unprepare", "2c4cf8db-06c0-4d70-9a51-e59b25b2c16c").status == 0
        ran = shell.on_node("unprepare", "--unclaimed", "--yes", "-o", "json")
        assert {row["blocks"].partition(",")[0] for row in json.loads(ran.out)} == {"a command made the journal"}
    assert (instances(shell), nics(shell).shares()) == before
