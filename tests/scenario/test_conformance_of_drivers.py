"""drakit's own drivers and the template pass the conformance suite for any driver, from the command line, on the local cluster."""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

import drakit
from drakit import testing
from drakit.kube import client
from drakit_cluster import cluster as clusters
from drakit_cluster.objects.resources import CLAIM, CLASS
from drakit_tools.conformance import api_objects
from fakes import author, command_line, demo, examples, forked_cli

NODE = "node-1"
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
PROGRAMS = {
    **{f"{family}.drakit.dev": ["drakit", "run", "--mock", command_line.MACHINE, "--family", family] for family in ("gpu", "nic")},
    "hello.example.com": ["hello_driver", "run"],
}
DRAWN = examples.draw("conformance").choice([*PROGRAMS])


@pytest.fixture
def cluster() -> Iterator[clusters.LocalCluster]:
    with demo.short_folder() as folder, clusters.LocalCluster(folder, nodes=(NODE,)) as running:
        yield running


def conformance(
    cluster: clusters.LocalCluster, commands: forked_cli.Commands, driver: str, program: list[str], report: pathlib.Path, **variables: str
) -> dict[str, str]:
    """Run the suite on a driver's command; return the verdicts."""
    folder = cluster.node(NODE).folder
    cluster.api.create(CLASS, testing.device_class("device", driver=driver))
    places = ["--node", NODE, "--folder", str(folder.root), "--kubeconfig", str(folder.kubeconfig)]
    start = shlex.join([sys.executable, "-m", *program, *places, "--log-level", "error"])
    sockets = ["--socket", str(folder.registry), "--driver", driver, "--cdi-dir", str(folder.cdi)]
    wanted = [
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--class",
        "device",
        "--start",
        start,
        "--strict",
        "-o",
        "json",
        "--junit",
        str(report),
    ]
    done = commands.run("conformance", *sockets, *wanted, program="kit", environment=demo.environment(cluster.folder) | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster.api.list(CLAIM).items == [], "what the suite made is gone"
    return {check["name"]: check["verdict"] for check in json.loads(done.stdout)["checks"]}


@pytest.fixture
def boards(tmp_path: pathlib.Path) -> pathlib.Path:
    """The hardware of the template's driver."""
    for name in ("board-0", "board-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text("example-9\n")
        (tmp_path / name / "memory").write_text("16Gi\n")
    return tmp_path


@pytest.mark.parametrize("driver", [DRAWN, *(pytest.param(driver, marks=pytest.mark.full) for driver in PROGRAMS)])
def test_the_gpu_and_nic_drivers_and_the_template_pass_conformance(
    cluster: clusters.LocalCluster, commands: forked_cli.Commands, driver: str, boards: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    variables = {"PYTHONPATH": str(EXAMPLES / "hello"), "HELLO_FOLDER": str(boards)}
    verdicts = conformance(cluster, commands, driver, PROGRAMS[driver], tmp_path / "report.xml", **variables)
    assert set(verdicts.values()) == {"pass"}
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]  # noqa: S314 - written a moment ago
    assert suite.get("tests") == str(len(verdicts))


def test_conformance_runs_with_existing_claims_and_a_restart_command(
    cluster: clusters.LocalCluster, commands: forked_cli.Commands, tmp_path: pathlib.Path
) -> None:
    folder = cluster.node(NODE).folder
    where = ["--node", NODE, "--folder", str(folder.root), "--kubeconfig", str(folder.kubeconfig)]
    run = shlex.join([sys.executable, "-m", "drakit", "run", "--mock", command_line.MACHINE, "--family", "nic", *where])
    restart, pid = tmp_path / "restart", tmp_path / "pid"
    restart.write_text(f"#!/bin/sh\n[ -e {pid} ] && kill -9 $(cat {pid})\n{run} >/dev/null 2>&1 &\necho $! > {pid}\n")
    restart.chmod(0o755)
    cluster.api.create(CLASS, testing.device_class("device", driver="nic.drakit.dev"))
    subprocess.run([restart], check=True, env=demo.environment(cluster.folder))
    try:
        with contextlib.closing(client.connect(cluster.kubeconfig)) as api, api_objects.Objects(api).made(["device"], "default") as make:
            given = [word for one in make("nic.drakit.dev") for word in ("--claim", f"default/{one['metadata']['name']}")]  # type: ignore[index,call-overload]
            found = ["--socket", str(folder.registry), "--driver", "nic.drakit.dev", "--kubeconfig", str(cluster.kubeconfig)]
            words = ("conformance", *found, *given, "--restart", str(restart))
            done = commands.run(*words, program="kit", environment=demo.environment(cluster.folder))
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nic.drakit.dev: 22 pass, 0 FAIL, 0 warn, 5 n/a" in done.stdout, "CDI files are not looked at"


def test_a_driver_on_the_kits_cluster_is_judged_by_one_call() -> None:
    hardware = author.Hardware()
    with testing.Cluster(lambda: author.FakeDriver(hardware)) as running:
        running.apply(testing.device_class("device", driver=author.FakeDriver.name))
        report = running.check_plugin("device", exclusive=["NO_PART_*"])
        assert {check.name: check.message for check in report.checks if check.verdict is not drakit.Verdict.OK} == {
            "v1: no two claims get the same exclusive part": "--exclusive NO_PART_*: no container gets a variable or device node of this name; "
            "correct the pattern"
        }
    assert hardware.made == {}
