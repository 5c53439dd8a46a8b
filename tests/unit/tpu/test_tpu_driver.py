"""A node prepares its own part of a slice, says which worker it is, and gives its chips to one claim at a time."""

import dataclasses
import pathlib
from collections.abc import Sequence

import pytest

import drakit
from drakit import machines, testing
from drakit.core import claim as claims
from drakit.core import claim_status, errors, names
from drakit.core import driver as drivers
from tpu_driver import driver, machine, mock, offer


def claim(number: int) -> claims.ClaimRef:
    return claims.ClaimRef(uid=names.ClaimUid(f"00000000-0000-4000-8000-{number:012}"), namespace="default", name=f"c{number}")


class Told:
    """The part of a context that the driver uses."""

    def __init__(self) -> None:
        self.statuses: list[tuple[claims.ClaimRef, claim_status.DeviceStatus]] = []

    def set_status(self, claim: claims.ClaimRef, status: claim_status.DeviceStatus) -> None:
        self.statuses.append((claim, status))


def on(node: str, folder: pathlib.Path) -> tuple[driver.TpuDriver, mock.MockChips]:
    chips = mock.MockChips(folder / node, 4)
    return driver.TpuDriver(machine.load("tpu-v5e-8x8"), chips, node=node), chips


def grant(made: driver.TpuDriver, device: str, number: int = 1, *, admin: bool = False) -> drivers.Grant[drivers.NoConfig]:
    found = made.cluster_device("tpus", device)
    assert found is not None
    return drivers.Grant(claim=claim(number), request="tpu", pool="tpus", device=found, config=drivers.NoConfig(), admin_access=admin)


def test_a_node_has_a_part_only_in_the_slices_around_it_and_offers_none_itself(tmp_path: pathlib.Path) -> None:
    made, _ = on("node-6", tmp_path)
    every = [one.name for one in machine.load("tpu-v5e-8x8").grid.placements()]
    mine = [name for name in every if made.cluster_device("tpus", name)]
    assert mine == ["tpu-2x2-6", "tpu-2x4-3", "tpu-4x4-1", "tpu-4x8-1", "tpu-8x8-1"]
    assert made.cluster_device("node-6", "tpu-2x2-6") is None
    assert not made.discover().devices


def test_each_node_gets_its_own_worker_and_the_same_slice(tmp_path: pathlib.Path) -> None:
    workers = {}
    for node in ("node-1", "node-2", "node-5", "node-6"):
        made, _ = on(node, tmp_path)
        result = made.prepare(grant(made, "tpu-4x4-1")).edits
        workers[node] = result.env["TPU_WORKER_ID"]
        assert {key: value for key, value in result.env.items() if key != "TPU_WORKER_ID"} == {
            "TPU_WORKER_HOSTNAMES": "node-1,node-2,node-5,node-6",
            "TPU_TOPOLOGY": "4x4",
            "TPU_ACCELERATOR_TYPE": "v5e-16",
            "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
            "TPU_HOST_BOUNDS": "2,2,1",
        }
        assert [node.path for node in result.device_nodes] == ["/dev/accel0", "/dev/accel1", "/dev/accel2", "/dev/accel3"]
    assert workers == {"node-1": "0", "node-2": "1", "node-5": "2", "node-6": "3"}


def test_prepare_again_is_the_same_and_another_claim_waits_until_unprepare(tmp_path: pathlib.Path) -> None:
    made, chips = on("node-1", tmp_path)
    first = made.prepare(grant(made, "tpu-2x2-1"))
    again, _ = on("node-1", tmp_path)
    assert again.prepare(grant(again, "tpu-2x2-1")) == first
    with pytest.raises(errors.DeviceBusyError, match="attached to 00000000-0000-4000-8000-000000000001/tpu-2x2-1"):
        made.prepare(grant(made, "tpu-4x4-1", 2))
    made.unprepare(grant(made, "tpu-4x4-1", 2))
    assert chips.user()
    for _ in range(2):
        made.unprepare(grant(made, "tpu-2x2-1"))
    assert chips.user() == ""
    made.prepare(grant(made, "tpu-4x4-1", 2))


def test_chips_are_free_again_after_a_reboot(tmp_path: pathlib.Path) -> None:
    made, chips = on("node-1", tmp_path)
    made.prepare(grant(made, "tpu-2x2-1"))
    machines.reboot(tmp_path / "node-1")
    assert chips.user() == ""


def test_admin_access_is_reported_and_gets_no_chips(tmp_path: pathlib.Path) -> None:
    made, chips = on("node-1", tmp_path)
    made.prepare(grant(made, "tpu-2x2-1"))
    result = made.prepare(grant(made, "tpu-8x8-1", 2, admin=True)).edits
    assert (result.env["TPU_WORKER_ID"], result.device_nodes) == ("0", ())
    made.unprepare(grant(made, "tpu-8x8-1", 2, admin=True))
    assert chips.user()


def test_a_node_reports_its_part_and_how_many_there_are(tmp_path: pathlib.Path) -> None:
    made, _ = on("node-5", tmp_path)
    result = Told()
    made.start(result)  # type: ignore[arg-type]  # The driver uses no more of a context than this.
    made.prepare(grant(made, "tpu-4x4-1"))
    [(ref, status)] = result.statuses
    assert ref == claim(1)
    assert (status.pool, status.device, status.nodes, dict(status.values)) == ("tpus", "tpu-4x4-1", 4, {"worker": 2})
    made.stop()
    made.prepare(grant(made, "tpu-4x4-1"))
    assert len(result.statuses) == 1


def test_a_slice_of_which_the_node_is_no_part_any_more_is_gone(tmp_path: pathlib.Path) -> None:
    made, _ = on("node-1", tmp_path)
    stray = dataclasses.replace(grant(made, "tpu-2x2-1"), pool="other")
    with pytest.raises(errors.DeviceGoneError, match="node-1 has no part of other/tpu-2x2-1"):
        made.prepare(stray)


def test_a_broken_state_file_is_a_hardware_error(tmp_path: pathlib.Path) -> None:
    made, _ = on("node-1", tmp_path)
    (tmp_path / "node-1" / "tpus.json").write_text("{")
    with pytest.raises(errors.HardwareError, match="attach: the mock machine's state"):
        made.prepare(grant(made, "tpu-2x2-1"))


class Offering(driver.TpuDriver, drakit.ClusterPools):
    """The node's driver with the pools that the publisher offers, so that the suite has devices to allocate."""

    def cluster_pools(self) -> Sequence[drakit.ClusterPool]:
        return offer.of(machine.load("tpu-v5e-8x8"))


def test_the_driver_keeps_its_contract(tmp_path: pathlib.Path) -> None:
    pool = machine.load("tpu-v5e-8x8")
    chips = mock.MockChips(tmp_path, 4)
    report = testing.check_driver(lambda: Offering(pool, chips, node=pool.nodes[0]), hardware=chips.user, every=60)
    assert report.crash_points > 2
