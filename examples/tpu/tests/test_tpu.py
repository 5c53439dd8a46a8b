"""The driver keeps its contract on one node, and drakit finds the family and its machines."""

import pathlib
from collections.abc import Sequence

import pytest

import drakit
from drakit import families, machines, testing
from tpu_driver import family, machine, mock, offer
from tpu_driver.driver import TpuDriver

POOL = machine.NodePool(
    pool="tpus",
    generation="v5e",
    grid=machine.Grid(size=machine.Size(2, 2), host=machine.Size(2, 2), shapes=(machine.Size(2, 2),)),
    nodes=("node-1",),
)


class Driver(TpuDriver, drakit.ClusterPools):
    """The node's driver with the pools that the publisher offers, so that the suite has devices to allocate."""

    def __init__(self, chips: mock.MockChips) -> None:
        super().__init__(POOL, chips, node="node-1")

    def cluster_pools(self) -> Sequence[drakit.ClusterPool]:
        return offer.of(POOL)


def test_the_driver_keeps_its_contract(tmp_path: pathlib.Path) -> None:
    chips = mock.MockChips(tmp_path / "machine", POOL.grid.host.area)
    report = testing.check_driver(lambda: Driver(chips), hardware=chips.user, death=testing.Death.KILL, every=5)
    assert report.crash_points > 5


def test_drakit_finds_the_family_and_its_machines() -> None:
    assert family.FAMILY in families.installed()
    assert machines.names(machine.KEY) == ("tpu-v5e-16x16", "tpu-v5e-8x8")


@pytest.mark.parametrize("name, slices, nodes", [("tpu-v5e-8x8", 31, 16), ("tpu-v5e-16x16", 127, 64)])
def test_each_machine_is_one_pool_of_all_slices(name: str, slices: int, nodes: int) -> None:
    pool = machine.load(name)
    (offered,) = offer.of(pool)
    assert (len(offered.inventory.devices), len(pool.nodes)) == (slices, nodes)
