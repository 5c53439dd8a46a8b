"""The admission policies of the overlays, installed in the local API server: what a stolen token of a driver or of the publisher can write."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drakit_cluster.access import users
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.client import client
from drakit_cluster.objects import errors, json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import SLICE
from fakes import manifests
from unit.cluster import samples

pytestmark = manifests.needs_kubectl
KINDS = {resource.kind: resource for resource in resources.ALL}
FAMILIES = ("gpu", "nic", "tpu")
Attempt = Callable[[client.ApiClient], object]


def policies(overlay: str) -> list[Any]:
    return [item for item in manifests.overlay(overlay) if item["kind"].startswith("ValidatingAdmissionPolicy")]


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    """Any user may write anything here, but for what the policies of all overlays deny."""
    with apiserver.ApiServer(registry.Registry()) as running:
        for item in [*policies("gpu-nic"), *policies("tpu-mock")]:
            running.registry.create(KINDS[item["kind"]], item)
        yield running


def account(server: apiserver.ApiServer, name: str, node: str = "") -> client.ApiClient:
    extra = {users.NODE_NAME: (node,)} if node else {"authentication.kubernetes.io/credential-id": ("JTI=1",)}
    token = server.issue_token(f"system:serviceaccount:{manifests.NAMESPACE}:{name}", extra=extra)
    return client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token)


def slice_of(name: str, family: str, node: str | None, pool: str = "", **spec: Json) -> Object:
    pool_: Object = {"name": pool or node or "cluster", "generation": 1, "resourceSliceCount": 1}
    return samples.slice_of({"driver": f"{family}.drakit.dev", "nodeName": node, "pool": pool_, **spec}, name=name)


def stored(server: apiserver.ApiServer) -> set[str]:
    return {json_types.text(one, "metadata", "name") for one in server.registry.list(SLICE).items}


def refused(token: client.ApiClient, attempt: Attempt, policy: str, why: str) -> None:
    with pytest.raises(errors.ForbiddenError) as error:
        attempt(token)
    assert f"ValidatingAdmissionPolicy '{policy}'" in error.value.message
    assert why in error.value.message


def changes(made: Object) -> list[Attempt]:
    """Every way to write a slice that exists."""
    name = json_types.text(made, "metadata", "name")
    return [
        lambda token: token.update(SLICE, made),
        lambda token: token.patch(SLICE, name, {"metadata": {"labels": {"a": "b"}}}, kind=PatchKind.MERGE),
        lambda token: token.delete(SLICE, name),
        lambda token: token.delete_collection(SLICE, field_selector=f"metadata.name={name}"),
    ]


def creating(new: Object) -> Attempt:
    return lambda token: token.create(SLICE, new)


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_every_overlay_has_a_policy_and_a_binding_that_denies_for_each_of_its_accounts(overlay: str) -> None:
    accounts = {item["metadata"]["name"] for item in manifests.overlay(overlay) if item["kind"] == "ServiceAccount"}
    found = {item["metadata"]["name"]: item for item in policies(overlay) if item["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [item["spec"] for item in policies(overlay) if item["kind"].endswith("Binding")]
    pods = {"drakit-gpu-pods", "drakit-gpu-mps"}  # see test_mps_pods
    bound = {spec["policyName"]: spec["validationActions"] for spec in bindings if spec["policyName"] not in pods}
    assert bound == {name: ["Deny"] for name in accounts}
    for name in accounts:
        (condition,) = found[name]["spec"]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:{manifests.NAMESPACE}:{name}"'
        assert found[name]["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_driver_writes_the_slices_of_its_own_node(server: apiserver.ApiServer, family: str) -> None:
    with account(server, f"drakit-{family}", "n1") as mine:
        made = mine.create(SLICE, slice_of("own", family, "n1"))
        mine.create(SLICE, slice_of("probe", family, "n1", pool="n1/probe"))
        made = mine.update(SLICE, made)
        mine.delete(SLICE, "own")
        mine.delete(SLICE, "probe")
    assert stored(server) == set()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stolen_token_of_a_driver_writes_no_slice_of_another_node(server: apiserver.ApiServer, family: str) -> None:
    theirs = server.registry.create(SLICE, slice_of("theirs", family, "n2"))
    mine = server.registry.create(SLICE, slice_of("mine", family, "n1"))
    why = "a pod on the node n1 writes ResourceSlices of this node only"
    with account(server, f"drakit-{family}", "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, f"drakit-{family}", why)
        refused(stolen, creating(slice_of("new", family, "n2")), f"drakit-{family}", why)
        # Neither does it take a slice of another node over, nor give one of its own away.
        moved = theirs | {"spec": json_types.mapping(mine, "spec")}
        given = mine | {"spec": json_types.mapping(theirs, "spec")}
        for taken in (moved, given):
            with pytest.raises(errors.ApiError):
                stolen.update(SLICE, taken)
    assert stored(server) == {"theirs", "mine"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stolen_token_of_a_driver_writes_no_pool_of_the_cluster_or_of_another_node(server: apiserver.ApiServer, family: str) -> None:
    theirs = server.registry.create(SLICE, slice_of("cluster", family, None, allNodes=True))
    with account(server, f"drakit-{family}", "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, f"drakit-{family}", "of this node only")
        refused(stolen, creating(slice_of("new", family, None, allNodes=True)), f"drakit-{family}", "of this node only")
        for pool in ("n2", "n11", "cluster"):
            refused(stolen, creating(slice_of("new", family, "n1", pool=pool)), f"drakit-{family}", "writes the pools n1 and n1/... only")
    assert stored(server) == {"cluster"}


@pytest.mark.parametrize("family, other", [("gpu", "nic"), ("nic", "tpu"), ("tpu", "gpu")])
def test_a_stolen_token_of_a_driver_writes_no_slice_of_another_driver(server: apiserver.ApiServer, family: str, other: str) -> None:
    theirs = server.registry.create(SLICE, slice_of("theirs", other, "n1"))
    why = f"this account writes ResourceSlices of the driver {family}.drakit.dev only"
    with account(server, f"drakit-{family}", "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, f"drakit-{family}", why)
        refused(stolen, creating(slice_of("new", other, "n1")), f"drakit-{family}", why)
    assert stored(server) == {"theirs"}


def test_a_token_of_a_driver_that_names_no_node_writes_nothing(server: apiserver.ApiServer) -> None:
    made = server.registry.create(SLICE, slice_of("made", "gpu", "n1"))
    with account(server, "drakit-gpu") as stolen:
        for attempt in (*changes(made), creating(slice_of("new", "gpu", "n1"))):
            refused(stolen, attempt, "drakit-gpu", "this token names no node")
    assert stored(server) == {"made"}


def test_the_publisher_writes_pools_of_the_cluster_and_no_slices_of_nodes(server: apiserver.ApiServer) -> None:
    of_node = server.registry.create(SLICE, slice_of("node", "tpu", "n1"))
    of_other = server.registry.create(SLICE, slice_of("other", "gpu", None, allNodes=True))
    with account(server, "drakit-publisher", "n1") as publisher:
        made = publisher.create(SLICE, slice_of("own", "tpu", None, allNodes=True))
        publisher.update(SLICE, made)
        publisher.delete(SLICE, "own")
        for attempt in (*changes(of_node), creating(slice_of("new", "tpu", "n1"))):
            refused(publisher, attempt, "drakit-publisher", "belong to no node only")
        for attempt in (*changes(of_other), creating(slice_of("new", "gpu", None, allNodes=True))):
            refused(publisher, attempt, "drakit-publisher", "of the driver tpu.drakit.dev only")
    assert stored(server) == {"node", "other"}


def test_the_policies_ask_nobody_else(server: apiserver.ApiServer) -> None:
    token = server.issue_token("system:serviceaccount:kube-system:generic-garbage-collector")
    with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as collector:
        server.registry.create(SLICE, slice_of("node", "gpu", "n1"))
        collector.delete(SLICE, "node")
    assert stored(server) == set()
