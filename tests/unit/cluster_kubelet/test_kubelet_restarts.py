"""What a kubelet that starts again does, and does not do."""

import json
import pathlib
import threading

import pytest

from drakit_cluster.api.storage.store import Key
from drakit_cluster.kubelet.pods.records import Checkpoint, CheckpointError, ClaimRecord, PreparedDevice
from drakit_cluster.objects.resources import CLAIM, POD
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE, UNPREPARE, Plugin
from unit.cluster_kubelet.quick_cluster import QuickCluster


@pytest.fixture
def plugin(cluster: QuickCluster) -> Plugin:
    """A plugin that prepared claim c for the running pod p."""
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    return plugin


def _restart(cluster: QuickCluster) -> None:
    cluster.cluster.restart_kubelet(objects.NODE)
    cluster.until(lambda: cluster.cluster.node(objects.NODE).kubelet.plugins.is_usable(DRIVER), "registration")


def test_a_restart_keeps_running_pods_and_unprepares_them_at_their_end(cluster: QuickCluster, plugin: Plugin) -> None:
    started = cluster.view("p").started_at
    _restart(cluster)
    cluster.until(lambda: len(plugin.statuses) == 2, "the second registration")
    assert (cluster.view("p").restarts, cluster.view("p").started_at) == (0, started)
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert (plugin.uids(PREPARE), plugin.uids(UNPREPARE)) == ([cluster.uid("c")], [cluster.uid("c")])


def test_the_nodes_slices_are_deleted_at_the_start(cluster: QuickCluster, plugin: Plugin) -> None:
    _restart(cluster)
    assert cluster.slices() == []


def test_a_kubelet_that_cannot_start_leaves_no_thread(cluster: QuickCluster) -> None:
    node = cluster.cluster.node(objects.NODE)
    node.stop_kubelet()
    node.folder.pod_resources.parent.rename(node.folder.root / "elsewhere")
    node.folder.pod_resources.parent.write_text("not a folder")
    with pytest.raises(OSError):
        node.start_kubelet()
    own = (f"lease-{objects.NODE}", f"kubelet-{objects.NODE}", f"reconcile-{objects.NODE}")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(own)] == []
    node.folder.pod_resources.parent.unlink()
    node.start_kubelet()


def test_a_pod_removed_while_no_kubelet_ran_is_unprepared(cluster: QuickCluster, plugin: Plugin) -> None:
    node = cluster.cluster.node(objects.NODE)
    node.stop_kubelet()
    cluster.delete("p", force=True)
    assert plugin.count(UNPREPARE) == 0
    node.start_kubelet()
    cluster.until(lambda: plugin.uids(UNPREPARE) == [cluster.uid("c")], "Unprepare")
    cluster.until(lambda: node.runtime.sandboxes() == [], "the end of the sandbox")


def test_a_pod_deleted_while_no_kubelet_ran_ends_when_one_starts(cluster: QuickCluster, plugin: Plugin) -> None:
    node = cluster.cluster.node(objects.NODE)
    node.stop_kubelet()
    cluster.delete("p")
    node.start_kubelet()
    cluster.gone(POD, "p")
    assert plugin.uids(UNPREPARE) == [cluster.uid("c")]


def test_a_claim_whose_prepare_never_ended_is_unprepared_by_the_next_kubelet(cluster: QuickCluster) -> None:
    """The claim is in the kubelet's books before a driver is called."""
    plugin, node = cluster.plugin(), cluster.cluster.node(objects.NODE)
    entered, go = threading.Event(), threading.Event()

    def hang(_response: object, _context: object) -> None:
        entered.set()
        go.wait(waits.SECONDS)

    plugin.on_prepare = hang
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    assert entered.wait(waits.SECONDS)
    books = node.folder.checkpoint.read_text()
    go.set()
    node.stop_kubelet()
    node.folder.checkpoint.write_text(books)
    cluster.delete("p", force=True)
    node.start_kubelet()
    cluster.until(lambda: plugin.uids(UNPREPARE) == [cluster.uid("c")], "Unprepare")


def test_a_dead_sandbox_is_recreated_without_a_second_prepare(cluster: QuickCluster, plugin: Plugin) -> None:
    _kill_sandbox(cluster)
    assert plugin.count(PREPARE) == 1
    assert cluster.view("p").env == {"DEVICE_GPU": "gpu-0"}


def test_a_sandbox_that_dies_after_a_restart_is_prepared_again(cluster: QuickCluster, plugin: Plugin) -> None:
    _restart(cluster)
    _kill_sandbox(cluster)
    assert plugin.uids(PREPARE) == [cluster.uid("c")] * 2
    assert cluster.view("p").env == {"DEVICE_GPU": "gpu-0"}


def _kill_sandbox(cluster: QuickCluster) -> None:
    runtime = cluster.cluster.node(objects.NODE).runtime
    [pod] = runtime.sandboxes()
    runtime.kill_sandbox(pod.uid)
    cluster.until(lambda: runtime.containers(pod.uid), "a new sandbox")


def test_the_checkpoint_has_the_real_kubelets_form(cluster: QuickCluster, plugin: Plugin) -> None:
    outer = json.loads(cluster.cluster.node(objects.NODE).folder.checkpoint.read_text())
    data = json.loads(outer["Data"])
    [state] = data["ClaimInfoStateList"]
    assert (data["kind"], data["apiVersion"]) == ("DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1")
    assert (state["ClaimName"], state["Namespace"], state["ClaimUID"]) == ("c", "default", cluster.uid("c"))
    [device] = state["DriverState"][DRIVER]["Devices"]
    assert device == {
        "PoolName": objects.NODE,
        "DeviceName": "gpu-0",
        "ShareID": None,
        "RequestNames": ["gpu"],
        "CDIDeviceIDs": [f"example.com/gpu={cluster.uid('c')}-0"],
    }


def test_a_kubelet_does_not_start_over_a_damaged_checkpoint(cluster: QuickCluster, plugin: Plugin) -> None:
    node = cluster.cluster.node(objects.NODE)
    node.stop_kubelet()
    content = node.folder.checkpoint.read_text()
    node.folder.checkpoint.write_text(content.replace("gpu-0", "gpu-1"))
    with pytest.raises(CheckpointError, match="wrong checksum: drain the node and remove the file"):
        node.start_kubelet()
    node.folder.checkpoint.write_text(content[:20])
    with pytest.raises(CheckpointError, match="not readable"):
        node.start_kubelet()
    node.folder.checkpoint.unlink()
    node.start_kubelet()


def test_records_survive_the_checkpoint_but_for_being_prepared(tmp_path: pathlib.Path) -> None:
    device = PreparedDevice(requests=("a", "b"), pool="p", device="d", cdi_ids=("x/y=z",), share_id="s")
    record = ClaimRecord(key=Key("ns", "c"), uid="u", pods={"p1", "p2"}, drivers={"one": (device,), "two": ()}, prepared=True)
    checkpoint = Checkpoint(tmp_path / "state")
    assert checkpoint.load() == []
    checkpoint.save([record])
    record.prepared = False
    assert checkpoint.load() == [record]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
