"""What a kubelet does to a driver on purpose."""

import threading
import time

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.objects.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town


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


def test_every_call_comes_twice_at_the_same_moment(town: Town) -> None:
    plugin = town.plugin()
    plugin.on_prepare, plugin.on_unprepare = preparing, unpreparing = Meeting(), Meeting()
    town.cluster.node(objects.NODE).faults.call_twice = True
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.delete("p")
    town.gone(POD, "p")
    assert preparing.met
    assert unpreparing.met
    for method in (PREPARE, UNPREPARE):
        assert set(plugin.uids(method)) == {town.uid("c")}
        assert plugin.count(method) >= 2  # More where a slow machine makes the kubelet try again.


def test_an_unprepare_comes_before_the_prepare(town: Town) -> None:
    plugin = town.plugin()
    town.cluster.node(objects.NODE).faults.unprepare_first = True
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    assert [call.method for call in plugin.calls] == [UNPREPARE, PREPARE]


def test_a_connection_that_breaks_in_the_middle_ends_the_call_and_it_comes_again(town: Town) -> None:
    plugin = town.plugin()
    town.cluster.node(objects.NODE).faults.drop_calls = 1

    def linger(_response: dra.NodePrepareResourcesResponse, context: grpc.ServicerContext) -> None:
        deadline = time.monotonic() + 0.3
        while context.is_active() and time.monotonic() < deadline:
            time.sleep(0.005)

    plugin.on_prepare = linger
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    assert plugin.uids(PREPARE) == [town.uid("c")] * 2
    assert plugin.cancelled == 1
    assert "CANCELLED" in town.events("FailedPrepareDynamicResources")[0]
