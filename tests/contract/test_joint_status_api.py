"""Several nodes report one device of one claim at the local cluster's API server, by the manifests' rights: nobody overwrites another's part."""

import pathlib
import threading
from collections.abc import Callable, Iterator

import pytest
import yaml

from drakit.core import claim as claims
from drakit.core import claim_status, errors, names
from drakit.kube import client, status, transport
from drakit_cluster.access import roles, users
from drakit_cluster.api import apiserver, registry
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.json_types import Json, Object
from fakes import byte_comparing_transport, real_clock

ROOT = pathlib.Path(__file__).parents[2]
DRIVER, POOL, DEVICE = "tpu.drakit.dev", "tpus", "tpu-4x4-1"
ACCOUNT = "system:serviceaccount:drakit-system:drakit"
READY = claim_status.Condition(type="Ready", status=True, reason="Prepared")
BROKEN = claim_status.Condition(type="Ready", status=False, reason="DeviceBusy", message="taken")
CLEARED = claim_status.StatusChange(cleared=True)
BY_KIND = {one.kind: one for one in resources.ALL}

Connect = Callable[[str], status.ApiStatuses]


@pytest.fixture
def server() -> Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        for resource, made in roles.driver_objects("drakit-system", "drakit"):
            running.registry.create(resource, made)
        yield running


@pytest.fixture(params=["apply", "patch"])
def connect(server: apiserver.ApiServer, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Connect:
    (tmp_path / "ca.pem").write_bytes(server.ca_pem)

    def open_(node: str) -> status.ApiStatuses:
        token = server.issue_token(ACCOUNT, extra={users.NODE_NAME: (node,)})
        api: transport.Transport = client.connect_to(server.url, token=token, ca_file=tmp_path / "ca.pem")
        if request.param == "patch":
            api = byte_comparing_transport.ByteComparingTransport(api)
        return status.ApiStatuses(api, status.Writer(driver=DRIVER, node=node, pool=node), real_clock.RealClock())

    return open_


@pytest.fixture
def allowed(server: apiserver.ApiServer) -> None:
    """The rights that examples/tpu adds for devices of several nodes."""
    for made in yaml.load_all((ROOT / "examples/tpu/deploy/driver/status-rbac.yaml").read_text(), Loader=yaml.CSafeLoader):
        server.registry.create(BY_KIND[made["kind"]], made)


@pytest.fixture
def ref(server: apiserver.ApiServer) -> claims.ClaimRef:
    """A claim that has a device of four nodes, and one of another driver."""
    requests: list[Json] = [{"name": name, "exactly": {"deviceClassName": "any"}} for name in ("tpu", "other")]
    made = server.registry.create(
        resources.CLAIM, {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": requests}}}
    )
    results: list[Json] = [
        {"request": "tpu", "driver": DRIVER, "pool": POOL, "device": DEVICE},
        {"request": "other", "driver": "other.example.com", "pool": "p", "device": "d"},
    ]
    hosts: Json = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"node-{number}" for number in range(1, 5)]}
    place: Json = {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
    allocation: Object = {"devices": {"results": results}, "nodeSelector": place}
    server.registry.update(resources.CLAIM, made | {"status": {"allocation": allocation}}, subresource="status")
    applied: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"labels": {"a": "b"}}}
    server.registry.patch(resources.CLAIM, "c", applied, namespace="default", kind=PatchKind.APPLY, manager="somebody")
    return claims.ClaimRef(uid=names.ClaimUid(json_types.text(made, "metadata", "uid")), namespace="default", name="c")


def says(worker: int, condition: claim_status.Condition = READY) -> claim_status.StatusChange:
    result = claim_status.DeviceStatus(device=DEVICE, pool=POOL, conditions=(condition,), values={"worker": worker}, nodes=4)
    return claim_status.of_device(result, "own")


