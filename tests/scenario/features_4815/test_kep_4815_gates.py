"""KEP-4815: the feature gate off, on again, and on in one component only; and the feature end to end with a driver."""

import contextlib
import pathlib
import shutil
import tempfile

import pytest

from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, POD, SLICE
from fakes import feature4815_samples as samples
from fakes.feature4815_cell import DRIVER, MIXINS, Cell, wish
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town

OFF = FeatureGates.of({"DRAPartitionableDevices": False, "DRAMixins": True})
QUARTER, WHOLE = (wish("gpu", f"device.capacity['{DRIVER}'].memory == quantity('{amount}')") for amount in ("10Gi", "40Gi"))


def plain(name: str = "plain") -> Object:
    return samples.slice_of(name, {"devices": [{"name": name, "capacity": {"memory": {"value": "10Gi"}}}]})


def quarters(gates: FeatureGates | None = None, scheduler: FeatureGates | None = None) -> Cell:
    cell = Cell(gates=gates, scheduler=scheduler)
    cell.apply(*samples.mended("partitions-of-one-gpu"))
    cell.device_class("gpu")
    return cell


def fields(cell: Cell) -> list[list[str]]:
    """What the devices of each stored slice say beside their names."""
    found = [json_types.objects(one, "spec", "devices") for one in cell.api.list(SLICE).items]
    return [sorted({field for device in devices for field in device} - {"name"}) for devices in found]


def test_with_the_gate_off_counters_are_dropped_and_what_needs_them_with_them() -> None:
    cell = Cell(gates=OFF)
    cell.apply(*samples.mended("partitions-of-one-gpu"))
    assert all("sharedCounters" not in json_types.mapping(one, "spec") for one in cell.api.list(SLICE).items)
    assert fields(cell) == [[], ["capacity", "includes"]]


def test_with_the_gate_off_devices_cannot_choose_their_nodes() -> None:
    with pytest.raises(errors.InvalidError, match="exactly one of nodeName, nodeSelector, allNodes"):
        Cell(gates=OFF).apply(*samples.mended("tpu-slice"))


def test_a_stored_slice_keeps_its_fields_when_the_gate_is_switched_off() -> None:
    later = quarters().restarted(gates=OFF)
    for one in later.api.list(SLICE).items:
        json_types.child(one, "metadata")["labels"] = {"touched": "true"}
        kept = later.api.update(SLICE, one)
        assert "sharedCounters" in json_types.mapping(kept, "spec") or "consumesCounters" in json_types.objects(kept, "spec", "devices")[0]


def test_the_gate_changes_nothing_for_slices_that_do_not_use_it() -> None:
    found = []
    for gates in (MIXINS, OFF):
        cell = Cell(gates=gates)
        cell.apply(plain())
        cell.device_class("gpu")
        found.append((cell.take("a", QUARTER), cell.take("b", QUARTER), fields(cell)))
    assert found[0] == found[1] == (["plain"], [], [["capacity"]])


def test_an_older_scheduler_leaves_partitions_alone_and_allocates_everything_else() -> None:
    cell = quarters(scheduler=OFF)
    cell.apply(plain())
    assert cell.take("c", QUARTER) == ["plain"]
    assert cell.take("d", QUARTER) == []
    assert cell.take("e", WHOLE) == []


def test_an_older_scheduler_leaves_devices_of_several_nodes_alone() -> None:
    cell = Cell("node-1", "node-2", scheduler=OFF)
    cell.apply(*samples.mended("tpu-slice"))
    cell.device_class("any", "true")
    assert cell.take("c", wish("any")) == []
    cell.apply(plain())
    assert cell.decide("c") == "node-1"


def test_an_older_server_drops_what_a_newer_scheduler_would_understand() -> None:
    cell = quarters(gates=OFF, scheduler=MIXINS)
    assert [cell.take("whole", WHOLE), cell.take("part", QUARTER)] == [["gpu-0"], ["gpu-0-partition-0"]]


def test_claims_keep_their_partitions_while_the_gate_is_off_and_count_once_it_is_on() -> None:
    cell = quarters()
    assert cell.take("before", QUARTER) == ["gpu-0-partition-0"]
    off = cell.restarted(gates=OFF)
    assert off.devices("before") == ["gpu-0-partition-0"]
    assert off.schedule("second-user", "before") == "node-1"
    assert off.take("meanwhile", QUARTER) == []
    again = off.restarted()
    assert again.decide("meanwhile") == "node-1"
    assert again.devices("meanwhile") == ["gpu-0-partition-1"]
    assert again.take("whole", WHOLE) == []
    for name in ("before", "second-user", "meanwhile"):
        again.end(name)
    assert again.decide("whole") == "node-1"


def test_a_driver_that_advertises_partitions_made_ahead_goes_on_without_the_feature() -> None:
    cell = quarters().restarted(gates=OFF)
    cell.apply(plain("ahead"))
    assert cell.take("c", QUARTER) == ["ahead"]


def test_a_driver_and_a_kubelet_use_partitions_from_pod_to_pod() -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    town = Town(folder, gates=MIXINS)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(town.stop)
        town.start()
        plugin = town.plugin(name=DRIVER)
        town.create(CLASS, objects.device_class("part", DRIVER))
        for one in samples.mended("partitions-of-one-gpu"):
            town.create(SLICE, one)
        for name, request in (("a", QUARTER), ("b", QUARTER), ("whole", WHOLE)):
            _use(town, name, request)
        for name in ("a", "b"):
            town.phase(name, "Running")
        town.until(lambda: " needed, " in town.scheduling_message("whole"), "the refusal")
        assert sorted(town.devices("a") + town.devices("b")) == ["gpu-0-partition-0", "gpu-0-partition-1"]
        assert town.view("a").env["DEVICE_R"] in town.devices("a")
        parts = {town.uid("a"), town.uid("b")}
        for name in ("a", "b"):
            town.delete(name)
        town.phase("whole", "Running")
        assert town.devices("whole") == ["gpu-0"]
        assert set(plugin.uids(UNPREPARE)) == parts
        assert set(plugin.uids(PREPARE)) == parts | {town.uid("whole")}


def _use(town: Town, name: str, request: Object) -> None:
    wanted: Json = {**json_types.mapping(request, "exactly"), "deviceClassName": "part"}
    town.create(CLAIM, objects.claim(name, {"name": "r", "exactly": wanted}))
    town.create(POD, objects.pod(name, claim=name))
