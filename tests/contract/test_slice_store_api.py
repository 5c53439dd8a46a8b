"""What only the real slice store can show: owners, metadata of others, a server that restarts, forgets or drops fields."""

import collections.abc
import dataclasses
import pathlib
from typing import Any

import pytest

from drakit.core import errors
from drakit.core.slices import resource_slice
from drakit.kube import client
from drakit.kube import slices as kube_slices
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import features, resources
from drakit_cluster.objects.json_types import Object
from fakes import real_clock, slice_follower
from fakes import slice_samples as samples


@pytest.fixture
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        running.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
        yield running


def connect(server: apiserver.ApiServer, folder: pathlib.Path) -> kube_slices.ApiSlices:
    server.write_kubeconfig(folder / "config")
    connection = client.connect(folder / "config")
    return kube_slices.ApiSlices(connection, driver=samples.DRIVER, node=samples.NODE, clock=real_clock.RealClock())


@pytest.fixture
def store(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> kube_slices.ApiSlices:
    return connect(server, tmp_path)


def stored(server: apiserver.ApiServer, name: str) -> Any:
    """A slice as the server has it, as plain JSON."""
    return server.registry.get(resources.SLICE, name)


def node_uid(server: apiserver.ApiServer) -> object:
    node: Any = server.registry.get(resources.NODE, samples.NODE)
    return node["metadata"]["uid"]


def foreign(*, driver: str = samples.DRIVER, node: str = samples.NODE) -> Object:
    pool: Object = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"generateName": "x-"}, "spec": {"driver": driver, "nodeName": node, "pool": pool}}


def test_the_node_owns_its_slices(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    owner = {"apiVersion": "v1", "kind": "Node", "name": samples.NODE, "uid": node_uid(server), "controller": True}
    assert stored(server, made.name)["metadata"]["ownerReferences"] == [owner]


def test_a_recreated_node_owns_slices_created_after_the_next_list(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    store.create(samples.create(samples.plain_page("a")))
    server.registry.delete(resources.NODE, samples.NODE)
    server.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
    store.list()
    made = store.create(samples.create(samples.plain_page("b")))
    assert stored(server, made.name)["metadata"]["ownerReferences"][0]["uid"] == node_uid(server)


def test_a_node_that_does_not_exist_is_named_in_the_error(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    server.registry.delete(resources.NODE, samples.NODE)
    with pytest.raises(errors.ApiError, match="there is no node 'node-1' in this cluster") as raised:
        store.create(samples.create(samples.plain_page("a")))
    assert raised.value.status == 404
    assert list(store.list()) == []


def test_slices_of_other_drivers_and_nodes_are_not_seen(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    server.registry.create(resources.SLICE, foreign(driver="nic.drakit.dev"))
    server.registry.create(resources.SLICE, foreign(node="node-2"))
    of_the_cluster: Any = foreign()
    del of_the_cluster["spec"]["nodeName"]
    of_the_cluster["spec"]["allNodes"] = True
    server.registry.create(resources.SLICE, of_the_cluster)
    mine: Any = server.registry.create(resources.SLICE, foreign())
    assert [one.name for one in store.list()] == [mine["metadata"]["name"]]


@pytest.mark.parametrize("updater", ["the same", "another"])
def test_metadata_that_others_set_survives_an_update(
    server: apiserver.ApiServer, store: kube_slices.ApiSlices, tmp_path: pathlib.Path, updater: str
) -> None:
    made = store.create(samples.create(samples.plain_page("a")))
    found = stored(server, made.name)
    found["metadata"]["labels"] = {"team": "a"}
    server.registry.update(resources.SLICE, found)
    (current,) = store.list()
    process = store if updater == "the same" else connect(server, tmp_path)
    process.update(resource_slice.Update(index=0, published=current, spec=samples.spec_of(samples.plain_page("b"))))
    metadata = stored(server, made.name)["metadata"]
    assert metadata["labels"] == {"team": "a"}
    assert metadata["ownerReferences"]


def test_fields_that_a_gate_drops_are_missing_from_the_answer(tmp_path: pathlib.Path) -> None:
    gates = features.FeatureGates.of({"DRAPartitionableDevices": False})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as server:
        server.registry.create(resources.NODE, {"metadata": {"name": samples.NODE}})
        store = connect(server, tmp_path)
        wanted = samples.create(samples.mixin_page())
        answer = store.create(wanted).spec.page
        assert wanted.spec.page.devices[0].includes
        assert (answer.devices[0].includes, answer.devices[0].consumes, bool(answer.mixins)) == ((), (), False)


def test_a_refusal_of_the_server_is_reported_with_its_reason(store: kube_slices.ApiSlices) -> None:
    page = resource_slice.Page(devices=samples.plain_page("a").devices, counter_sets=samples.counter_page().counter_sets)
    with pytest.raises(errors.ApiError) as raised:
        store.create(samples.create(page))
    assert (raised.value.status, raised.value.reason) == (422, "Invalid")
    assert "sharedCounters" in str(raised.value)


def test_a_watch_outlives_the_server(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    follower = slice_follower.Follower(store)
    assert follower.saw_one()
    server.stop()
    server.registry.create(resources.SLICE, foreign())
    server.start()
    assert follower.saw_one()
    server.registry.create(resources.SLICE, foreign())
    assert follower.saw_one()
    assert follower.end()


def until_silent(follower: slice_follower.Follower) -> None:
    """Take the notices of own writes whose events overtook the answers to the writes."""
    while follower.saw_one(0.3):
        pass


def test_own_writes_and_foreign_probe_slices_do_not_wake_the_watch(
    server: apiserver.ApiServer, store: kube_slices.ApiSlices, tmp_path: pathlib.Path
) -> None:
    follower, other = slice_follower.Follower(store), connect(server, tmp_path)
    assert follower.saw_one()
    made = store.create(samples.create(samples.plain_page("a")))
    until_silent(follower)
    probe = dataclasses.replace(made.spec, pool=dataclasses.replace(made.spec.pool, name=f"{samples.NODE}{resource_slice.PROBE_SUFFIX}"))
    other.delete(other.create(resource_slice.Create(index=0, prefix="probe-", spec=probe)))
    updated = store.update(resource_slice.Update(index=0, published=made, spec=samples.spec_of(samples.plain_page("b"))))
    store.list()
    until_silent(follower)
    other.delete(other.create(resource_slice.Create(index=0, prefix="probe-", spec=probe)))
    assert not follower.saw_one(0.3)
    other.delete(updated)
    assert follower.saw_one()
    assert follower.end()


def test_a_watch_can_be_stopped_while_the_server_is_unreachable(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    follower = slice_follower.Follower(store)
    assert follower.saw_one()
    server.stop()
    assert follower.end()


def test_an_unreachable_server_is_an_api_error_without_status(server: apiserver.ApiServer, store: kube_slices.ApiSlices) -> None:
    server.stop()
    with pytest.raises(errors.ApiError, match="no answer from the API server") as raised:
        store.list()
    assert raised.value.status == 0
