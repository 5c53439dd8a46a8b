"""Claims that are reserved for a workload, for any number of pods (KEP-5194)."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator

import pytest
import yaml

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.storage.watching import EventType
from drakit_cluster.client.client import ApiClient
from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import (
    CLAIM,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIGMAP,
    POD,
    ROLE,
    ROLE_BINDING,
    SLICE,
    TAINT_RULE,
)
from fakes.single_threaded_cluster import SingleThreadedCluster
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE, Plugin
from unit.cluster_kubelet.quick_cluster import QuickCluster

GATE = "DRAReservedForWorkloads"
OFF = FeatureGates.of({GATE: False})
SEVERAL = 12
THOUSANDS = 2000
JOB: Object = {"apiGroup": "kubeflow.org", "resource": "trainjobs", "name": "train", "uid": "0d4f0b1e-7b1c-4d52-8c6a-0a3f1f1c9d11"}
"""A workload of a kind that this cluster does not have, so that only its owner ends its reservation."""


@contextlib.contextmanager
def _quick_cluster(
    *, nodes: tuple[str, ...] = ("node-1",), gates: FeatureGates | None = None, components: Components | None = None
) -> Iterator[QuickCluster]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = QuickCluster(folder, nodes=nodes, gates=gates, components=components, https=True)
    try:
        yield running.start()
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[QuickCluster]:
    with _quick_cluster() as running:
        running.plugin()
        running.offer("gpu-0")
        yield running


def _claim(consumer: Object = JOB, name: str = "c") -> Object:
    claim = objects.claim(name)
    json_types.mapping(claim, "spec")["reservedFor"] = consumer
    return claim


def _reserved(cluster: QuickCluster) -> list[Json]:
    return json_types.items(cluster.claim("c"), "status", "reservedFor")


def _any_pod(cluster: QuickCluster) -> Json:
    return json_types.at(cluster.claim("c"), "status", "allocation", "reservedForAnyPod")


def _set_reserved(cluster: QuickCluster, *entries: Json) -> None:
    """Write status.reservedFor as the owner of the workload does, whatever others write meanwhile."""
    while True:
        claim = cluster.claim("c")
        json_types.child(claim, "status")["reservedFor"] = list(entries)
        with contextlib.suppress(errors.ConflictError):
            cluster.api.update(CLAIM, claim, subresource="status")
            return


def _follow(cluster: QuickCluster, done: Callable[[dict[str, str]], bool]) -> None:
    """Watch the phases of all pods until they are as they should be; listing again and again would slow the cluster down."""
    while True:
        listing = cluster.api.list(POD)
        phases = {json_types.text(pod, "metadata", "name"): json_types.text(pod, "status", "phase") for pod in listing.items}
        if done(phases):
            return
        with contextlib.closing(cluster.api.watch(POD, since=listing.resource_version, timeout=100)) as watch:
            for event in watch:
                if event.type is EventType.ERROR:
                    break
                name = json_types.text(event.object, "metadata", "name")
                phases[name] = json_types.text(event.object, "status", "phase")
                if event.type is EventType.DELETED:
                    del phases[name]
                if done(phases):
                    return


def _pod_entry(pod: Object) -> Object:
    return {
        "resource": "pods",
        "name": json_types.text(pod, "metadata", "name"),
        "uid": json_types.text(pod, "metadata", "uid"),
    }


def test_the_workload_is_copied_on_allocation_instead_of_the_pod(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, _claim())
    cluster.run(objects.pod("p", claim="c"))
    assert _reserved(cluster) == [JOB]
    assert _any_pod(cluster) is True
    cluster.run(objects.pod("q", claim="c"))
    assert _reserved(cluster) == [JOB]


def test_without_a_workload_pods_are_listed_one_by_one(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    pod = cluster.run(objects.pod("p", claim="c"))
    assert _reserved(cluster) == [_pod_entry(pod)]
    assert _any_pod(cluster) is None


@pytest.mark.parametrize("field", ["resource", "name", "uid"])
def test_a_workload_is_named_in_full(cluster: QuickCluster, field: str) -> None:
    with pytest.raises(errors.InvalidError, match=rf"spec\.reservedFor\.{field}"):
        cluster.create(CLAIM, _claim(JOB | {field: ""}))


@pytest.mark.parametrize("count", [SEVERAL, pytest.param(THOUSANDS, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
def test_any_number_of_pods_shares_one_claim_that_lists_none_of_them(count: int) -> None:
    nodes = ("node-1", "node-2")
    with _quick_cluster(nodes=nodes) as cluster:
        plugins = [cluster.plugin(node=node) for node in nodes]
        spec = objects.resource_slice(objects.device("net-0"))["spec"]
        assert isinstance(spec, dict)
        del spec["nodeName"]
        cluster.create(SLICE, {"metadata": {"name": "fabric"}, "spec": spec | {"allNodes": True}})
        cluster.create(CLAIM, _claim())
        for index in range(count):
            pod = objects.pod(f"p{index}", claim="c", nodeSelector={"kubernetes.io/hostname": nodes[index % 2]})
            cluster.create(POD, pod)

        _follow(cluster, lambda phases: sum(phase == "Running" for phase in phases.values()) == count)
        assert _reserved(cluster) == [JOB]
        uid = cluster.uid("c")
        assert [set(plugin.uids(PREPARE)) for plugin in plugins] == [{uid}, {uid}]
        rule: Object = {"deviceSelector": {"device": "net-0"}, "taint": {"key": "example.com/broken", "effect": "NoExecute"}}
        cluster.create(TAINT_RULE, {"metadata": {"name": "r"}, "spec": rule})
        _follow(cluster, lambda phases: not phases)
        assert [set(plugin.uids(UNPREPARE)) for plugin in plugins] == [{uid}, {uid}]
        assert _reserved(cluster) == [JOB]


def test_devices_stay_allocated_until_the_owner_removes_its_reference(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, _claim())
    for name in ("p", "q"):
        cluster.run(objects.pod(name, claim="c"))
        cluster.delete(name)
        cluster.gone(POD, name)
    assert cluster.devices("c") == ["gpu-0"]
    _set_reserved(cluster)
    cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
    assert json_types.strings(cluster.claim("c"), "metadata", "finalizers") == []
    cluster.run(objects.pod("r", claim="c"))
    assert _reserved(cluster) == [JOB]


def test_a_deleted_owner_is_detected_once_no_pod_runs(cluster: QuickCluster) -> None:
    owner = cluster.create(CONFIGMAP, {"metadata": {"name": "owner", "namespace": "default"}})
    consumer: Object = {"resource": "configmaps", "name": "owner", "uid": json_types.text(owner, "metadata", "uid")}
    cluster.create(CLAIM, _claim(consumer))
    cluster.run(objects.pod("p", claim="c"))
    assert _reserved(cluster) == [consumer]
    cluster.api.delete(CONFIGMAP, "owner", namespace="default")
    cluster.create(CLAIM, objects.claim("other"))
    cluster.create(POD, objects.pod("other", claim="other"))
    cluster.until(lambda: cluster.scheduling_message("other"), "the other pod's refusal")
    assert cluster.devices("c") == ["gpu-0"]
    cluster.delete("p")
    cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
    cluster.phase("other", "Running")


def test_an_owner_of_an_unknown_kind_keeps_its_devices(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, _claim())
    cluster.run(objects.pod("p", claim="c"))
    cluster.delete("p")
    cluster.gone(POD, "p")
    cluster.create(CLAIM, objects.claim("other"))
    cluster.create(POD, objects.pod("other", claim="other"))
    cluster.until(lambda: cluster.scheduling_message("other"), "the other pod's refusal")
    assert _reserved(cluster) == [JOB]


def test_in_a_mixed_list_ended_pods_are_removed_and_workloads_stay(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("c"))
    pod = cluster.run(objects.pod("p", claim="c"))
    _set_reserved(cluster, _pod_entry(pod), JOB)
    other = cluster.run(objects.pod("q", claim="c"))
    assert _reserved(cluster) == [_pod_entry(pod), JOB, _pod_entry(other)]
    for name in ("p", "q"):
        cluster.delete(name)
    cluster.until(lambda: _reserved(cluster) == [JOB], "the end of the pods' reservations")
    assert cluster.devices("c") == ["gpu-0"]
    _set_reserved(cluster, JOB)
    assert cluster.devices("c") == ["gpu-0"]


def test_a_full_list_does_not_stop_pods_of_a_listed_workload(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, _claim())
    cluster.run(objects.pod("p", claim="c"))
    others: list[Json] = [
        {"apiGroup": "kubeflow.org", "resource": "trainjobs", "name": f"j{index}", "uid": str(index)} for index in range(255)
    ]
    _set_reserved(cluster, JOB, *others)
    cluster.run(objects.pod("q", claim="c"))
    assert len(_reserved(cluster)) == 256


def test_a_claim_of_a_workload_is_never_deallocated_to_make_a_pod_fit() -> None:
    with _quick_cluster(nodes=("node-1", "node-2")) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0")
        cluster.create(CLAIM, _claim())
        cluster.run(objects.pod("p", claim="c"))
        cluster.delete("p")
        cluster.gone(POD, "p")
        cluster.create(POD, objects.pod("q", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
        cluster.until(lambda: "allocated on another node" in cluster.scheduling_message("q"), "the refusal")
        assert _reserved(cluster) == [JOB]
        assert cluster.devices("c") == ["gpu-0"]


def test_with_the_gate_off_the_fields_are_dropped_and_pods_are_listed() -> None:
    with _quick_cluster(gates=OFF) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0")
        created = cluster.create(CLAIM, _claim())
        assert "reservedFor" not in json_types.mapping(created, "spec")
        pod = cluster.run(objects.pod("p", claim="c"))
        assert _reserved(cluster) == [_pod_entry(pod)]
        assert _any_pod(cluster) is None


def test_switching_the_gate_on_again_keeps_existing_lists_of_pods() -> None:
    simulated_cluster = SingleThreadedCluster(gates=FeatureGates(), scheduler=OFF)
    simulated_cluster.device_class("gpu", "true")
    simulated_cluster.apply(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **objects.resource_slice(objects.device("gpu-0"))}
    )
    simulated_cluster.api.create(CLAIM, _claim())
    assert simulated_cluster.schedule("p", "c") == objects.NODE
    [listed] = json_types.objects(simulated_cluster.api.get(CLAIM, "c", "default"), "status", "reservedFor")
    assert listed["name"] == "p"
    again = simulated_cluster.restarted()
    assert again.schedule("q", "c") == objects.NODE
    claim = again.api.get(CLAIM, "c", "default")
    assert [one["name"] for one in json_types.objects(claim, "status", "reservedFor")] == ["p", "q"]
    assert json_types.at(claim, "status", "allocation", "reservedForAnyPod") is None
    again.api.update(CLAIM, claim | {"status": {}}, subresource="status")
    assert again.schedule("r", "c") == objects.NODE
    claim = again.api.get(CLAIM, "c", "default")
    assert json_types.items(claim, "status", "reservedFor") == [JOB]
    assert json_types.at(claim, "status", "allocation", "reservedForAnyPod") is True


def test_an_older_kubelet_refuses_pods_that_are_not_listed() -> None:
    with _quick_cluster(components=Components(kubelets={"node-1": OFF})) as cluster:
        plugin = cluster.plugin()
        cluster.offer("gpu-0")
        cluster.create(CLAIM, _claim())
        pod = cluster.create(POD, objects.pod("p", claim="c"))
        cluster.until(
            lambda: any("is not allowed to use ResourceClaim c" in text for text in cluster.events("FailedPrepareDynamicResources")), "it"
        )
        assert plugin.calls == []
        assert json_types.text(cluster.find(POD, "p"), "status", "phase") == "Pending"
        _set_reserved(cluster, JOB, _pod_entry(pod))
        cluster.phase("p", "Running")


def test_an_older_scheduler_lists_pods() -> None:
    with _quick_cluster(components=Components(scheduler=OFF)) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0")
        cluster.create(CLAIM, _claim())
        pod = cluster.run(objects.pod("p", claim="c"))
        assert _reserved(cluster) == [_pod_entry(pod)]
        cluster.delete("p")
        cluster.until(lambda: cluster.devices("c") == [], "the deallocation")


def test_older_controllers_never_deallocate_a_claim_of_a_workload() -> None:
    with _quick_cluster(components=Components(controllers=OFF)) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0")
        cluster.create(CLAIM, _claim())
        cluster.run(objects.pod("p", claim="c"))
        cluster.delete("p")
        cluster.gone(POD, "p")
        _set_reserved(cluster)
        cluster.create(CLAIM, objects.claim("other"))
        cluster.create(POD, objects.pod("other", claim="other"))
        cluster.until(lambda: cluster.scheduling_message("other"), "the other pod's refusal")
        assert cluster.devices("c") == ["gpu-0"]


@contextlib.contextmanager
def _restarted(folder: pathlib.Path, gates: FeatureGates | None = None) -> Iterator[tuple[QuickCluster, Plugin]]:
    """The cluster of a folder, which goes on with the objects of the one before; its devices are published anew, as after a reboot."""
    running = QuickCluster(folder, gates=gates, components=Components(state=folder / "state.jsonl"))
    try:
        running.start()
        plugin = running.plugin()
        running.offer("gpu-0")
        yield running, plugin
    finally:
        running.stop()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    path = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_listing_pods_before_the_gate_goes_off_keeps_pods_and_devices(folder: pathlib.Path) -> None:
    with _restarted(folder) as (cluster, _):
        cluster.create(CLAIM, _claim())
        pods = [cluster.run(objects.pod(name, claim="c")) for name in ("p", "q")]
        version = json_types.text(cluster.claim("c"), "metadata", "resourceVersion")
        patch: Object = {"metadata": {"resourceVersion": version}, "status": {"reservedFor": [_pod_entry(pod) for pod in pods]}}
        cluster.api.patch(CLAIM, "c", patch, namespace="default", kind=PatchKind.MERGE, subresource="status")
        late = cluster.run(objects.pod("late", claim="c"))
        assert _reserved(cluster) == [_pod_entry(pod) for pod in (*pods, late)], "pods that come meanwhile are listed too"
    with _restarted(folder, OFF) as (cluster, plugin):
        uid = cluster.uid("c")
        cluster.until(lambda: set(plugin.uids(PREPARE)) == {uid}, "the pods are admitted again")
        sandboxes = cluster.cluster.node(objects.NODE).runtime.sandboxes
        cluster.until(lambda: {one.name for one in sandboxes()} == {"p", "q", "late"}, "the pods run again")
        for name in ("p", "q", "late"):
            assert cluster.devices("c") == ["gpu-0"]
            cluster.delete(name)
            cluster.gone(POD, name)
        cluster.until(lambda: cluster.devices("c") == [], "the deallocation")


def test_devices_stay_allocated_after_the_owner_leaves_until_the_gate_is_on_again(folder: pathlib.Path) -> None:
    with _restarted(folder) as (cluster, _):
        cluster.create(CLAIM, _claim())
        cluster.run(objects.pod("p", claim="c"))
    with _restarted(folder, OFF) as (cluster, plugin):
        cluster.until(lambda: set(plugin.uids(PREPARE)) == {cluster.uid("c")}, "the pod is admitted again")
        assert _reserved(cluster) == [JOB, _pod_entry(cluster.phase("p", "Running"))]
        cluster.delete("p")
        cluster.gone(POD, "p")
        cluster.until(lambda: _reserved(cluster) == [JOB], "the end of the pod's reservation")
        assert _any_pod(cluster) is True
        cluster.create(CLAIM, objects.claim("other"))
        cluster.create(POD, objects.pod("other", claim="other"))
        cluster.until(lambda: cluster.scheduling_message("other"), "the other pod's refusal")
        _set_reserved(cluster)
        cluster.until(lambda: _reserved(cluster) == [], "the owner's reference is gone")
        assert cluster.devices("c") == ["gpu-0"], "controllers without the feature do not look at an emptied list"
    with _restarted(folder) as (cluster, _):
        cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
        cluster.phase("other", "Running")


def _roles() -> list[Object]:
    """The role and the cluster role that the page gives to an owner of workloads."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "howto" / "claims-for-workloads.md"
    written = page.read_text().partition("```yaml\napiVersion: rbac")[2].partition("```")[0]
    return list(yaml.safe_load_all(f"apiVersion: rbac{written}"))


