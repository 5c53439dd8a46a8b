"""everything.example.com keeps its contract, and each feature reaches a pod."""

import pathlib

import pytest

import drakit
from drakit import testing
from everything_driver import driver

NAME = "everything.example.com"
SHARING = {"apiVersion": f"{NAME}/v1", "kind": "EverythingConfig", "sharing": "partitioning"}


def test_the_driver_keeps_its_contract(tmp_path: pathlib.Path) -> None:
    testing.check_driver(
        lambda: driver.EverythingDriver(tmp_path, gpus=1),
        parameters=[SHARING],
        refused_parameters=[{**SHARING, "sharing": "luck"}],
        consumed={"bandwidth": "1G"},
        every=12,
    )


def test_a_gpu_and_its_partitions_exclude_each_other(tmp_path: pathlib.Path) -> None:
    with testing.Node(lambda: driver.EverythingDriver(tmp_path, gpus=1)) as node:
        assert node.prepare(node.claim("gpu-0-part-0", parameters=SHARING)).env == {"EVERYTHING_GPU_0_PART_0": "partitioning"}
        assert node.prepare(node.claim("gpu-0-part-1")).env == {"EVERYTHING_GPU_0_PART_1": "time-slicing"}
        assert node.try_prepare(node.claim("gpu-0")).error


def test_shares_of_the_interface_say_their_bandwidth(tmp_path: pathlib.Path) -> None:
    with testing.Node(lambda: driver.EverythingDriver(tmp_path, gpus=1)) as node:
        given = node.prepare(node.claim("net-0", "net-0", consumed={"bandwidth": "2G"}))
        assert list(given.env.values()) == ["2G", "2G"]


def test_a_broken_device_is_tainted_and_unhealthy_until_it_works(tmp_path: pathlib.Path) -> None:
    watched, context = driver.EverythingDriver(tmp_path, gpus=1), testing.FakeContext(data_dir=tmp_path)
    (tmp_path / "gpu-0").touch()
    watched.watch(context)
    assert [device for device, taints in context.taints().items() if taints] == ["gpu-0"]
    report = context.health_of("gpu-0")
    assert report is not None
    assert report.health is drakit.Health.UNHEALTHY
    (tmp_path / "gpu-0").unlink()
    watched.watch(context)
    assert not any(context.taints().values())


@pytest.mark.parametrize("admin", [False, True])
def test_a_monitor_sees_a_gpu_that_a_pod_has(tmp_path: pathlib.Path, admin: bool) -> None:  # noqa: FBT001
    with testing.Node(lambda: driver.EverythingDriver(tmp_path, gpus=1)) as node:
        node.prepare(node.claim("gpu-0"))
        seen = node.try_prepare(node.claim("gpu-0", admin_access=admin))
        assert bool(seen.error) is not admin
