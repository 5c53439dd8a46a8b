"""The admission policies of overlays and examples, installed in the local API server: what a stolen token can write."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeDriver:
    """The account of a node driver, which its policy is named after, and the driver's name."""

    namespace: str
    account: str
    name: str


FAMILIES = [
    NodeDriver(namespace=manifests.NAMESPACE, account=f"drakit-{name}", name=f"{name}.drakit.dev") for name in ("gpu", "nic", "tpu")
]
OF_EXAMPLES = [NodeDriver(namespace=f"{name}-driver", account=f"{name}-driver", name=driver) for name, driver in manifests.EXAMPLES.items()]
NODE_DRIVERS = [*FAMILIES, *OF_EXAMPLES]
of_every_driver = pytest.mark.parametrize("driver", NODE_DRIVERS, ids=lambda driver: driver.name)
PUBLISHER = NodeDriver(namespace=manifests.NAMESPACE, account="drakit-publisher", name="tpu.drakit.dev")
Attempt = Callable[[client.ApiClient], object]


def policies(items: list[Any]) -> list[Any]:
    return [item for item in items if item["kind"].startswith("ValidatingAdmissionPolicy")]


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    """Any user may write anything here, but for what the policies of all overlays and examples deny."""
    installed = [manifests.overlay("gpu-nic"), manifests.rendered(manifests.TPU), *map(manifests.example, manifests.EXAMPLES)]
    with apiserver.ApiServer(registry.Registry()) as running:
        for item in (policy for items in installed for policy in policies(items)):
            running.registry.create(KINDS[item["kind"]], item)
        yield running


WITHOUT_NODE: Mapping[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": ("JTI=1",)}


def account(
    server: apiserver.ApiServer, driver: NodeDriver, node: str = "", *, extra: Mapping[str, tuple[str, ...]] = WITHOUT_NODE
) -> client.ApiClient:
    extra = {users.NODE_NAME: (node,)} if node else extra
    token = server.issue_token(f"system:serviceaccount:{driver.namespace}:{driver.account}", ("system:masters",), extra=extra)
    return client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token)


def slice_of(name: str, driver: str, node: str | None, pool: str = "", **spec: Json) -> Object:
    pool_: Object = {"name": pool or node or "cluster", "generation": 1, "resourceSliceCount": 1}
    return samples.slice_of({"driver": driver, "nodeName": node, "pool": pool_, **spec}, name=name)


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


@pytest.mark.parametrize("folder", [*(f"daemonset/overlays/{name}" for name in manifests.OVERLAYS), manifests.TPU])
def test_every_overlay_has_a_policy_and_a_denying_binding_for_each_of_its_accounts(folder: str) -> None:
    check_policies(manifests.rendered(folder))


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_every_example_has_a_policy_and_a_binding_that_denies_for_its_account(name: str) -> None:
    check_policies(manifests.example(name))


