"""MPS claims are prepared on a mock machine as on a real one: pods run the mock driver's nvidia-cuda-mps-control."""

import pathlib
from collections.abc import Iterator

import pytest

from drakit import machines
from drakit_gpu import config as gpu_config
from drakit_gpu import driver as gpu_driver
from drakit_gpu.mock import mock_gpus
from drakit_gpu.sharing.mps import control_daemon
from fakes import demo, gpu_node, mps_pods, waits

MACHINE = "dgx-a100-40gb-2gpu"
PARTITION = "gpu-0-mig-1g5gb-19-6"
LIMITS = gpu_config.Mps(default_active_thread_percentage=50)
MPS = gpu_config.MigConfig(sharing=gpu_config.MigSharing(strategy=gpu_config.Strategy.MPS, mps_config=LIMITS))


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder whose path leaves room for the sockets of daemons."""
    with demo.short_folder() as made:
        yield made


@pytest.fixture
def node(folder: pathlib.Path) -> Iterator[gpu_node.GpuNode]:
    mocked = mock_gpus.MockGpus(machines.Choice(name=MACHINE, directory=folder / "machine", owner="node-a"))
    with mps_pods.daemons(folder, mocked.driver_root()) as daemons:
        yield gpu_node.GpuNode(folder / "machine", MACHINE, resources=gpu_driver.HostResources(daemons=daemons))


def test_mps_on_a_partition_runs_a_daemon_until_the_claim_is_unprepared(node: gpu_node.GpuNode, folder: pathlib.Path) -> None:
    prepared = node.prepare(PARTITION, config=MPS)
    assert {"/tmp/nvidia-mps", "/dev/shm"} <= {mount.container_path for mount in prepared.edits.mounts}
    running = mps_pods.living(folder / "mps")
    assert [len(processes) for processes in running.values()] == [1]
    node.restart().prepare(node.journal["a"].grant)
    assert mps_pods.living(folder / "mps") == running
    node.unprepare()
    assert not mps_pods.living(folder / "mps")


def test_a_mock_program_of_an_older_version_is_replaced(folder: pathlib.Path) -> None:
    choice = machines.Choice(name=MACHINE, directory=folder / "machine", owner="node-a")
    program = mock_gpus.MockGpus(choice).driver_root().program(control_daemon.CONTROL)
    assert program is not None
    current = program.read_text()
    program.write_text("")
    mock_gpus.MockGpus(choice).driver_root()
    assert program.read_text() == current
    assert [file.name for file in program.parent.iterdir() if file.name.startswith(".")] == []


def test_a_mock_daemon_whose_socket_is_deleted_ends(node: gpu_node.GpuNode, folder: pathlib.Path) -> None:
    node.prepare(PARTITION, config=MPS)
    ((daemon,),) = mps_pods.living(folder / "mps").values()
    (control,) = (folder / "mps").glob("*/pipe/control")
    control.unlink()
    assert waits.eventually(lambda: not daemon.is_alive()), "it looks every five seconds"
    node.unprepare()
