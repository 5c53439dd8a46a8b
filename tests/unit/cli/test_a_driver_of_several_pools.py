"""``show``, ``slices`` and the dashboard about a driver that has its devices in several pools of a node."""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from drakit.cli import driver_program
from drakit_cluster.api import registry
from drakit_cluster.objects import resources
from drakit_tools.dashboard import cluster_source
from fakes import banks, cluster_dashboard, command_line, real_clock

DRIVER = "bank.example.com"
POOLS = {"plain-0": "node-1", "fast-0": "node-1/fast", "fast-1": "node-1/fast", "slow-0": "node-1/slow"}


@pytest.fixture
def shell(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> command_line.CommandLine:
    """The program of a driver with a bank in the node's own pool, two in the pool fast, and one in the pool slow."""
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bank")])
    pools = {name: pool.partition("/")[2] or None for name, pool in POOLS.items()}

    def run(*arguments: str) -> command_line.Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            driver_program.serve(lambda: banks.BankDriver(pools, {}), [*arguments, "--folder", str(tmp_path / "node")])
        written = capsys.readouterr()
        return command_line.Result(status=int(ended.value.code or 0), out=written.out, err=written.err)

    return command_line.CommandLine(run=run, folder=tmp_path)


def result(device: str) -> dict[str, object]:
    return {"request": "bank", "driver": DRIVER, "pool": POOLS[device], "device": device}


def slices(shell: command_line.CommandLine, node: str = "node-1") -> list[Any]:
    return list(yaml.load_all(shell.run("slices", "-o", "yaml", "--node", node).out, Loader=yaml.CSafeLoader))


def test_slices_of_each_pool_have_names_of_their_own(shell: command_line.CommandLine) -> None:
    made = slices(shell)
    assert {item["metadata"]["name"]: (item["spec"]["pool"]["name"], item["spec"]["nodeName"]) for item in made} == {
        f"00000-{DRIVER}-node-1": ("node-1", "node-1"),
        f"00000-{DRIVER}-node-1-fast": ("node-1/fast", "node-1"),
        f"00000-{DRIVER}-node-1-slow": ("node-1/slow", "node-1"),
    }
    assert {device["name"]: item["spec"]["pool"]["name"] for item in made for device in item["spec"]["devices"]} == POOLS
    flat = shell.run("slices", "--node", "node-1").out.splitlines()[1].split()
    assert flat[:4] == [DRIVER, "flat", "3", "4"]


def test_slices_of_a_node_with_a_long_name_are_told_apart_by_their_pools(shell: command_line.CommandLine) -> None:
    made = [item["metadata"]["name"] for item in slices(shell, ".".join(["n" * 60] * 4))]
    assert len(set(made)) == 3
    assert max(map(len, made)) <= 253


def test_show_names_the_pool_of_each_device_and_the_claim_that_has_it(shell: command_line.CommandLine) -> None:
    claim = shell.claim_file(result("fast-1"), result("slow-0"), name="mine")
    assert shell.run("prepare", claim, "--node", "node-1").status == 0
    table = [line.split() for line in shell.run("show", "--node", "node-1").out.splitlines()]
    assert table[0] == ["==", DRIVER, "on", "node-1"]
    assert table[1:6] == [
        ["DEVICE", "POOL", "CLAIM"],
        ["plain-0"],
        ["fast-0", "fast"],
        ["fast-1", "fast", "mine"],
        ["slow-0", "slow", "mine"],
    ]
    (shown,) = json.loads(shell.run("show", "--node", "node-1", "-o", "json").out)
    assert shown["pool"] == "node-1"
    assert {device["name"]: device["pool"] for device in shown["devices"]} == POOLS
    assert {device["name"]: device["claim"] for device in shown["devices"]} == {
        "plain-0": None,
        "fast-0": None,
        "fast-1": "mine",
        "slow-0": "mine",
    }
    assert [device["device"] for device in shown["claims"][0]["devices"]] == ["fast-1", "slow-0"]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[tuple[registry.Registry, cluster_source.ClusterSource]]:
    with cluster_dashboard.api_server(tmp_path) as (store, connection):
        source = cluster_source.ClusterSource(connection, real_clock.RealClock(), "cluster")
        yield store, source
        source.close()


def test_the_dashboard_has_a_card_for_each_pool_and_one_row_for_a_claim_on_several(
    shell: command_line.CommandLine, cluster: tuple[registry.Registry, cluster_source.ClusterSource]
) -> None:
    store, source = cluster
    store.create(resources.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    for item in slices(shell):
        store.create(resources.SLICE, item)
    spec = {"devices": {"requests": [{"name": "bank", "exactly": {"deviceClassName": "any"}}]}}
    claim: Any = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mine"}, "spec": spec}
    made: Any = store.create(resources.CLAIM, claim, namespace="default")
    results: Any = [result("fast-1"), result("slow-0")]
    store.update(resources.CLAIM, {**made, "status": {"allocation": {"devices": {"results": results}}}}, subresource="status")
    state = cluster_dashboard.until(
        source, lambda seen: any(row.devices for row in seen.claims) and bool(seen.nodes) and len(seen.nodes[0].pools) == 3
    )
    (node,) = state.nodes
    assert {device.name: pool.name for pool in node.pools for device in pool.others} == POOLS
    assert [device.name for pool in node.pools for device in pool.others if device.uses] == ["fast-1", "slow-0"]
    assert [(row.claim, row.node, [device.device for device in row.devices]) for row in state.claims] == [
        ("default/mine", "node-1", ["fast-1", "slow-0"])
    ]
