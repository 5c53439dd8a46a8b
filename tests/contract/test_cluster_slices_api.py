"""Slices that belong to no node, at the API server: no owner, every way to say which nodes are meant, and a server that drops what says so."""

import collections.abc
import pathlib
from typing import Any

import pytest

from drakit.core import device, errors, inventory
from drakit.core.slices import node_selection, resource_slice
from drakit.kube import client
from drakit.kube import slices as kube_slices
from drakit.node.publishing import cluster_publisher
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import features, resources
from fakes import real_clock
from tpu_driver import machine, offer

DRIVER = "tpu.drakit.dev"
RICH = node_selection.NodeSelector(
    expressions=(
        node_selection.Requirement(key="zone", operator=node_selection.Operator.IN, values=("a", "b")),
        node_selection.Requirement(key="gpu", operator=node_selection.Operator.DOES_NOT_EXIST),
        node_selection.Requirement(key="cores", operator=node_selection.Operator.GREATER, values=("8",)),
    ),
    fields=(node_selection.Requirement(key="metadata.name", operator=node_selection.Operator.NOT_IN, values=("node-9",)),),
)


@pytest.fixture
def server() -> collections.abc.Iterator[apiserver.ApiServer]:
    with apiserver.ApiServer(registry.Registry()) as running:
        yield running


def connect(server: apiserver.ApiServer, folder: pathlib.Path) -> kube_slices.ApiSlices:
    server.write_kubeconfig(folder / "config")
    return kube_slices.ApiSlices(client.connect(folder / "config"), driver=DRIVER, clock=real_clock.RealClock())


def spec_of(place: node_selection.PoolNodes, *devices: device.Device) -> resource_slice.SliceSpec:
    pool = resource_slice.Pool(name="p", generation=1, count=1)
    return resource_slice.SliceSpec(driver=DRIVER, node="", pool=pool, page=resource_slice.Page(devices=devices), reach=place)


def create(spec: resource_slice.SliceSpec) -> resource_slice.Create:
    return resource_slice.Create(index=0, prefix=f"00000-{DRIVER}-", spec=spec)


@pytest.mark.parametrize("place", [RICH, node_selection.AllNodes()], ids=["selector", "all"])
def test_a_pool_may_select_its_nodes_once_for_all_devices(
    server: apiserver.ApiServer, tmp_path: pathlib.Path, place: node_selection.PoolNodes
) -> None:
    store = connect(server, tmp_path)
    spec = spec_of(place, device.Device(name="a"))
    made = store.create(create(spec))
    assert made.spec == spec
    assert list(store.list()) == [made]
    stored: Any = server.registry.get(resources.SLICE, made.name)
    assert "ownerReferences" not in stored["metadata"]
    assert "nodeName" not in stored["spec"]


def test_each_device_may_select_its_nodes(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    store = connect(server, tmp_path)
    places: tuple[node_selection.DeviceNodes, ...] = (node_selection.OneNode(name="node-1"), RICH, node_selection.AllNodes())
    spec = spec_of(node_selection.PerDevice(), *(device.Device(name=f"d{number}", reach=place) for number, place in enumerate(places)))
    assert store.create(create(spec)).spec == spec
    [found] = store.list()
    moved = spec_of(RICH, device.Device(name="d0"))
    assert store.update(resource_slice.Update(index=0, published=found, spec=moved)).spec == moved


def test_slices_of_nodes_and_of_other_drivers_are_not_seen(server: apiserver.ApiServer, tmp_path: pathlib.Path) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    for driver, place in ((DRIVER, {"nodeName": "node-1"}), ("other.example.com", {"allNodes": True})):
        server.registry.create(resources.SLICE, {"metadata": {"generateName": "x-"}, "spec": {"driver": driver, "pool": pool, **place}})  # type: ignore[dict-item]
    assert list(connect(server, tmp_path).list()) == []


def publish(
    server: apiserver.ApiServer, folder: pathlib.Path, offered: collections.abc.Sequence[inventory.ClusterPool]
) -> kube_slices.ApiSlices:
    store = connect(server, folder)
    made = cluster_publisher.ClusterPublisher(DRIVER, store=store, leads=lambda: True, clock=real_clock.RealClock())
    made.offer(offered)
    made.reconcile()
    assert made.reconcile() == 0
    return store


@pytest.mark.parametrize("name", ["tpu-v5e-8x8", "tpu-v5e-16x16"])
@pytest.mark.parametrize("mixins", [True, False])
def test_the_server_stores_every_field_of_every_shipped_pool(tmp_path: pathlib.Path, name: str, *, mixins: bool) -> None:
    gates = features.FeatureGates.of({"DRAResourceSliceMixins": mixins})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as server:
        offered = offer.of(machine.load(name))
        found = publish(server, tmp_path, offered).list()
        names = [item.name for one in sorted(found, key=lambda one: one.name) for item in one.spec.page.devices]
        assert names == [item.name for item in offered[0].inventory.devices]
        assert all(item.reach for one in found for item in one.spec.page.devices)


def test_a_server_with_the_gate_off_is_detected_and_no_slice_is_left(tmp_path: pathlib.Path) -> None:
    gates = features.FeatureGates.of({"DRAPartitionableDevices": False})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as server:
        with pytest.raises(errors.ApiError, match="enable its feature gate DRAPartitionableDevices"):
            publish(server, tmp_path, offer.of(machine.load("tpu-v5e-8x8")))
        assert server.registry.list(resources.SLICE).items == []


def test_a_pool_for_all_nodes_needs_no_gate(tmp_path: pathlib.Path) -> None:
    gates = features.FeatureGates.of({"DRAPartitionableDevices": False})
    with apiserver.ApiServer(registry.Registry(gates=gates)) as server:
        shared = inventory.ClusterPool(
            name="fabric", reach=node_selection.AllNodes(), inventory=inventory.Inventory.of([device.Device(name="a")])
        )
        [found] = publish(server, tmp_path, [shared]).list()
        assert (found.spec.reach, found.spec.page.devices) == (node_selection.AllNodes(), shared.inventory.devices)
