"""Health of devices from drivers' streams into the status of pods."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from drakit._proto import dra_health_v1_pb2 as wire
from drakit_cluster.kubelet.plugins import health as healths
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import CLAIM, POD
from fakes import waits
from unit.cluster_kubelet import objects
from unit.cluster_kubelet.health_plugin import Health
from unit.cluster_kubelet.plugin import DRIVER, Plugin
from unit.cluster_kubelet.quick_cluster import QUICK, QuickCluster

TIMING = dataclasses.replace(QUICK, health_retry=0.1)


@pytest.fixture
def cluster(folder: pathlib.Path) -> Iterator[QuickCluster]:
    running = QuickCluster(folder, timing=TIMING).start()
    yield running
    running.stop()


def device(name: str, state: "wire.HealthStatus", message: str = "", seconds: int = 0) -> wire.DeviceHealth:
    return wire.DeviceHealth(
        device=wire.DeviceIdentifier(pool_name=objects.NODE, device_name=name),
        health=state,
        message=message,
        health_check_timeout_seconds=seconds,
    )


def start(cluster: QuickCluster, *versions: str) -> tuple[Plugin, Health]:
    """A plugin that serves the health services of these versions, and advertises v1 if that is one of them."""
    plugin, health = cluster.new_plugin(), Health()
    if "v1" in versions:
        plugin.services.append(health.add_v1)
        plugin.versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"]
    if "v1alpha1" in versions:
        plugin.services.append(health.add_v1alpha1)
    plugin.start()
    cluster.until(lambda: plugin.statuses, "registration")
    return plugin, health


def run(cluster: QuickCluster, *requests: str, uses: tuple[str, ...] = ("",)) -> None:
    cluster.offer("gpu-0", "gpu-1")
    cluster.create(CLAIM, objects.claim("c", *(objects.request(name) for name in requests)))
    containers = [objects.container("main", *(objects.use(name) for name in uses))]
    cluster.run(objects.pod("p", claim="c", containers=containers))


def shown(cluster: QuickCluster, pod: str = "p") -> list[Object]:
    """allocatedResourcesStatus of the pod's only container."""
    [container] = json_types.objects(cluster.find(POD, pod) or {}, "status", "containerStatuses")
    return json_types.objects(container, "allocatedResourcesStatus")


def states(cluster: QuickCluster) -> list[str]:
    return [json_types.text(one, "health") for status in shown(cluster) for one in json_types.objects(status, "resources")]


def expect(cluster: QuickCluster, *expected: str) -> None:
    cluster.until(lambda: states(cluster) == list(expected), f"{expected} in the pod's status", timeout=waits.SECONDS)


def test_an_unhealthy_device_and_its_recovery_are_in_the_pod_status(cluster: QuickCluster) -> None:
    _, health = start(cluster, "v1")
    health.say(device("gpu-0", wire.HEALTHY), device("gpu-1", wire.UNHEALTHY))
    run(cluster, "a")
    expect(cluster, "Healthy")
    health.say(device("gpu-0", wire.UNHEALTHY, "too hot"))
    expect(cluster, "Unhealthy")
    resource = f"example.com/gpu={cluster.uid('c')}-0"
    assert shown(cluster) == [{"name": "claim:gpu", "resources": [{"resourceID": resource, "health": "Unhealthy", "message": "too hot"}]}]
    health.say(device("gpu-0", wire.HEALTHY))
    expect(cluster, "Healthy")
    assert shown(cluster) == [{"name": "claim:gpu", "resources": [{"resourceID": resource, "health": "Healthy"}]}]


def test_a_container_that_uses_single_requests_shows_each_with_its_own_devices(cluster: QuickCluster) -> None:
    _, health = start(cluster, "v1")
    health.say(device("gpu-0", wire.HEALTHY), device("gpu-1", wire.UNHEALTHY))
    run(cluster, "a", "b", uses=("a", "b"))
    expect(cluster, "Healthy", "Unhealthy")
    assert [one["name"] for one in shown(cluster)] == ["claim:gpu/a", "claim:gpu/b"]


