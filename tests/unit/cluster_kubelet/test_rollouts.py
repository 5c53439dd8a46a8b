"""Deployments roll out as Kubernetes does: also while all devices are in use, with every strategy, and back."""

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.controllers.workloads import replicas
from drakit_cluster.controllers.workloads.replicas import Count, Limits
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM_TEMPLATE, DEPLOYMENT, POD, REPLICA_SET
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.quick_cluster import QuickCluster
from unit.cluster_kubelet.test_workloads import REPLICAS, images, pods, status, workload

RECREATE: Object = {"type": "Recreate"}


def rolling(surge: Json, unavailable: Json) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def change(cluster: QuickCluster, **spec: Json) -> None:
    cluster.api.patch(DEPLOYMENT, "w", {"spec": spec}, namespace="default", kind=PatchKind.MERGE)


def progressing(cluster: QuickCluster) -> tuple[str, str]:
    conditions = json_types.objects(cluster.find(DEPLOYMENT, "w") or {}, "status", "conditions")
    [found] = [one for one in conditions if one.get("type") == "Progressing"]
    return json_types.text(found, "status"), json_types.text(found, "reason")


def revisions(cluster: QuickCluster) -> dict[str, int]:
    sets = cluster.api.list(REPLICA_SET).items
    return {
        json_types.text(one, "metadata", "annotations", "deployment.kubernetes.io/revision"): json_types.number(one, "spec", "replicas")
        for one in sets
    }


def on_full_gpus(cluster: QuickCluster, strategy: Object, seconds: int = 600) -> Object:
    """Two replicas on the only two devices; return the template's pod spec."""
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    pod = json_types.mapping(objects.pod("x", template="t"), "spec")
    cluster.create(DEPLOYMENT, workload(pod=pod, replicas=2, strategy=strategy, progressDeadlineSeconds=seconds))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 2, 2, 2), "the first rollout")
    return pod


@pytest.mark.parametrize(
    "strategy",
    [rolling(0, 1), rolling("0%", "50%"), rolling(1, 1), rolling("25%", 2), RECREATE],
    ids=["one by one", "half", "one more", "all", "recreate"],
)
def test_a_rollout_ends_while_all_devices_are_in_use(cluster: QuickCluster, strategy: Object) -> None:
    pod = on_full_gpus(cluster, strategy)
    cluster.api.patch(DEPLOYMENT, "w", workload(pod=pod, image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (2, 2, 2, 2), "the new pods")
    assert images(cluster) == {"v2"}
    assert progressing(cluster) == ("True", "NewReplicaSetAvailable")
    assert revisions(cluster) == {"1": 0, "2": 2}


def test_a_rollout_that_needs_one_device_more_says_so_after_its_deadline(cluster: QuickCluster) -> None:
    pod = on_full_gpus(cluster, rolling(1, 0), 1)
    cluster.api.patch(DEPLOYMENT, "w", workload(pod=pod, image="v2"), namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: progressing(cluster) == ("False", "ProgressDeadlineExceeded"), "the deadline")
    assert images(cluster) == {"v1", "v2"}
    assert status(cluster, DEPLOYMENT, *REPLICAS) == (2, 3, 1, 2)
    change(cluster, strategy=rolling(0, 1))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (3, 2, 2, 2), "the new pods with the other strategy")
    assert progressing(cluster) == ("True", "NewReplicaSetAvailable")


def test_an_earlier_template_brings_its_replica_set_back_as_the_newest_revision(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=1))
    for generation, image in ((1, "v1"), (2, "v2"), (3, "v1")):
        if generation > 1:
            cluster.api.patch(DEPLOYMENT, "w", workload(image=image), namespace="default", kind=PatchKind.MERGE)
        cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (generation, 1, 1, 1), f"generation {generation}")  # noqa: B023
    assert revisions(cluster) == {"2": 0, "3": 1}
    [new] = [one for one in cluster.api.list(REPLICA_SET).items if json_types.number(one, "spec", "replicas")]
    assert json_types.text(new, "metadata", "annotations", "deployment.kubernetes.io/revision-history") == "1"


