"""DaemonSets and Deployments make pods, replace them and report."""

import pathlib
import platform

import yaml

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM_TEMPLATE, DAEMON_SET, DEPLOYMENT, NODE, POD, SERVICEACCOUNT, Resource
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster

SCAFFOLD = pathlib.Path(__file__).parents[3] / "examples" / "hello" / "deploy" / "daemonset.yaml"


def workload(name: str = "w", *, image: str = "v1", pod: Object | None = None, **spec: Json) -> Object:
    labels: Object = {"app": name}
    body = {key: value for key, value in objects.pod("x").items() if key == "spec"}["spec"] if pod is None else pod
    assert isinstance(body, dict)
    containers = [{**one, "image": image} for one in json_types.objects(body, "containers")]
    template: Object = {"metadata": {"labels": labels}, "spec": body | {"containers": [*containers]}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def pods(cluster: QuickCluster) -> list[Object]:
    return [pod for pod in cluster.api.list(POD).items if "deletionTimestamp" not in json_types.mapping(pod, "metadata")]


def nodes(cluster: QuickCluster) -> list[str]:
    return sorted(json_types.text(pod, "spec", "nodeName") for pod in pods(cluster))


def images(cluster: QuickCluster) -> set[str]:
    return {json_types.text(pod, "spec", "containers", 0, "image") for pod in pods(cluster)}


def status(cluster: QuickCluster, resource: Resource, *fields: str) -> tuple[int, ...]:
    found = cluster.find(resource, "w") or {}
    return tuple(json_types.number(found, "status", field) for field in ("observedGeneration", *fields))


DAEMON = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
REPLICAS = ("replicas", "updatedReplicas", "availableReplicas")


def test_a_daemon_set_has_a_pod_on_each_node_that_its_template_allows(pair: QuickCluster) -> None:
    pair.create(DAEMON_SET, workload())
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (1, 2, 2, 2), "the status")
    assert nodes(pair) == ["node-1", "node-2"]
    taint: Object = {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}], "unschedulable": True}}
    pair.api.patch(NODE, "node-2", taint, kind=PatchKind.MERGE)
    pair.until(lambda: nodes(pair) == ["node-1"], "the end of the pod on the tainted node")
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (1, 1, 1, 1), "the status")
    pair.api.patch(NODE, "node-2", {"spec": {"taints": []}}, kind=PatchKind.MERGE)
    pair.until(lambda: nodes(pair) == ["node-1", "node-2"], "a pod on a node that is only cordoned")


def test_the_daemon_set_of_a_new_project_has_a_pod_on_each_node(pair: QuickCluster) -> None:
    made: Object = yaml.safe_load(SCAFFOLD.read_text())
    pod = json_types.mapping(made, "spec", "template", "spec")
    assert "kubernetes.io/os" in json_types.mapping(pod, "nodeSelector")
    pair.api.create(SERVICEACCOUNT, {"metadata": {"name": pod["serviceAccountName"]}}, namespace="default")
    pair.api.create(DAEMON_SET, made | {"metadata": {"name": "w"}}, namespace="default")
    pair.until(lambda: nodes(pair) == ["node-1", "node-2"], "a pod on each node")


def test_a_node_has_the_labels_that_a_kubelet_sets(cluster: QuickCluster) -> None:
    node = cluster.api.get(NODE, "node-1")
    info = json_types.mapping(node, "status", "nodeInfo")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), info["architecture"])
    labels = {"kubernetes.io/hostname": "node-1", "kubernetes.io/os": "linux", "kubernetes.io/arch": machine}
    assert json_types.mapping(node, "metadata", "labels") == labels


def test_a_new_template_replaces_the_pods_of_a_daemon_set_one_by_one(pair: QuickCluster) -> None:
    pair.create(DAEMON_SET, workload())
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (1, 2, 2, 2), "the status")
    pair.api.patch(DAEMON_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (2, 2, 2, 2), "the new pods")
    assert images(pair) == {"v2"}


