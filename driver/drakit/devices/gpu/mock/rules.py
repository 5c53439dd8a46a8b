"""How MIG hardware behaves, as pure moves from one GPU state to the next: what NVML allows, what it refuses and with which code.

A change of MIG mode takes a GPU that nobody uses. Where someone does, the mode stays pending until the GPU is reset (Ampere), or nothing is
pending (Hopper and newer). It takes the time slice along: guessed, because NVML may reset the GPU for it (nvml.h, nvmlDeviceSetMigMode). Instance ids
are the lowest free ones, so they are reused; the UUID of a MIG device depends on its GPU and ids alone, so it is reused as well.
"""

import dataclasses
import itertools
import uuid
from collections.abc import Iterable

from drakit.devices.gpu import port
from drakit.devices.gpu.mock import machine, state

_FIRST_INSTANCE_ID = 1
_COMPUTE_SLICES = (1, 2, 3, 4, 7)
_TIME_SLICES_FROM = (7, 0)
_GPU_PREFIX = "GPU-"


def create_instance(
    model: machine.Model, gpu: state.GpuState, profile_id: int, placement: port.Placement
) -> tuple[state.GpuState, port.GpuInstance]:
    """Return a new GPU instance without compute instances."""
    call = "create_gpu_instance"
    _check_mig(gpu, call)
    profile, placements = _profile(model, profile_id, call)
    if placement not in placements:
        raise failure(call, port.Code.INVALID_ARGUMENT, f"{profile.name} cannot lie at {placement.start}:{placement.size}")
    present = [item.instance for item in gpu.instances]
    if any(item.placement.overlaps(placement) for item in present):
        raise failure(call, port.Code.INSUFFICIENT_RESOURCES, "the placement is occupied")
    if sum(item.profile_id == profile_id for item in present) >= profile.instances:
        raise failure(call, port.Code.INSUFFICIENT_RESOURCES, f"{profile.instances} of {profile.name} exist")
    created = port.GpuInstance(
        id=_lowest_free((item.id for item in present), _FIRST_INSTANCE_ID), profile_id=profile_id, placement=placement
    )
    return _with_instances(gpu, (*gpu.instances, state.Instance(instance=created))), created


def destroy_instance(gpu: state.GpuState, instance_id: int) -> state.GpuState:
    """Return the GPU without an instance that has no compute instances."""
    call = "destroy_gpu_instance"
    found = find(gpu, instance_id, call)
    if found.computes:
        raise failure(call, port.Code.IN_USE, f"compute instances: {len(found.computes)}")
    _check_unused(gpu, instance_id, call)
    return _with_instances(gpu, tuple(item for item in gpu.instances if item is not found))


def compute_profiles(model: machine.Model, gpu: state.GpuState, instance_id: int, call: str) -> tuple[port.ComputeInstanceProfile, ...]:
    """Return the compute instance profiles of an instance: any number of slices NVML has a profile for, up to its own."""
    found = find(gpu, instance_id, call)
    profile, _ = _profile(model, found.instance.profile_id, call)
    return tuple(
        port.ComputeInstanceProfile(enum=index, id=index, slices=slices)
        for index, slices in enumerate(_COMPUTE_SLICES)
        if slices <= profile.slices
    )


def create_compute(model: machine.Model, gpu: state.GpuState, instance_id: int, profile_id: int) -> tuple[state.GpuState, state.Compute]:
    """Return a new compute instance."""
    call = "create_compute_instance"
    found = find(gpu, instance_id, call)
    slices = {profile.id: profile.slices for profile in compute_profiles(model, gpu, instance_id, call)}
    if profile_id not in slices:
        raise failure(call, port.Code.INVALID_ARGUMENT, f"no compute instance profile {profile_id}")
    taken = sum(slices[item.profile_id] for item in found.computes)
    if taken + slices[profile_id] > _profile(model, found.instance.profile_id, call)[0].slices:
        raise failure(call, port.Code.INSUFFICIENT_RESOURCES, f"{taken} compute slices are taken")
    created = state.Compute(id=_lowest_free((item.id for item in found.computes), 0), profile_id=profile_id)
    return _with_computes(gpu, found, (*found.computes, created)), created


