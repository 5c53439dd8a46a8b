"""A driver with several pools on each node, on the local cluster: scheduling, health, statuses, metadata, restarts and conformance."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import drakit
from drakit import testing
from fakes import banks, waits


@pytest.fixture
def pools() -> dict[str, str | None]:
    return {"plain-0": None, "fast-0": "fast", "slow-0": "slow"}


@pytest.fixture
def made() -> dict[str, str]:
    return {}


@pytest.fixture
def cluster(pools: dict[str, str | None], made: dict[str, str]) -> Iterator[testing.Cluster]:
    with testing.Cluster(lambda: banks.BankDriver(pools, made), rescan_seconds=0.2) as running:
        running.wait_published(len(pools))
        for bank in ("plain", "fast", "slow"):
            expression = f'device.attributes["bank.example.com"].bank == "{bank}"'
            running.apply(testing.device_class(bank, driver=banks.BankDriver.name, expression=expression))
        yield running


def slices(cluster: testing.Cluster) -> dict[str, list[str]]:
    """The devices by pool."""
    return {one["spec"]["pool"]["name"]: [item["name"] for item in one["spec"].get("devices", ())] for one in cluster.slices()}


def run(cluster: testing.Cluster, pod: str, *classes: str) -> testing.ContainerView:
    names = [f"{pod}-{one}" for one in classes]
    cluster.apply(*(testing.claim(name, device_class=one) for name, one in zip(names, classes, strict=True)))
    cluster.apply(testing.pod(pod, claims=names))
    return cluster.wait_running(pod)


def statuses(cluster: testing.Cluster, claim: str) -> list[tuple[str, str, Any]]:
    entries = cluster.claim(claim)["status"].get("devices", ())
    return [(one["pool"], one["device"], one.get("networkData", {}).get("interfaceName")) for one in entries]


def metadata(view: testing.ContainerView) -> set[tuple[str, str | None]]:
    """Pool and network interface of each device, as programs in the container read them."""
    found = set[tuple[str, str | None]]()
    for host, container in view.mounts:
        if container.endswith("-metadata.json"):
            facts, _ = json.JSONDecoder().raw_decode(pathlib.Path(host).read_text("utf-8"))
            found |= {(one["pool"], one.get("networkData", {}).get("interfaceName")) for one in facts["requests"][0]["devices"]}
    return found


def health(cluster: testing.Cluster, pod: str) -> set[str]:
    containers = cluster.pod(pod)["status"].get("containerStatuses", ())
    told = (status for container in containers for status in container.get("allocatedResourcesStatus", ()))
    return {resource["health"] for status in told for resource in status["resources"]}


def test_a_pod_uses_devices_of_two_pools_of_its_node(cluster: testing.Cluster, made: dict[str, str]) -> None:
    assert slices(cluster) == {"node-1": ["plain-0"], "node-1/fast": ["fast-0"], "node-1/slow": ["slow-0"]}
    view = run(cluster, "p", "fast", "slow")
    assert view.env == {"FAST_0": "node-1/fast", "SLOW_0": "node-1/slow"}
    assert made == {"fast-0": "node-1/fast", "slow-0": "node-1/slow"}
    assert metadata(view) == {("node-1/fast", None), ("node-1/slow", None)}
    driver = cluster.drivers["node-1"]
    assert isinstance(driver, banks.BankDriver)
    for grant in driver.context.grants():
        network = drakit.NetworkStatus(interface=grant.device.name)
        driver.context.set_status(grant.claim, drakit.DeviceStatus(device=grant.device.name, network=network))
    assert metadata(view) == {("node-1/fast", "fast-0"), ("node-1/slow", "slow-0")}
    cluster.local.wait_for(
        lambda: statuses(cluster, "p-fast") == [("node-1/fast", "fast-0", "fast-0")], timeout=waits.SECONDS, what="the status"
    )
    cluster.local.wait_for(lambda: health(cluster, "p") == {"Healthy"}, timeout=waits.SECONDS, what="health of both devices")
    report = drakit.HealthReport(device="slow-0", health=drakit.Health.UNHEALTHY, message="worn out")
    driver.context.report_health(report)
    cluster.local.wait_for(lambda: health(cluster, "p") == {"Healthy", "Unhealthy"}, timeout=waits.SECONDS, what="health of slow-0")
    cluster.delete_pod("p")
    assert made == {}


def test_a_restart_after_a_device_moved_keeps_its_pod_and_serves_others(
    cluster: testing.Cluster, pools: dict[str, str | None], made: dict[str, str]
) -> None:
    run(cluster, "first", "fast")
    pools.update({"fast-0": None})
    cluster.restart_driver()
    cluster.local.wait_for(
        lambda: slices(cluster) == {"node-1": ["plain-0", "fast-0"], "node-1/slow": ["slow-0"]},
        timeout=waits.SECONDS,
        what="the moved device",
    )
    cluster.apply(testing.claim("second-fast", device_class="fast"), testing.pod("second", claims=["second-fast"]))
    assert cluster.wait_events(
        "FailedPrepareDynamicResources", containing="fast-0 is still held by claim default/first-fast", seconds=waits.SECONDS
    )
    assert made == {"fast-0": "node-1/fast"}
    cluster.delete_pod("first")
    assert cluster.wait_running("second", seconds=waits.SECONDS).env == {"FAST_0": "node-1"}
    assert made == {"fast-0": "node-1"}
    cluster.delete_pod("second")
    assert made == {}


def test_the_slices_of_a_pool_are_deleted_with_its_last_device(cluster: testing.Cluster, pools: dict[str, str | None]) -> None:
    before = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cluster.slices()}
    del pools["fast-0"]
    cluster.wait_published(2, seconds=waits.SECONDS)
    assert slices(cluster) == {"node-1": ["plain-0"], "node-1/slow": ["slow-0"]}
    after = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cluster.slices()}
    assert after.items() < before.items(), "no other slice was written"


def test_a_driver_with_several_pools_passes_conformance(cluster: testing.Cluster, made: dict[str, str]) -> None:
    report = cluster.check_plugin("plain", "fast", "slow")
    assert {check.name: check.message for check in report.checks if check.verdict is not drakit.Verdict.OK} == {}
    assert made == {}
