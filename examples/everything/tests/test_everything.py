"""Every profile keeps its contract, and offers and refuses what dra-example-driver does."""

import os
import pathlib
import subprocess
import sys

import pytest

import drakit
from drakit import testing
from everything_driver import __main__ as command
from everything_driver import cpu, gpu, net, settings

GPU = {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"}
NET = {"apiVersion": "net.resource.example.com/v1alpha1", "kind": "NetConfig"}
LONG = {"timeSlicingConfig": {"interval": "Long"}}
TEN = {"spacePartitioningConfig": {"partitionCount": 10}}
SLICED = {**GPU, "sharing": {"strategy": "TimeSlicing", **LONG}}
PARTITIONED = {**GPU, "sharing": {"strategy": "SpacePartitioning", **TEN}}


@pytest.mark.parametrize("shared", [False, True])
def test_gpus_keep_their_contract(shared: bool) -> None:  # noqa: FBT001
    own = gpu.Settings(devices=1, partitions=2, allow_multiple_allocations=shared, binding_conditions=True, device_status=True)
    testing.check_driver(
        lambda: gpu.GpuDriver(own),
        parameters=[SLICED, PARTITIONED],
        refused_parameters=[
            {**GPU, "sharing": {"strategy": "Luck"}},
            {**GPU, "sharing": {"strategy": "SpacePartitioning", **LONG}},
            {**GPU, "sharing": {"strategy": "TimeSlicing", **TEN}},
            {**GPU, "sharing": {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": -1}}},
        ],
        consumed={"memory": "1Gi", "compute": 1} if shared else {},
        every=60,
    )


def test_interfaces_keep_their_contract() -> None:
    testing.check_driver(
        lambda: net.NetDriver(settings.Settings(devices=1)),
        parameters=[{**NET, "bwBurst": {"ingressBurst": 8000}}],
        refused_parameters=[{**NET, "bwBurst": {"egressBurst": 2**35}}],
        every=60,
    )


def test_numa_nodes_keep_their_contract() -> None:
    testing.check_driver(lambda: cpu.CpuDriver(cpu.Settings(devices=1)), consumed={cpu.CAPACITY: 1}, every=60)


def test_a_container_gets_the_variables_of_its_gpu() -> None:
    with testing.Node(lambda: gpu.GpuDriver(gpu.Settings())) as node:
        claim = node.claim("gpu-3", parameters=SLICED)
        assert node.prepare(claim).env == {
            "KUBERNETES_NODE_NAME": "test-node",
            "DRA_RESOURCE_DRIVER_NAME": "gpu.example.com",
            "GPU_DEVICE_GPU_3_RESOURCE_CLAIM": claim.uid,
            "GPU_DEVICE_3": "gpu-3",
            "GPU_DEVICE_3_SHARING_STRATEGY": "TimeSlicing",
            "GPU_DEVICE_3_TIMESLICE_INTERVAL": "Long",
        }


def test_a_strategy_without_parameters_has_defaults() -> None:
    with testing.Node(lambda: gpu.GpuDriver(gpu.Settings())) as node:
        partitioned = node.prepare(node.claim("gpu-0", parameters={**GPU, "sharing": {"strategy": "SpacePartitioning"}}))
        assert partitioned.env["GPU_DEVICE_0_PARTITION_COUNT"] == "1"
        sliced = node.prepare(node.claim("gpu-1", parameters={**GPU, "sharing": {"strategy": "TimeSlicing"}}))
        assert sliced.env["GPU_DEVICE_1_TIMESLICE_INTERVAL"] == "Default"


def test_a_container_gets_the_bursts_of_its_share() -> None:
    with testing.Node(lambda: net.NetDriver(settings.Settings())) as node:
        container = node.prepare(node.claim("nic-2", parameters={**NET, "bwBurst": {"ingressBurst": 8000}}))
        (share,) = (grant.share_id for grant in node.context.grants())
        assert share is not None
        prefix = f"NET_DEVICE_2_{share[:8].upper()}"
        bursts = {name: value for name, value in container.env.items() if "BURST" in name}
        assert bursts == {f"{prefix}_INGRESS_BURST": "8000"}
        assert container.env[f"{prefix}_EGRESS_RATE"] == "1000000000"


def test_a_gpu_and_its_partitions_exclude_each_other() -> None:
    with testing.Node(lambda: gpu.GpuDriver(gpu.Settings(devices=1, partitions=4))) as node:
        assert node.prepare(node.claim("gpu-0-partition-1")).env["GPU_DEVICE_0_PARTITION_1"] == "gpu-0-partition-1"
        node.prepare(node.claim("gpu-0-partition-0"))
        assert "used up" in node.try_prepare(node.claim("gpu-0-full")).error


def test_a_monitor_sees_a_gpu_that_a_pod_has() -> None:
    with testing.Node(lambda: gpu.GpuDriver(gpu.Settings())) as node:
        assert "DRA_ADMIN_ACCESS" not in node.prepare(node.claim("gpu-0")).env
        assert node.try_prepare(node.claim("gpu-0")).error
        assert node.prepare(node.claim("gpu-0", admin_access=True)).env["DRA_ADMIN_ACCESS"] == "true"


def test_a_broken_device_is_tainted_and_unhealthy_until_it_works(tmp_path: pathlib.Path) -> None:
    watched = gpu.GpuDriver(gpu.Settings(folder=tmp_path))
    context = testing.FakeContext(data_dir=tmp_path)
    (tmp_path / "gpu-0").touch()
    watched.watch(context)
    assert [device for device, taints in context.taints().items() if taints] == ["gpu-0"]
    report = context.health_of("gpu-0")
    assert report is not None
    assert report.health is drakit.Health.UNHEALTHY
    (tmp_path / "gpu-0").unlink()
    watched.watch(context)
    assert not any(context.taints().values())


def test_uuids_stay_as_they_are_on_a_node_and_differ_between_nodes() -> None:
    def uuids(node: str) -> list[object]:
        driver = gpu.GpuDriver(gpu.Settings())
        driver.node_name = node
        return [device.attributes["uuid"] for device in driver.discover().devices]

    assert uuids("node-1") == uuids("node-1")
    assert len({*uuids("node-1"), *uuids("node-2")}) == 16


@pytest.mark.parametrize("profile", ["gpu", "net", "cpu"])
def test_the_profile_is_chosen_by_the_environment(
    profile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(command.PROFILE, profile)
    monkeypatch.setattr(sys, "argv", ["everything-driver", "slices", "-o", "yaml", "--node", "node-1"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert not ended.value.code
    assert f"driver: {profile}.example.com\n" in capsys.readouterr().out


def test_an_unknown_profile_ends_the_program() -> None:
    program = [sys.executable, "-m", "everything_driver", "slices", "-o", "yaml", "--node", "node-1"]
    environment = {**os.environ, command.PROFILE: "tpu"}
    done = subprocess.run(program, cwd=pathlib.Path(__file__).parents[1], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "choose gpu, net or cpu" in done.stderr


def test_containers_find_the_attributes_of_their_gpu() -> None:
    with testing.Node(lambda: gpu.GpuDriver(gpu.Settings())) as node:
        ((host_path, container_path),) = node.prepare(node.claim("gpu-0", name="mine")).mounts
        assert container_path.endswith("/resourceclaims/mine/request-0/gpu.example.com-metadata.json")
        assert '"LATEST-GPU-MODEL"' in pathlib.Path(host_path).read_text()
