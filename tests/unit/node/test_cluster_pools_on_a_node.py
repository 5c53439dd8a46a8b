"""A node prepares devices of its driver's pools that belong to no node, and undoes them also when their claim and the journal are gone."""

from collections.abc import Sequence

import pytest

import drakit
from drakit import testing


class LanDriver(drakit.Driver[drakit.NoConfig], drakit.ClusterPools):
    """Disks in a network, by rack, beside one of the node."""

    name = "lan.example.com"

    def __init__(self, racks: dict[str, list[str]], attached: dict[str, str]) -> None:
        self.racks = racks
        self.attached = attached

    def discover(self) -> drakit.Inventory:
        return drakit.Inventory.of([drakit.Device(name="local-disk")])

    def cluster_pools(self) -> Sequence[drakit.ClusterPool]:
        return [
            drakit.ClusterPool(
                name=rack, reach=drakit.AllNodes(), inventory=drakit.Inventory.of(drakit.Device(name=disk) for disk in disks)
            )
            for rack, disks in self.racks.items()
        ]

    def prepare(self, grant: drakit.Grant[drakit.NoConfig]) -> drakit.Prepared:
        self.attached[grant.device.name] = grant.pool
        return drakit.Prepared(edits=drakit.Edits(env={"LUN": grant.device.name}))

    def unprepare(self, grant: drakit.Grant[drakit.NoConfig]) -> None:
        self.attached.pop(grant.device.name, None)


@pytest.fixture
def attached() -> dict[str, str]:
    return {}


@pytest.fixture
def racks() -> dict[str, list[str]]:
    return {"rack-a": ["lun-0"], "rack-b": ["lun-1"]}


def test_devices_of_the_node_and_of_the_cluster_are_prepared_for_one_claim(racks: dict[str, list[str]], attached: dict[str, str]) -> None:
    with testing.Node(lambda: LanDriver(racks, attached)) as node:
        claim = node.claim("local-disk", "lun-1")
        node.prepare(claim)
        assert attached == {"local-disk": "test-node", "lun-1": "rack-b"}
        node.unprepare(claim)
        assert (node.is_clean, attached) == (True, {})


def test_a_device_that_no_pool_has_is_refused(racks: dict[str, list[str]], attached: dict[str, str]) -> None:
    with testing.Node(lambda: LanDriver(racks, attached)) as node:
        claim = node.claim("lun-1")
        del racks["rack-b"]
        assert "'rack-b' is not this node's pool" in node.try_prepare(claim).error


def test_a_deleted_claim_is_undone_after_the_journal_was_lost(racks: dict[str, list[str]], attached: dict[str, str]) -> None:
    with testing.Node(lambda: LanDriver(racks, attached)) as node:
        claim = node.claim("lun-1")
        node.prepare(claim)
        node.claims.remove(claim)
        node.lose_journal()
        assert [kept.pool for entry in node.entries for kept in entry.grants] == ["rack-b"]
        node.unprepare(claim)
        assert (node.is_clean, attached) == (True, {})


def test_of_two_devices_of_one_name_neither_is_undone_for_a_claim_that_is_gone(
    racks: dict[str, list[str]], attached: dict[str, str]
) -> None:
    with testing.Node(lambda: LanDriver(racks, attached)) as node:
        claim = node.claim("lun-1")
        node.prepare(claim)
        node.claims.remove(claim)
        racks["rack-a"].append("lun-1")
        node.lose_journal()
        assert node.is_clean, "no CDI file says which of the two it was"
        assert attached == {"lun-1": "rack-b"}


def test_a_driver_with_node_and_cluster_pools_keeps_the_contract(racks: dict[str, list[str]], attached: dict[str, str]) -> None:
    report = testing.check_driver(
        lambda: LanDriver(racks, attached),
        hardware=lambda: dict(attached),
        device_names=["local-disk", "lun-0", ("lun-0", "lun-1")],
        every=29,
    )
    assert report.crash_points > 12