def test_only_as_many_old_replica_sets_stay_as_the_history_limit_says(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=1, revisionHistoryLimit=1))
    cluster.until(lambda: images(cluster) == {"v1"}, "the first pod")
    for image in ("v2", "v3", "v4"):
        cluster.api.patch(DEPLOYMENT, "w", workload(image=image), namespace="default", kind=PatchKind.MERGE)
        cluster.until(lambda: images(cluster) == {image} and len(pods(cluster)) == 1, f"the pod of {image}")  # noqa: B023
    cluster.until(lambda: revisions(cluster) == {"3": 0, "4": 1}, "the end of the older ones")


def test_a_pod_counts_as_available_when_it_was_ready_for_the_minimum(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=1, minReadySeconds=2))
    cluster.until(lambda: status(cluster, DEPLOYMENT, "readyReplicas") == (1, 1), "the ready pod")
    assert status(cluster, DEPLOYMENT, "availableReplicas") == (1, 0)
    cluster.until(lambda: status(cluster, DEPLOYMENT, "availableReplicas") == (1, 1), "the available pod")


def test_pods_end_with_the_replica_sets_of_a_deleted_deployment(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=2))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 2, 2, 2), "the pods")
    cluster.api.delete(DEPLOYMENT, "w", namespace="default")
    cluster.until(lambda: not cluster.api.list(REPLICA_SET).items and not cluster.api.list(POD).items, "the end of all")


def test_of_the_pods_of_a_smaller_deployment_the_one_that_waits_goes_first(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    pod = json_types.mapping(objects.pod("x", template="t"), "spec")
    cluster.create(DEPLOYMENT, workload(pod=pod, replicas=3))
    cluster.until(lambda: status(cluster, DEPLOYMENT, "replicas", "readyReplicas") == (1, 3, 2), "two of three pods")
    change(cluster, replicas=2)
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (2, 2, 2, 2), "two pods that run")
    assert all(json_types.text(one, "spec", "nodeName") for one in pods(cluster))


@pytest.mark.parametrize(
    "strategy, message",
    [
        (rolling(0, 0), "may not be 0 when `maxSurge` is 0"),
        (rolling(-1, 1), "must be a number of pods or a percentage"),
        (RECREATE | {"rollingUpdate": {"maxSurge": 1}}, "may not be specified when strategy `type` is 'Recreate'"),
        ({"type": "BlueGreen"}, 'supported values: "Recreate", "RollingUpdate"'),
    ],
)
def test_a_strategy_that_kubernetes_refuses_is_refused(cluster: QuickCluster, strategy: Object, message: str) -> None:
    with pytest.raises(errors.InvalidError, match=r"spec\.strategy") as raised:
        cluster.create(DEPLOYMENT, workload(strategy=strategy))
    assert message in str(raised.value)


def test_one_pod_with_a_strange_annotation_keeps_no_other_pod_from_its_claim(cluster: QuickCluster) -> None:
    cluster.plugin()
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM_TEMPLATE, objects.template("t"))
    odd = workload(replicas=2)
    annotations: Object = {"controller.kubernetes.io/pod-deletion-cost": "--5"}
    json_types.mapping(odd, "spec", "template", "metadata")["annotations"] = annotations
    cluster.create(DEPLOYMENT, odd)
    cluster.until(lambda: status(cluster, DEPLOYMENT, "readyReplicas") == (1, 2), "both pods")
    change(cluster, replicas=1)
    cluster.run(objects.pod("p", template="t"))
    cluster.until(lambda: status(cluster, DEPLOYMENT, "replicas") == (2, 1), "the smaller number")


def test_a_deployment_without_pods_is_not_available_whatever_its_strategy(cluster: QuickCluster) -> None:
    pod = json_types.mapping(objects.pod("x"), "spec") | {"nodeSelector": {"no": "node"}}
    cluster.create(DEPLOYMENT, workload(pod=pod, replicas=1, strategy=RECREATE))
    cluster.until(lambda: status(cluster, DEPLOYMENT, "replicas") == (1, 1), "the pod")
    conditions = json_types.objects(cluster.find(DEPLOYMENT, "w") or {}, "status", "conditions")
    assert [one["status"] for one in conditions if one["type"] == "Available"] == ["False"]


