"""The concepts page, terminology and features of claims: classes, claims, prioritized lists, slices, admin access, partitions, capacity.

Allocations are made on one node from the page's own samples where it has one, and written through the API server's rules.
"""

import pytest

from drakit_cluster.api.registry import Registry
from drakit_cluster.objects import errors, json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLAIM_TEMPLATE, CLASS, NAMESPACE, SLICE
from fakes import allocating_server, feature_samples
from fakes.allocating_server import AllocatingServer
from unit.cluster_kubelet import objects

CATS = "resource-driver.example.com"
EXAMPLE = "resource.example.com"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@pytest.fixture
def server() -> AllocatingServer:
    """A server with a class for everything, named as in the page's samples."""
    made = AllocatingServer()
    made.api.create(CLASS, {"metadata": {"name": EXAMPLE}, "spec": {}})
    return made


def _request_of(sample: str) -> Object:
    [template] = feature_samples.load(sample)
    return json_types.objects(template, "spec", "spec", "devices", "requests")[0]


def _publish(server: AllocatingServer, name: str, *devices: Json, **fields: Json) -> Object:
    """Publish a slice of a pool of cats."""
    pool: Object = {"name": "cats", "generation": 1, "resourceSliceCount": 1}
    spec: Object = {"driver": CATS, "pool": pool, "devices": list(devices)}
    return server.api.create(SLICE, {"metadata": {"name": name}, "spec": spec | (fields or {"allNodes": True})})


def _cat(name: str, color: str, size: str) -> Object:
    return {"name": name, "attributes": {"color": {"string": color}, "size": {"string": size}}}


def _wanting(**fields: Json) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": EXAMPLE, **fields}}


def _selecting(expression: str) -> Object:
    return _wanting(selectors=[{"cel": {"expression": expression}}])


def test_a_device_class_selects_devices_and_a_claim_narrows_its_choice(server: AllocatingServer) -> None:
    _publish(server, "cats", _cat("a", "white", "small"), _cat("b", "black", "small"), _cat("c", "black", "large"))
    selectors: list[Json] = [{"cel": {"expression": f'device.attributes["{CATS}"].color == "black"'}}]
    server.api.create(CLASS, {"metadata": {"name": "black"}, "spec": {"selectors": selectors}})
    large: list[Json] = [{"cel": {"expression": f'device.attributes["{CATS}"].size == "large"'}}]
    assert server.take({"name": "r", "exactly": {"deviceClassName": "black", "selectors": large}}) == ["c"]
    assert [server.take({"name": "r", "exactly": {"deviceClassName": "black"}}) for _ in range(2)] == [["b"], []]


def test_constraints_limit_the_devices_that_satisfy_requests(server: AllocatingServer) -> None:
    _publish(server, "cats", _cat("a", "white", "small"), _cat("b", "black", "small"), _cat("c", "black", "large"))
    same: Object = {"matchAttribute": f"{CATS}/color"}
    assert server.take(_wanting(), _wanting() | {"name": "other"}, constraints=(same,)) == ["b", "c"]


def test_the_prioritized_list_takes_the_large_black_device_if_it_is_there(server: AllocatingServer) -> None:
    _publish(server, "cats", _cat("w0", "white", "small"), _cat("w1", "white", "small"), _cat("b0", "black", "large"))
    [result] = server.results(server.ask(_request_of("concepts-prioritized-list")))
    assert (result["request"], result["device"]) == ("req-0/large-black", "b0")


def test_the_prioritized_list_falls_back_to_two_small_white_devices_per_claim(server: AllocatingServer) -> None:
    _publish(server, "cats", _cat("w0", "white", "small"), _cat("w1", "white", "small"), _cat("b0", "black", "large"))
    wanted = _request_of("concepts-prioritized-list")
    assert [server.take(wanted) for _ in range(3)] == [["b0"], ["w0", "w1"], []]


def test_the_cats_of_the_sample_slice_are_selected_by_their_attributes(server: AllocatingServer) -> None:
    feature_samples.apply(server.api, "concepts-cat-slice")
    attributes = f'device.attributes["{CATS}"]'
    assert server.take(_selecting(f'{attributes}.color == "black" && {attributes}.size == "small"')) == []
    assert server.take(_selecting(f"device.driver == '{CATS}' && {attributes}.cat")) == ["large-black-cat"]


def test_a_pool_may_span_several_slices_and_is_used_only_when_it_is_whole(server: AllocatingServer) -> None:
    pool: Object = {"name": "cats", "generation": 1, "resourceSliceCount": 2}
    _publish(server, "first", {"name": "a"}, allNodes=True, pool=pool)
    assert server.take(_wanting()) == []
    _publish(server, "second", {"name": "b"}, allNodes=True, pool=pool)
    assert server.take(_wanting(count=2)) == ["a", "b"]


@pytest.mark.parametrize(
    "place, reachable",
    [
        ({"allNodes": True}, True),
        ({"nodeName": objects.NODE}, True),
        ({"nodeName": "another"}, False),
        ({"nodeSelector": objects.NODE}, True),
        ({"nodeSelector": "another"}, False),
    ],
)
def test_a_slice_says_which_nodes_reach_its_devices(server: AllocatingServer, place: Object, *, reachable: bool) -> None:
    if isinstance(name := place.get("nodeSelector"), str):
        expression: Object = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
        place = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    _publish(server, "cats", {"name": "a"}, **place)
    assert bool(server.take(_wanting())) is reachable