def test_an_owner_needs_the_rights_that_the_page_says_and_each_of_them(cluster: QuickCluster) -> None:
    owner = "system:serviceaccount:default:trainer"
    subject: Json = {"kind": "ServiceAccount", "name": "trainer", "namespace": "default"}
    role, cluster_role = _roles()
    for resource, binding, made in ((ROLE, ROLE_BINDING, role), (CLUSTER_ROLE, CLUSTER_ROLE_BINDING, cluster_role)):
        cluster.create(resource, made)
        reference: Json = {"apiGroup": "rbac.authorization.k8s.io", "kind": resource.kind, "name": "workload-owner"}
        metadata: Object = {"name": "trainer"}
        if resource.namespaced:
            metadata["namespace"] = "default"
        cluster.create(binding, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})
    server = cluster.cluster.server
    with ApiClient(server=server.url, ca_pem=server.ca_pem, token=server.issue_token(owner)) as api:
        api.create(CLAIM, _claim())
        cluster.run(objects.pod("p", claim="c"))
        assert [json_types.text(one, "metadata", "name") for one in api.list(POD, namespace="default").items] == ["p"]
        cluster.delete("p")
        cluster.gone(POD, "p")
        for resource, lost in ((ROLE, "resourceclaims/status"), (CLUSTER_ROLE, "resourceclaims/binding")):
            whole = cluster.find(resource, "workload-owner")
            assert whole is not None
            rest = [one for one in json_types.objects(whole, "rules") if lost not in json_types.strings(one, "resources")]
            assert len(rest) == len(json_types.items(whole, "rules")) - 1
            reduced = cluster.api.update(resource, whole | {"rules": json_types.from_objects(rest)})
            with pytest.raises((errors.ForbiddenError, errors.InvalidError), match=lost):
                _release(api)
            cluster.api.update(resource, reduced | {"rules": whole["rules"]})
        assert cluster.devices("c") == ["gpu-0"]
        _release(api)
        cluster.until(lambda: cluster.devices("c") == [], "the deallocation")
        api.delete(CLAIM, "c", namespace="default")


def _release(api: ApiClient) -> None:
    patch: Object = {"status": {"reservedFor": []}}
    api.patch(CLAIM, "c", patch, namespace="default", kind=PatchKind.MERGE, subresource="status")


def test_eviction_finds_the_pods_of_a_workload_and_spares_all_others(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, _claim())
    for name in ("p", "q"):
        cluster.run(objects.pod(name, claim="c"))
    cluster.run(objects.pod("bystander"))
    [published] = cluster.slices()
    for device in json_types.objects(published, "spec", "devices"):
        device["taints"] = [{"key": "example.com/broken", "effect": "NoExecute"}]
    cluster.api.update(SLICE, published)
    for name in ("p", "q"):
        cluster.gone(POD, name)
    assert cluster.phase("bystander", "Running")
    assert _reserved(cluster) == [JOB]
