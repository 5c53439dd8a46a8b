"""The official Python client against the server: its models, its watch, its way of applying."""

import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config, informer
from kubernetes import watch as watching

from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, CLASS, POOL_STATUS_REQUEST, SLICE, TAINT_RULE, Resource
from fakes import waits
from unit.cluster import samples

WATCH: Any = watching.Watch  # The library has no types.
INFORMER: Any = informer.SharedInformer


@pytest.fixture
def connection(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> Iterator[Any]:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    with config.new_client_from_config(str(path)) as connected:
        yield connected
        connected.rest_client.pool_manager.clear()


@pytest.fixture
def dra(connection: Any) -> Any:
    return official.ResourceV1Api(connection)


@pytest.fixture
def core(connection: Any) -> Any:
    return official.CoreV1Api(connection)


def test_the_official_client_creates_lists_updates_and_deletes_slices(dra: Any) -> None:
    made = dra.create_resource_slice(samples.slice_())
    assert made.spec.pool.resource_slice_count == 1
    assert [one.metadata.name for one in dra.list_resource_slice(field_selector="spec.nodeName=n1").items] == [made.metadata.name]
    made.spec.devices[0].name = "gpu-7"
    stored = dra.replace_resource_slice(made.metadata.name, made)
    assert stored.metadata.generation == 2
    with pytest.raises(official.ApiException) as stale:
        dra.replace_resource_slice(made.metadata.name, made)
    assert stale.value.status == 409
    dra.delete_resource_slice(made.metadata.name)
    with pytest.raises(official.ApiException) as missing:
        dra.read_resource_slice(made.metadata.name)
    assert missing.value.status == 404


def test_the_official_client_watches_from_a_list(dra: Any, memory: registry.Registry) -> None:
    since = dra.list_resource_slice().metadata.resource_version
    memory.create(SLICE, samples.slice_())
    watcher = WATCH()
    seen = []
    stream = watcher.stream(dra.list_resource_slice, resource_version=since, timeout_seconds=20)
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            threading.Thread(target=memory.delete, args=(SLICE, "0-n1-aaaaa")).start()
        else:
            watcher.stop()
    stream.close()
    assert seen == [("ADDED", "0-n1-aaaaa"), ("DELETED", "0-n1-aaaaa")]


def test_the_official_client_gets_410_when_the_history_is_lost(dra: Any, memory: registry.Registry) -> None:
    since = dra.list_resource_slice().metadata.resource_version
    memory.create(SLICE, samples.slice_())
    memory.store.forget_history()
    stream = WATCH().stream(dra.list_resource_slice, resource_version=since, timeout_seconds=5)
    with pytest.raises(official.ApiException) as gone:
        next(iter(stream))
    assert gone.value.status == 410


def test_the_official_client_patches_a_pods_status(core: Any) -> None:
    core.create_namespaced_pod("default", samples.pod())
    body: Json = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    assert core.patch_namespaced_pod_status("p1", "default", body).status.phase == "Running"
    core.patch_namespaced_pod_status("p1", "default", {"status": {"conditions": [{"type": "A", "status": "True"}]}})
    found = core.read_namespaced_pod("p1", "default").status
    assert sorted(one.type for one in found.conditions) == ["A", "Ready"]
    assert core.list_pod_for_all_namespaces(field_selector="status.phase=Running").items != []


def test_the_official_client_applies_device_statuses(dra: Any, memory: registry.Registry) -> None:
    made = memory.create(CLAIM, samples.claim())
    memory.update(CLAIM, samples.allocated(made, samples.result()), subresource="status")
    body: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c1", "namespace": "default"},
        "status": {"devices": [samples.device_status(conditions=samples.ready())]},
    }
    stored = dra.patch_namespaced_resource_claim_status(
        "c1",
        "default",
        body,
        field_manager="gpu.drakit.dev",
        force=True,
        _content_type="application/apply-patch+yaml",
    )
    assert stored.status.devices[0].conditions[0].type == "Ready"
    assert stored.status.allocation.devices.results[0].device == "gpu-0"
    managers = json_types.objects(memory.get(CLAIM, "c1", "default"), "metadata", "managedFields")
    assert ("gpu.drakit.dev", "Apply") in {(one["manager"], one["operation"]) for one in managers}
    assert {one.operation for one in stored.metadata.managed_fields} == {"Apply", "Update"}


