"""What NVML is asked for while a claim waits: each call takes the driver's lock, and a lost GPU may let it hang."""

import pathlib

import pytest

from fakes import nvml_calls

READS_MAX = 6
UNPREPARE_MAX = 16


@pytest.mark.parametrize(
    "machine,partition", [("dgx-a100-40gb-2gpu", "gpu-0-mig-3g20gb-9-{}"), ("server-h100-pcie", "gpu-2-mig-3g40gb-9-{}")]
)
def test_a_prepare_of_a_partition_reads_little_beside_the_calls_that_change_hardware(
    tmp_path: pathlib.Path, machine: str, partition: str
) -> None:
    _, second = nvml_calls.of_claims(tmp_path, machine, partition.format(0), partition.format(4))
    changes = {name for name in second.plan + second.prepare if name in nvml_calls.CHANGES}
    assert changes >= {"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"}
    assert second.reads() <= READS_MAX, second
    assert second.unprepare.total() <= UNPREPARE_MAX, second


def test_a_prepare_of_a_whole_gpu_reads_no_property_of_it_again(tmp_path: pathlib.Path) -> None:
    _, calls = nvml_calls.of_claims(tmp_path, "server-h100-pcie", "gpu-0", "gpu-1")
    assert not (calls.plan + calls.prepare).keys() & {"nvmlDeviceGetSerial", "nvmlDeviceGetEccMode", "nvmlDeviceGetNvLinkState"}
    assert calls.reads() <= READS_MAX, calls
