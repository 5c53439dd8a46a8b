"""The cluster as a whole: folders, credentials, start and stop."""

import pathlib
import stat
import threading
import time

import grpc
import pytest

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.api.apiserver import ApiServer, StartError
from drakit_cluster.api.registry import Registry
from drakit_cluster.client import informer
from drakit_cluster.client.client import ApiClient
from drakit_cluster.cluster import ClusterEvent, LocalCluster
from drakit_cluster.cluster_node import FolderError
from drakit_cluster.kubelet import Timing
from drakit_cluster.objects.resources import CLAIM, NODE, POD
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster


def test_each_node_has_folders_and_credentials_for_its_owner_only(cluster: QuickCluster) -> None:
    folder = cluster.cluster.folder / objects.NODE
    for path in (folder, folder / "plugins", folder / "plugins_registry", folder / "cdi"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (cluster.cluster.kubeconfig, cluster.cluster.driver_kubeconfig(objects.NODE)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_drivers_kubeconfig_works(cluster: QuickCluster) -> None:
    with ApiClient.from_kubeconfig(cluster.cluster.driver_kubeconfig(objects.NODE)) as client:
        assert informer.uid_of(client.get(NODE, objects.NODE)) == informer.uid_of(cluster.api.get(NODE, objects.NODE))


def test_the_administrator_can_use_the_cluster_over_https(cluster: QuickCluster) -> None:
    with cluster.cluster.client() as client:
        client.create(POD, objects.pod("p"), namespace="default")
        cluster.phase("p", "Running")


def test_a_folder_with_too_long_a_path_is_named(tmp_path: pathlib.Path) -> None:
    long = tmp_path / ("x" * 60)
    with pytest.raises(FolderError, match=f"folder {long}/node-1: its path has .* bytes, but .* choose a shorter path"):
        LocalCluster(long)
    assert not long.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "Node"])
def test_an_invalid_node_name_is_refused(folder: pathlib.Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid node name"):
        LocalCluster(folder, nodes=(name,))


def test_a_stopped_cluster_leaves_no_thread_no_process_and_no_credentials(folder: pathlib.Path) -> None:
    before = set(threading.enumerate())
    running = QuickCluster(folder).start()
    running.run(objects.pod("p"))
    running.stop()
    running.stop()
    deadline = time.monotonic() + waits.SECONDS
    while left := [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
    assert not (folder / "kubeconfig").exists()
    assert not (folder / objects.NODE / "driver.kubeconfig").exists()


def test_a_cluster_that_cannot_start_leaves_nothing_behind(folder: pathlib.Path) -> None:
    with ApiServer(Registry()) as other:
        taken = LocalCluster(folder, port=other.port)
        with pytest.raises(StartError, match="cannot listen"):
            taken.start()
    assert not (folder / "kubeconfig").exists()


def test_a_kubelet_stops_while_a_driver_hangs(folder: pathlib.Path) -> None:
    running = QuickCluster(folder, timing=Timing()).start()
    plugin = running.plugin()
    release, ended = threading.Event(), threading.Event()

    def hang(_response: dra.NodePrepareResourcesResponse, _context: grpc.ServicerContext) -> None:
        release.wait(waits.SECONDS)
        ended.set()

    plugin.on_prepare = hang
    running.offer("gpu-0")
    running.create(CLAIM, objects.claim("c"))
    running.create(POD, objects.pod("p", claim="c"))
    running.until(lambda: plugin.count(PREPARE), "the call")
    running.cluster.stop()
    assert not ended.is_set(), "the kubelet stopped while the driver's call went on"
    release.set()
    running.stop()


def test_events_of_the_cluster_can_be_followed(cluster: QuickCluster) -> None:
    seen: list[ClusterEvent] = []
    follower = threading.Thread(target=lambda: seen.extend(cluster.cluster.events()))
    follower.start()
    cluster.run(objects.pod("p"))
    cluster.until(lambda: cluster.events("Running"), "the last event")
    cluster.cluster.stop()
    follower.join(waits.SECONDS)
    assert not follower.is_alive()
    assert [one.reason for one in seen if one.name == "p"] == ["Scheduled", "Running"]
    assert {one.component for one in seen} == {"drakit-cluster", "kubelet"}


def test_a_wait_in_vain_names_its_condition(cluster: QuickCluster) -> None:
    with pytest.raises(TimeoutError, match=r"timed out after 0\.05 s waiting for the moon"):
        cluster.cluster.wait_for(lambda: None, timeout=0.05, what="the moon")


def test_a_cluster_unprepares_claims_left_by_an_earlier_one_in_its_folder(folder: pathlib.Path) -> None:
    first = QuickCluster(folder).start()
    plugin = first.plugin()
    first.offer("gpu-0")
    first.create(CLAIM, objects.claim("c"))
    first.run(objects.pod("p", claim="c"))
    uid = first.uid("c")
    first.stop()
    second = QuickCluster(folder).start()
    try:
        again = second.plugin()
        second.until(lambda: again.uids("unprepare") == [uid], "Unprepare")
    finally:
        second.stop()
    assert plugin.uids("unprepare") == []
