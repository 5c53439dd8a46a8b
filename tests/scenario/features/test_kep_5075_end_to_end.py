"""KEP-5075, test plan, integration and e2e list: pods on a running cluster, over HTTPS."""

import json
from collections.abc import Iterator

import httpx
import pytest

from drakit_cluster.api import tls
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD, SLICE
from fakes import allocating_server, feature_cluster
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER
from unit.cluster_kubelet.quick_cluster import QuickCluster

ETCD_BYTES = 1536 * 1024
"""etcd's default for the largest request."""


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with feature_cluster.running() as running:
        yield running


def _wanting(amount: str) -> Object:
    return objects.request(capacity={"requests": {"bandwidth": amount}})


def _run(cluster: QuickCluster, name: str, amount: str) -> Object:
    cluster.create(CLAIM, objects.claim(name, _wanting(amount)))
    cluster.run(objects.pod(name, claim=name))
    return json_types.mapping(cluster.claim(name), "status", "allocation", "devices", "results", 0)


def test_a_slice_with_multiple_allocations_and_a_request_policy_is_created(cluster: QuickCluster) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    [published] = cluster.slices()
    assert json_types.objects(published, "spec", "devices") == [objects.nic("eth0")]


def test_a_pod_runs_when_the_requested_capacity_is_available(cluster: QuickCluster) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    first, second = _run(cluster, "a", "6G"), _run(cluster, "b", "3500M")
    assert [one["consumedCapacity"] for one in (first, second)] == [{"bandwidth": "6G"}, {"bandwidth": "4G"}]
    preparation = cluster.cluster.node(objects.NODE).kubelet.preparation
    prepared = [preparation.devices("default", name)[DRIVER][0].share_id for name in ("a", "b")]
    assert prepared == [first["shareID"], second["shareID"]]
    assert len(set(prepared)) == 2


def test_a_pod_that_requests_more_than_what_remains_stays_pending(cluster: QuickCluster) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0", "10G")))
    _run(cluster, "a", "6G")
    cluster.create(CLAIM, objects.claim("b", _wanting("5G")))
    cluster.create(POD, objects.pod("b", claim="b"))
    cluster.until(lambda: "bandwidth: 5G needed, 4G of 10G left" in cluster.scheduling_message("b"), "the refusal")
    assert cluster.phase("b", "Pending")
    assert cluster.devices("b") == []


def test_capacity_is_released_with_its_pod_and_a_pending_pod_starts(cluster: QuickCluster) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0", "10G")))
    cluster.create(CLAIM_TEMPLATE, objects.template("t", _wanting("10G")))
    cluster.run(objects.pod("a", template="t"))
    cluster.create(POD, objects.pod("b", template="t"))
    cluster.until(lambda: "bandwidth: 10G needed, none of 10G left" in cluster.scheduling_message("b"), "the refusal")
    cluster.delete("a")
    cluster.phase("b", "Running")


def test_a_driver_reports_a_status_for_each_share_of_one_device(cluster: QuickCluster) -> None:
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    cluster.create(CLAIM, objects.claim("c", objects.request("a"), objects.request("b")))
    cluster.run(objects.pod("p", claim="c"))
    claim = cluster.claim("c")
    results = json_types.objects(claim, "status", "allocation", "devices", "results")
    fields = ("driver", "pool", "device", "shareID")
    entries: list[Json] = [
        {field: result[field] for field in fields} | {"networkData": {"interfaceName": f"net{place}"}}
        for place, result in enumerate(results)
    ]
    json_types.child(claim, "status")["devices"] = entries
    stored = cluster.api.update(CLAIM, claim, subresource="status")
    assert json_types.items(stored, "status", "devices") == entries


def test_the_largest_slice_with_the_new_fields_is_within_etcds_limit() -> None:
    values: list[Json] = [f"{amount}Gi" for amount in range(100, 110)]
    capacity: Object = {"value": "1000Gi", "requestPolicy": {"default": "100Gi", "validValues": values}}
    devices: list[Json] = [
        {
            "name": f"{place:063}",
            "allowMultipleAllocations": True,
            "capacity": {f"capacity_{number:023}": capacity for number in range(32)},
        }
        for place in range(128)
    ]
    with allocating_server.serve() as api:
        made = api.create(SLICE, objects.resource_slice(*devices))
    assert json_types.items(made, "spec", "devices") == devices
    size = len(json.dumps(made, separators=(",", ":")))
    assert size < ETCD_BYTES


def _metrics(cluster: QuickCluster) -> dict[str, float]:
    """Return the metrics of API server and scheduler by name and labels."""
    server = cluster.cluster.server
    token = server.issue_token("prometheus", ("system:masters",))
    with httpx.Client(base_url=server.url, verify=tls.client_context(server.ca_pem), trust_env=False) as http:
        text = http.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def _sum(found: dict[str, float], name: str, *labels: str) -> float:
    return sum(value for key, value in found.items() if key.startswith(f"{name}{{") and all(label in key for label in labels))


def test_metrics_report_claim_requests_unfit_pods_and_the_duration_of_each_step(cluster: QuickCluster) -> None:
    unschedulable = 'scheduler_unschedulable_pods{plugin="DynamicResources",profile="default-scheduler"}'
    count = "scheduler_plugin_execution_duration_seconds_count"
    assert _metrics(cluster)[unschedulable] == 0
    cluster.create(SLICE, objects.resource_slice(objects.nic("eth0")))
    _run(cluster, "first", "8G")
    cluster.create(CLAIM, objects.claim("second", _wanting("4G")))
    cluster.create(POD, objects.pod("second", claim="second"))
    cluster.until(lambda: _metrics(cluster)[unschedulable] == 1, "a pod that does not fit")
    found = _metrics(cluster)
    assert _sum(found, "apiserver_request_total", 'resource="resourceclaims"', 'verb="POST"', 'code="201"') == 2
    for point in ("PreFilter", "Filter", "PostFilter", "PreBind"):
        assert _sum(found, count, 'plugin="DynamicResources"', f'extension_point="{point}"') >= 1
    cluster.delete("first")
    cluster.phase("second", "Running")
    assert _metrics(cluster)[unschedulable] == 0
