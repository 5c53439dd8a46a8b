"""An author's program publishes pools that belong to no node, and follows what changes in them."""

import pathlib
import threading
from collections.abc import Iterator, Sequence

import pytest

import drakit
from drakit import settings as values
from drakit.cli import driver_program
from drakit.cli.commands import publish
from drakit.kube import client
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import NAMESPACE, SLICE
from fakes import waits

DRIVER = "lan.example.com"


class LanDriver(drakit.Driver[drakit.NoConfig], drakit.ClusterPools):
    """Disks in a network, by rack."""

    name = DRIVER

    def __init__(self, racks: dict[str, list[str]]) -> None:
        self.racks = racks

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory()

    def cluster_pools(self) -> Sequence[drakit.ClusterPool]:
        if "broken" in self.racks:
            raise drakit.HardwareError("list racks", "no answer")
        return [
            drakit.ClusterPool(
                name=rack, reach=drakit.AllNodes(), inventory=drakit.Inventory.of(drakit.Device(name=disk) for disk in disks)
            )
            for rack, disks in self.racks.items()
        ]

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        return drakit.Prepared(edits=drakit.Edits(env={"LUN": grant.device.name}))


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as made:
        made.registry.create(NAMESPACE, {"metadata": {"name": "drakit-system"}})
        yield made


@pytest.fixture
def kubeconfig(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> pathlib.Path:
    server.write_kubeconfig(tmp_path / "config")
    return tmp_path / "config"


def published(server: apiserver.ApiServer) -> dict[str, list[str]]:
    """The published devices by pool; every slice is for all nodes."""
    slices = server.registry.list(SLICE).items
    assert all(json_types.child(one, "spec").get("allNodes") is True for one in slices)
    return {
        json_types.text(one, "spec", "pool", "name"): [
            json_types.text(device, "name") for device in json_types.items(one, "spec", "devices")
        ]
        for one in slices
    }


def serve(racks: dict[str, list[str]], *arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        driver_program.serve(lambda: LanDriver(racks), arguments)
    return int(ended.value.code or 0)


def test_the_programs_publish_writes_and_withdraws_the_pools(server: apiserver.ApiServer, kubeconfig: pathlib.Path) -> None:
    racks = {"rack-a": ["lun-0", "lun-1"], "rack-b": ["lun-2"]}
    assert serve(racks, "publish", "--once", "--kubeconfig", str(kubeconfig)) == 0
    assert published(server) == racks
    assert serve(racks, "publish", "--withdraw", "--kubeconfig", str(kubeconfig)) == 0
    assert published(server) == {}


def test_a_failed_discovery_of_pools_is_one_line(kubeconfig: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve({"broken": []}, "publish", "--once", "--kubeconfig", str(kubeconfig)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("list racks: no answer")


def test_a_changed_pool_is_published_and_an_unreadable_one_stays(server: apiserver.ApiServer, kubeconfig: pathlib.Path) -> None:
    racks, stop = {"rack-a": ["lun-0"]}, threading.Event()
    chosen = values.Settings.model_validate({"publish": {"rescan": 0.1}})
    api = client.connect(kubeconfig, seconds=waits.SECONDS)
    office = publish.Office(chosen, DRIVER, api)
    serving = threading.Thread(target=office.serve, args=(LanDriver(racks).cluster_pools, stop))
    serving.start()
    try:
        assert waits.eventually(lambda: published(server) == {"rack-a": ["lun-0"]})
        racks["rack-b"] = ["lun-1"]
        assert waits.eventually(lambda: published(server) == {"rack-a": ["lun-0"], "rack-b": ["lun-1"]})
        racks["broken"] = []
        threading.Event().wait(2.5 * publish.LIVENESS_SECONDS)
        assert published(server) == {"rack-a": ["lun-0"], "rack-b": ["lun-1"]}
        racks.pop("broken")
        racks.pop("rack-a")
        assert waits.eventually(lambda: published(server) == {"rack-b": ["lun-1"]})
    finally:
        stop.set()
        serving.join(waits.SECONDS)
        api.close()
    assert not serving.is_alive()


def test_only_a_driver_with_cluster_pools_has_the_publish_command(capsys: pytest.CaptureFixture[str]) -> None:
    class Plain(drakit.Driver[drakit.NoConfig]):
        name = "plain.example.com"

        def discover(self) -> drakit.Inventory:
            return drakit.Inventory()

        def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
            raise AssertionError(grant)

    with pytest.raises(SystemExit) as ended:
        driver_program.serve(Plain, ["publish", "--once"])
    assert ended.value.code == 2
    assert "No such command 'publish'" in capsys.readouterr().err
