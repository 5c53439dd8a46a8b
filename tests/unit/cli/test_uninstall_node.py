"""``drakit uninstall-node`` lists what drakit left on a node and removes it, and never while somebody may be using it."""

import dataclasses
import json
import pathlib
import shutil
import socket
import tempfile
from collections.abc import Iterator

import pytest

from drakit import testing
from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from fakes import command_line, driver_process, forked_cli, waits

OTHER_UID = "00000000-06c0-4d70-9a51-e59b25b2c16c"


def kinds(ran: command_line.Result) -> dict[str, int]:
    result = [item["kind"] for item in json.loads(ran.out)["items"]]
    return {kind: result.count(kind) for kind in sorted(set(result))}


def files(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def shell(shell: command_line.CommandLine) -> Iterator[command_line.CommandLine]:
    """A command line whose paths are short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="dk") as short:
        yield dataclasses.replace(shell, folder=pathlib.Path(short))


@pytest.fixture
def used(shell: command_line.CommandLine) -> command_line.CommandLine:
    """A node on which a claim with a MIG device and a NIC share was prepared, and from which the driver has gone."""
    ran = shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G")))
    assert ran.status == 0, ran.err
    return shell


def test_uninstall_node_lists_and_changes_nothing_until_confirmed(used: command_line.CommandLine) -> None:
    before = files(used.folder / "node")
    ran = used.on_node("uninstall-node", "--no-api", "-o", "json")
    assert ran.status == 0
    assert json.loads(ran.out)["removed"] is False
    assert kinds(ran) == {"CDI file": 2, "claim": 2, "folder": 2, "kernel": 1, "mock machine": 1}
    assert files(used.folder / "node") == before
    assert "Nothing was removed. To remove it, add --yes." in used.on_node("uninstall-node", "--no-api").out


def test_claims_possibly_in_use_are_removed_only_with_force(used: command_line.CommandLine) -> None:
    before = files(used.folder / "node")
    refused = used.on_node("uninstall-node", "--no-api", "--yes")
    assert refused.status == 1
    assert (
        "nothing was removed, because claims may be in use: default/claim (prepared; the API server was not asked: --no-api is given)"
        in refused.err
    )
    assert refused.err.rstrip().endswith("delete their pods (without Kubernetes: drakit unprepare UID), or add --force")
    assert "add --yes" not in refused.out
    assert files(used.folder / "node") == before
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force", "-o", "json")
    assert ran.status == 0, ran.err
    assert all(item["removed"] for item in json.loads(ran.out)["items"])
    assert files(used.folder / "node") == []
    again = used.on_node("uninstall-node", "--no-api", "--yes")
    assert (again.status, again.out) == (0, "drakit left nothing on this node\n")
    assert files(used.folder / "node") == []


def test_the_mig_device_is_gone_from_hardware_that_stays(shell: command_line.CommandLine) -> None:
    """Each family by itself: the pretend hardware is kept until the last of them is removed."""
    assert shell.on_node("prepare", shell.claim_file(command_line.mig(), command_line.share("25G"))).status == 0
    ran = shell.on_node(
        "uninstall-node", "--no-api", "--yes", "--force", "--family", "gpu", "--set", "mock.dir=" + str(shell.folder / "hw")
    )
    assert ran.status == 0, ran.err


def test_a_half_prepared_claim_and_an_orphaned_file_need_no_force(shell: command_line.CommandLine) -> None:
    assert shell.on_node("slices").status == 0
    assert shell.on_node("prepare", shell.claim_file(command_line.mig())).status == 0
    assert shell.on_node("unprepare", command_line.UID).status == 0
    (shell.folder / "node" / "cdi" / f"gpu.drakit.dev-claim_{command_line.UID}-left.json").write_text("{}")
    theirs = shell.folder / "node" / "cdi" / "nvidia.yaml"
    theirs.write_text("cdiVersion: 0.6.0")
    ran = shell.on_node("uninstall-node", "--no-api", "--yes")
    assert ran.status == 0, ran.err
    assert files(shell.folder / "node") == ["cdi/nvidia.yaml"], "what is others' stays"


def test_after_the_journal_was_lost_files_of_claims_count_as_used(used: command_line.CommandLine) -> None:
    for name in ("gpu.drakit.dev", "nic.drakit.dev"):
        (used.folder / "node" / "plugins" / name / "journal.db").write_bytes(b"not a database" * 100)
    refused = used.on_node("uninstall-node", "--no-api", "--yes")
    assert refused.status == 1
    assert "(the journal is lost)" in refused.err
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force")
    assert ran.status == 0, ran.err
    assert files(used.folder / "node") == []


def test_files_count_as_used_until_a_lost_journal_is_restored(used: command_line.CommandLine) -> None:
    """The file that could not be read was set aside, by a driver say, and the journal that took its place can be read and names no claim."""
    for name in ("gpu.drakit.dev", "nic.drakit.dev"):
        (used.folder / "node" / "plugins" / name / "journal.db").write_bytes(b"not a database" * 100)
    used.on_node("unprepare", OTHER_UID)
    before = files(used.folder / "node" / "cdi")
    refused = used.on_node("uninstall-node", "--no-api", "--yes")
    assert refused.status == 1, refused.out
    assert "(the journal is lost)" in refused.err
    assert files(used.folder / "node" / "cdi") == before


def test_a_failed_release_of_a_claim_known_only_from_files_is_an_error(used: command_line.CommandLine) -> None:
    (used.folder / "node" / "plugins" / "nic.drakit.dev" / "journal.db").write_bytes(b"not a database" * 100)
    (file,) = (used.folder / "node" / "cdi").glob("nic.*")
    blocked = file.with_name(file.name.replace(".json", "-more.json"))
    blocked.mkdir()
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force", "--family", "nic", "-o", "json")
    items = {item["name"]: item for item in json.loads(ran.out)["items"]}
    assert ran.status == 1
    assert str(blocked) in ran.err
    assert not items[str(blocked)]["removed"]
    assert items[str(file)]["removed"]
    assert not items["traffic control on eth1"]["removed"]
    assert blocked.exists()
    assert (used.folder / "node" / "plugins" / "nic.drakit.dev" / "journal.db").exists()


def test_files_without_a_journal_are_removed_and_no_new_journal_stays(used: command_line.CommandLine) -> None:
    for name in ("gpu.drakit.dev", "nic.drakit.dev"):
        shutil.rmtree(used.folder / "node" / "plugins" / name)
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force")
    assert ran.status == 0, ran.err
    assert files(used.folder / "node") == []


def test_the_mark_of_a_journal_is_removed_even_without_its_folder(used: command_line.CommandLine) -> None:
    assert used.on_node("unprepare", OTHER_UID).status == 0
    shutil.rmtree(used.folder / "node" / "plugins")
    for file in (used.folder / "node" / "cdi").glob("*.json"):
        file.unlink()
    assert [path.name for path in (used.folder / "node" / "cdi").iterdir()]
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force")
    assert ran.status == 0, ran.err
    assert files(used.folder / "node") == []


def test_a_folder_without_claims_is_removed_even_without_hardware(shell: command_line.CommandLine) -> None:
    """As on a node from which NVIDIA's driver was removed first."""
    home = shell.folder / "node" / "plugins" / "gpu.drakit.dev"
    home.mkdir(parents=True)
    bare = [
        "--folder",
        str(shell.folder / "node"),
        "--node",
        "node-1",
        "--no-api",
        "--set",
        "nic.enabled=false",
        "--set",
        "tpu.enabled=false",
    ]
    bare += ["--set", f"gpu.kernel_root={shell.folder}"]
    assert shell.run("uninstall-node", *bare, "--yes").status == 0
    assert not home.exists()
    again = shell.run("uninstall-node", *bare, "--yes")
    assert (again.status, again.out) == (0, "drakit left nothing on this node\n")


def test_the_folder_of_mock_machines_is_removed_with_the_last_machine(shell: command_line.CommandLine) -> None:
    """As in the pods of the mock overlay, whose machine is kept below the kubelet's plugins."""
    plugins = shell.folder / "node" / "plugins"
    claim = shell.claim_file(command_line.mig())
    given = ["--mock", command_line.MACHINE, "--node", "node-1", "--set", f"node.plugins_dir={plugins}"]
    given += ["--set", f"node.cdi_dir={shell.folder}/node/cdi", "--set", f"node.registry_dir={shell.folder}/node/registry"]
    config = shell.folder / "drakit.yaml"
    config.write_text(f"mock: {{machine: {command_line.MACHINE}}}")
    given += ["--config", str(config)]
    assert shell.run("prepare", claim, *given).status == 0
    assert (plugins / "mock").is_dir()
    other = plugins / "mock" / "other"
    other.mkdir()
    for kept in ([other], []):
        ran = shell.run("uninstall-node", "--no-api", "--yes", "--force", *given)
        assert ran.status == 0, ran.err
        assert sorted(plugins.iterdir()) == ([plugins / "mock"] if kept else [])
        if kept:
            assert list((plugins / "mock").iterdir()) == kept
            other.rmdir()
            assert shell.run("prepare", claim, *given).status == 0


def test_a_driver_that_runs_is_named_and_nothing_is_touched(used: command_line.CommandLine) -> None:
    before = files(used.folder / "node")
    registry = used.folder / "node" / "plugins_registry"
    registry.mkdir(exist_ok=True)
    path = registry / "nic.drakit.dev-89abcdef-reg.sock"
    with socket.socket(socket.AF_UNIX) as serving:
        serving.bind(str(path))
        serving.listen()
        for force in ((), ("--force",)):
            ran = used.on_node("uninstall-node", "--no-api", "--yes", *force)
            assert ran.status == 1
            assert "nic.drakit.dev is running on this node; stop it first: delete its DaemonSet" in ran.err
        listed = used.on_node("uninstall-node", "--no-api", "-o", "json")
        assert listed.status == 0, listed.err
        assert kinds(listed)["claim"] == 2, "to list is allowed, before the driver is ended"
        assert "ResourceSlices are not listed: --no-api is given" in listed.err
        path.unlink()
    assert files(used.folder / "node") == before


def test_a_failed_release_is_named_and_the_journal_stays_for_a_retry(used: command_line.CommandLine) -> None:
    directory = next(iter((used.folder / "node" / "cdi").glob("gpu.*")))
    directory.unlink()
    directory.mkdir()
    ran = used.on_node("uninstall-node", "--no-api", "--yes", "--force")
    assert ran.status == 1
    assert "default/claim" in ran.err
    assert (used.folder / "node" / "plugins" / "gpu.drakit.dev" / "journal.db").exists()
    assert not (used.folder / "node" / "plugins" / "nic.drakit.dev").exists()
    directory.rmdir()
    assert used.on_node("uninstall-node", "--no-api", "--yes", "--force").status == 0
    assert files(used.folder / "node") == []


@pytest.fixture
def cluster() -> Iterator[clusters.LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as made:
        yield made


def create(cluster: clusters.LocalCluster, item: json_types.Object) -> None:
    kind = next(one for one in resources.ALL if (one.api_version, one.kind) == (item["apiVersion"], item["kind"]))
    cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")


def test_on_a_cluster_deleted_claims_need_no_force_and_slices_are_removed(
    cluster: clusters.LocalCluster, shell: command_line.CommandLine, commands: forked_cli.Commands
) -> None:
    root = cluster.node("node-1").folder.root
    where = ["--mock", "dgx-a100-40gb-2gpu", "--node", "node-1", "--folder", str(root)]
    where += ["--family", "gpu", "--kubeconfig", str(cluster.driver_kubeconfig("node-1"))]
    for item in (
        testing.device_class("gpu", driver="gpu.drakit.dev"),
        testing.claim("mine", device_class="gpu"),
        testing.pod("p", claims=["mine"]),
    ):
        create(cluster, item)
    cdi = cluster.node("node-1").folder.cdi
    with driver_process.running(driver_process.drakit("run", *where), root / "log", commands=commands) as driver:
        assert waits.eventually(lambda: bool(list(cdi.glob("*.json"))))
        running = shell.run("uninstall-node", *where, "--yes", "--force")
        assert "gpu.drakit.dev is running on this node" in running.err
        driver.kill()
    refused = shell.run("uninstall-node", *where, "--yes")
    assert refused.status == 1
    assert "default/mine (prepared and allocated)" in refused.err
    cluster.api.delete(resources.POD, "p", namespace="default", grace_seconds=0)
    cluster.api.delete(resources.CLAIM, "mine", namespace="default")
    assert waits.eventually(lambda: not cluster.api.list(resources.CLAIM, namespace="default").items)
    assert cluster.api.list(resources.SLICE).items
    ran = shell.run("uninstall-node", *where, "--yes", "-o", "json")
    assert ran.status == 0, ran.err
    assert {"claim", "CDI file", "ResourceSlice", "folder", "socket", "mock machine"} == set(kinds(ran))
    assert not cluster.api.list(resources.SLICE).items
    assert not list(cdi.iterdir())
    assert not (root / "plugins" / "gpu.drakit.dev").exists()
    assert not list(cluster.node("node-1").folder.registry.iterdir())