def test_a_daemon_set_has_pods_only_where_its_affinity_allows_them(pair: QuickCluster) -> None:
    term: Object = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}]}
    required: Object = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = json_types.mapping(objects.pod("x"), "spec") | {"affinity": {"nodeAffinity": required}}
    pair.create(DAEMON_SET, workload(pod=spec))
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (1, 1, 1, 1), "the status")
    assert nodes(pair) == ["node-2"]


def test_the_new_pod_of_a_daemon_set_starts_beside_the_old_one_where_surge_says_so(pair: QuickCluster) -> None:
    strategy: Object = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    pair.create(DAEMON_SET, workload(updateStrategy=strategy, minReadySeconds=1))
    pair.until(lambda: status(pair, DAEMON_SET, *DAEMON) == (1, 2, 2, 2), "the status")
    pair.api.patch(DAEMON_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    pair.until(lambda: len(pods(pair)) == 3, "one pod more")
    assert images(pair) == {"v1", "v2"}
    pair.until(lambda: images(pair) == {"v2"} and len(pods(pair)) == 2, "the new pods")


def test_a_daemon_set_that_waits_for_deletions_replaces_nothing_itself(cluster: QuickCluster) -> None:
    cluster.create(DAEMON_SET, workload(updateStrategy={"type": "OnDelete"}))
    cluster.until(lambda: status(cluster, DAEMON_SET, *DAEMON) == (1, 1, 1, 1), "the status")
    cluster.api.patch(DAEMON_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, DAEMON_SET, *DAEMON) == (2, 1, 0, 1), "the status")
    assert images(cluster) == {"v1"}
    [pod] = pods(cluster)
    cluster.delete(json_types.text(pod, "metadata", "name"))
    cluster.until(lambda: images(cluster) == {"v2"}, "the new pod")


def test_a_deployment_keeps_its_number_of_pods_until_it_is_deleted(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=3))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 3, 3, 3), "the status")
    cluster.delete(json_types.text(pods(cluster)[0], "metadata", "name"))
    cluster.until(lambda: len(pods(cluster)) == 3, "another pod")
    cluster.api.patch(DEPLOYMENT, "w", {"spec": {"replicas": 1}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (2, 1, 1, 1), "the smaller number")
    cluster.api.delete(DEPLOYMENT, "w", namespace="default")
    cluster.until(lambda: not cluster.api.list(POD).items, "the end of the pods")


def test_a_new_template_replaces_the_pods_of_a_deployment(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=2))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 2, 2, 2), "the status")
    cluster.api.patch(DEPLOYMENT, "w", {"spec": {"paused": True}}, namespace="default", kind=PatchKind.MERGE)
    cluster.api.patch(DEPLOYMENT, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (3, 2, 0, 2), "the status of a paused one")
    assert images(cluster) == {"v1"}
    cluster.api.patch(DEPLOYMENT, "w", {"spec": {"paused": False}}, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (4, 2, 2, 2), "the new pods")
    assert images(cluster) == {"v2"}
    conditions = json_types.objects(cluster.find(DEPLOYMENT, "w") or {}, "status", "conditions")
    assert {(str(one["type"]), str(one["status"])) for one in conditions} == {("Available", "True"), ("Progressing", "True")}


def test_pods_of_a_deployment_get_devices_by_a_template(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1", "gpu-2")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    spec = json_types.mapping(objects.pod("x", template="t"), "spec")
    cluster.create(DEPLOYMENT, workload(pod=spec, replicas=2))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 2, 2, 2), "the status")


def test_a_refused_pod_of_a_workload_is_an_event_and_is_retried(cluster: QuickCluster) -> None:
    spec = json_types.mapping(objects.pod("x"), "spec") | {"serviceAccountName": "driver"}
    cluster.create(DAEMON_SET, workload(pod=spec))
    cluster.until(lambda: cluster.events("FailedCreate"), "the event")
    assert 'serviceaccount "driver" not found' in cluster.events("FailedCreate")[0]
    cluster.api.create(SERVICEACCOUNT, {"metadata": {"name": "driver"}}, namespace="default")
    cluster.until(lambda: status(cluster, DAEMON_SET, *DAEMON) == (1, 1, 1, 1), "the status")
