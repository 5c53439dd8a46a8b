"""The concepts page, how allocation works: claims and templates, the workflow, device status, and pods that name their node."""

from collections.abc import Iterator

import pytest

from drakit._proto import dra_health_v1_pb2 as wire
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD
from fakes import feature_cluster, feature_samples
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.health_plugin import Health
from unit.cluster_kubelet.plugin import DRIVER, PREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with feature_cluster.running() as running:
        yield running


def _claim_of(cluster: QuickCluster, pod: str) -> str:
    """Return the name of the claim that was generated for a pod."""
    statuses = json_types.objects(cluster.find(POD, pod) or {}, "status", "resourceClaimStatuses")
    return json_types.text(statuses[0], "resourceClaimName") if statuses else ""


def test_several_containers_and_pods_share_the_devices_of_one_resource_claim(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c"))
    containers = [objects.container(name, objects.use()) for name in ("one", "two")]
    for name in ("p", "q"):
        cluster.run(objects.pod(name, claim="c", containers=containers))
        assert [cluster.view(name, one).env for one in ("one", "two")] == [{"DEVICE_GPU": "gpu-0"}] * 2
    assert [json_types.text(one, "name") for one in json_types.objects(cluster.claim("c"), "status", "reservedFor")] == ["p", "q"]
    assert cluster.plugins[0].count(PREPARE) == 1


def test_a_resource_claim_outlives_its_pods(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p")
    cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
    cluster.run(objects.pod("q", claim="c"))


def test_a_template_gives_each_pod_a_claim_of_its_own_that_ends_with_the_pod(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    for name in ("p", "q"):
        cluster.run(objects.pod(name, template="t"))
    claims = {name: _claim_of(cluster, name) for name in ("p", "q")}
    assert sorted(device for claim in claims.values() for device in cluster.devices(claim)) == ["gpu-0", "gpu-1"]
    owners = json_types.objects(cluster.claim(claims["p"]), "metadata", "ownerReferences")
    assert [(one["kind"], one["name"], one["controller"]) for one in owners] == [("Pod", "p", True)]
    cluster.delete("p")
    cluster.gone(CLAIM, claims["p"])
    assert cluster.devices(claims["q"])


def test_a_pod_is_not_scheduled_until_the_claim_that_it_names_exists(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(POD, objects.pod("p", claim="c"))
    cluster.until(lambda: cluster.scheduling_message("p") == "claim default/c not found", "the refusal")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.phase("p", "Running")


def test_a_pod_runs_on_a_node_that_reaches_free_devices_and_its_claim_names_them() -> None:
    with feature_cluster.running("node-1", "node-2") as cluster:
        cluster.offer("gpu-0", node="node-2")
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        pod = cluster.run(objects.pod("p", template="t"))
        assert json_types.text(pod, "spec", "nodeName") == "node-2"
        allocation = json_types.mapping(cluster.claim(_claim_of(cluster, "p")), "status", "allocation")
        [result] = json_types.objects(allocation, "devices", "results")
        assert {name: result[name] for name in ("request", "driver", "pool", "device")} == {
            "request": "gpu",
            "driver": DRIVER,
            "pool": "node-2",
            "device": "gpu-0",
        }
        [term] = json_types.objects(allocation, "nodeSelector", "nodeSelectorTerms")
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
        assert cluster.plugins[1].uids(PREPARE) == [cluster.uid(_claim_of(cluster, "p"))]
        assert cluster.view("p", node="node-2").env == {"DEVICE_GPU": "gpu-0"}


def _report(cluster: QuickCluster) -> Json:
    """Report an address of the claim's device, as its driver does; return what the server keeps."""
    claim = cluster.claim("c")
    entry: Object = {"driver": DRIVER, "pool": objects.NODE, "device": "gpu-0", "networkData": {"ips": ["10.9.8.1/24"]}}
    json_types.child(claim, "status")["devices"] = [entry]
    stored = cluster.api.update(CLAIM, claim, subresource="status")
    return json_types.at(stored, "status", "devices", 0, "networkData", "ips", 0)


def test_a_driver_reports_the_status_of_its_device_in_the_claim(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    assert _report(cluster) == "10.9.8.1/24"


def test_device_statuses_are_cleared_if_their_feature_is_disabled() -> None:
    with feature_cluster.running(gates=FeatureGates.of({"DRAResourceClaimDeviceStatus": False})) as cluster:
        cluster.offer("gpu-0")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.run(objects.pod("p", claim="c"))
        assert _report(cluster) is None


def _with_health(cluster: QuickCluster) -> Health:
    """Start the driver again, this time with the service that tells the health of its devices."""
    [plugin], health = cluster.plugins, Health()
    plugin.stop()
    plugin.services.append(health.add_v1)
    plugin.versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"]
    plugin.start()
    return health


def _is(state: "wire.HealthStatus", message: str = "") -> wire.DeviceHealth:
    device = wire.DeviceIdentifier(pool_name=objects.NODE, device_name="gpu-0")
    return wire.DeviceHealth(device=device, health=state, message=message)


def _health_of(cluster: QuickCluster) -> list[Object]:
    """What the status of the pod's only container says of the devices that it uses."""
    [container] = json_types.objects(cluster.find(POD, "p") or {}, "status", "containerStatuses")
    return json_types.objects(container, "allocatedResourcesStatus", 0, "resources")


def test_each_container_status_shows_its_device_becoming_unhealthy_and_recovering(cluster: QuickCluster) -> None:
    health = _with_health(cluster)
    health.say(_is(wire.HEALTHY))
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    health.say(_is(wire.UNHEALTHY, "too hot"))
    cluster.until(lambda: [one["health"] for one in _health_of(cluster)] == ["Unhealthy"], "the fault in the pod's status")
    assert [one["message"] for one in _health_of(cluster)] == ["too hot"]
    health.say(_is(wire.HEALTHY))
    cluster.until(lambda: [one["health"] for one in _health_of(cluster)] == ["Healthy"], "the recovery in the pod's status")
    assert "message" not in _health_of(cluster)[0]


def test_health_is_not_shown_if_its_feature_is_disabled() -> None:
    with feature_cluster.running(gates=FeatureGates.of({"ResourceHealthStatus": False})) as cluster:
        health = _with_health(cluster)
        health.say(_is(wire.UNHEALTHY))
        cluster.offer("gpu-0")
        cluster.create(CLAIM, objects.claim("c"))
        cluster.run(objects.pod("p", claim="c"))
        assert _health_of(cluster) == []
        assert health.opened == []


def test_the_kubelet_runs_a_pod_with_a_node_once_its_claim_is_allocated_and_reserved(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(POD, objects.pod("q", claim="c", nodeName=objects.NODE))
    cluster.until(lambda: cluster.events("FailedPrepareDynamicResources"), "the refusal of a pod without its claim")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.until(
        lambda: any("not allowed" in text for text in cluster.events("FailedPrepareDynamicResources")), "the refusal of its claim"
    )
    assert cluster.phase("q", "Pending")
    cluster.run(objects.pod("p", claim="c"))
    cluster.phase("q", "Running")


def test_the_controller_reserves_a_claim_allocated_for_another_pod_for_a_bound_pod(cluster: QuickCluster) -> None:
    cluster.offer("gpu-0")
    cluster.create(CLAIM, objects.claim("c"))
    cluster.run(objects.pod("p", claim="c"))
    cluster.run(objects.pod("q", claim="c", nodeName=objects.NODE))
    assert [json_types.text(one, "name") for one in json_types.objects(cluster.claim("c"), "status", "reservedFor")] == ["p", "q"]


def test_a_node_selector_brings_the_sample_pod_to_its_node_through_the_scheduler() -> None:
    with feature_cluster.running("node-1", "name-of-the-intended-node") as cluster:
        for node in ("node-1", "name-of-the-intended-node"):
            cluster.offer("gpu-0", node=node)
        cluster.create(CLAIM, objects.claim("c"))
        [pod] = feature_samples.load("concepts-pod-with-cats")
        spec = json_types.child(pod, "spec")
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
        spec["terminationGracePeriodSeconds"] = 1
        cluster.api.create(POD, pod, namespace="default")
        running = cluster.phase("pod-with-cats", "Running")
        assert json_types.text(running, "spec", "nodeName") == "name-of-the-intended-node"
        [result] = json_types.objects(cluster.claim("c"), "status", "allocation", "devices", "results")
        assert result["pool"] == "name-of-the-intended-node"