def test_an_invalid_object_names_the_field(dra: Any) -> None:
    with pytest.raises(official.ApiException) as refused:
        dra.create_resource_slice(samples.slice_(allNodes=True))
    assert refused.value.status == 422
    assert "exactly one of" in str(refused.value.body)


def test_the_official_client_deletes_nodes_and_reads_the_version(core: Any, connection: Any) -> None:
    core.create_node({"metadata": {"name": "n1"}})
    core.delete_node("n1")
    assert core.list_node().items == []
    assert official.VersionApi(connection).get_code().minor == "37"


def named(found: Any) -> dict[str, str]:
    """Return the versions of an informer's objects by name."""
    return {one.metadata.name: one.metadata.resource_version for one in found.cache.list()}


def wait_for(found: Any, memory: registry.Registry, resource: Resource = SLICE) -> None:
    """Wait until an informer has what the registry has; fail when it does not come to that."""
    end = time.monotonic() + waits.SECONDS
    wanted: dict[str, str] = {}
    while time.monotonic() < end:
        listed = [json_types.mapping(one, "metadata") for one in memory.list(resource).items]
        wanted = {json_types.text(one, "name"): json_types.text(one, "resourceVersion") for one in listed}
        if named(found) == wanted:
            return
        time.sleep(0.02)
    assert named(found) == wanted


def test_the_official_informer_stays_consistent_through_a_410(dra: Any, memory: registry.Registry) -> None:
    for index in range(3):
        memory.create(SLICE, samples.slice_(f"s{index}"))
    follower = INFORMER(dra.list_resource_slice)
    seen: list[str] = []
    for kind in (informer.ADDED, informer.DELETED):
        follower.add_event_handler(kind, lambda one, kind=kind: seen.append(f"{kind} {one.metadata.name}"))
    follower.start()
    try:
        wait_for(follower, memory)
        memory.create(SLICE, samples.slice_("s3"))
        memory.delete(SLICE, "s0")
        wait_for(follower, memory)
        with memory.store.lock:  # The watch ends; before it can begin again, things change and the history is lost.
            memory.store.end_watches()
            memory.create(SLICE, samples.slice_("s4"))
            memory.delete(SLICE, "s1")
            memory.store.forget_history()
        wait_for(follower, memory)
        memory.create(SLICE, samples.slice_("s5"))
        wait_for(follower, memory)
    finally:
        memory.store.end_watches()
        follower.stop()
    assert sorted(named(follower)) == ["s2", "s3", "s4", "s5"]
    assert {"ADDED s4", "DELETED s1", "ADDED s5"} <= set(seen)


def rule(name: str) -> Object:
    taint: Object = {"key": "example.com/broken", "effect": "NoSchedule"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": {"pool": "n1"}, "taint": taint}}


def question(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"driver": "gpu.drakit.dev"}}


def device_class(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}


