"""Each file of demo/ on the local cluster: its pods get what the file of the same name gives them with dra-example-driver."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from drakit import testing
from everything_driver import cpu, gpu, net, settings

PROJECT = pathlib.Path(__file__).parents[1]


@contextlib.contextmanager
def offering(make: testing.DriverFactory, devices: int) -> Iterator[testing.Cluster]:
    """A cluster whose driver offers so many devices, with the DeviceClass for GPUs."""
    with testing.Cluster(make) as cluster:
        cluster.wait_published(devices)
        cluster.apply_file(PROJECT / "deploy" / "deviceclass.yaml")
        yield cluster


def apply(cluster: testing.Cluster, *names: str) -> None:
    for name in names:
        cluster.apply_file(PROJECT / "demo" / f"{name}.yaml")


def gpus(view: testing.ContainerView) -> list[str]:
    return sorted(value for name, value in view.env.items() if name.startswith("GPU_DEVICE_") and value.startswith("gpu-"))


def of_device(view: testing.ContainerView, device: str) -> dict[str, str]:
    """The variables of one device without its number and without the id of a share, which the rest of the test cannot know."""
    prefix = next(name for name, value in view.env.items() if value == device)
    return {name.removeprefix(f"{prefix}_"): value for name, value in view.env.items() if name.startswith(f"{prefix}_")}


def results(cluster: testing.Cluster, pod: str) -> list[dict[str, Any]]:
    """What the scheduler gave to the claim of a pod."""
    (made,) = cluster.pod(pod)["status"]["resourceClaimStatuses"]
    found: list[dict[str, Any]] = cluster.claim(made["resourceClaimName"])["status"]["allocation"]["devices"]["results"]
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[testing.Cluster]:
    """Whole GPUs, for all demos that need nothing else."""
    with offering(lambda: gpu.GpuDriver(gpu.Settings(devices=16, device_status=True)), 16) as running:
        yield running


def test_two_pods_of_one_template_get_a_gpu_each(cluster: testing.Cluster) -> None:
    apply(cluster, "basic-resourceclaimtemplate")
    first, second = (gpus(cluster.wait_running(pod)) for pod in ("template-0", "template-1"))
    assert (len(first), len(second)) == (1, 1)
    assert first != second


def test_one_container_gets_two_gpus(cluster: testing.Cluster) -> None:
    apply(cluster, "basic-multiple-requests")
    assert len(set(gpus(cluster.wait_running("two-gpus")))) == 2


def test_two_containers_share_a_gpu_by_default_time_slices(cluster: testing.Cluster) -> None:
    apply(cluster, "basic-shared-claim-across-containers")
    first, second = (cluster.wait_running("two-containers", container=name) for name in ("first", "second"))
    assert first.env == second.env
    (device,) = gpus(first)
    assert of_device(first, device) == {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}


def test_two_pods_share_a_gpu_by_default_time_slices(cluster: testing.Cluster) -> None:
    apply(cluster, "basic-shared-claim-across-pods")
    first, second = (cluster.wait_running(pod) for pod in ("sharing-0", "sharing-1"))
    assert first.env == second.env
    (device,) = gpus(first)
    assert of_device(first, device) == {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}


def test_each_request_has_its_own_parameters(cluster: testing.Cluster) -> None:
    apply(cluster, "basic-resourceclaim-opaque-config")
    views = [cluster.wait_running("configured", container=name) for name in ("sliced-0", "sliced-1", "partitioned-0", "partitioned-1")]
    sliced, partitioned = views[0], views[2]
    assert (views[1].env, views[3].env) == (sliced.env, partitioned.env)
    ((one,), (two,)) = gpus(sliced), gpus(partitioned)
    assert one != two
    assert of_device(sliced, one) == {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Long"}
    assert of_device(partitioned, two) == {"SHARING_STRATEGY": "SpacePartitioning", "PARTITION_COUNT": "10"}


def test_a_selector_chooses_by_model_and_memory(cluster: testing.Cluster) -> None:
    apply(cluster, "cel-selector")
    assert len(gpus(cluster.wait_running("selected"))) == 1


def test_an_init_container_shares_the_gpu_of_its_pod(cluster: testing.Cluster) -> None:
    apply(cluster, "initcontainer-shared-gpu")
    main = cluster.wait_running("initialized")
    assert cluster.wait_running("initialized", container="init").env == main.env
    assert len(gpus(main)) == 1


def test_a_monitor_sees_every_gpu_of_the_node(cluster: testing.Cluster) -> None:
    apply(cluster, "admin-access")
    monitor = cluster.wait_running("monitor", namespace="monitoring")
    assert monitor.env["DRA_ADMIN_ACCESS"] == "true"
    assert set(gpus(monitor)) == {f"gpu-{number}" for number in range(16)}


def test_pods_get_gpus_by_the_names_of_extended_resources(cluster: testing.Cluster) -> None:
    apply(cluster, "extended-resource-request")
    first, second = (gpus(cluster.wait_running(pod)) for pod in ("by-class", "by-resource"))
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    statuses = [cluster.pod(pod)["status"]["extendedResourceClaimStatus"] for pod in ("by-class", "by-resource")]
    asked = [mapping["resourceName"] for status in statuses for mapping in status["requestMappings"]]
    assert asked == ["deviceclass.resource.kubernetes.io/gpu.example.com", "example.com/gpu"]


def test_the_first_alternative_that_fits_is_taken(cluster: testing.Cluster) -> None:
    apply(cluster, "prioritized-alternatives")
    for pod, chosen in (("fallback", "gpu/older-gpu"), ("preference", "gpu/latest-gpu")):
        assert len(gpus(cluster.wait_running(pod))) == 1
        assert [result["request"] for result in results(cluster, pod)] == [chosen]


def test_the_status_of_a_claim_names_the_gpu(cluster: testing.Cluster) -> None:
    cluster.apply_file(PROJECT / "deploy" / "sample.yaml")
    (device,) = gpus(cluster.wait_running("everything"))

    def values() -> dict[str, Any]:
        statuses = cluster.claim("everything")["status"].get("devices", [])
        return next((dict(status["data"]) for status in statuses if status["device"] == device and "data" in status), {})

    data = cluster.local.wait_for(values, timeout=30, what="the device's data")
    assert data["model"] == {"string": "LATEST-GPU-MODEL"}
    assert data["driverVersion"] == {"version": "1.0.0"}
    assert data["uuid"]["string"].startswith("gpu-")


def test_one_container_gets_two_partitions() -> None:
    with offering(lambda: gpu.GpuDriver(gpu.Settings(devices=2, partitions=4)), 10) as running:
        apply(running, "partitionable-devices")
        assert gpus(running.wait_running("partitioned")) == ["gpu-0-partition-0", "gpu-0-partition-1"]


@pytest.mark.parametrize(
    "partitions, demo, pods, device, amounts",
    [
        (0, "gpu-allow-multiple-allocations", ("part-0", "part-1"), "gpu-0", {"MEMORY": "16Gi", "COMPUTE": "20"}),
        (
            4,
            "gpu-allow-multiple-allocations-partitionable",
            ("partition-part-0", "partition-part-1"),
            "gpu-0-partition-0",
            {"MEMORY": "8Gi", "COMPUTE": "10"},
        ),
    ],
)
def test_two_pods_get_a_part_of_one_device_each(
    partitions: int, demo: str, pods: tuple[str, str], device: str, amounts: Mapping[str, str]
) -> None:
    own = gpu.Settings(devices=1, partitions=partitions, allow_multiple_allocations=True)
    with offering(lambda: gpu.GpuDriver(own), 1 + partitions) as running:
        apply(running, demo)
        for pod in pods:
            view = running.wait_running(pod)
            assert gpus(view) == [device]
            assert amounts.items() <= of_device(view, device).items()
        shares = [result["shareID"] for pod in pods for result in results(running, pod)]
        assert len(set(shares)) == 2


def test_a_pod_is_bound_once_its_gpu_is_ready() -> None:
    with offering(lambda: gpu.GpuDriver(gpu.Settings(devices=1, binding_conditions=True)), 1) as running:
        apply(running, "binding-conditions")
        assert gpus(running.wait_running("bound")) == ["gpu-0"]
        (result,) = results(running, "bound")
        assert (result["bindingConditions"], result["bindingFailureConditions"]) == (["BindingConditions"], ["BindingFailureConditions"])
        (made,) = running.pod("bound")["status"]["resourceClaimStatuses"]
        (status,) = running.claim(made["resourceClaimName"])["status"]["devices"]
        assert {one["type"]: one["status"] for one in status["conditions"]}["BindingConditions"] == "True"


def test_two_pods_share_the_bandwidth_of_an_interface() -> None:
    with offering(lambda: net.NetDriver(settings.Settings(devices=1)), 1) as running:
        apply(running, "net-consumable-capacity")
        for pod, ingress in (("fast", "10000000000"), ("slow", "5000000000")):
            (result,) = results_once_running(running, pod)
            share = f"NET_DEVICE_0_{result['shareID'][:8].upper()}"
            env = running.wait_running(pod).env
            assert (env[f"{share}_INGRESS_RATE"], env[f"{share}_EGRESS_RATE"]) == (ingress, "5000000000")


def test_one_container_gets_two_shares_of_a_numa_node() -> None:
    with offering(lambda: cpu.CpuDriver(cpu.Settings(devices=1, cpus=2)), 1) as running:
        apply(running, "native-resource-request")
        first, second = results_once_running(running, "computing")
        assert (first["device"], second["device"]) == ("numa-0", "numa-0")
        env = running.wait_running("computing").env
        for result in (first, second):
            assert env[f"CPU_DEVICE_0_{result['shareID'][:8].upper()}_CONSUMED_CPU"] == "1"


def results_once_running(cluster: testing.Cluster, pod: str) -> list[dict[str, Any]]:
    cluster.wait_running(pod)
    return results(cluster, pod)


@pytest.fixture
def spare() -> Iterator[testing.Cluster]:
    """More GPUs than the pods of the demos need."""
    with offering(lambda: gpu.GpuDriver(gpu.Settings()), 8) as running:
        yield running


def test_a_taint_evicts_the_pods_that_do_not_tolerate_it(spare: testing.Cluster) -> None:
    apply(spare, "device-tolerations")
    for pod in ("intolerant", "tolerant", "tolerant-for-a-while"):
        spare.wait_running(pod)
    apply(spare, "taint-rule-noexecute")
    spare.wait_gone("intolerant")
    spare.wait_gone("tolerant-for-a-while")
    assert spare.pod("tolerant")["status"]["phase"] == "Running"


def test_a_taint_keeps_new_pods_away_and_leaves_those_that_run(spare: testing.Cluster) -> None:
    apply(spare, "device-tolerations")
    spare.wait_running("intolerant")
    apply(spare, "taint-rule-noschedule", "basic-multiple-requests")
    assert spare.wait_events("FailedScheduling")
    assert "nodeName" not in spare.pod("two-gpus")["spec"]
    assert spare.pod("intolerant")["status"]["phase"] == "Running"


def test_only_pods_that_tolerate_a_taint_start_under_it(spare: testing.Cluster) -> None:
    apply(spare, "taint-rule-noexecute", "device-tolerations")
    spare.wait_running("tolerant")
    spare.wait_gone("tolerant-for-a-while")
    assert "nodeName" not in spare.pod("intolerant")["spec"]
