"""What drakit relies on in a libnvidia-ml.so.1, asked through NVIDIA's binding.

Runs on the Python library over mock GPUs, and on the library at the path in DRAKIT_TEST_NVML where that is set. Reads only, unless
DRAKIT_TEST_NVML_MIG names a GPU by UUID: on that one, which nobody may use, MIG devices are made and removed. See docs/howto/test-on-real-gpus.md.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

import pytest

from drakit import machines
from drakit.core import advanced
from drakit_gpu import checks as doctor
from drakit_gpu import driver as gpu_driver
from drakit_gpu import host, nvml, nvml_errors, port
from drakit_gpu.health import signals
from drakit_gpu.mock import mock_gpus
from fakes import nvml_library

LIBRARY, MIG_GPU = os.environ.get("DRAKIT_TEST_NVML", ""), os.environ.get("DRAKIT_TEST_NVML_MIG", "")
MOCK_MACHINES = ("dgx-a100-40gb-2gpu", "dgx-h100")
CASES = [*MOCK_MACHINES, *([LIBRARY] if LIBRARY else [])]
STRANGER = port.GpuUuid("GPU-00000000-0000-0000-0000-000000000000")


def opened(case: str, folder: pathlib.Path) -> nvml.NvmlGpus:
    if case not in MOCK_MACHINES:
        return nvml.NvmlGpus.open(pathlib.Path(case))
    made = mock_gpus.MockGpus(machines.Choice(name=case, directory=folder / "machine", owner="node-a"))
    return nvml.NvmlGpus(nvml_library.NvmlLibrary(made).load, system=host.Host(nvml_library.host_root(folder / "root", made)))


@pytest.fixture(params=CASES)
def hardware(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[nvml.NvmlGpus]:
    made = opened(request.param, tmp_path)
    yield made
    made.close()


def partitionable(hardware: nvml.NvmlGpus) -> list[port.Gpu]:
    """The GPUs that have MIG and are not a hypervisor's."""
    return [gpu for gpu in hardware.gpus() if not gpu.is_vgpu and hardware.mig_mode(gpu.uuid) is not None]


def test_every_counted_gpu_answers(hardware: nvml.NvmlGpus) -> None:
    found = hardware.census()
    assert not found.silent
    assert found.gpus, "there is no GPU to test"


def test_gpus_are_distinguished_and_named_as_sysfs_names_them(hardware: nvml.NvmlGpus) -> None:
    gpus = hardware.gpus()
    for values in ([gpu.uuid for gpu in gpus], [gpu.minor for gpu in gpus], [gpu.pci_bus_id for gpu in gpus]):
        assert len(set(values)) == len(gpus)
    assert [gpu.minor for gpu in gpus] == sorted(gpu.minor for gpu in gpus)
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-")
        assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", gpu.pci_bus_id)
        assert gpu.product_name
        assert gpu.memory is None or gpu.memory > 0


def test_a_listed_gpu_equals_the_gpu_read_by_uuid(hardware: nvml.NvmlGpus) -> None:
    for gpu in hardware.gpus():
        assert hardware.gpu(gpu.uuid) == gpu


def test_driver_and_cuda_versions_have_the_form_of_versions(hardware: nvml.NvmlGpus) -> None:
    found = hardware.versions()
    assert re.fullmatch(r"\d+(\.\d+){1,3}", found.driver)
    assert re.fullmatch(r"\d+\.\d+", found.cuda)


def test_a_gpu_that_answers_is_plugged_and_pinged_by_kept_and_by_new_handles(hardware: nvml.NvmlGpus) -> None:
    gpus = hardware.gpus()
    for _ in range(2):
        for gpu in gpus:
            hardware.ping(gpu)
            assert hardware.is_plugged(gpu)
        hardware.renew()


def test_a_uuid_that_no_gpu_has_is_not_found(hardware: nvml.NvmlGpus) -> None:
    (gpu, *_) = hardware.gpus()
    assert hardware.gpu(STRANGER) is None
    with pytest.raises(nvml_errors.CallError) as asked:
        hardware.mig_mode(STRANGER)
    with pytest.raises(nvml_errors.CallError) as pinged:
        hardware.ping(dataclasses.replace(gpu, uuid=STRANGER))
    assert asked.value.code is pinged.value.code is nvml_errors.Code.NOT_FOUND


def test_a_new_session_shows_the_same_gpus(hardware: nvml.NvmlGpus) -> None:
    before = hardware.gpus()
    hardware.renew()
    assert hardware.gpus() == before


