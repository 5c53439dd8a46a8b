"""Claims of a PodGroup, which its pods share (KEP-5729)."""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client.api import Api
from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, POD, POD_GROUP, SLICE
from fakes import allocating_server
from fakes.single_threaded_cluster import SingleThreadedCluster
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import PREPARE, UNPREPARE
from unit.cluster_kubelet.quick_cluster import QuickCluster

ON = FeatureGates.of({"DRAWorkloadResourceClaims": True})
MANY = 300
ENTRY: Object = {"name": "gpu", "resourceClaimTemplateName": "t"}


@contextlib.contextmanager
def _quick_cluster(
    *, nodes: tuple[str, ...] = ("node-1",), gates: FeatureGates = ON, components: Components | None = None
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
        running.offer("gpu-0", "gpu-1")
        running.create(CLAIM_TEMPLATE, objects.template("t"))
        yield running


@pytest.fixture
def server() -> Iterator[Api]:
    """An API server without a cluster, for what is refused."""
    with allocating_server.serve(gates=ON) as client:
        yield client


def _group(*claims: Json, **spec: Json) -> Object:
    body: Object = {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(claims or (ENTRY,))}
    return {"metadata": {"name": "g", "namespace": "default"}, "spec": body | spec}


def _member(name: str, *, group: str = "g", claim: str = "", template: str = "t", **spec: Json) -> Object:
    pod = objects.pod(name, claim=claim, template="" if claim else template)
    json_types.child(pod, "spec").update({"schedulingGroup": {"podGroupName": group}, **spec})
    return pod


def _claim_of(cluster: QuickCluster, name: str = "g") -> str:
    """Wait until a PodGroup's status names its claim; return the name."""

    def named() -> str:
        statuses = json_types.objects(cluster.find(POD_GROUP, name) or {}, "status", "resourceClaimStatuses")
        return json_types.text(statuses[0], "resourceClaimName") if statuses else ""

    cluster.until(named, "the PodGroup's claim")
    return named()


def _reserved(cluster: QuickCluster, claim: str) -> list[tuple[str, str]]:
    entries = json_types.objects(cluster.claim(claim), "status", "reservedFor")
    return [(json_types.text(entry, "resource"), json_types.text(entry, "name")) for entry in entries]


def test_the_pods_of_a_group_share_the_claim_made_from_its_template(cluster: QuickCluster) -> None:
    group = cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    stored = cluster.claim(claim)
    assert claim.startswith("g-gpu-")
    [owner] = json_types.objects(stored, "metadata", "ownerReferences")
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PodGroup", "g", json_types.text(group, "metadata", "uid"))
    assert json_types.mapping(stored, "metadata", "annotations") == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    for name in ("p", "q"):
        pod = cluster.run(_member(name))
        assert json_types.objects(pod, "status", "resourceClaimStatuses") == [{"name": "gpu", "resourceClaimName": claim}]
    entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": json_types.text(group, "metadata", "uid")}
    assert json_types.items(cluster.claim(claim), "status", "reservedFor") == [entry]
    assert len(cluster.api.list(CLAIM).items) == 1
    [plugin] = cluster.plugins
    assert plugin.uids(PREPARE) == [cluster.uid(claim)]


def test_a_claim_that_the_group_names_is_reserved_for_the_group_until_it_ends(cluster: QuickCluster) -> None:
    cluster.create(CLAIM, objects.claim("shared"))
    cluster.create(CLAIM, objects.claim("listed"))
    cluster.create(POD_GROUP, _group({"name": "gpu", "resourceClaimName": "shared"}))
    for name in ("p", "q"):
        other: Json = {"name": "other", "resourceClaimName": "listed"}
        own: Json = {"name": "gpu", "resourceClaimName": "shared"}
        cluster.run(_member(name, claim="shared", resourceClaims=[own, other]))
    assert _reserved(cluster, "shared") == [("podgroups", "g")]
    assert _reserved(cluster, "listed") == [("pods", "p"), ("pods", "q")]
    for name in ("p", "q"):
        cluster.delete(name)
        cluster.gone(POD, name)
    cluster.until(lambda: cluster.devices("listed") == [], "the deallocation of the listed claim")
    assert _reserved(cluster, "shared") == [("podgroups", "g")]
    assert len(cluster.devices("shared")) == 1
    cluster.api.delete(POD_GROUP, "g", namespace="default")
    cluster.until(lambda: cluster.devices("shared") == [], "the deallocation of the group's claim")
    assert _reserved(cluster, "shared") == []
    assert json_types.strings(cluster.claim("shared"), "metadata", "finalizers") == []


def test_a_deleted_group_and_its_claim_stay_until_its_last_pod_ends(cluster: QuickCluster) -> None:
    cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    for name in ("p", "q"):
        cluster.run(_member(name))
    cluster.api.delete(POD_GROUP, "g", namespace="default")
    cluster.delete("p")
    cluster.gone(POD, "p")
    assert json_types.text(cluster.find(POD_GROUP, "g"), "metadata", "deletionTimestamp")
    assert cluster.devices(claim) == ["gpu-0"]
    [plugin] = cluster.plugins
    assert plugin.uids(UNPREPARE) == []
    cluster.delete("q")
    cluster.gone(POD_GROUP, "g")
    cluster.gone(CLAIM, claim)
    assert len(plugin.uids(UNPREPARE)) == 1


def test_an_entry_that_is_not_the_groups_gives_the_pod_a_claim_of_its_own(cluster: QuickCluster) -> None:
    cluster.create(CLAIM_TEMPLATE, objects.template("other"))
    cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    pod = cluster.run(_member("p", template="other"))
    own = json_types.text(pod, "status", "resourceClaimStatuses", 0, "resourceClaimName")
    assert own.startswith("p-gpu-")
    assert _reserved(cluster, own) == [("pods", "p")]
    assert cluster.devices(claim) == []


def test_more_pods_than_a_list_can_hold_share_the_claim_of_a_group() -> None:
    simulated_cluster = SingleThreadedCluster(gates=ON)
    simulated_cluster.device_class("gpu", "true")
    simulated_cluster.api.create(SLICE, objects.resource_slice(objects.device("gpu-0")))
    simulated_cluster.api.create(CLAIM, objects.claim("c"))
    simulated_cluster.api.create(POD_GROUP, _group({"name": "c0", "resourceClaimName": "c"}))
    nodes = {simulated_cluster.schedule(f"p{index}", "c", schedulingGroup={"podGroupName": "g"}) for index in range(MANY)}
    assert nodes == {objects.NODE}
    entries = json_types.objects(simulated_cluster.api.get(CLAIM, "c", "default"), "status", "reservedFor")
    assert [entry["name"] for entry in entries] == ["g"]


def test_a_full_list_does_not_stop_pods_of_a_group(cluster: QuickCluster) -> None:
    cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    cluster.run(_member("p"))
    others: list[Json] = [
        {"apiGroup": "kubeflow.org", "resource": "trainjobs", "name": f"j{index}", "uid": str(index)} for index in range(255)
    ]
    entries = [*json_types.items(cluster.claim(claim), "status", "reservedFor"), *others]
    patch: Object = {"status": {"reservedFor": entries}}
    cluster.api.patch(CLAIM, claim, patch, namespace="default", kind=PatchKind.MERGE, subresource="status")
    cluster.run(_member("q"))
    assert len(_reserved(cluster, claim)) == 256


def test_a_pod_outside_the_group_is_listed_beside_it(cluster: QuickCluster) -> None:
    cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    cluster.run(_member("p"))
    cluster.run(objects.pod("guest", claim=claim))
    assert _reserved(cluster, claim) == [("podgroups", "g"), ("pods", "guest")]


def test_a_pod_waits_for_its_group_before_it_gets_any_claim(cluster: QuickCluster) -> None:
    cluster.create(POD, _member("p"))
    cluster.until(lambda: cluster.scheduling_message("p") == "PodGroup default/g not found", "the reason")
    assert cluster.api.list(CLAIM).items == []
    cluster.create(POD_GROUP, _group())
    cluster.phase("p", "Running")
    assert _reserved(cluster, _claim_of(cluster)) == [("podgroups", "g")]


def test_a_group_waits_for_its_template(cluster: QuickCluster) -> None:
    cluster.create(POD_GROUP, _group({"name": "gpu", "resourceClaimTemplateName": "late"}))
    cluster.create(POD, _member("p", template="late"))
    cluster.until(lambda: cluster.events("FailedResourceClaimCreation"), "the event")
    assert cluster.events("FailedResourceClaimCreation") == ["ResourceClaimTemplate default/late of claim gpu not found"]
    cluster.create(CLAIM_TEMPLATE, objects.template("late"))
    cluster.phase("p", "Running")
    assert len(cluster.api.list(CLAIM).items) == 1


def test_a_groups_devices_move_only_while_no_pod_of_it_has_a_node() -> None:
    with _quick_cluster(nodes=("node-1", "node-2")) as cluster:
        for node in ("node-1", "node-2"):
            cluster.plugin(node=node)
            cluster.offer("gpu-0", node=node)
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        cluster.create(POD_GROUP, _group())
        cluster.run(_member("p"))
        cluster.create(POD, _member("q", nodeSelector={"kubernetes.io/hostname": "node-2"}))
        cluster.until(lambda: "allocated on another node" in cluster.scheduling_message("q"), "the refusal")
        assert _reserved(cluster, _claim_of(cluster)) == [("podgroups", "g")]
        cluster.delete("p")
        assert json_types.text(cluster.phase("q", "Running"), "spec", "nodeName") == "node-2"
        assert _reserved(cluster, _claim_of(cluster)) == [("podgroups", "g")]


def test_devices_that_fail_to_become_ready_are_replaced_for_the_whole_group(cluster: QuickCluster) -> None:
    for published in cluster.slices():
        cluster.api.delete(SLICE, json_types.text(published, "metadata", "name"))
    conditions: Object = {"bindingConditions": ["example.com/ready"], "bindingFailureConditions": ["example.com/failed"]}
    cluster.create(SLICE, objects.resource_slice(*(objects.device(name) | conditions for name in ("f-0", "f-1"))))
    cluster.create(POD_GROUP, _group())
    claim = _claim_of(cluster)
    for name in ("p", "q"):
        cluster.create(POD, _member(name))
    cluster.until(lambda: len(cluster.events("WaitingForBindingConditions")) == 2, "the wait of both pods")
    [published] = cluster.slices()
    json_types.objects(published, "spec", "devices")[0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
    cluster.api.update(SLICE, published)
    _report(cluster, claim, "example.com/failed")
    cluster.until(lambda: cluster.devices(claim) == ["f-1"], "another device")
    _report(cluster, claim, "example.com/ready")
    for name in ("p", "q"):
        cluster.phase(name, "Running")
    assert _reserved(cluster, claim) == [("podgroups", "g")]


def _report(cluster: QuickCluster, claim: str, condition: str) -> None:
    """Report a condition of the claim's only device, as its driver does."""
    [result] = json_types.objects(cluster.claim(claim), "status", "allocation", "devices", "results")
    body: Object = {"type": condition, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": naming.now()}
    device: Object = {field: result[field] for field in ("driver", "pool", "device")}
    patch: Object = {"status": {"devices": [device | {"conditions": [body]}]}}
    cluster.api.patch(CLAIM, claim, patch, namespace="default", kind=PatchKind.MERGE, subresource="status")


def test_eviction_finds_the_pods_of_a_group_and_spares_all_others(cluster: QuickCluster) -> None:
    cluster.create(POD_GROUP, _group())
    for name in ("p", "q"):
        cluster.run(_member(name))
    cluster.run(objects.pod("bystander", template="t"))
    [published] = cluster.slices()
    json_types.objects(published, "spec", "devices")[0]["taints"] = [{"key": "example.com/broken", "effect": "NoExecute"}]
    cluster.api.update(SLICE, published)
    for name in ("p", "q"):
        cluster.gone(POD, name)
    assert cluster.phase("bystander", "Running")


def test_with_the_gate_off_the_claims_are_dropped_and_each_pod_gets_its_own() -> None:
    with _quick_cluster(gates=FeatureGates()) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0", "gpu-1")
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        assert "resourceClaims" not in json_types.mapping(cluster.create(POD_GROUP, _group()), "spec")
        for name in ("p", "q"):
            pod = cluster.run(_member(name))
            own = json_types.text(pod, "status", "resourceClaimStatuses", 0, "resourceClaimName")
            assert _reserved(cluster, own) == [("pods", name)]
        cluster.api.delete(POD_GROUP, "g", namespace="default")
        for name in ("p", "q"):
            cluster.delete(name)
        cluster.gone(POD_GROUP, "g")


OFF = FeatureGates()
REFUSED = "FailedPrepareDynamicResources"


@pytest.mark.parametrize(
    "components, wanted",
    [
        (Components(kubelets={"node-1": OFF}), "is not owned by pod p"),
        (Components(scheduler=OFF), "was not generated for this pod"),
    ],
    ids=["kubelet", "scheduler"],
)
def test_an_older_component_never_gives_a_pod_the_claim_of_its_group(components: Components, wanted: str) -> None:
    with _quick_cluster(components=components) as cluster:
        plugin = cluster.plugin()
        cluster.offer("gpu-0")
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        cluster.create(POD_GROUP, _group())
        cluster.create(POD, _member("p"))
        cluster.until(lambda: wanted in "".join([cluster.scheduling_message("p"), *cluster.events(REFUSED)]), "the refusal")
        assert plugin.calls == []


def test_older_controllers_make_a_claim_for_each_pod_of_a_group() -> None:
    with _quick_cluster(components=Components(controllers=OFF)) as cluster:
        cluster.plugin()
        cluster.offer("gpu-0", "gpu-1")
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        cluster.create(POD_GROUP, _group())
        for name in ("p", "q"):
            cluster.run(_member(name))
        owners = [json_types.text(claim, "metadata", "ownerReferences", 0, "name") for claim in cluster.api.list(CLAIM).items]
        assert sorted(owners) == ["p", "q"]


@pytest.mark.parametrize(
    "field, value",
    [
        ("schedulingPolicy", {"gang": {"minCount": 2}}),
        ("schedulingConstraints", {"topology": [{"key": "rack"}]}),
        ("disruptionMode", "PodGroup"),
        ("parentCompositePodGroupName", "parent"),
        ("priorityClassName", "high"),
        ("priority", 1),
        ("preemptionPolicy", "Never"),
    ],
)
def test_what_the_local_cluster_would_ignore_is_refused_in_words(server: Api, field: str, value: Json) -> None:
    with pytest.raises(errors.InvalidError, match=rf"spec\.{field}.*schedules the pods of a group one by one"):
        server.create(POD_GROUP, _group(**{field: value}))


SAME: Object = {"resourceClaimName": "c"}


@pytest.mark.parametrize(
    "spec, wanted",
    [
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy: .*exactly one of basic or gang"),
        ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 0}}}, "exactly one of basic or gang.*minCount.*must be 1 or more"),
        ({"resourceClaims": [{"name": f"c{index}", **SAME} for index in range(5)]}, "spec.resourceClaims: Too many: 5"),
        ({"resourceClaims": [{"name": "c", **SAME}, {"name": "c", **SAME}]}, r"spec.resourceClaims\[1\]: Duplicate value"),
        ({"resourceClaims": [{"name": "Not.A.Label", **SAME}]}, r"spec.resourceClaims\[0\].name: Invalid value"),
        ({"resourceClaims": [{"name": "c"}]}, r"spec.resourceClaims\[0\]: .*exactly one of"),
        ({"resourceClaims": [{"name": "c", **SAME, "resourceClaimTemplateName": "t"}]}, r"spec.resourceClaims\[0\]: .*exactly one of"),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "_"}]}, r"spec.resourceClaims\[0\].resourceClaimName"),
    ],
)
def test_a_group_that_kubernetes_refuses_is_refused(server: Api, spec: Object, wanted: str) -> None:
    with pytest.raises(errors.InvalidError, match=wanted):
        server.create(POD_GROUP, _group(**spec))


