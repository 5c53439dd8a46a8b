"""Devices that become ready after their allocation: the pod is bound only then (KEP-5007)."""

import contextlib
import datetime
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from drakit_cluster.cluster_node import Components
from drakit_cluster.objects import errors, json_types, naming
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, POD, SLICE
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.plugin import DRIVER, PREPARE
from unit.cluster_kubelet.town import Town

NODES = ("node-1", "node-2")
READY = ["example.com/attached", "example.com/configured"]
BROKEN = ["example.com/attach-failed"]


@contextlib.contextmanager
def _town(binding_timeout: float = 600.0) -> Iterator[Town]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dk"))
    running = Town(folder, nodes=NODES, components=Components(binding_timeout=binding_timeout), https=True)
    try:
        yield running.start()
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def town() -> Iterator[Town]:
    with _town() as running:
        for node in NODES:
            running.plugin(node=node)
        yield running


def _offer(town: Town, *names: str, binds: bool = False) -> None:
    """Publish devices of a fabric that every node can have attached."""
    devices: list[Json] = []
    for name in names:
        device: Object = {"name": name, "bindingConditions": [*READY], "bindingFailureConditions": [*BROKEN]}
        devices.append(device | ({"bindsToNode": True} if binds else {}))
    pool: Object = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    town.create(SLICE, {"metadata": {"name": "fabric"}, "spec": {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}})


def _report(town: Town, *kinds: str, claim: str = "c") -> None:
    """Set conditions of the claim's only device to True, as the fabric's controller does."""
    while True:
        found = town.claim(claim)
        [result] = json_types.objects(found, "status", "allocation", "devices", "results")
        conditions: list[Json] = [
            {"type": kind, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": naming.now()} for kind in kinds
        ]
        entry: Object = {field: result[field] for field in ("driver", "pool", "device")}
        json_types.child(found, "status")["devices"] = [entry | {"conditions": conditions}]
        with contextlib.suppress(errors.ConflictError):
            town.api.update(CLAIM, found, subresource="status")
            return


def _wait_for_allocation(town: Town, claim: str = "c") -> None:
    town.until(lambda: town.devices(claim), "the allocation")


def _node(town: Town, pod: str) -> str:
    return json_types.text(town.find(POD, pod), "spec", "nodeName")


def test_a_pod_is_bound_when_all_binding_conditions_hold(town: Town) -> None:
    _offer(town, "f-0")
    town.create(CLAIM, objects.claim("c"))
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    town.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(town)
    [result] = json_types.objects(town.claim("c"), "status", "allocation", "devices", "results")
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == (READY, BROKEN)
    stamp = json_types.text(town.claim("c"), "status", "allocation", "allocationTimestamp")
    assert before <= datetime.datetime.fromisoformat(stamp) <= datetime.datetime.now(datetime.UTC)
    assert len(json_types.items(town.claim("c"), "status", "reservedFor")) == 1
    town.until(lambda: town.events("WaitingForBindingConditions"), "the event")
    _report(town, READY[0])
    town.run(objects.pod("bystander"))
    assert _node(town, "p") == ""
    _report(town, *READY)
    town.phase("p", "Running")
    assert town.plugins[0].count(PREPARE) == 1


def test_the_device_of_a_failure_is_given_back_and_another_is_taken(town: Town) -> None:
    _offer(town, "f-0", "f-1")
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(town)
    assert town.devices("c") == ["f-0"]
    published = town.slices()[0]
    json_types.objects(published, "spec", "devices")[0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]
    town.api.update(SLICE, published)
    _report(town, BROKEN[0])
    town.until(lambda: town.devices("c") == ["f-1"], "the second allocation")
    assert "devices" not in json_types.mapping(town.claim("c"), "status")
    town.until(
        lambda: any("binding failed: claim c: example.com/attach-failed of f-0" in text for text in town.events("FailedScheduling")), "it"
    )
    _report(town, *READY)
    town.phase("p", "Running")


def test_a_wait_that_takes_too_long_is_a_failure() -> None:
    with _town(binding_timeout=1.5) as town:
        town.plugin()
        _offer(town, "f-0")
        town.create(CLAIM, objects.claim("c"))
        town.create(POD, objects.pod("p", claim="c"))
        _wait_for_allocation(town)
        first = town.claim("c")["status"]
        town.until(lambda: any("not there 1.5 s after the allocation" in text for text in town.events("FailedScheduling")), "the failure")
        town.until(lambda: town.devices("c") and town.claim("c")["status"] != first, "the second allocation")
        _report(town, *READY)
        town.phase("p", "Running")


def test_a_device_that_binds_to_a_node_is_usable_there_alone(town: Town) -> None:
    _offer(town, "f-0", binds=True)
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("p", claim="c", nodeSelector={"kubernetes.io/hostname": "node-2"}))
    _wait_for_allocation(town)
    selector = json_types.mapping(town.claim("c"), "status", "allocation", "nodeSelector")
    [term] = json_types.objects(selector, "nodeSelectorTerms")
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    _report(town, *READY)
    town.phase("p", "Running")
    assert _node(town, "p") == "node-2"


def test_other_pods_of_the_claim_wait_as_well_and_a_failure_frees_it_for_both(town: Town) -> None:
    _offer(town, "f-0")
    town.create(CLAIM, objects.claim("c"))
    for name in ("p", "q"):
        town.create(POD, objects.pod(name, claim="c"))
    town.until(lambda: len(json_types.items(town.claim("c"), "status", "reservedFor")) == 2, "both reservations")
    first = json_types.text(town.claim("c"), "metadata", "resourceVersion")
    _report(town, *READY[:1], *BROKEN)
    town.until(lambda: "devices" not in json_types.mapping(town.claim("c"), "status") and town.devices("c"), "a new allocation")
    assert json_types.text(town.claim("c"), "metadata", "resourceVersion") != first
    _report(town, *READY)
    for name in ("p", "q"):
        town.phase(name, "Running")


def test_a_pod_that_is_deleted_while_it_waits_gives_its_devices_back(town: Town) -> None:
    _offer(town, "f-0")
    town.create(CLAIM, objects.claim("c"))
    town.create(POD, objects.pod("p", claim="c"))
    _wait_for_allocation(town)
    town.delete("p")
    town.until(lambda: town.devices("c") == [], "the deallocation")