def test_every_profile_has_placements_memory_and_multiprocessors(hardware: nvml.NvmlGpus) -> None:
    for gpu in partitionable(hardware):
        profiles = hardware.gpu_instance_profiles(gpu.uuid)
        assert len({profile.id for profile in profiles}) == len({profile.name for profile in profiles}) == len(profiles)
        for profile in profiles:
            placements = hardware.possible_placements(gpu.uuid, profile.id)
            assert len(placements) >= profile.instances > 0
            assert len({placement.size for placement in placements}) == 1
            assert profile.memory_mib > 0
            assert profile.multiprocessors > 0
            assert gpu.memory is None or profile.memory_mib << 20 <= gpu.memory


def test_instances_lie_where_their_profiles_may(hardware: nvml.NvmlGpus) -> None:
    for gpu in partitionable(hardware):
        found = hardware.gpu_instances(gpu.uuid)
        for instance in found:
            assert instance.placement in hardware.possible_placements(gpu.uuid, instance.profile_id)
            for compute in hardware.compute_instances(gpu.uuid, instance.id):
                assert compute.mig_uuid.startswith("MIG-")
        mode = hardware.mig_mode(gpu.uuid)
        assert not found or (mode is not None and mode.current)


def test_a_property_the_gpu_does_not_support_is_none(hardware: nvml.NvmlGpus) -> None:
    for gpu in hardware.gpus():
        assert hardware.compute_mode(gpu.uuid) in {None, *port.ComputeMode}
        assert hardware.recovery_action(gpu.uuid) in {None, *signals.RecoveryAction}
        assert all(pid > 0 for pid in hardware.running_processes(gpu.uuid))


def test_sensors_are_plausible_or_none(hardware: nvml.NvmlGpus) -> None:
    for gpu in hardware.gpus():
        sensors = hardware.sensors(gpu.uuid)
        assert sensors.utilization is None or 0 <= sensors.utilization <= 1
        assert sensors.memory_used is None or gpu.memory is None or 0 <= sensors.memory_used <= gpu.memory
        assert sensors.temperature is None or 0 < sensors.temperature < 130
        assert sensors.power is None or 0 < sensors.power < 3000


def test_device_numbers_are_found_or_the_module_that_is_missing_is_named(hardware: nvml.NvmlGpus) -> None:
    try:
        majors = hardware.device_majors()
    except nvml_errors.CallError as error:
        if error.code is not nvml_errors.Code.DRIVER_NOT_LOADED or "load its kernel module" not in str(error):
            raise
    else:
        assert majors.nvidia != majors.uvm


def test_an_event_wait_lasts_its_timeout_and_a_set_can_be_closed_twice(hardware: nvml.NvmlGpus) -> None:
    uuids = {gpu.uuid for gpu in hardware.gpus()}
    with hardware.events() as events:
        assert events.unmonitored <= uuids
        for seconds in (0.0, 0.2):
            event = events.wait(seconds)
            assert event is None or event.gpu in uuids
    events.close()


def test_an_event_set_of_a_replaced_session_is_refused_at_once(hardware: nvml.NvmlGpus) -> None:
    with hardware.events() as events:
        hardware.renew()
        with pytest.raises(nvml_errors.CallError) as caught:
            events.wait(0.0)
    assert caught.value.code is nvml_errors.Code.UNINITIALIZED
    with hardware.events() as again:
        again.wait(0.0)


def test_every_gpu_is_offered_whole_or_as_partitions(hardware: nvml.NvmlGpus) -> None:
    driver = gpu_driver.GpuDriver(hardware)
    offered = driver.discover().flat().devices
    assert not driver.not_offered()
    for gpu in hardware.gpus():
        own = [item.name for item in offered if item.name == f"gpu-{gpu.minor}" or item.name.startswith(f"gpu-{gpu.minor}-mig-")]
        assert own, f"gpu-{gpu.minor} is offered in no form: {driver.not_offered()}"


@pytest.mark.parametrize("case", CASES)
def test_the_doctor_finds_no_failure(case: str, tmp_path: pathlib.Path) -> None:
    found = doctor.of_library(lambda: opened(case, tmp_path))
    assert found.verdict in {advanced.Verdict.OK, advanced.Verdict.WARNING}, found.message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """A GPU on which MIG devices may be made."""

    hardware: nvml.NvmlGpus
    gpu: port.Gpu

    def profiles(self) -> list[port.GpuInstanceProfile]:
        return list(self.hardware.gpu_instance_profiles(self.gpu.uuid))