def test_a_groups_spec_never_changes(server: Api) -> None:
    server.create(POD_GROUP, _group())
    with pytest.raises(errors.InvalidError, match=r"spec\.resourceClaims: .*field is immutable"):
        server.patch(POD_GROUP, "g", {"spec": {"resourceClaims": []}}, namespace="default", kind=PatchKind.MERGE)


def test_a_groups_status_names_only_claims_of_its_spec(server: Api) -> None:
    server.create(POD_GROUP, _group())
    status: Object = {"status": {"resourceClaimStatuses": [{"name": "other", "resourceClaimName": "c"}]}}
    with pytest.raises(errors.InvalidError, match=r"resourceClaimStatuses\[0\]\.name: .*an entry of spec\.resourceClaims"):
        server.patch(POD_GROUP, "g", status, namespace="default", kind=PatchKind.MERGE, subresource="status")


@pytest.mark.parametrize("kubernetes, served", [("1.36", ["v1alpha2"]), ("1.37", ["v1alpha3", "v1beta1"])])
def test_each_kubernetes_version_serves_the_groups_that_it_has(kubernetes: str, served: list[str]) -> None:
    gates = FeatureGates.of({"DRAWorkloadResourceClaims": True, "GenericWorkload": True}, kubernetes)
    with allocating_server.serve(gates=gates) as server:
        made = []
        for version in ("v1alpha2", "v1alpha3", "v1beta1"):
            resource = dataclasses.replace(POD_GROUP, version=version)
            group: Object = {"apiVersion": resource.api_version, **_group(), "metadata": {"name": version}}
            with contextlib.suppress(errors.NotFoundError):
                made.append(server.create(resource, group, namespace="default"))
        assert [json_types.text(group, "apiVersion").rpartition("/")[2] for group in made] == served


def test_without_generic_workload_there_are_no_groups() -> None:
    with pytest.raises(
        ValueError, match="DRAWorkloadResourceClaims has no effect without GenericWorkload: add --gate GenericWorkload=true"
    ):
        FeatureGates.of({"DRAWorkloadResourceClaims": True}, "1.37")
    with _quick_cluster(gates=FeatureGates.of({}, "1.37")) as cluster:
        with pytest.raises(errors.NotFoundError, match="needs feature gate GenericWorkload"):
            cluster.create(POD_GROUP, _group())
        cluster.create(CLAIM_TEMPLATE, objects.template("t"))
        assert "schedulingGroup" not in json_types.mapping(cluster.create(POD, _member("p")), "spec")


def test_a_pod_names_its_group_by_a_valid_name(server: Api) -> None:
    with pytest.raises(errors.InvalidError, match=r"spec\.schedulingGroup\.podGroupName"):
        server.create(POD, _member("p", group=""))
