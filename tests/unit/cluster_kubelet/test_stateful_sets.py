"""StatefulSets keep the names of their pods, start them in order, and replace them from the last one."""

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.controllers.workloads import owned_pods
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json
from drakit_cluster.objects.resources import CLAIM_TEMPLATE, POD, STATEFUL_SET
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster
from unit.cluster_kubelet.test_workloads import pods, workload


def states(cluster: QuickCluster) -> dict[str, str]:
    return {json_types.text(pod, "metadata", "name"): json_types.text(pod, "spec", "containers", 0, "image") for pod in pods(cluster)}


def change(cluster: QuickCluster, **spec: Json) -> None:
    cluster.api.patch(STATEFUL_SET, "w", {"spec": spec}, namespace="default", kind=PatchKind.MERGE)


def ready(cluster: QuickCluster) -> int:
    return json_types.number(cluster.find(STATEFUL_SET, "w") or {}, "status", "readyReplicas")


def test_a_pod_waits_until_the_one_before_it_is_ready(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    pod = json_types.mapping(objects.pod("x", template="t"), "spec")
    cluster.create(STATEFUL_SET, workload(pod=pod, replicas=2))
    cluster.until(lambda: cluster.find(POD, "w-0"), "the first pod")
    assert set(states(cluster)) == {"w-0"}
    cluster.offer("gpu-0", "gpu-1")
    cluster.until(lambda: ready(cluster) == 2, "both pods")
    assert set(states(cluster)) == {"w-0", "w-1"}


def test_a_deleted_pod_comes_back_under_its_name(cluster: QuickCluster) -> None:
    cluster.create(STATEFUL_SET, workload(replicas=2, podManagementPolicy="Parallel"))
    cluster.until(lambda: ready(cluster) == 2, "both pods")
    before = json_types.text(cluster.find(POD, "w-0") or {}, "metadata", "uid")
    cluster.delete("w-0")
    cluster.until(lambda: (pod := cluster.find(POD, "w-0")) and json_types.text(pod, "metadata", "uid") != before, "another w-0")
    change(cluster, replicas=1)
    cluster.gone(POD, "w-1")


def test_a_new_template_replaces_the_pods_down_to_the_partition(cluster: QuickCluster) -> None:
    cluster.create(STATEFUL_SET, workload(replicas=3, updateStrategy={"rollingUpdate": {"partition": 1}}))
    cluster.until(lambda: ready(cluster) == 3, "all pods")
    cluster.api.patch(STATEFUL_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: states(cluster) == {"w-0": "v1", "w-1": "v2", "w-2": "v2"}, "two new pods")
    change(cluster, updateStrategy={"rollingUpdate": {"partition": 0}})
    cluster.until(lambda: states(cluster) == dict.fromkeys(("w-0", "w-1", "w-2"), "v2") and ready(cluster) == 3, "the last one")
    status = json_types.mapping(cluster.find(STATEFUL_SET, "w") or {}, "status")
    assert (status["updatedReplicas"], status["currentRevision"]) == (3, status["updateRevision"])


def test_a_pod_below_the_partition_comes_back_with_the_former_template(cluster: QuickCluster) -> None:
    cluster.create(STATEFUL_SET, workload(replicas=2, updateStrategy={"rollingUpdate": {"partition": 1}}))
    cluster.until(lambda: ready(cluster) == 2, "both pods")
    cluster.api.patch(STATEFUL_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: states(cluster) == {"w-0": "v1", "w-1": "v2"} and ready(cluster) == 2, "the new pod")
    before = json_types.text(cluster.find(POD, "w-0") or {}, "metadata", "uid")
    cluster.delete("w-0")
    cluster.until(lambda: (pod := cluster.find(POD, "w-0")) and json_types.text(pod, "metadata", "uid") != before, "another w-0")
    assert states(cluster) == {"w-0": "v1", "w-1": "v2"}


def test_a_pod_starts_after_the_one_before_it_was_ready_for_the_minimum(cluster: QuickCluster) -> None:
    cluster.create(STATEFUL_SET, workload(replicas=2, minReadySeconds=2))
    cluster.until(lambda: ready(cluster) == 1, "the first pod")
    assert set(states(cluster)) == {"w-0"}
    cluster.until(lambda: ready(cluster) == 2, "the second pod")


def test_an_update_takes_one_pod_at_a_time_also_of_a_set_that_starts_them_together(cluster: QuickCluster) -> None:
    cluster.create(STATEFUL_SET, workload(replicas=3, podManagementPolicy="Parallel"))
    cluster.until(lambda: ready(cluster) == 3, "all pods")
    cluster.api.patch(STATEFUL_SET, "w", workload(image="v2"), namespace="default", kind=PatchKind.MERGE)
    least = 3
    while states(cluster) != dict.fromkeys(("w-0", "w-1", "w-2"), "v2"):
        running = [pod for pod in pods(cluster) if owned_pods.is_ready(pod)]
        least = min(least, len(running))
    assert least == 2
