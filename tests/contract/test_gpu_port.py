"""What every GpuPort must do; run on the mock and on NVML's adapter, and meant for a real GPU with MIG mode on and no instances.

The adapter is run through NVIDIA's own binding on a library that plays NVML over mock GPUs.
"""

import pathlib

import pytest

from drakit import machines
from drakit_gpu import host, nvml, nvml_errors, port
from drakit_gpu.mock import mock_gpus
from fakes import examples, nvml_library

UNKNOWN = 999
KINDS = ("mock", "nvml")
ALL = [(kind, name) for kind in KINDS for name in machines.names("gpus")]
MODELS = [(kind, name) for kind, name in ALL if name not in ("dgx-a100-40gb", "mixed-16gpu")]
"""Each model once, because most tests use the first GPU; that of the two left out is that of dgx-a100-40gb-2gpu."""
MACHINES = [
    *(pytest.param(model, id="-".join(model)) for model in examples.sample("models of GPUs", MODELS)),
    *(pytest.param(model, id="-".join(("full", *model)), marks=pytest.mark.full) for model in MODELS),
]


class NvmlOverMock(nvml.NvmlGpus):
    """The adapter on a machine whose kernel shows capabilities as instances come and go."""

    def __init__(self, hardware: mock_gpus.MockGpus, root: pathlib.Path) -> None:
        self._root = nvml_library.host_root(root, hardware)
        self._hardware = hardware
        tools = nvml.NvidiaSmi(nvml_library.smi_root(root / "driver", hardware))
        super().__init__(nvml_library.NvmlLibrary(hardware).load, system=host.Host(root), tools=tools)

    def capability_minors(self, gpu: port.GpuUuid, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        nvml_library.show_capabilities(self._root, self._hardware)
        return super().capability_minors(gpu, instance_id, compute_id)


@pytest.fixture(params=MACHINES)
def hardware(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> port.GpuPort:
    kind, name = request.param
    made = mock_gpus.MockGpus(machines.Choice(name=name, directory=tmp_path / "machine", owner="node-a"))
    return NvmlOverMock(made, tmp_path / "root") if kind == "nvml" else made


@pytest.fixture
def gpu(hardware: port.GpuPort) -> port.GpuUuid:
    return hardware.gpus()[0].uuid


def smallest(hardware: port.GpuPort, gpu: port.GpuUuid) -> tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]:
    profile = min(
        hardware.gpu_instance_profiles(gpu), key=lambda profile: (profile.slices, profile.memory_mib, profile.decoders, profile.enum)
    )
    return profile, tuple(hardware.possible_placements(gpu, profile.id))


def whole(hardware: port.GpuPort, gpu: port.GpuUuid, instance: port.GpuInstance) -> port.ComputeInstanceProfile:
    return max(hardware.compute_instance_profiles(gpu, instance), key=lambda profile: profile.slices)


def make(hardware: port.GpuPort, gpu: port.GpuUuid) -> tuple[port.GpuInstance, port.ComputeInstance]:
    profile, placements = smallest(hardware, gpu)
    instance = hardware.create_gpu_instance(gpu, profile.id, placements[0])
    return instance, hardware.create_compute_instance(gpu, instance.id, whole(hardware, gpu, instance).id)


def code_of(caught: pytest.ExceptionInfo[nvml_errors.CallError]) -> nvml_errors.Code:
    return caught.value.code


@pytest.mark.parametrize("hardware", ALL, ids="-".join, indirect=True)
def test_gpus_are_distinguished_by_uuid_minor_and_pci_address(hardware: port.GpuPort) -> None:
    gpus = hardware.gpus()
    assert gpus
    for values in ([gpu.uuid for gpu in gpus], [gpu.minor for gpu in gpus], [gpu.pci_bus_id for gpu in gpus]):
        assert len(set(values)) == len(gpus)
    assert [gpu.minor for gpu in gpus] == sorted(gpu.minor for gpu in gpus)


def test_the_placements_of_every_profile_are_found_by_hardware_id(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    profiles = hardware.gpu_instance_profiles(gpu)
    assert len({profile.id for profile in profiles}) == len(profiles)
    for profile in profiles:
        placements = hardware.possible_placements(gpu, profile.id)
        assert len(placements) >= profile.instances
        assert len({placement.size for placement in placements}) == 1


def test_hardware_ids_are_not_nvml_enums(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    assert any(profile.id != profile.enum for profile in hardware.gpu_instance_profiles(gpu))


def test_an_unknown_profile_is_an_invalid_argument(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    with pytest.raises(nvml_errors.CallError) as asked:
        hardware.possible_placements(gpu, UNKNOWN)
    with pytest.raises(nvml_errors.CallError) as made:
        hardware.create_gpu_instance(gpu, UNKNOWN, port.Placement(start=0, size=1))
    assert code_of(asked) is code_of(made) is nvml_errors.Code.INVALID_ARGUMENT
    assert made.value.call == "nvmlDeviceCreateGpuInstanceWithPlacement"


def test_an_instance_keeps_its_placement_until_it_is_destroyed(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    profile, placements = smallest(hardware, gpu)
    made = [hardware.create_gpu_instance(gpu, profile.id, placement) for placement in reversed(placements[:2])]
    assert [instance.placement for instance in made] == list(reversed(placements[:2]))
    assert list(hardware.gpu_instances(gpu)) == sorted(made, key=lambda instance: instance.placement)
    for instance in made:
        hardware.destroy_gpu_instance(gpu, instance.id)
    assert not hardware.gpu_instances(gpu)


def test_an_impossible_placement_is_an_invalid_argument(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    profile, placements = smallest(hardware, gpu)
    beyond = port.Placement(start=placements[-1].start + 1, size=placements[-1].size)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.create_gpu_instance(gpu, profile.id, beyond)
    assert code_of(caught) is nvml_errors.Code.INVALID_ARGUMENT


def test_an_occupied_placement_is_refused_and_nothing_changes(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, _ = make(hardware, gpu)
    for profile in hardware.gpu_instance_profiles(gpu):
        for placement in hardware.possible_placements(gpu, profile.id):
            if placement.overlaps(instance.placement):
                with pytest.raises(nvml_errors.CallError) as caught:
                    hardware.create_gpu_instance(gpu, profile.id, placement)
                assert code_of(caught) is nvml_errors.Code.INSUFFICIENT_RESOURCES
    assert list(hardware.gpu_instances(gpu)) == [instance]


def test_a_profile_allows_no_more_instances_than_its_count(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    media = next(profile for profile in hardware.gpu_instance_profiles(gpu) if profile.name.endswith("+me"))
    first, second, *_ = hardware.possible_placements(gpu, media.id)
    hardware.create_gpu_instance(gpu, media.id, first)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.create_gpu_instance(gpu, media.id, second)
    assert media.instances == 1
    assert code_of(caught) is nvml_errors.Code.INSUFFICIENT_RESOURCES


def test_a_compute_instance_is_a_mig_device_with_a_uuid_and_capabilities(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, compute = make(hardware, gpu)
    assert compute.mig_uuid.startswith("MIG-")
    assert list(hardware.compute_instances(gpu, instance.id)) == [compute]
    minors = hardware.capability_minors(gpu, instance.id, compute.id)
    assert minors.gpu_instance != minors.compute_instance


def test_an_instance_with_compute_instances_is_in_use(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, compute = make(hardware, gpu)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.destroy_gpu_instance(gpu, instance.id)
    assert code_of(caught) is nvml_errors.Code.IN_USE
    hardware.destroy_compute_instance(gpu, instance.id, compute.id)
    hardware.destroy_gpu_instance(gpu, instance.id)
    assert not hardware.gpu_instances(gpu)


def test_a_full_instance_takes_no_further_compute_instance(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, compute = make(hardware, gpu)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.create_compute_instance(gpu, instance.id, compute.profile_id)
    assert code_of(caught) is nvml_errors.Code.INSUFFICIENT_RESOURCES


def test_instance_ids_are_reused(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, compute = make(hardware, gpu)
    hardware.destroy_compute_instance(gpu, instance.id, compute.id)
    hardware.destroy_gpu_instance(gpu, instance.id)
    assert make(hardware, gpu) == (instance, compute)


def test_a_destroyed_instance_is_not_found(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, compute = make(hardware, gpu)
    hardware.destroy_compute_instance(gpu, instance.id, compute.id)
    with pytest.raises(nvml_errors.CallError) as second:
        hardware.destroy_compute_instance(gpu, instance.id, compute.id)
    with pytest.raises(nvml_errors.CallError) as capabilities:
        hardware.capability_minors(gpu, instance.id, compute.id)
    hardware.destroy_gpu_instance(gpu, instance.id)
    with pytest.raises(nvml_errors.CallError) as destroyed:
        hardware.destroy_gpu_instance(gpu, instance.id)
    with pytest.raises(nvml_errors.CallError) as listed:
        hardware.compute_instances(gpu, instance.id)
    assert {code_of(call) for call in (second, capabilities, destroyed, listed)} == {nvml_errors.Code.NOT_FOUND}


def test_an_unknown_gpu_is_not_found(hardware: port.GpuPort) -> None:
    stranger = port.GpuUuid("GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(nvml_errors.CallError) as mode:
        hardware.mig_mode(stranger)
    with pytest.raises(nvml_errors.CallError) as listed:
        hardware.gpu_instances(stranger)
    assert code_of(mode) is code_of(listed) is nvml_errors.Code.NOT_FOUND


def test_the_boot_id_and_versions_stay_the_same(hardware: port.GpuPort) -> None:
    assert hardware.boot_id() == hardware.boot_id()
    assert hardware.versions() == hardware.versions()


def test_mig_mode_can_be_changed_while_no_process_uses_the_gpu(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    for enabled in (False, True):
        hardware.set_mig_mode(gpu, enabled=enabled)
        assert hardware.mig_mode(gpu) == port.MigMode(current=enabled, pending=enabled)
    hardware.set_mig_mode(gpu, enabled=True)


def test_profiles_and_placements_are_reported_while_mig_is_off_and_no_instances(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    profiles = hardware.gpu_instance_profiles(gpu)
    placements = [hardware.possible_placements(gpu, profile.id) for profile in profiles]
    hardware.set_mig_mode(gpu, enabled=False)
    assert hardware.gpu_instance_profiles(gpu) == profiles
    assert [hardware.possible_placements(gpu, profile.id) for profile in profiles] == placements
    assert not hardware.gpu_instances(gpu)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.create_gpu_instance(gpu, profiles[0].id, placements[0][0])
    assert code_of(caught) is nvml_errors.Code.NOT_SUPPORTED


def test_mig_mode_stays_on_while_an_instance_exists(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    make(hardware, gpu)
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.set_mig_mode(gpu, enabled=False)
    assert code_of(caught) is nvml_errors.Code.IN_USE
    assert hardware.mig_mode(gpu) == port.MigMode(current=True, pending=True)


def test_a_gpu_without_users_lists_no_process(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    instance, _ = make(hardware, gpu)
    assert list(hardware.running_processes(gpu)) == list(hardware.running_processes(gpu, instance.id)) == []


def test_the_compute_mode_stays_as_it_was_set(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    assert hardware.compute_mode(gpu) is port.ComputeMode.DEFAULT
    for mode in (port.ComputeMode.EXCLUSIVE_PROCESS, port.ComputeMode.PROHIBITED, port.ComputeMode.DEFAULT):
        hardware.set_compute_mode(gpu, mode)
        assert hardware.compute_mode(gpu) is mode


def test_a_gpu_with_mig_on_has_no_time_slice_to_change(hardware: port.GpuPort, gpu: port.GpuUuid) -> None:
    with pytest.raises(nvml_errors.CallError) as caught:
        hardware.set_time_slice(gpu, port.TimeSlice.LONG)
    assert code_of(caught) is nvml_errors.Code.NOT_SUPPORTED
