"""A driver of another repository is served by ``drakit run`` beside GPUs and NICs, found by its entry point alone."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
import yaml

from drakit_cluster import cluster as clusters
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.resources import POD, SLICE
from fakes import driver_process, forked_cli, waits

ROOT = pathlib.Path(__file__).parents[2]
HELLO = ROOT / "examples" / "hello"
MACHINE = "dgx-a100-40gb-2gpu"
BY_KIND = {resource.kind: resource for resource in resources.ALL}


def installed(folder: pathlib.Path, entry_point: str = "hello = hello_driver.__main__:FAMILY") -> dict[str, str]:
    """Put a project into a folder as pip does, and return the environment in which Python finds it."""
    shutil.copytree(HELLO / "hello_driver", folder / "hello_driver", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = folder / "hello_driver-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-driver\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[drakit.families]\n{entry_point}\n")
    return {"PYTHONPATH": str(folder)}


def test_a_pod_gets_a_device_of_a_driver_that_was_only_installed(tmp_path: pathlib.Path) -> None:
    environment = installed(tmp_path / "site")
    (tmp_path / "boards" / "board-0").mkdir(parents=True)
    (tmp_path / "boards" / "board-0" / "model").write_text("m\n")
    (tmp_path / "boards" / "board-0" / "memory").write_text("1Gi\n")
    with tempfile.TemporaryDirectory(prefix="dk") as folder, clusters.LocalCluster(pathlib.Path(folder)) as cluster:
        for name in ("deviceclass", "sample"):
            for item in yaml.safe_load_all((HELLO / "deploy" / f"{name}.yaml").read_text()):
                kind = BY_KIND[item["kind"]]
                cluster.api.create(kind, item, namespace="default" if kind.namespaced else "")
        root = cluster.node("node-1").folder.root
        places = ("--node", "node-1", "--folder", str(root), "--kubeconfig", str(cluster.driver_kubeconfig("node-1")))
        settings = {"DRAKIT_HELLO__FOLDER": str(tmp_path / "boards")}
        command = driver_process.drakit("run", "--mock", MACHINE, *places)

        def served() -> set[str]:
            return {json_types.text(stored, "spec", "driver") for stored in cluster.api.list(SLICE).items}

        def phase() -> str:
            (pod,) = cluster.api.list(POD).items
            return json_types.text(pod, "status", "phase")

        with driver_process.running(command, root / "run.log", commands=None, **environment, **settings):
            cluster.wait_for(lambda: phase() == "Running", timeout=waits.SECONDS, what="the pod to run")
            everyone = {"gpu.drakit.dev", "nic.drakit.dev", "hello.example.com"}
            cluster.wait_for(lambda: served() == everyone, timeout=waits.SECONDS, what="slices of every driver")
            assert (tmp_path / "boards" / "board-0" / "mode").read_text() == "turbo"


@pytest.mark.parametrize(
    "entry_point, message",
    [
        ("hello = hello_driver.gone:FAMILY", "cannot load hello_driver.gone:FAMILY of hello-driver: ModuleNotFoundError"),
        ("hello = hello_driver.settings:Settings", "hello_driver.settings:Settings of hello-driver is no drakit.Family"),
        ("hallo = hello_driver.__main__:FAMILY", "hello_driver.__main__:FAMILY of hello-driver is named 'hello'; name its entry point so"),
        ("gpu = drakit_gpu.family:FAMILY", "two installed distributions have a family 'gpu'; uninstall one"),
    ],
)
def test_a_distribution_that_breaks_the_rules_is_named(
    commands: forked_cli.Commands, tmp_path: pathlib.Path, entry_point: str, message: str
) -> None:
    environment = {**os.environ, **installed(tmp_path / "site", entry_point)}
    ran = commands.run("-m", "drakit", "slices", "--mock", MACHINE, program="python", environment=environment)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_log_has_the_lines_of_families_at_the_level_of_the_settings(tmp_path: pathlib.Path) -> None:
    read = "from drakit.cli import options; options.read(assignments=['log.level=info'])"
    shown = "import logging; print([int(logging.getLogger(name).level) for name in ('drakit', 'drakit_gpu', 'drakit_nic', 'hello_driver')])"
    environment = {**os.environ, **installed(tmp_path / "site")}
    command = [driver_process.drakit()[0], "-c", f"{read}; {shown}"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=waits.SECONDS)
    assert ran.stdout == "[20, 20, 20, 20]\n"