@pytest.fixture(params=[MOCK_MACHINES[0], *([LIBRARY] if LIBRARY and MIG_GPU else [])])
def bench(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Bench]:
    """The GPU is left as it was found: in its mode, and empty."""
    made = opened(request.param, tmp_path)
    wanted = MIG_GPU if request.param == LIBRARY else made.gpus()[0].uuid
    (gpu,) = [one for one in made.gpus() if one.uuid == wanted]
    assert not made.running_processes(gpu.uuid), f"{wanted} is in use"
    assert not made.gpu_instances(gpu.uuid), f"{wanted} has GPU instances"
    before = made.mig_mode(gpu.uuid)
    assert before is not None, f"{wanted} has no MIG"
    if not before.current:
        assert gpu.switches_mig_at_once, f"turn on MIG mode of {wanted} first: it takes a reset"
        made.set_mig_mode(gpu.uuid, enabled=True)
    try:
        yield Bench(hardware=made, gpu=gpu)
    finally:
        empty(made, gpu)
        if not before.current:
            made.set_mig_mode(gpu.uuid, enabled=False)
        made.close()


def empty(hardware: nvml.NvmlGpus, gpu: port.Gpu) -> None:
    for instance in hardware.gpu_instances(gpu.uuid):
        for compute in hardware.compute_instances(gpu.uuid, instance.id):
            hardware.destroy_compute_instance(gpu.uuid, instance.id, compute.id)
        hardware.destroy_gpu_instance(gpu.uuid, instance.id)


def test_an_instance_of_every_profile_lies_at_each_of_its_placements(bench: Bench) -> None:
    for profile in bench.profiles():
        for placement in bench.hardware.possible_placements(bench.gpu.uuid, profile.id):
            made = bench.hardware.create_gpu_instance(bench.gpu.uuid, profile.id, placement)
            assert (made.profile_id, made.placement) == (profile.id, placement)
            assert list(bench.hardware.gpu_instances(bench.gpu.uuid)) == [made]
            bench.hardware.destroy_gpu_instance(bench.gpu.uuid, made.id)
            assert not bench.hardware.gpu_instances(bench.gpu.uuid)


def test_as_many_instances_of_a_profile_fit_as_it_says(bench: Bench) -> None:
    for profile in bench.profiles():
        taken: list[port.Placement] = []
        for placement in bench.hardware.possible_placements(bench.gpu.uuid, profile.id):
            if len(taken) < profile.instances and not any(placement.overlaps(other) for other in taken):
                bench.hardware.create_gpu_instance(bench.gpu.uuid, profile.id, placement)
                taken.append(placement)
        assert len(taken) == profile.instances
        with pytest.raises(nvml_errors.CallError) as caught:
            bench.hardware.create_gpu_instance(bench.gpu.uuid, profile.id, taken[0])
        assert caught.value.code is nvml_errors.Code.INSUFFICIENT_RESOURCES
        empty(bench.hardware, bench.gpu)


def test_a_whole_compute_instance_is_a_mig_device(bench: Bench) -> None:
    profile = min(bench.profiles(), key=lambda one: (one.slices, one.memory_mib))
    placement = bench.hardware.possible_placements(bench.gpu.uuid, profile.id)[0]
    instance = bench.hardware.create_gpu_instance(bench.gpu.uuid, profile.id, placement)
    whole = max(bench.hardware.compute_instance_profiles(bench.gpu.uuid, instance), key=lambda one: one.slices)
    compute = bench.hardware.create_compute_instance(bench.gpu.uuid, instance.id, whole.id)
    assert list(bench.hardware.compute_instances(bench.gpu.uuid, instance.id)) == [compute]
    with pytest.raises(nvml_errors.CallError) as in_use:
        bench.hardware.destroy_gpu_instance(bench.gpu.uuid, instance.id)
    assert in_use.value.code is nvml_errors.Code.IN_USE
    bench.hardware.destroy_compute_instance(bench.gpu.uuid, instance.id, compute.id)
    bench.hardware.destroy_gpu_instance(bench.gpu.uuid, instance.id)
    with pytest.raises(nvml_errors.CallError) as gone:
        bench.hardware.compute_instances(bench.gpu.uuid, instance.id)
    assert gone.value.code is nvml_errors.Code.NOT_FOUND