def entry(server: apiserver.ApiServer) -> Object:
    [found] = json_types.objects(server.registry.get(resources.CLAIM, "c", "default"), "status", "devices")
    return found


def ready(server: apiserver.ApiServer) -> tuple[str, str, str]:
    [condition] = json_types.objects(entry(server), "conditions")
    return tuple(json_types.text(condition, key) for key in ("status", "reason", "message"))  # type: ignore[return-value]


def workers(server: apiserver.ApiServer) -> dict[str, Json]:
    return {node: json_types.at(part, "values", "worker") for node, part in json_types.mapping(entry(server), "data", "nodes").items()}


@pytest.mark.usefixtures("allowed")
def test_each_node_adds_its_part_and_the_device_is_ready_with_the_last(
    server: apiserver.ApiServer, connect: Connect, ref: claims.ClaimRef
) -> None:
    for number in range(4):
        connect(f"node-{number + 1}").write(ref, says(number))
        assert workers(server) == {f"node-{one + 1}": one for one in range(number + 1)}
        assert ready(server)[0] == ("True" if number == 3 else "False")
    assert ready(server) == ("True", "Prepared", "all of 4 nodes")


@pytest.mark.usefixtures("allowed")
def test_concurrent_reports_of_nodes_are_all_stored(server: apiserver.ApiServer, connect: Connect, ref: claims.ClaimRef) -> None:
    stores = [connect(f"node-{number + 1}") for number in range(4)]
    failures: list[BaseException] = []

    def report(number: int) -> None:
        try:
            for _ in range(5):
                stores[number].write(ref, says(number, BROKEN))
                stores[number].write(ref, says(number))
        except BaseException as error:  # noqa: BLE001 - told by the test, not by a thread's trace
            failures.append(error)

    threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert workers(server) == {"node-1": 0, "node-2": 1, "node-3": 2, "node-4": 3}
    assert ready(server)[0] == "True"


@pytest.mark.usefixtures("allowed")
def test_a_leaving_node_removes_its_part_and_the_last_one_the_entry(
    server: apiserver.ApiServer, connect: Connect, ref: claims.ClaimRef
) -> None:
    first, second = connect("node-1"), connect("node-2")
    first.write(ref, says(0))
    second.write(ref, says(1))
    first.write(ref, CLEARED)
    assert workers(server) == {"node-2": 1}
    connect("node-1").write(ref, CLEARED)
    assert workers(server) == {"node-2": 1}
    second.write(ref, CLEARED)
    assert json_types.objects(server.registry.get(resources.CLAIM, "c", "default"), "status", "devices") == []


@pytest.mark.usefixtures("allowed")
def test_the_failure_of_one_node_is_reported_until_it_succeeds(server: apiserver.ApiServer, connect: Connect, ref: claims.ClaimRef) -> None:
    for number in (0, 1, 2):
        connect(f"node-{number + 1}").write(ref, says(number))
    last = connect("node-4")
    last.write(ref, claim_status.StatusChange(ready=BROKEN))
    assert ready(server) == ("False", "DeviceBusy", "node-4: taken")
    last.write(ref, says(3))
    assert ready(server)[0] == "True"


@pytest.mark.usefixtures("allowed")
def test_an_unchanged_report_writes_nothing(server: apiserver.ApiServer, connect: Connect, ref: claims.ClaimRef) -> None:
    store = connect("node-1")
    store.write(ref, says(0))
    before = server.registry.get(resources.CLAIM, "c", "default")
    store.write(ref, says(0))
    assert server.registry.get(resources.CLAIM, "c", "default") == before


def test_without_the_right_for_all_nodes_the_error_names_that_right(connect: Connect, ref: claims.ClaimRef) -> None:
    with pytest.raises(errors.ApiError) as raised:
        connect("node-1").write(ref, says(0))
    assert raised.value.status == 422
    assert "allow its service account" in str(raised.value)
    assert "arbitrary-node:patch for devices of several nodes" in str(raised.value)