def check_policies(items: list[Any]) -> None:
    """Check that each account has a policy of its name, and a binding that denies."""
    accounts = {item["metadata"]["name"]: item["metadata"]["namespace"] for item in items if item["kind"] == "ServiceAccount"}
    found = {item["metadata"]["name"]: item for item in policies(items) if item["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [item["spec"] for item in policies(items) if item["kind"].endswith("Binding")]
    pods = {"drakit-gpu-pods", "drakit-gpu-mps"}  # see test_mps_pods
    bound = {spec["policyName"]: spec["validationActions"] for spec in bindings if spec["policyName"] not in pods}
    assert bound == {name: ["Deny"] for name in accounts}
    for name, namespace in accounts.items():
        (condition,) = found[name]["spec"]["matchConditions"]
        assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:{namespace}:{name}"'
        assert found[name]["spec"]["failurePolicy"] == "Fail"


@of_every_driver
def test_a_driver_writes_the_slices_of_its_own_node(server: apiserver.ApiServer, driver: NodeDriver) -> None:
    with account(server, driver, "n1") as mine:
        made = mine.create(SLICE, slice_of("own", driver.name, "n1"))
        mine.create(SLICE, slice_of("probe", driver.name, "n1", pool="n1/probe"))
        made = mine.update(SLICE, made)
        mine.delete(SLICE, "own")
        mine.delete(SLICE, "probe")
    assert stored(server) == set()


@of_every_driver
def test_a_stolen_token_of_a_driver_writes_no_slice_of_another_node(server: apiserver.ApiServer, driver: NodeDriver) -> None:
    theirs = server.registry.create(SLICE, slice_of("theirs", driver.name, "n2"))
    mine = server.registry.create(SLICE, slice_of("mine", driver.name, "n1"))
    why = "a pod on the node n1 writes ResourceSlices of this node only"
    with account(server, driver, "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, driver.account, why)
        refused(stolen, creating(slice_of("new", driver.name, "n2")), driver.account, why)
        # Neither does it take a slice of another node over, nor give one of its own away.
        moved = theirs | {"spec": json_types.mapping(mine, "spec")}
        given = mine | {"spec": json_types.mapping(theirs, "spec")}
        for taken in (moved, given):
            with pytest.raises(errors.ApiError):
                stolen.update(SLICE, taken)
    assert stored(server) == {"theirs", "mine"}


@of_every_driver
def test_a_stolen_token_of_a_driver_writes_no_pool_of_the_cluster_or_of_another_node(
    server: apiserver.ApiServer, driver: NodeDriver
) -> None:
    theirs = server.registry.create(SLICE, slice_of("cluster", driver.name, None, allNodes=True))
    with account(server, driver, "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, driver.account, "of this node only")
        refused(stolen, creating(slice_of("new", driver.name, None, allNodes=True)), driver.account, "of this node only")
        for pool in ("n2", "n11", "cluster"):
            refused(stolen, creating(slice_of("new", driver.name, "n1", pool=pool)), driver.account, "writes the pools n1 and n1/... only")
    assert stored(server) == {"cluster"}


@pytest.mark.parametrize("driver, other", [*itertools.pairwise([*NODE_DRIVERS, NODE_DRIVERS[0]])], ids=lambda driver: driver.name)
def test_a_stolen_token_of_a_driver_writes_no_slice_of_another_driver(
    server: apiserver.ApiServer, driver: NodeDriver, other: NodeDriver
) -> None:
    theirs = server.registry.create(SLICE, slice_of("theirs", other.name, "n1"))
    why = f"this account writes ResourceSlices of the driver {driver.name} only"
    with account(server, driver, "n1") as stolen:
        for attempt in changes(theirs):
            refused(stolen, attempt, driver.account, why)
        refused(stolen, creating(slice_of("new", other.name, "n1")), driver.account, why)
    assert stored(server) == {"theirs"}


@pytest.mark.parametrize("extra", [WITHOUT_NODE, {}], ids=["another-extra", "no-extra"])
@of_every_driver
def test_a_token_of_a_driver_that_names_no_node_writes_nothing(
    server: apiserver.ApiServer, driver: NodeDriver, extra: Mapping[str, tuple[str, ...]]
) -> None:
    """A token without any extra, such as one of a legacy Secret, has no such field at all."""
    made = server.registry.create(SLICE, slice_of("made", driver.name, "n1"))
    with account(server, driver, extra=extra) as stolen:
        for attempt in (*changes(made), creating(slice_of("new", driver.name, "n1"))):
            refused(stolen, attempt, driver.account, "this token names no node")
    assert stored(server) == {"made"}


def test_the_publisher_writes_pools_of_the_cluster_and_no_slices_of_nodes(server: apiserver.ApiServer) -> None:
    of_node = server.registry.create(SLICE, slice_of("node", "tpu.drakit.dev", "n1"))
    of_other = server.registry.create(SLICE, slice_of("other", "gpu.drakit.dev", None, allNodes=True))
    with account(server, PUBLISHER, "n1") as publisher:
        made = publisher.create(SLICE, slice_of("own", "tpu.drakit.dev", None, pool="tpus", allNodes=True))
        publisher.update(SLICE, made)
        publisher.delete(SLICE, "own")
        for attempt in (*changes(of_node), creating(slice_of("new", "tpu.drakit.dev", "n1"))):
            refused(publisher, attempt, "drakit-publisher", "belong to no node only")
        for attempt in (*changes(of_other), creating(slice_of("new", "gpu.drakit.dev", None, allNodes=True))):
            refused(publisher, attempt, "drakit-publisher", "of the driver tpu.drakit.dev only")
    assert stored(server) == {"node", "other"}


def test_the_publisher_writes_its_own_pools_and_no_pool_of_a_node(server: apiserver.ApiServer) -> None:
    """The scheduler knows a pool by driver and name: a slice of a newer generation in a node's pool hides that node's devices."""
    theirs = server.registry.create(SLICE, slice_of("theirs", "tpu.drakit.dev", None, pool="n1", allNodes=True))
    with account(server, PUBLISHER, "n1") as publisher:
        for pool in ("tpus", "tpus-2", "tpus/probe", "tpus-2/probe"):
            publisher.create(SLICE, slice_of("own", "tpu.drakit.dev", None, pool=pool, allNodes=True))
            publisher.delete(SLICE, "own")
        for attempt in changes(theirs):
            refused(publisher, attempt, "drakit-publisher", "writes the pools tpus and tpus-N only")
        for pool in ("n1", "n1/probe", "tpus2", "tpus-n1", "tpus/n1"):
            attempt = creating(slice_of("new", "tpu.drakit.dev", None, pool=pool, allNodes=True))
            refused(publisher, attempt, "drakit-publisher", "writes the pools tpus and tpus-N only")
    assert stored(server) == {"theirs"}


def test_the_policies_ask_nobody_else(server: apiserver.ApiServer) -> None:
    token = server.issue_token("system:serviceaccount:kube-system:generic-garbage-collector", ("system:masters",))
    with client.ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as collector:
        server.registry.create(SLICE, slice_of("node", "gpu.drakit.dev", "n1"))
        collector.delete(SLICE, "node")
    assert stored(server) == set()


@pytest.mark.parametrize("namespace, name", [(manifests.NAMESPACE, "drakit-mps-0"), ("default", "p1")])
@pytest.mark.parametrize("subresource", ["eviction", "binding"])
def test_a_stolen_token_of_the_gpu_driver_evicts_and_binds_no_pod(
    server: apiserver.ApiServer, namespace: str, name: str, subresource: str
) -> None:
    driver = FAMILIES[0]
    if namespace != "default":
        server.registry.create(resources.NAMESPACE, {"metadata": {"name": namespace}})
    pod = samples.pod(name, namespace=namespace, node="" if subresource == "binding" else "n1")
    json_types.mapping(pod, "metadata")["labels"] = {"app.kubernetes.io/component": "mps-daemon"}
    server.registry.create(resources.POD, pod)
    body: Object = {"metadata": {"name": name}, **({"target": {"name": "n1"}} if subresource == "binding" else {})}
    path = resources.POD.path(namespace, name, subresource)
    extra = {users.NODE_NAME: ("n1",), "authentication.kubernetes.io/pod-name": ("drakit-gpu-abcde",)}
    with account(server, driver, extra=extra) as token:
        refused(token, lambda api: api._object("POST", path, body=body), "drakit-gpu-pods", "does nothing else with pods")
    assert "deletionTimestamp" not in json_types.mapping(server.registry.get(resources.POD, name, namespace), "metadata")
