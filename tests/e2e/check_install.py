"""The overlay, applied: pods, rights, slices."""

import time

import pytest

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from e2e import driver as drivers
from e2e.api import Api
from e2e.driver import Driver
from e2e.gates import Gates

GPU, NIC = drivers.DRIVERS
_IDLE_SECONDS = 5


def pools(driver: Driver) -> list[list[Object]]:
    return [driver.slices(name) for name in drivers.DRIVERS]


def test_every_pool_is_whole_in_one_generation_and_owned_by_its_node(api: Api, driver: Driver) -> None:
    node = json_types.text(api.get("Node", driver.node), "metadata", "uid")
    for slices in pools(driver):
        counts = {json_types.number(one, "spec", "pool", "resourceSliceCount") for one in slices}
        assert counts == {len(slices)}
        assert len({json_types.number(one, "spec", "pool", "generation") for one in slices}) == 1
        owners = [owner for one in slices for owner in json_types.objects(one, "metadata", "ownerReferences")]
        assert {json_types.text(owner, "uid") for owner in owners} == {node}
        assert len(owners) == len(slices)


def test_devices_have_names_of_their_own_and_what_classes_select_by(driver: Driver) -> None:
    for name in drivers.DRIVERS:
        names = [json_types.text(device, "name") for device in driver.devices(name)]
        assert len(set(names)) == len(names) >= 2
    kinds = [json_types.text(device, "attributes", "type", "string") for device in driver.devices(GPU)]
    assert kinds.count("gpu") == 2
    assert {json_types.text(device, "attributes", "ifName", "string") for device in driver.devices(NIC)} == {"eth1", "eth2"}


@pytest.mark.gates("DRAPartitionableDevices")
def test_partitions_draw_on_counters_that_a_slice_of_their_pool_has(driver: Driver) -> None:
    slices = driver.slices(GPU)
    known = {json_types.text(one, "name") for found in slices for one in json_types.objects(found, "spec", "sharedCounters")}
    drawn = {
        json_types.text(draw, "counterSet") for device in driver.devices(GPU) for draw in json_types.objects(device, "consumesCounters")
    }
    assert drawn == known == {"gpu-0-counter-set", "gpu-1-counter-set"}
    assert len(driver.devices(GPU)) == 52


def test_whole_gpus_are_offered_whatever_the_server_stores(driver: Driver, gates: Gates) -> None:
    kinds = {json_types.text(device, "attributes", "type", "string") for device in driver.devices(GPU)}
    assert kinds == ({"gpu", "mig"} if gates.is_on("DRAPartitionableDevices") else {"gpu"})


@pytest.mark.slow
def test_an_idle_node_writes_nothing(driver: Driver) -> None:
    def versions() -> list[str]:
        return [json_types.text(one, "metadata", "resourceVersion") for slices in pools(driver) for one in slices]

    before = versions()
    time.sleep(_IDLE_SECONDS)
    assert versions() == before


@pytest.mark.real
def test_the_drivers_run_without_any_capability_on_a_read_only_root(driver: Driver) -> None:
    for name in drivers.DRIVERS:
        status = driver.execute(name, "cat", "/proc/1/status", "/proc/1/mountinfo")
        assert "CapEff:\t0000000000000000" in status
        root = next(line for line in status.splitlines() if " / / " in line)
        assert root.split()[5].split(",")[0] == "ro"


@pytest.mark.real
def test_doctor_finds_nothing_wrong_in_the_pods(driver: Driver) -> None:
    for name in drivers.DRIVERS:
        result = driver.execute(name, "drakit", "doctor")
        assert driver.node in result
