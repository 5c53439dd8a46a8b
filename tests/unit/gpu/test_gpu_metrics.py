"""What the metrics say of each GPU is what lies on it, what claims hold of it and how the watch found it, and one that is lost hides no other."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit.core import device as devices
from drakit.core import names
from drakit.testing import fake_context
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_gpu import metrics as gpu_metrics
from drakit_gpu import port, share_policy
from drakit_gpu.health import faults
from drakit_gpu.sharing.mps import pod_daemons
from fakes import gpu_node, mps_daemon, mps_pods

Numbers = dict[str, float]
MPS = gpu_config.GpuConfig(sharing=gpu_config.Sharing(strategy=gpu_config.Strategy.MPS))


def numbers(driver: gpu_driver.GpuDriver, gpu: str) -> Numbers:
    """The readings of one GPU, by name, and by owner where there is one."""
    metrics = [metric for metric in driver.metrics() if metric.labels["gpu"] == gpu]
    return {
        ".".join([metric.name.removeprefix("gpu_"), *(value for name, value in metric.labels.items() if name != "gpu")]): metric.value
        for metric in metrics
    }


def looked(node: gpu_node.GpuNode) -> gpu_driver.GpuDriver:
    node.driver.discover()
    return node.driver


@pytest.fixture
def node(tmp_path: pathlib.Path) -> gpu_node.GpuNode:
    return gpu_node.GpuNode(tmp_path / "machine")


def test_before_the_first_discovery_there_are_no_gpu_metrics(node: gpu_node.GpuNode) -> None:
    assert node.driver.metrics() == ()


def test_an_empty_gpu_has_slices_and_no_instances(node: gpu_node.GpuNode) -> None:
    result = {
        "mig_instances.ours": 0,
        "mig_instances.others": 0,
        "memory_slices": 8,
        "memory_slices_used": 0,
        "shares_held": 0,
        "mps_daemons": 0,
    }
    assert numbers(looked(node), "gpu-0") == result
    assert numbers(node.driver, "gpu-1") == result


def test_instances_are_counted_by_owner(node: gpu_node.GpuNode) -> None:
    gpu = node.hardware.gpus()[0].uuid
    node.hardware.create_gpu_instance(gpu, 14, port.Placement(start=0, size=2))
    node.prepare("gpu-0-mig-1g5gb-19-6")
    result = numbers(looked(node), "gpu-0")
    assert (result["mig_instances.ours"], result["mig_instances.others"], result["memory_slices_used"]) == (1, 1, 3)
    node.unprepare()
    result = numbers(node.driver, "gpu-0")
    assert (result["mig_instances.ours"], result["mig_instances.others"], result["memory_slices_used"]) == (0, 1, 2)


def test_an_instance_in_the_same_place_of_another_gpu_is_not_ours(node: gpu_node.GpuNode) -> None:
    node.hardware.create_gpu_instance(node.hardware.gpus()[1].uuid, 19, port.Placement(start=6, size=1))
    node.prepare("gpu-0-mig-1g5gb-19-6")
    result = numbers(looked(node), "gpu-1")
    assert (result["mig_instances.ours"], result["mig_instances.others"]) == (0, 1)


@pytest.fixture
def daemons(tmp_path: pathlib.Path) -> Iterator[pod_daemons.PodDaemons]:
    with mps_pods.daemons(tmp_path, mps_daemon.install(tmp_path / "root")) as running:
        yield running


def test_shares_and_mps_daemons_are_counted_where_they_are(tmp_path: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    around = gpu_driver.HostResources(daemons=daemons)
    node = gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie", terms=share_policy.SharePolicy(number=4), resources=around)
    for number, chosen in enumerate((MPS, gpu_config.GpuConfig())):
        share_id = names.ShareId(f"00000000-0000-4000-8000-{number:012d}")
        node.prepare("gpu-1-shared", uid=f"claim-{number}", share_id=share_id, config=chosen)
    result, other = numbers(looked(node), "gpu-1"), numbers(node.driver, "gpu-0")
    assert (result["shares_held"], result["mps_daemons"]) == (2, 1)
    assert (other["shares_held"], other["mps_daemons"]) == (0, 0)
    for uid in ("claim-0", "claim-1"):
        node.unprepare(uid)
    result = numbers(node.driver, "gpu-1")
    assert (result["shares_held"], result["mps_daemons"]) == (0, 0)


def test_a_daemon_that_died_does_not_run(tmp_path: pathlib.Path, daemons: pod_daemons.PodDaemons) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", "server-h100-pcie", resources=gpu_driver.HostResources(daemons=daemons))
    node.prepare("gpu-1", config=MPS)
    assert numbers(looked(node), "gpu-1")["mps_daemons"] == 1
    daemons.stop(str(node.journal["a"].grant.intent["holder"]))
    assert numbers(node.driver, "gpu-1")["mps_daemons"] == 0
    node.unprepare()


def test_a_gpu_without_mig_has_no_readings_of_it(tmp_path: pathlib.Path) -> None:
    node = gpu_node.GpuNode(tmp_path / "machine", "mixed-16gpu")
    views = looked(node)._cache.offered
    without = next(view for view in views if view.mig_mode is None)
    assert set(numbers(node.driver, f"gpu-{without.gpu.minor}")) == {"shares_held", "mps_daemons"}


@pytest.fixture
def watched(tmp_path: pathlib.Path, node: gpu_node.GpuNode) -> gpu_driver.GpuDriver:
    """A driver that is to watch and has no thread yet, so that taints are what the test puts."""
    made = gpu_driver.GpuDriver(node.hardware, intents=node.intents, health=faults.HealthPolicy())
    made._context = fake_context.FakeContext(tmp_path / "home")
    made.discover()
    return made


def put(driver: gpu_driver.GpuDriver, device: str, key: str) -> None:
    assert driver._context is not None
    driver._context.taint(device, devices.Taint(key=key))


@pytest.mark.parametrize("device", ["gpu-1", "gpu-1-mig-1g5gb-19-6"])
def test_a_gpu_is_unhealthy_while_a_fault_stands_on_it_or_on_a_part(watched: gpu_driver.GpuDriver, device: str) -> None:
    assert [numbers(watched, gpu)["healthy"] for gpu in ("gpu-0", "gpu-1")] == [1, 1]
    put(watched, device, "gpu.drakit.dev/xid")
    assert [numbers(watched, gpu)["healthy"] for gpu in ("gpu-0", "gpu-1")] == [1, 0]


def test_a_taint_of_another_writer_does_not_make_a_gpu_unhealthy(watched: gpu_driver.GpuDriver) -> None:
    put(watched, "gpu-1", "example.com/maintenance")
    assert numbers(watched, "gpu-1")["healthy"] == 1


def test_a_gpu_that_is_lost_lacks_its_instances_and_hides_no_other(watched: gpu_driver.GpuDriver, node: gpu_node.GpuNode) -> None:
    first, second = (gpu.uuid for gpu in node.hardware.gpus())
    node.hardware.lose(first)
    put(watched, "gpu-0", "gpu.drakit.dev/gpu-lost")
    result = numbers(watched, "gpu-0")
    assert set(result) == {"memory_slices", "shares_held", "mps_daemons", "healthy"}
    assert result["healthy"] == 0
    assert len(node.hardware.gpu_instances(second)) == numbers(watched, "gpu-1")["mig_instances.others"] == 0


def test_a_scrape_queries_only_the_instances_and_sensors_of_each_gpu(node: gpu_node.GpuNode) -> None:
    looked(node)
    node.steps.names.clear()
    node.driver.metrics()
    assert [name.removeprefix("after ") for name in node.steps.names[1::2]] == ["boot_id", *(2 * ["gpu_instances"]), *(2 * ["sensors"])]


def test_a_gpus_sensors_are_metrics_and_one_that_is_not_reported_has_none() -> None:
    sensors = port.Sensors(memory_used=5 << 30, temperature=61, power=212.5)
    made = gpu_metrics.of_gpu(gpu_metrics.GpuCounts(gpu="gpu-0", shares=0, daemons=0, sensors=sensors))
    values = {metric.name: metric.value for metric in made}
    assert values == {
        "gpu_shares_held": 0,
        "gpu_mps_daemons": 0,
        "gpu_memory_used_bytes": 5 << 30,
        "gpu_temperature_celsius": 61,
        "gpu_power_watts": 212.5,
    }
