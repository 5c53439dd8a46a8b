"""How the driver and a kubelet find each other, lose each other, and find each other again (contract 1.3 to 1.11)."""

import os
import socket
import stat
import threading

import grpc
import pytest

from drakit._proto import pluginregistration_v1_pb2 as registration_wire
from drakit._proto import pluginregistration_v1_pb2_grpc as registration_services
from drakit.core import context as contexts
from drakit.core import errors
from drakit.kubelet import registration
from drakit_cluster.objects import json_types
from drakit_cluster.objects.resources import POD
from fakes import channels, node_on_cluster, waits
from unit.cluster_kubelet import objects

ONE, TWO = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def test_registration_names_the_driver_its_socket_and_its_services(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    with channels.insecure(f"unix:{driver.node.registrar.socket}") as channel:
        result = registration_services.RegistrationStub(channel).GetInfo(registration_wire.InfoRequest(), timeout=1)
    assert (result.type, result.name, result.endpoint) == ("DRAPlugin", node_on_cluster.NAME, str(driver.home / "dra.sock"))
    assert list(result.supported_versions) == ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]


def test_sockets_are_private_and_the_service_listens_before_registration(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    for path in (driver.node.registrar.socket, driver.home / "dra.sock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (driver.home / "dra.sock").stat().st_ctime_ns <= driver.node.registrar.socket.stat().st_ctime_ns


def test_a_stale_registration_socket_is_removed_before_the_kubelet_sees_the_new_one(world: node_on_cluster.NodeOnCluster) -> None:
    registry = world.quick_cluster.cluster.node(objects.NODE).folder.registry
    dead, foreign = registry / f"{node_on_cluster.NAME}-0123abcd-reg.sock", registry / "other.example.com-0123abcd-reg.sock"
    for path in (dead, foreign):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(os.fspath(path))
    driver = world.serve()
    assert {path.name for path in registry.iterdir()} == {foreign.name, driver.node.registrar.socket.name}


def test_a_deleted_registration_socket_is_recreated_and_pods_run_again(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("before")
    first = driver.node.registrar.socket
    first.unlink()
    world.quick_cluster.until(
        lambda: driver.node.registrar.socket != first and driver.node.registrar.wait_registered(0), "another registration"
    )
    world.run("after")


def test_devices_are_withdrawn_while_the_kubelet_does_not_know_the_driver(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve(grace=0.5)
    everything = driver.offered()
    world.quick_cluster.cluster.node(objects.NODE).stop_kubelet()
    driver.node.registrar.socket.unlink()
    world.quick_cluster.until(lambda: world.quick_cluster.slices() and driver.offered() == set(), "empty slices")
    world.quick_cluster.cluster.node(objects.NODE).start_kubelet()
    world.quick_cluster.until(lambda: driver.offered() == everything, "all devices")
    world.run("p")


def test_a_driver_refused_by_the_kubelet_keeps_the_reason_and_offers_nothing(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve(grace=0.5)
    refusal = registration_wire.RegistrationStatus(plugin_registered=False, error="endpoint taken")
    with channels.insecure(f"unix:{driver.node.registrar.socket}") as channel:
        stub = registration_services.RegistrationStub(channel)
        with pytest.raises(grpc.RpcError, match="endpoint taken"):
            stub.NotifyRegistrationStatus(refusal, timeout=waits.SECONDS)
    assert driver.node.registrar.status == registration.Status(state=registration.State.REFUSED, error="endpoint taken")
    world.quick_cluster.until(lambda: driver.offered() == set(), "empty slices")


def test_slices_are_published_before_the_kubelet_has_answered(world: node_on_cluster.NodeOnCluster) -> None:
    world.quick_cluster.cluster.node(objects.NODE).stop_kubelet()
    driver = world.serve(wait=False)
    world.quick_cluster.until(driver.offered, "devices")
    assert driver.node.registrar.status.state is registration.State.UNKNOWN


def test_slices_return_after_a_kubelet_restart_without_affecting_pods(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("p")
    everything, started = driver.offered(), world.quick_cluster.view("p").started_at
    world.quick_cluster.cluster.restart_kubelet(objects.NODE)
    world.quick_cluster.until(lambda: driver.offered() == everything, "all devices")
    assert world.quick_cluster.view("p").started_at == started
    world.quick_cluster.delete("p")
    world.quick_cluster.gone(POD, "p")
    assert world.made() == []


def test_a_driver_that_restarts_keeps_its_slices_and_its_claims(world: node_on_cluster.NodeOnCluster) -> None:
    first = world.serve()
    world.run("p")
    names = {json_types.text(one, "metadata", "uid") for one in node_on_cluster.offers(world.quick_cluster)}
    first.stop()
    world.serve(driver=node_on_cluster.Driver(world.hardware))
    assert {json_types.text(one, "metadata", "uid") for one in node_on_cluster.offers(world.quick_cluster)} == names
    world.quick_cluster.delete("p")
    world.quick_cluster.gone(POD, "p")
    assert world.made() == []


def test_a_driver_stopped_longer_than_the_wipe_delay_publishes_again(world: node_on_cluster.NodeOnCluster) -> None:
    first = world.serve()
    first.stop()
    world.quick_cluster.until(lambda: world.quick_cluster.slices() == [], "the kubelet's wipe")
    world.serve()
    world.run("p")


def test_a_deleted_service_socket_is_recreated_and_pods_run_again(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    path = driver.home / "dra.sock"
    path.unlink()
    world.quick_cluster.until(path.exists, "another socket")
    world.quick_cluster.until(
        lambda: world.quick_cluster.cluster.node(objects.NODE).kubelet.plugins.is_usable(node_on_cluster.NAME), "the connection"
    )
    world.run("p")


def test_of_two_serving_processes_each_finishes_claims_of_the_other(world: node_on_cluster.NodeOnCluster) -> None:
    old = world.serve(instance=ONE)
    world.run("early")
    new = world.serve(instance=TWO, driver=node_on_cluster.Driver(world.hardware))
    assert old.node.registrar.socket != new.node.registrar.socket
    assert {path.name for path in old.home.glob("dra-*.sock")} == {f"dra-{ONE}.sock", f"dra-{TWO}.sock"}
    world.run("between")
    uids = {json_types.text(one, "metadata", "uid") for one in node_on_cluster.offers(world.quick_cluster)}
    old.stop()
    world.quick_cluster.until(lambda: len(list(old.home.glob("dra-*.sock"))) == 1, "the end of the old sockets")
    for pod in ("early", "between"):
        world.quick_cluster.delete(pod)
        world.quick_cluster.gone(POD, pod)
    assert world.made() == []
    world.run("late")
    assert {json_types.text(one, "metadata", "uid") for one in node_on_cluster.offers(world.quick_cluster)} == uids


def test_the_remaining_one_of_two_processes_keeps_the_slices(world: node_on_cluster.NodeOnCluster) -> None:
    old = world.serve(instance=ONE, grace=0.3)
    new = world.serve(instance=TWO, grace=0.3, driver=node_on_cluster.Driver(world.hardware))
    everything = new.offered()
    new.stop()
    threading.Event().wait(1.0)
    assert old.offered() == everything
    world.run("p")


class Broken(node_on_cluster.Driver):
    """Of a release that cannot start."""

    def start(self, context: contexts.DriverContext) -> None:
        raise errors.HardwareError("start", "this release is bad")


def test_a_new_instance_that_cannot_start_leaves_the_old_one_serving(world: node_on_cluster.NodeOnCluster) -> None:
    old = world.serve(instance=ONE, grace=0.3)
    world.run("before")
    everything = old.offered()
    with pytest.raises(errors.HardwareError, match="this release is bad"):
        world.serve(wait=False, instance=TWO, driver=Broken(world.hardware))
    assert {path.name for path in old.home.glob("dra-*.sock")} == {f"dra-{ONE}.sock"}
    assert list(old.node.registrar.socket.parent.iterdir()) == [old.node.registrar.socket]
    world.run("after")
    assert old.offered() == everything
    for pod in ("before", "after"):
        world.quick_cluster.delete(pod)
        world.quick_cluster.gone(POD, pod)
    assert world.made() == []


def test_two_processes_with_fixed_names_do_not_serve_side_by_side(world: node_on_cluster.NodeOnCluster) -> None:
    first = world.serve()
    with pytest.raises(errors.SettingsError, match=r"another drakit process serves .*dra\.sock"):
        world.serve(wait=False, driver=node_on_cluster.Driver(world.hardware))
    world.served.pop().stop()
    assert first.node.registrar.status.state is registration.State.REGISTERED
    world.run("p")


def test_the_next_process_removes_the_sockets_of_a_killed_one(world: node_on_cluster.NodeOnCluster) -> None:
    home = world.quick_cluster.cluster.node(objects.NODE).folder.plugins / node_on_cluster.NAME
    home.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(home / f"dra-{ONE}.sock"))
    world.serve(instance=TWO)
    assert [path.name for path in home.glob("*.sock")] == [f"dra-{TWO}.sock"]


def test_stopping_removes_the_sockets_and_leaves_the_slices(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    everything = driver.offered()
    driver.stop()
    assert not driver.node.registrar.socket.exists()
    assert not (driver.home / "dra.sock").exists()
    assert driver.offered() == everything


def test_health_of_devices_reaches_the_pod_and_ends_with_the_driver(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("p")
    expect_health(world, ("Healthy", None))
    [device] = world.quick_cluster.devices("p")
    driver.node.health.report(device, contexts.Health.UNHEALTHY, "too hot")
    expect_health(world, ("Unhealthy", "too hot"))
    driver.node.health.report(device, contexts.Health.HEALTHY)
    expect_health(world, ("Healthy", None))
    driver.stop()
    expect_health(world, ("Unknown", None))


def test_each_of_two_devices_of_a_claim_shows_its_own_health(world: node_on_cluster.NodeOnCluster) -> None:
    driver = world.serve()
    world.run("p", node_on_cluster.chip("one"), node_on_cluster.chip("two"))
    ill, well = world.quick_cluster.devices("p")
    driver.node.health.report(ill, contexts.Health.UNHEALTHY, "too hot")
    uid = world.quick_cluster.uid("p")
    expected = {f"{node_on_cluster.NAME}/claim={uid}-{ill}": "Unhealthy", f"{node_on_cluster.NAME}/claim={uid}-{well}": "Healthy"}
    world.quick_cluster.until(lambda: health_by_name(world) == expected, "the health of each")


def health_by_name(world: node_on_cluster.NodeOnCluster) -> dict[str, str]:
    """What the pod's status says of each device, by its CDI name."""
    [container] = json_types.objects(world.quick_cluster.find(POD, "p") or {}, "status", "containerStatuses")
    statuses = json_types.objects(container, "allocatedResourcesStatus")
    result = [one for status in statuses for one in json_types.objects(status, "resources")]
    return {json_types.text(one, "resourceID"): json_types.text(one, "health") for one in result}


def expect_health(world: node_on_cluster.NodeOnCluster, expected: tuple[str, str | None]) -> None:
    world.quick_cluster.until(lambda: shown(world) == [expected], f"{expected} in the pod's status")


def shown(world: node_on_cluster.NodeOnCluster) -> list[tuple[object, object]]:
    [container] = json_types.objects(world.quick_cluster.find(POD, "p") or {}, "status", "containerStatuses")
    statuses = json_types.objects(container, "allocatedResourcesStatus")
    return [(one.get("health"), one.get("message")) for status in statuses for one in json_types.objects(status, "resources")]
