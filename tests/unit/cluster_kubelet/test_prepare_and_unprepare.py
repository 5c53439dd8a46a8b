"""The calls for claims, and the rules for their answers."""

import concurrent.futures
import threading
from collections.abc import Callable

import grpc
import pytest

from drakit._proto import dra_v1_pb2 as dra
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.resources import CLAIM, CLASS, POD, SLICE
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

Prepared = dra.NodePrepareResourcesResponse
Unprepared = dra.NodeUnprepareResourcesResponse


def _error(response: Prepared | Unprepared, _context: grpc.ServicerContext) -> None:
    for answer in response.claims.values():
        answer.error = "the device is on fire"


def _missing(response: Prepared | Unprepared, _context: grpc.ServicerContext) -> None:
    response.claims.clear()


def _unknown(response: Prepared | Unprepared, _context: grpc.ServicerContext) -> None:
    response.claims["ffff"].SetInParent()


def _failed(_response: Prepared | Unprepared, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too busy")


_FAILURES = [
    (_error, "failed for ResourceClaim default/c: the device is on fire"),
    (_missing, "skipped 1 ResourceClaims"),
    (_unknown, "returned result for unknown claim UID ffff"),
    (_failed, ": RESOURCE_EXHAUSTED: too busy"),
]


@pytest.mark.parametrize("fail,message", _FAILURES)
def test_a_failed_prepare_is_an_event_of_the_pod_and_is_retried(
    cluster: QuickCluster, fail: Callable[[Prepared, grpc.ServicerContext], None], message: str
) -> None:
    plugin = cluster.plugin()
    plugin.on_prepare = fail
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: plugin.count(PREPARE) >= 3, "three attempts")
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "an event")
    assert cluster.events("FailedPrepareDynamicResources") == [f"Failed to prepare dynamic resources: NodePrepareResources{_glue(message)}"]
    assert json_types.text(cluster.phase("p", "Pending"), "status", "phase") == "Pending"
    plugin.on_prepare = lambda _response, _context: None
    cluster.phase("p", "Running")


def _glue(message: str) -> str:
    return message if message.startswith(":") else f" {message}"


@pytest.mark.parametrize("fail,message", _FAILURES)
def test_a_failed_unprepare_keeps_pod_and_device_until_it_works(
    cluster: QuickCluster, fail: Callable[[Unprepared, grpc.ServicerContext], None], message: str
) -> None:
    plugin = cluster.plugin()
    plugin.on_unprepare = fail
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p")
    cluster.until(lambda: plugin.count(UNPREPARE) >= 3, "three attempts")
    assert cluster.find(POD, "p") is not None
    assert cluster.devices("c") == ["gpu-0"]
    plugin.on_unprepare = lambda _response, _context: None
    cluster.gone(POD, "p")
    cluster.until(lambda: cluster.devices("c") == [], "deallocation")


