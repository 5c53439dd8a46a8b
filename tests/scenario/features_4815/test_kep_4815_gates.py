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
from fakes import kep_4815_samples
from fakes.single_threaded_cluster import DRIVER, MIXINS, SingleThreadedCluster, device_request
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

OFF = FeatureGates.of({"DRAPartitionableDevices": False, "DRAResourceSliceMixins": True})
QUARTER, WHOLE = (device_request("gpu", f"device.capacity['{DRIVER}'].memory == quantity('{amount}')") for amount in ("10Gi", "40Gi"))


def plain(name: str = "plain") -> Object:
    return kep_4815_samples.slice_of(name, {"devices": [{"name": name, "capacity": {"memory": {"value": "10Gi"}}}]})


def quarters(gates: FeatureGates | None = None, scheduler: FeatureGates | None = None) -> SingleThreadedCluster:
    simulated_cluster = SingleThreadedCluster(gates=gates, scheduler=scheduler)
    simulated_cluster.apply(*kep_4815_samples.mended("partitions-of-one-gpu"))
    simulated_cluster.device_class("gpu")
    return simulated_cluster


def fields(simulated_cluster: SingleThreadedCluster) -> list[list[str]]:
    """What the devices of each stored slice say beside their names."""
    found = [json_types.objects(one, "spec", "devices") for one in simulated_cluster.api.list(SLICE).items]
    return [sorted({field for device in devices for field in device} - {"name"}) for devices in found]


def test_with_the_gate_off_counters_and_devices_that_use_them_are_dropped() -> None:
    simulated_cluster = SingleThreadedCluster(gates=OFF)
    simulated_cluster.apply(*kep_4815_samples.mended("partitions-of-one-gpu"))
    assert all("sharedCounters" not in json_types.mapping(one, "spec") for one in simulated_cluster.api.list(SLICE).items)
    assert fields(simulated_cluster) == [[], ["capacity", "includes"]]


def test_with_the_gate_off_devices_cannot_choose_their_nodes() -> None:
    with pytest.raises(errors.InvalidError, match="exactly one of nodeName, nodeSelector, allNodes"):
        SingleThreadedCluster(gates=OFF).apply(*kep_4815_samples.mended("tpu-slice"))


def test_a_stored_slice_keeps_its_fields_when_the_gate_is_switched_off() -> None:
    later = quarters().restarted(gates=OFF)
    for one in later.api.list(SLICE).items:
        json_types.child(one, "metadata")["labels"] = {"touched": "true"}
        kept = later.api.update(SLICE, one)
        assert "sharedCounters" in json_types.mapping(kept, "spec") or "consumesCounters" in json_types.objects(kept, "spec", "devices")[0]


def test_the_gate_changes_nothing_for_slices_that_do_not_use_it() -> None:
    found = []
    for gates in (MIXINS, OFF):
        simulated_cluster = SingleThreadedCluster(gates=gates)
        simulated_cluster.apply(plain())
        simulated_cluster.device_class("gpu")
        found.append((simulated_cluster.take("a", QUARTER), simulated_cluster.take("b", QUARTER), fields(simulated_cluster)))
    assert found[0] == found[1] == (["plain"], [], [["capacity"]])


def test_an_older_scheduler_skips_partitions_and_allocates_everything_else() -> None:
    simulated_cluster = quarters(scheduler=OFF)
    simulated_cluster.apply(plain())
    assert simulated_cluster.take("c", QUARTER) == ["plain"]
    assert simulated_cluster.take("d", QUARTER) == []
    assert simulated_cluster.take("e", WHOLE) == []


def test_an_older_scheduler_skips_devices_of_several_nodes() -> None:
    simulated_cluster = SingleThreadedCluster("node-1", "node-2", scheduler=OFF)
    simulated_cluster.apply(*kep_4815_samples.mended("tpu-slice"))
    simulated_cluster.device_class("any", "true")
    assert simulated_cluster.take("c", device_request("any")) == []
    simulated_cluster.apply(plain())
    assert simulated_cluster.decide("c") == "node-1"


def test_an_older_server_drops_what_a_newer_scheduler_would_understand() -> None:
    simulated_cluster = quarters(gates=OFF, scheduler=MIXINS)
    assert [simulated_cluster.take("whole", WHOLE), simulated_cluster.take("part", QUARTER)] == [["gpu-0"], ["gpu-0-partition-0"]]


def test_claims_keep_their_partitions_while_the_gate_is_off_and_count_once_it_is_on() -> None:
    simulated_cluster = quarters()
    assert simulated_cluster.take("before", QUARTER) == ["gpu-0-partition-0"]
    off = simulated_cluster.restarted(gates=OFF)
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


def test_static_partitions_work_without_the_feature() -> None:
    simulated_cluster = quarters().restarted(gates=OFF)
    simulated_cluster.apply(plain("ahead"))
    assert simulated_cluster.take("c", QUARTER) == ["ahead"]


def test_pods_use_partitions_through_a_driver_and_a_kubelet_in_turn() -> None:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    cluster = QuickCluster(folder, gates=MIXINS)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(cluster.stop)
        cluster.start()
        plugin = cluster.plugin(name=DRIVER)
        cluster.create(CLASS, objects.device_class("part", DRIVER))
        for one in kep_4815_samples.mended("partitions-of-one-gpu"):
            cluster.create(SLICE, one)
        for name, request in (("a", QUARTER), ("b", QUARTER), ("whole", WHOLE)):
            _use(cluster, name, request)
        for name in ("a", "b"):
            cluster.phase(name, "Running")
        cluster.until(lambda: " needed, " in cluster.scheduling_message("whole"), "the refusal")
        assert sorted(cluster.devices("a") + cluster.devices("b")) == ["gpu-0-partition-0", "gpu-0-partition-1"]
        assert cluster.view("a").env["DEVICE_R"] in cluster.devices("a")
        parts = {cluster.uid("a"), cluster.uid("b")}
        for name in ("a", "b"):
            cluster.delete(name)
        cluster.phase("whole", "Running")
        assert cluster.devices("whole") == ["gpu-0"]
        assert set(plugin.uids(UNPREPARE)) == parts
        assert set(plugin.uids(PREPARE)) == parts | {cluster.uid("whole")}


def _use(cluster: QuickCluster, name: str, request: Object) -> None:
    wanted: Json = {**json_types.mapping(request, "exactly"), "deviceClassName": "part"}
    cluster.create(CLAIM, objects.claim(name, {"name": "r", "exactly": wanted}))
    cluster.create(POD, objects.pod(name, claim=name))