@pytest.mark.parametrize(
    "served, asked",
    [
        pytest.param(("v1", "v1alpha1"), "v1", id="v1 where it is advertised"),
        pytest.param(("v1alpha1",), "v1alpha1", id="v1alpha1 though it is not advertised"),
    ],
)
def test_the_stream_is_opened_in_the_newest_version(cluster: QuickCluster, served: tuple[str, ...], asked: str) -> None:
    _, health = start(cluster, *served)
    cluster.until(lambda: health.opened, "a stream", timeout=waits.SECONDS)
    assert set(health.opened) == {asked}


def test_devices_of_a_stopped_driver_are_unknown_until_it_returns(cluster: QuickCluster) -> None:
    plugin, health = start(cluster, "v1")
    health.say(device("gpu-0", wire.HEALTHY))
    run(cluster, "a")
    expect(cluster, "Healthy")
    plugin.stop()
    expect(cluster, "Unknown")
    plugin.start()
    expect(cluster, "Healthy")


def test_an_ended_health_stream_clears_all_health_and_is_reopened(cluster: QuickCluster) -> None:
    _, health = start(cluster, "v1")
    health.say(device("gpu-0", wire.HEALTHY))
    run(cluster, "a")
    expect(cluster, "Healthy")
    health.say()
    assert states(cluster) == ["Healthy"]
    health.hang_up()
    expect(cluster, "Unknown")
    cluster.until(lambda: len(health.opened) >= 2, "another stream", timeout=waits.SECONDS)


def test_devices_of_a_plugin_without_the_service_are_unknown(cluster: QuickCluster) -> None:
    start(cluster)
    run(cluster, "a")
    expect(cluster, "Unknown")


def test_a_report_that_is_not_repeated_in_its_time_is_unknown(cluster: QuickCluster) -> None:
    _, health = start(cluster, "v1")
    health.say(device("gpu-0", wire.HEALTHY, seconds=1))
    run(cluster, "a")
    expect(cluster, "Unknown")
    health.say(device("gpu-0", wire.HEALTHY, seconds=600))
    expect(cluster, "Healthy")


@pytest.mark.parametrize(
    "gate, expected",
    [
        pytest.param("ResourceHealthStatus", [], id="nothing is shown"),
        pytest.param("ResourceHealthStatusMessage", ["Unhealthy"], id="no message is shown"),
    ],
)
def test_with_their_gate_off_health_fields_are_not_shown(folder: pathlib.Path, gate: str, expected: list[str]) -> None:
    cluster = QuickCluster(folder, timing=TIMING, gates=FeatureGates.of({gate: False})).start()
    try:
        _, health = start(cluster, "v1")
        health.say(device("gpu-0", wire.UNHEALTHY, "too hot"))
        if expected:
            cluster.until(lambda: health.opened, "a stream", timeout=waits.SECONDS)
        run(cluster, "a")
        expect(cluster, *expected)
        assert all("message" not in one for status in shown(cluster) for one in json_types.objects(status, "resources"))
        assert bool(health.opened) is bool(expected)
    finally:
        cluster.stop()


def test_a_health_report_expires_and_only_a_visible_change_is_written() -> None:
    now = [100.0]
    table = healths.HealthTable(30.0, lambda: now[0])
    one = PreparedDevice(requests=(), pool="p", device="d", cdi_ids=())
    report = healths.Report(pool="p", device="d", health="Healthy")
    assert table.of(DRIVER, one) == ("Unknown", "", None)
    assert table.update(DRIVER, [report])
    assert not table.update(DRIVER, [report])
    assert table.update(DRIVER, [dataclasses.replace(report, message="m" * 2000, seconds=-1.0)])
    health, message, left = table.of(DRIVER, one)
    assert (health, len(message), message[-4:], left) == ("Healthy", 1024, "m...", 30.0)
    now[0] += 29.0
    assert not table.update(DRIVER, [])
    assert table.of(DRIVER, one)[0] == "Healthy"
    now[0] += 1.0
    assert table.of(DRIVER, one) == ("Unknown", "", None)
    assert table.update(DRIVER, [report])
    assert (table.remove(DRIVER), table.remove(DRIVER)) == (True, False)