def template(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": samples.claim()["spec"]}}


@dataclasses.dataclass(frozen=True)
class Followed:
    """A kind of the DRA API with the client's function, an object of it by name, and one fact that its model must have."""

    resource: Resource
    function: str
    make: Callable[[str], Object]
    fact: Callable[[Any], object]
    expected: object


CLAIMS, TEMPLATES = "list_resource_claim_for_all_namespaces", "list_resource_claim_template_for_all_namespaces"
STABLE = (
    Followed(SLICE, "list_resource_slice", samples.slice_, lambda one: one.spec.devices[0].name, "gpu-0"),
    Followed(CLASS, "list_device_class", device_class, lambda one: one.spec.selectors[0].cel.expression, "true"),
    Followed(CLAIM, CLAIMS, samples.claim, lambda one: one.spec.devices.requests[0].exactly.device_class_name, "gpu"),
    Followed(CLAIM_TEMPLATE, TEMPLATES, template, lambda one: one.spec.spec.devices.requests[0].exactly.count, 1),
)
RULES = Followed(TAINT_RULE, "list_device_taint_rule", rule, lambda one: one.spec.taint.effect, "NoSchedule")
QUESTIONS = Followed(POOL_STATUS_REQUEST, "list_resource_pool_status_request", question, lambda one: one.spec.limit, 100)
READ_ONLY = "ResourceClaim-V1"
"""The client's watch looks for a model V1ResourceClaim, which it has under the name ResourceV1ResourceClaim: it can list claims, not watch them."""
VERSIONS = {"V1": STABLE, "V1beta2": (*STABLE, RULES), "V1alpha3": (RULES, QUESTIONS)}
FOLLOWED = {f"{kind.resource.kind}-{version}": (version, kind) for version, kinds in VERSIONS.items() for kind in kinds}


def lister(connection: Any, name: str) -> Any:
    """Return the client's function that lists a kind."""
    version, kind = FOLLOWED[name]
    return getattr(getattr(official, f"Resource{version}Api")(connection), kind.function)


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_official_models_read_every_kind(connection: Any, memory: registry.Registry, name: str) -> None:
    kind = FOLLOWED[name][1]
    memory.create(kind.resource, kind.make("a"), namespace="default" if kind.resource.namespaced else "")
    assert [(one.metadata.name, kind.fact(one)) for one in lister(connection, name)().items] == [("a", kind.expected)]


@pytest.mark.parametrize("name", sorted(FOLLOWED.keys() - {READ_ONLY}))
def test_the_official_informer_follows_every_kind_through_a_410(connection: Any, memory: registry.Registry, name: str) -> None:
    kind = FOLLOWED[name][1]
    namespace = "default" if kind.resource.namespaced else ""
    memory.create(kind.resource, kind.make("a"), namespace=namespace)
    follower = INFORMER(lister(connection, name))
    follower.start()
    try:
        wait_for(follower, memory, kind.resource)
        with memory.store.lock:
            memory.store.end_watches()
            memory.create(kind.resource, kind.make("b"), namespace=namespace)
            memory.delete(kind.resource, "a", namespace=namespace)
            memory.store.forget_history()
        wait_for(follower, memory, kind.resource)
        memory.create(kind.resource, kind.make("c"), namespace=namespace)
        wait_for(follower, memory, kind.resource)
        assert {one.metadata.name: kind.fact(one) for one in follower.cache.list()} == {"b": kind.expected, "c": kind.expected}
    finally:
        memory.store.end_watches()
        follower.stop()


def test_the_official_client_reads_lists_in_pages(dra: Any, memory: registry.Registry) -> None:
    for index in range(5):
        memory.create(SLICE, samples.slice_(f"s{index}"))
    names, token, pages = [], "", 0
    while pages == 0 or token:
        page = dra.list_resource_slice(limit=2, _continue=token)
        names += [one.metadata.name for one in page.items]
        token, pages = page.metadata._continue, pages + 1
    assert (names, pages) == ([f"s{index}" for index in range(5)], 3)
    with pytest.raises(official.ApiException) as gone:
        dra.list_resource_slice(limit=2, _continue="unknown")
    assert gone.value.status == 410


def test_the_official_client_reads_its_rights(connection: Any) -> None:
    attributes = official.V1ResourceAttributes(verb="get", group="resource.k8s.io", resource="resourceclaims", namespace="default")
    review = official.V1SelfSubjectAccessReview(spec=official.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    assert official.AuthorizationV1Api(connection).create_self_subject_access_review(review).status.allowed is True


def test_the_official_models_read_roles_workloads_leases_and_policies(connection: Any, memory: registry.Registry) -> None:
    roles = official.RbacAuthorizationV1Api(connection).list_cluster_role()
    assert "cluster-admin" in [one.metadata.name for one in roles.items]
    lease = official.CoordinationV1Api(connection).create_namespaced_lease(
        "default", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    )
    assert lease.spec.holder_identity == "me"
    rules = official.ResourceV1alpha3Api(connection)
    taint: Json = {"key": "example.com/broken", "effect": "NoSchedule"}
    made = rules.create_device_taint_rule({"metadata": {"name": "r"}, "spec": {"taint": taint, "deviceSelector": {"pool": "n1"}}})
    assert made.spec.taint.time_added is not None
    assert official.ResourceV1beta2Api(connection).read_device_taint_rule("r").spec.device_selector.pool == "n1"
    assert memory.store.version > 0