def test_admin_access_grants_devices_in_use_all_of_them_by_the_sample() -> None:
    server = AllocatingServer()
    labels: Object = {ADMIN_LABEL: "true"}
    server.api.create(NAMESPACE, {"metadata": {"name": allocating_server.ADMIN_NAMESPACE, "labels": labels}})
    server.api.create(CLASS, {"metadata": {"name": EXAMPLE}, "spec": {}})
    server.offer({"name": "a"}, {"name": "b"})
    assert server.take(objects.request(count=2)) == ["a", "b"]
    [template] = feature_samples.apply(server.api, "concepts-admin-access", allocating_server.ADMIN_NAMESPACE)
    spec = json_types.mapping(template, "spec", "spec")
    server.api.create(CLAIM, {"metadata": {"name": "admin", "namespace": allocating_server.ADMIN_NAMESPACE}, "spec": spec})
    results = server.results("admin")
    assert [(one["device"], one["adminAccess"]) for one in results] == [("a", True), ("b", True)]


@pytest.mark.parametrize("labels", [{}, {ADMIN_LABEL: "True"}, {"resource.k8s.io/admin-access": "true"}])
def test_admin_access_needs_the_label_of_the_namespace(labels: Object) -> None:
    with allocating_server.serve() as api:
        api.create(NAMESPACE, {"metadata": {"name": "n", "labels": labels}})
        with pytest.raises(errors.InvalidError, match="adminAccess: Forbidden"):
            feature_samples.apply(api, "concepts-admin-access", "n")
        api.create(NAMESPACE, {"metadata": {"name": "admin", "labels": {ADMIN_LABEL: "true"}}})
        assert feature_samples.apply(api, "concepts-admin-access", "admin")


def test_admin_access_is_removed_if_the_feature_is_disabled() -> None:
    api = Registry(gates=FeatureGates.of({"DRAAdminAccess": False}))
    [template] = feature_samples.apply(api, "concepts-admin-access")
    exactly = json_types.mapping(template, "spec", "spec", "devices", "requests", 0, "exactly")
    assert exactly == {"deviceClassName": EXAMPLE, "allocationMode": "All"}
    assert api.get(CLAIM_TEMPLATE, "large-black-cat-claim-template", "default")


def test_a_device_class_may_have_the_name_of_an_extended_resource() -> None:
    with allocating_server.serve() as api:
        [stored] = feature_samples.apply(api, "concepts-extended-resource-class")
        assert json_types.text(stored, "spec", "extendedResourceName") == "example.com/gpu"
        with pytest.raises(errors.InvalidError, match=r"spec\.extendedResourceName"):
            api.create(CLASS, {"metadata": {"name": "bad"}, "spec": {"extendedResourceName": "cpu"}})


def _on_worker(server: AllocatingServer) -> AllocatingServer:
    server.node = {"metadata": {"name": "worker-1"}}
    return server


def test_only_one_of_two_partitions_of_the_sample_is_allocated_at_a_time(server: AllocatingServer) -> None:
    feature_samples.apply(server.api, "concepts-partitionable-slice")
    _on_worker(server)
    first = server.ask(_wanting())
    assert [one["device"] for one in server.results(first)] == ["device-1"]
    assert server.take(_wanting()) == []
    server.release(first)
    assert server.take(_wanting(selectors=[{"cel": {"expression": "device.driver == 'dra.example.com'"}}])) == ["device-1"]


def test_the_bandwidth_of_the_sample_device_is_shared_by_claims_with_an_id_each(server: AllocatingServer) -> None:
    feature_samples.apply(server.api, "concepts-consumable-slice")
    _on_worker(server)
    wanted = _request_of("concepts-bandwidth-template")
    found = [server.results(server.ask(wanted))[0] for _ in range(10)]
    assert {one["device"] for one in found} == {"eth1"}
    assert [one["consumedCapacity"] for one in found] == [{"bandwidth": "1G"}] * 10
    assert len({one["shareID"] for one in found}) == 10
    assert server.take(wanted) == []


def test_the_sample_policy_rounds_bandwidth_up_and_gives_its_default(server: AllocatingServer) -> None:
    feature_samples.apply(server.api, "concepts-consumable-slice")
    _on_worker(server)
    amounts = [
        json_types.text(server.results(server.ask(one))[0], "consumedCapacity", "bandwidth")
        for one in (_wanting(), _wanting(capacity={"requests": {"bandwidth": "1000001"}}))
    ]
    assert amounts == ["1M", "1000008"]


def test_a_device_that_is_not_shared_is_allocated_as_a_whole_unless_cel_forbids_it(server: AllocatingServer) -> None:
    _publish(server, "cats", {"name": "whole", "capacity": {"bandwidth": {"value": "2G"}}})
    wanted = _request_of("concepts-bandwidth-template")
    shared: list[Json] = [{"cel": {"expression": "device.allowMultipleAllocations == true"}}]
    limited = wanted | {"exactly": json_types.mapping(wanted, "exactly") | {"selectors": shared}}
    assert server.take(limited) == []
    [result] = server.results(server.ask(wanted))
    assert (result["device"], "consumedCapacity" in result, "shareID" in result) == ("whole", False, False)
    assert server.take(wanted) == []