def test_a_replica_set_that_cannot_be_made_is_named_in_condition_and_event(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=1))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 1, 1, 1), "the pod")
    [kept] = cluster.api.list(REPLICA_SET).items
    name = json_types.text(kept, "metadata", "name")
    orphan: Object = {"metadata": {"ownerReferences": None}}
    cluster.api.patch(REPLICA_SET, name, orphan, namespace="default", kind=PatchKind.MERGE)
    cluster.until(lambda: progressing(cluster) == ("False", "ReplicaSetCreateError"), "the condition")
    cluster.until(lambda: cluster.events("ReplicaSetCreateError"), "the event")
    assert "delete that ReplicaSet, or rename the Deployment" in cluster.events("ReplicaSetCreateError")[0]
    cluster.api.delete(REPLICA_SET, name, namespace="default")
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 1, 1, 1), "the Deployment's own")


def test_annotations_and_the_minimum_of_a_deployment_reach_its_replica_set(cluster: QuickCluster) -> None:
    cluster.create(DEPLOYMENT, workload(replicas=1))
    cluster.until(lambda: status(cluster, DEPLOYMENT, *REPLICAS) == (1, 1, 1, 1), "the pod")
    annotated: Object = {"metadata": {"annotations": {"kubernetes.io/change-cause": "first"}}, "spec": {"minReadySeconds": 7}}
    cluster.api.patch(DEPLOYMENT, "w", annotated, namespace="default", kind=PatchKind.MERGE)

    def reached() -> bool:
        [one] = cluster.api.list(REPLICA_SET).items
        cause = json_types.text(one, "metadata", "annotations", "kubernetes.io/change-cause")
        return (cause, json_types.number(one, "spec", "minReadySeconds")) == ("first", 7)

    cluster.until(reached, "both in the ReplicaSet")


def steps(limits: Limits, old: int, new: int = 0) -> list[tuple[int, int]]:
    """The numbers of old and new pods in a rolling update in which every pod is available at once."""
    seen = [(old, new)]
    while change := replicas.rolled(
        limits, Count(name="new", wanted=new, available=new), [Count(name="old", wanted=old, available=old)] if old else []
    ):
        old, new = change.get("old", old), change.get("new", new)
        seen.append((old, new))
    return seen


def test_a_rolling_update_never_has_more_pods_or_fewer_available_than_its_limits() -> None:
    for wanted in range(1, 12):
        for surge, unavailable in ((0, 1), (1, 0), (2, 3), (wanted, wanted)):
            limits = Limits(replicas=wanted, surge=surge, unavailable=min(unavailable, wanted))
            seen = steps(limits, wanted)
            assert seen[-1] == (0, wanted)
            assert all(limits.minimum_available <= old + new <= limits.maximum for old, new in seen)


def test_no_old_pod_goes_while_new_ones_are_not_available() -> None:
    limits = Limits(replicas=3, surge=1, unavailable=0)
    stale = [Count(name="old", wanted=2, available=3)]
    assert replicas.rolled(limits, Count(name="new", wanted=2, available=1), stale) == {}


def test_pods_that_never_became_ready_go_before_those_that_serve() -> None:
    limits = Limits(replicas=4, surge=1, unavailable=1)
    old = [Count(name="a", wanted=2, available=2), Count(name="b", wanted=3, available=1)]
    assert replicas.rolled(limits, Count(name="new", wanted=0, available=0), old) == {"b": 1}


@pytest.mark.parametrize(
    "surge, unavailable, expected", [("25%", "25%", (3, 2)), ("0%", "1%", (0, 1)), (0, 1, (0, 1)), ("100%", 0, (10, 0))]
)
def test_percentages_round_surges_up_and_the_unavailable_down(surge: Json, unavailable: Json, expected: tuple[int, int]) -> None:
    limits = replicas.limits(rolling(surge, unavailable), 10)
    assert (limits.surge, limits.unavailable) == expected


def test_a_scaled_deployment_in_a_rollout_keeps_the_proportion_of_its_replica_sets() -> None:
    limits = Limits(replicas=20, surge=0, unavailable=1)
    new, old = Count(name="new", wanted=2, available=0), Count(name="old", wanted=8, available=8)
    assert replicas.scaled(limits, [old, new], new) == {"new": 4, "old": 16}
    smaller = Limits(replicas=5, surge=0, unavailable=1)
    assert replicas.scaled(smaller, [old, new], new) == {"new": 1, "old": 4}
    assert replicas.scaled(Limits(replicas=0, surge=0, unavailable=0), [old, new], new) == {"new": 0, "old": 0}
