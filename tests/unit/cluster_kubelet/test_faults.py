"""What a kubelet does to a driver on purpose."""

import time

import grpc

from drakit._proto import dra_v1_pb2 as dra
from drakit.cluster.resources import CLAIM, POD
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.town import Town


def test_every_call_comes_twice_at_the_same_moment(town: Town) -> None:
    plugin = town.plugin()
    town.cluster.node(objects.NODE).faults.call_twice = True
    town.offer("gpu-0")
    town.create(CLAIM, objects.claim("c"))
    town.run(objects.pod("p", claim="c"))
    town.delete("p")
    town.gone(POD, "p")
    assert plugin.uids(PREPARE) == [town.uid("c")] * 2
    assert plugin.uids(UNPREPARE) == [town.uid("c")] * 2
    first, second = [call.time for call in plugin.calls if call.method == PREPARE]
    assert abs(first - second) < 1


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