def test_two_threads_can_unprepare_the_claims_of_one_pod_at_once(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    preparation = cluster.cluster.node(objects.NODE).kubelet.preparation
    [uid] = preparation.pods()
    both = threading.Barrier(2)

    def meet(_response: Unprepared, _context: grpc.ServicerContext) -> None:
        both.wait(waits.SECONDS)

    plugin.on_unprepare = meet
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        taken = [threads.submit(preparation.unprepare, uid) for _ in range(2)]
        assert [one.result() for one in taken] == [["claim default/c"]] * 2
    assert preparation.pods() == set()


def test_a_prepare_beyond_its_deadline_is_cancelled_and_retried(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    slow = [True]

    def wait(_response: Prepared, context: grpc.ServicerContext) -> None:
        if slow.pop() if slow else False:
            cluster.until(lambda: not context.is_active(), "the deadline", timeout=waits.SECONDS)

    plugin.on_prepare = wait
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.until(lambda: 1 <= plugin.cancelled == plugin.count(PREPARE) - 1, "the end of all calls but the last")
    cluster.until(lambda: any("DEADLINE_EXCEEDED" in message for message in cluster.events("FailedPrepareDynamicResources")), "an event")


def test_all_claims_of_a_pod_are_prepared_in_one_call_per_driver(cluster: QuickCluster) -> None:
    plugin, other = cluster.plugin(), cluster.plugin(name="nic.example.com")
    cluster.create(CLASS, objects.device_class("nic", "nic.example.com"))
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(SLICE, objects.resource_slice(objects.device("eth0"), driver="nic.example.com"))
    nic: list[json_types.Json] = [{"name": "nic", "exactly": {"deviceClassName": "nic"}}]
    cluster.create(CLAIM, objects.claim("a"))
    cluster.create(CLAIM, objects.claim("b", objects.request(), *[one for one in nic if isinstance(one, dict)]))
    pod = objects.pod("p", containers=[objects.container()])
    json_types.child(pod, "spec")["resourceClaims"] = [
        {"name": "a", "resourceClaimName": "a"},
        {"name": "b", "resourceClaimName": "b"},
    ]
    cluster.run(pod)
    assert [call.uids for call in plugin.calls] == [(cluster.uid("a"), cluster.uid("b"))]
    assert [call.uids for call in other.calls] == [(cluster.uid("b"),)]
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert [call.uids for call in plugin.calls if call.method == UNPREPARE] == [(cluster.uid("a"), cluster.uid("b"))]
    assert [call.uids for call in other.calls if call.method == UNPREPARE] == [(cluster.uid("b"),)]


def test_a_pod_that_never_started_is_unprepared_too(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    plugin.on_prepare = _error
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: plugin.count(PREPARE), "an attempt")
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert plugin.uids(UNPREPARE) == [cluster.uid("c")]


def test_two_pods_of_one_claim_are_prepared_once_and_unprepared_after_the_second(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.run(objects.pod("q", claim="c"))
    assert cluster.view("q").env == {"DEVICE_GPU": "gpu-0"}
    assert len(json_types.items(cluster.claim("c"), "status", "reservedFor")) == 2
    cluster.delete("p")
    cluster.gone(POD, "p")
    cluster.until(lambda: len(json_types.items(cluster.claim("c"), "status", "reservedFor")) == 1, "the release")
    assert (plugin.count(PREPARE), plugin.count(UNPREPARE)) == (1, 0)
    cluster.delete("q")
    cluster.gone(POD, "q")
    assert (plugin.uids(PREPARE), plugin.uids(UNPREPARE)) == ([cluster.uid("c")], [cluster.uid("c")])


def test_a_pod_for_which_the_claim_is_not_reserved_is_not_prepared(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    claim = cluster.claim("c")
    others: list[Json] = [
        {"apiGroup": "kubeflow.org", "resource": "trainjobs", "name": f"j{index}", "uid": str(index)} for index in range(255)
    ]
    json_types.items(claim, "status", "reservedFor").extend(others)
    cluster.api.update(CLAIM, claim, subresource="status")
    cluster.create(POD, objects.pod("q", claim="c", nodeName=objects.NODE))
    cluster.until(lambda: cluster.events("FailedReservation"), "the controller's event")
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "the kubelet's event")
    assert "is not allowed to use ResourceClaim c" in cluster.events("FailedPrepareDynamicResources")[0]
    cluster.delete("q")
    cluster.gone(POD, "q")
    assert (plugin.count(PREPARE), plugin.count(UNPREPARE)) == (1, 0)


def test_a_stopped_driver_delays_the_end_of_its_pods(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.lose(plugin)
    cluster.delete("p")
    cluster.until(lambda: cluster.cluster.node(objects.NODE).runtime.view("default", "p").exit_code == 0, "stopped containers")
    assert cluster.find(POD, "p") is not None
    plugin.start()
    cluster.gone(POD, "p")
    assert plugin.uids(UNPREPARE) == [cluster.uid("c")]


def test_a_pod_is_unprepared_before_its_phase_is_succeeded(cluster: QuickCluster) -> None:
    plugin = cluster.plugin()
    phases: list[str] = []
    plugin.on_unprepare = lambda _response, _context: phases.append(json_types.text(cluster.find(POD, "p"), "status", "phase"))
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.create(POD, objects.pod("p", claim="c", run_seconds=0.05))
    cluster.phase("p", "Succeeded")
    assert phases == ["Running"]
    cluster.until(lambda: cluster.devices("c") == [], "deallocation")
