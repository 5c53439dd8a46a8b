"""The driver's real requests, under the roles that its manifests ask for and nothing else."""

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from drakit.core import claim as claims
from drakit.core import errors, names, records
from drakit.core.slices import resource_slice
from drakit.kube import claims as kube_claims
from drakit.kube import client as kube_client
from drakit.kube import slices as kube_slices
from drakit_cluster.access import roles
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, NAMESPACE, NODE, POD, SERVED, SERVICEACCOUNT
from fakes import real_clock, slice_samples
from unit.cluster import samples

MANIFESTS = pathlib.Path(__file__).parents[3] / "daemonset"
NAMESPACE_NAME = "drakit-system"
ACCOUNT = "drakit"


def install(memory: registry.Registry) -> None:
    """Apply the manifests of access as kubectl would, by their kinds."""
    kinds = {(one.api_version, one.kind): one for one in SERVED}
    for file in ("cluster/namespace.yaml", "base/serviceaccount.yaml", "base/rbac.yaml"):
        for body in yaml.safe_load_all((MANIFESTS / file).read_text()):
            resource = kinds[body["apiVersion"], body["kind"]]
            memory.patch(
                resource,
                body["metadata"]["name"],
                body,
                namespace=body["metadata"].get("namespace", NAMESPACE_NAME) if resource.namespaced else "",
                kind=PatchKind.APPLY,
                manager="kubectl",
            )


@pytest.fixture
def driver(memory: registry.Registry, guarded: apiserver.ApiServer, tmp_path: pathlib.Path) -> Iterator[kube_client.Client]:
    """A connection of the driver's pod on node n1, with the token that its kubelet mounted."""
    memory.create(NODE, {"metadata": {"name": "n1"}})
    install(memory)
    pod = samples.pod("drakit-x", node="n1", namespace=NAMESPACE_NAME)
    json_types.mapping(pod, "spec")["serviceAccountName"] = ACCOUNT
    made = memory.create(POD, pod)
    reference: Object = {"apiVersion": "v1", "kind": "Pod", "name": "drakit-x", "uid": json_types.text(made, "metadata", "uid")}
    kubelet = guarded.issue_node_token("n1")
    authority = tmp_path / "ca.pem"
    authority.write_bytes(guarded.ca_pem)
    asking = kube_client.connect_to(guarded.url, token=kubelet, ca_file=authority)
    answer = asking.request(
        "POST", f"/api/v1/namespaces/{NAMESPACE_NAME}/serviceaccounts/{ACCOUNT}/token", body={"spec": {"boundObjectRef": reference}}
    )
    asking.close()
    status = answer["status"]
    assert isinstance(status, dict)
    connected = kube_client.connect_to(guarded.url, token=str(status["token"]), ca_file=authority)
    yield connected
    connected.close()


def test_a_driver_may_publish_update_watch_and_delete_its_slices(driver: kube_client.Client) -> None:
    store = kube_slices.ApiSlices(driver, driver=slice_samples.DRIVER, node="n1", clock=real_clock.RealClock())
    assert store.list() == []
    assert (store.server().version[:2], store.server().lacks) == ("v1", frozenset({"DRAResourceSliceMixins"})), (
        "system:discovery lets every account read it"
    )
    spec = slice_samples.spec_of(slice_samples.plain_page("gpu-0"), node="n1")
    made = store.create(resource_slice.Create(index=0, prefix="00000-gpu-", spec=spec))
    stop = threading.Event()
    changes = store.watch(stop)
    assert next(changes) is None, "the first sign of life means connected"
    renewed = store.update(resource_slice.Update(index=0, published=made, spec=made.spec))
    assert renewed.name == made.name
    store.delete(renewed)
    stop.set()
    assert all(sign is None for sign in changes)
    assert store.list() == []


def test_a_driver_may_read_claims_and_not_write_them(driver: kube_client.Client, memory: registry.Registry) -> None:
    memory.create(CLAIM, samples.claim())
    memory.update(CLAIM, samples.allocated(samples.claim(), samples.result()), subresource="status")
    uid = json_types.text(memory.get(CLAIM, "c1", "default"), "metadata", "uid")
    ref = claims.ClaimRef(uid=names.ClaimUid(uid), namespace="default", name="c1")
    assert kube_claims.ApiClaims(driver).fetch(ref).ref == ref
    for method, path in (("DELETE", kube_claims.path(ref)), ("PATCH", kube_claims.path(ref))):
        with pytest.raises(errors.ApiError) as refused:
            driver.request(method, path, body={}, content_type="application/merge-patch+json")
        assert refused.value.status == 403
    reserved: records.Record = {"status": {"reservedFor": [{"resource": "pods", "name": "mine", "uid": "u"}]}}
    with pytest.raises(errors.ApiError, match="resourceclaims/binding"):
        driver.request("PATCH", f"{kube_claims.path(ref)}/status", body=reserved, content_type="application/merge-patch+json")


def test_a_driver_may_not_read_secrets_pods_or_other_kinds(driver: kube_client.Client) -> None:
    for path in ("/api/v1/namespaces/drakit-system/secrets", "/api/v1/pods", "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
        with pytest.raises(errors.ApiError) as refused:
            driver.request("GET", path)
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


def test_without_its_role_the_driver_reports_what_it_lacks(driver: kube_client.Client, memory: registry.Registry) -> None:
    memory.delete(CLUSTER_ROLE, "drakit")
    store = kube_slices.ApiSlices(driver, driver=slice_samples.DRIVER, node="n1", clock=real_clock.RealClock())
    with pytest.raises(errors.ApiError, match='cannot list resource "resourceslices"'):
        store.list()


def rights(rules: Any) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """Return every verb on every resource that rules allow, with the names that they limit it to."""
    return {
        (group, name, verb, tuple(rule.get("resourceNames", ())))
        for rule in rules
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_rights_that_the_cluster_gives_are_those_of_the_manifests(memory: registry.Registry) -> None:
    for resource, body in roles.driver_objects(NAMESPACE_NAME, ACCOUNT):
        memory.create(resource, body)
    role, binding = memory.get(CLUSTER_ROLE, ACCOUNT), memory.get(CLUSTER_ROLE_BINDING, ACCOUNT)
    asked = [*yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())]
    assert rights(role["rules"]) == rights(rule for one in asked if one["kind"] == "ClusterRole" for rule in one["rules"])
    assert all(binding["subjects"] == one["subjects"] for one in asked if one["kind"] == "ClusterRoleBinding")


def test_the_manifests_name_one_account_in_one_namespace(memory: registry.Registry) -> None:
    install(memory)
    assert memory.get(NAMESPACE, NAMESPACE_NAME)
    assert memory.get(SERVICEACCOUNT, ACCOUNT, NAMESPACE_NAME)
