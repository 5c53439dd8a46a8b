"""What the publisher makes of the API server's own rules: limits of slices, dropped lists, times of taints."""

import collections.abc
import dataclasses
import pathlib
from typing import Any

import pytest

from drakit.core import device, errors, inventory, quantity
from drakit.kube import client
from drakit.kube import slices as kube_slices
from drakit.node.publishing import publisher
from drakit_cluster.api import apiserver, registry
from drakit_cluster.objects import features, resources
from fakes import manual_clock, real_clock

NODE, DRIVER = "node-1", "lists.example.com"
LISTED = device.Device(name="a", attributes={"model": "x", "links": ("left", "right"), "lanes": (1, 2)})
TAINT = device.Taint(key="example.com/hot", effect=device.TaintEffect.NO_EXECUTE)

Serve = collections.abc.Callable[..., apiserver.ApiServer]


@pytest.fixture
def serve() -> collections.abc.Iterator[Serve]:
    running: list[apiserver.ApiServer] = []

    def start(*, lists: bool) -> apiserver.ApiServer:
        gates = features.FeatureGates.of({"DRAListTypeAttributes": lists})
        running.append(apiserver.ApiServer(registry.Registry(gates=gates)))
        running[-1].start()
        running[-1].registry.create(resources.NODE, {"metadata": {"name": NODE}})
        return running[-1]

    yield start
    for server in running:
        server.stop()


def published(
    server: apiserver.ApiServer, folder: pathlib.Path, offered: inventory.Inventory, form: publisher.FormChoice = publisher.FormChoice.AUTO
) -> publisher.Publisher:
    server.write_kubeconfig(folder / "config")
    store = kube_slices.ApiSlices(client.connect(folder / "config"), driver=DRIVER, node=NODE, clock=real_clock.RealClock())
    made = publisher.Publisher(
        publisher.Target(driver=DRIVER, node=NODE, pool=NODE), store=store, clock=manual_clock.ManualClock(), form=form
    )
    made.offer(offered)
    made.reconcile()
    return made


def stored(server: apiserver.ApiServer) -> list[Any]:
    """The slices as the server has them, in the scheduler's order."""
    found: list[Any] = [*server.registry.list(resources.SLICE).items]
    return sorted((one["spec"] for one in found), key=lambda one: one["pool"]["generation"])


def devices(server: apiserver.ApiServer) -> list[Any]:
    return [one for spec in stored(server) for one in spec.get("devices", [])]


@pytest.mark.parametrize("form", publisher.FormChoice)
def test_a_server_that_drops_list_attributes_gets_devices_without_them(
    serve: Serve, tmp_path: pathlib.Path, form: publisher.FormChoice
) -> None:
    server = serve(lists=False)
    made = published(server, tmp_path, inventory.Inventory.of([LISTED, device.Device(name="b")]), form)
    assert made.published.is_set()
    assert [(one["name"], one.get("attributes")) for one in devices(server)] == [("a", {"model": {"string": "x"}}), ("b", None)]
    assert [spec["pool"]["name"] for spec in stored(server)] == [NODE], "nothing is left of the question"
    assert made.reconcile() == 0


def test_a_server_that_stores_list_attributes_gets_them(serve: Serve, tmp_path: pathlib.Path) -> None:
    server = serve(lists=True)
    made = published(server, tmp_path, inventory.Inventory.of([LISTED]), publisher.FormChoice.FLAT)
    (found,) = devices(server)
    assert found["attributes"] == {"model": {"string": "x"}, "links": {"strings": ["left", "right"]}, "lanes": {"ints": [1, 2]}}
    assert made.reconcile() == 0


def test_partitions_are_published_without_list_attributes_too(serve: Serve, tmp_path: pathlib.Path) -> None:
    server = serve(lists=False)
    drawn = device.CounterConsumption(counter_set="set", counters={"units": quantity.ONE})
    held = device.CounterSet(name="set", counters={"units": quantity.ONE})
    offered = inventory.Inventory(devices=(dataclasses.replace(LISTED, consumes=(drawn,)),), counter_sets=(held,))
    published(server, tmp_path, offered, publisher.FormChoice.FLAT)
    assert [spec["pool"]["resourceSliceCount"] for spec in stored(server)] == [2, 2]
    (found,) = devices(server)
    assert (found["attributes"], found["consumesCounters"][0]["counterSet"]) == ({"model": {"string": "x"}}, "set")


def test_a_refusal_that_is_not_about_lists_is_reported_and_nothing_is_published(serve: Serve, tmp_path: pathlib.Path) -> None:
    server = serve(lists=False)
    server.registry.delete(resources.NODE, NODE)
    with pytest.raises(errors.ApiError, match="there is no node"):
        published(server, tmp_path, inventory.Inventory.of([LISTED]))
    assert stored(server) == []


def test_a_taint_on_a_full_slice_is_taken_by_the_server(serve: Serve, tmp_path: pathlib.Path) -> None:
    server = serve(lists=False)
    plain = inventory.Inventory.of(device.Device(name=f"d{number:03d}") for number in range(128))
    made = published(server, tmp_path, plain)
    assert len(stored(server)) == 1
    sick = dataclasses.replace(plain.devices[5], taints=(TAINT,))
    made.offer(dataclasses.replace(plain, devices=(*plain.devices[:5], sick, *plain.devices[6:])))
    made.reconcile()
    assert sorted(len(spec["devices"]) for spec in stored(server)) == [64, 64]
    assert {(spec["pool"]["generation"], spec["pool"]["resourceSliceCount"]) for spec in stored(server)} == {(2, 2)}


def test_a_taint_keeps_its_server_time_when_the_slices_are_wiped(serve: Serve, tmp_path: pathlib.Path) -> None:
    server = serve(lists=False)
    made = published(server, tmp_path, inventory.Inventory.of([device.Device(name="a", taints=(TAINT,))]))
    for one in server.registry.list(resources.SLICE).items:
        found: Any = one
        found["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T12:00:00Z"
        server.registry.update(resources.SLICE, found)
    made.reconcile()
    server.registry.delete_collection(resources.SLICE)
    made.reconcile()
    (device_found,) = devices(server)
    assert device_found["taints"][0]["timeAdded"] == "2026-01-01T12:00:00Z"
