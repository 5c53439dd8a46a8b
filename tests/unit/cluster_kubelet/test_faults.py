"""What a kubelet does to a driver on purpose."""

import threading

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.objects.resources import CLAIM, POD
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster


class Meeting:
    """Holds calls until two are there at once. One that waits alone ends before the kubelet gives up on it, and the kubelet tries again."""

    def __init__(self) -> None:
        self.met = False
        self._here = 0
        self._changed = threading.Condition()

    def __call__(self, _response: object, _context: grpc.ServicerContext) -> None:
        with self._changed:
            self._here += 1
            self.met = self.met or self._here > 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.met, timeout=1.5)
            self._here -= 1


def test_an_injected_fault_makes_every_call_twice_at_once(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    plugin.on_prepare, plugin.on_unprepare = preparing, unpreparing = Meeting(), Meeting()
    cluster.cluster.node(objects.NODE).faults.call_twice = True
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert preparing.met
    assert unpreparing.met
    for method in (PREPARE, UNPREPARE):
        assert set(plugin.uids(method)) == {cluster.uid("c")}
        assert plugin.count(method) >= 2  # More where a slow machine makes the kubelet try again.


def test_an_injected_fault_makes_an_unprepare_before_the_prepare(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.cluster.node(objects.NODE).faults.unprepare_first = True
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    assert [call.method for call in plugin.calls] == [UNPREPARE, PREPARE]


def test_a_connection_broken_by_a_fault_ends_the_call_and_it_is_retried(cluster: QuickCluster) -> None:
    """A slow machine may break a connection before the plugin has the call, so connections are broken until it has one."""
    plugin, faults = cluster.plugin(), cluster.cluster.node(objects.NODE).faults
    faults.drop_calls = 1000

    def linger(_response: dra.NodePrepareResourcesResponse, context: grpc.ServicerContext) -> None:
        if faults.drop_calls:
            faults.drop_calls = 0
            assert waits.eventually(lambda: not context.is_active())

    plugin.on_prepare = linger
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.until(lambda: 1 <= plugin.cancelled == plugin.count(PREPARE) - 1, "the end of all calls but the last")
    assert set(plugin.uids(PREPARE)) == {cluster.uid("c")}
    cluster.until(lambda: any("CANCELLED" in message for message in cluster.events("FailedPrepareDynamicResources")), "an event")