def destroy_compute(gpu: state.GpuState, instance_id: int, compute_id: int) -> state.GpuState:
    """Return the GPU without a compute instance."""
    call = "destroy_compute_instance"
    found = find(gpu, instance_id, call)
    find_compute(found, compute_id, call)
    _check_unused(gpu, instance_id, call)
    return _with_computes(gpu, found, tuple(item for item in found.computes if item.id != compute_id))


def set_mode(board: machine.Board, gpu: state.GpuState, *, enabled: bool) -> tuple[state.GpuState, port.CallError | None]:
    """Return the GPU with MIG on or off, and the error of a change that is only pending; refused while instances exist, as NVML does."""
    call = "set_mig_mode"
    if not board.model.profiles:
        raise failure(call, port.Code.NOT_SUPPORTED)
    if gpu.instances and not enabled:
        raise failure(call, port.Code.IN_USE, f"GPU instances: {len(gpu.instances)}")
    if enabled == gpu.mig_mode:
        return dataclasses.replace(gpu, pending_mode=None), None
    if not gpu.clients:
        return dataclasses.replace(gpu, mig_mode=enabled, pending_mode=None, time_slice=port.TimeSlice.DEFAULT), None
    used = failure(call, port.Code.IN_USE, f"clients: {len(gpu.clients)}")
    if board.gpu.switches_mig_at_once:
        return gpu, used
    return dataclasses.replace(gpu, pending_mode=enabled), used


def set_time_slice(board: machine.Board, gpu: state.GpuState, interval: port.TimeSlice) -> state.GpuState:
    """Return the GPU with another time slice; a GPU older than Volta, or with MIG on, has none to change."""
    if gpu.mig_mode or board.model.compute_capability < _TIME_SLICES_FROM:
        raise failure("set_time_slice", port.Code.NOT_SUPPORTED)
    return dataclasses.replace(gpu, time_slice=interval)


def find(gpu: state.GpuState, instance_id: int, call: str) -> state.Instance:
    """Return the instance of an id, or NOT_FOUND."""
    _check_mig(gpu, call)
    found = next((item for item in gpu.instances if item.instance.id == instance_id), None)
    if found is None:
        raise failure(call, port.Code.NOT_FOUND, f"GPU instance {instance_id}")
    return found


def find_compute(instance: state.Instance, compute_id: int, call: str) -> state.Compute:
    """Return the compute instance of an id, or NOT_FOUND."""
    found = next((item for item in instance.computes if item.id == compute_id), None)
    if found is None:
        raise failure(call, port.Code.NOT_FOUND, f"compute instance {compute_id}")
    return found


def mig_uuid(gpu: port.GpuUuid, instance_id: int, compute_id: int) -> str:
    """Return the UUID of a MIG device; name-based, as those seen on hardware."""
    return f"MIG-{uuid.uuid5(uuid.UUID(gpu.removeprefix(_GPU_PREFIX)), f'{instance_id}/{compute_id}')}"


def failure(call: str, code: port.Code, detail: str = "") -> port.CallError:
    """Return the error of a port method, under the name of its NVML call."""
    return port.CallError(port.CALLS.get(call, call), code, detail)


def _check_unused(gpu: state.GpuState, instance_id: int, call: str) -> None:
    users = [item.pid for item in gpu.clients if item.instance_id == instance_id]
    if users:
        raise failure(call, port.Code.IN_USE, f"clients: {len(users)}")


def _check_mig(gpu: state.GpuState, call: str) -> None:
    if not gpu.mig_mode:
        raise failure(call, port.Code.NOT_SUPPORTED, "MIG mode is off")


def _profile(model: machine.Model, profile_id: int, call: str) -> tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]:
    if profile_id not in model.profiles:
        raise failure(call, port.Code.INVALID_ARGUMENT, f"no GPU instance profile {profile_id}")
    return model.profiles[profile_id]


def _lowest_free(taken: Iterable[int], first: int) -> int:
    used = set(taken)
    return next(number for number in itertools.count(first) if number not in used)


def _with_instances(gpu: state.GpuState, instances: tuple[state.Instance, ...]) -> state.GpuState:
    return dataclasses.replace(gpu, instances=tuple(sorted(instances, key=lambda item: item.instance.placement)))


def _with_computes(gpu: state.GpuState, changed: state.Instance, computes: tuple[state.Compute, ...]) -> state.GpuState:
    after = dataclasses.replace(changed, computes=computes)
    return dataclasses.replace(gpu, instances=tuple(after if item is changed else item for item in gpu.instances))
