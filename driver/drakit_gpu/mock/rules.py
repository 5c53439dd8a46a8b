"""The rules of MIG hardware as pure functions from one GPU state to the next: what NVML allows, and the codes of its errors.

MIG mode can only change while no process uses the GPU. Otherwise the new mode stays pending until the GPU is reset (Ampere), or the change fails
(Hopper and newer). A change also clears the time slice: guessed, because NVML may reset the GPU for it (nvml.h, nvmlDeviceSetMigMode). Instance ids
are the lowest free ones, so they are reused. The UUID of a MIG device depends only on its GPU and ids, so it is reused as well.
"""

import dataclasses
import itertools
import uuid
from collections.abc import Iterable

from drakit_gpu import nvml_errors, port
from drakit_gpu.mock import machine, state

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
        raise failure(call, nvml_errors.Code.INVALID_ARGUMENT, f"{profile.name} cannot be placed at {placement.start}:{placement.size}")
    present = [instance.instance for instance in gpu.instances]
    if any(instance.placement.overlaps(placement) for instance in present):
        raise failure(call, nvml_errors.Code.INSUFFICIENT_RESOURCES, "the placement is occupied")
    if sum(instance.profile_id == profile_id for instance in present) >= profile.instances:
        raise failure(call, nvml_errors.Code.INSUFFICIENT_RESOURCES, f"{profile.instances} of {profile.name} exist")
    number = _lowest_free((instance.id for instance in present), _FIRST_INSTANCE_ID)
    created = state.Instance(id=number, profile_id=profile_id, start=placement.start, size=placement.size, computes=())
    return _with_instances(gpu, (*gpu.instances, created)), created.instance


def destroy_instance(gpu: state.GpuState, instance_id: int) -> state.GpuState:
    """Return the GPU without an instance that has no compute instances."""
    call = "destroy_gpu_instance"
    instance = find(gpu, instance_id, call)
    if instance.computes:
        raise failure(call, nvml_errors.Code.IN_USE, f"compute instances: {len(instance.computes)}")
    _check_unused(gpu, instance_id, call)
    return _with_instances(gpu, tuple(other for other in gpu.instances if other is not instance))


def compute_profiles(model: machine.Model, gpu: state.GpuState, instance_id: int, call: str) -> tuple[port.ComputeInstanceProfile, ...]:
    """Return the compute instance profiles of an instance: any number of slices NVML has a profile for, up to its own."""
    instance = find(gpu, instance_id, call)
    profile, _ = _profile(model, instance.profile_id, call)
    return tuple(
        port.ComputeInstanceProfile(enum=index, id=index, slices=slices)
        for index, slices in enumerate(_COMPUTE_SLICES)
        if slices <= profile.slices
    )


def create_compute(model: machine.Model, gpu: state.GpuState, instance_id: int, profile_id: int) -> tuple[state.GpuState, state.Compute]:
    """Return a new compute instance."""
    call = "create_compute_instance"
    instance = find(gpu, instance_id, call)
    slices = {profile.id: profile.slices for profile in compute_profiles(model, gpu, instance_id, call)}
    if profile_id not in slices:
        raise failure(call, nvml_errors.Code.INVALID_ARGUMENT, f"no compute instance profile {profile_id}")
    taken = sum(slices[compute.profile_id] for compute in instance.computes)
    if taken + slices[profile_id] > _profile(model, instance.profile_id, call)[0].slices:
        raise failure(call, nvml_errors.Code.INSUFFICIENT_RESOURCES, f"{taken} compute slices are taken")
    created = state.Compute(id=_lowest_free((compute.id for compute in instance.computes), 0), profile_id=profile_id)
    return _with_computes(gpu, instance, (*instance.computes, created)), created


def destroy_compute(gpu: state.GpuState, instance_id: int, compute_id: int) -> state.GpuState:
    """Return the GPU without a compute instance."""
    call = "destroy_compute_instance"
    instance = find(gpu, instance_id, call)
    find_compute(instance, compute_id, call)
    _check_unused(gpu, instance_id, call)
    return _with_computes(gpu, instance, tuple(compute for compute in instance.computes if compute.id != compute_id))


def set_mode(board: machine.Board, gpu: state.GpuState, *, enabled: bool) -> tuple[state.GpuState, nvml_errors.CallError | None]:
    """Return the GPU with MIG on or off, and the error of a change that is only pending. Raises CallError while instances exist."""
    call = "set_mig_mode"
    if not board.model.profiles:
        raise failure(call, nvml_errors.Code.NOT_SUPPORTED)
    if gpu.instances and not enabled:
        raise failure(call, nvml_errors.Code.IN_USE, f"GPU instances: {len(gpu.instances)}")
    if enabled == gpu.mig_mode:
        return dataclasses.replace(gpu, pending_mode=None), None
    if not gpu.clients:
        return dataclasses.replace(gpu, mig_mode=enabled, pending_mode=None, time_slice=port.TimeSlice.DEFAULT), None
    used = failure(call, nvml_errors.Code.IN_USE, f"clients: {len(gpu.clients)}")
    if board.gpu.switches_mig_at_once:
        return gpu, used
    return dataclasses.replace(gpu, pending_mode=enabled), used


def set_time_slice(board: machine.Board, gpu: state.GpuState, interval: port.TimeSlice) -> state.GpuState:
    """Return the GPU with another time slice. Raises CallError for a GPU older than Volta, or with MIG on."""
    if gpu.mig_mode or board.model.compute_capability < _TIME_SLICES_FROM:
        raise failure("set_time_slice", nvml_errors.Code.NOT_SUPPORTED)
    return dataclasses.replace(gpu, time_slice=interval)


def find(gpu: state.GpuState, instance_id: int, call: str) -> state.Instance:
    """Return the instance of an id. Raises CallError (NOT_FOUND)."""
    _check_mig(gpu, call)
    instance = next((other for other in gpu.instances if other.id == instance_id), None)
    if instance is None:
        raise failure(call, nvml_errors.Code.NOT_FOUND, f"GPU instance {instance_id}")
    return instance


def find_compute(instance: state.Instance, compute_id: int, call: str) -> state.Compute:
    """Return the compute instance of an id. Raises CallError (NOT_FOUND)."""
    present = next((compute for compute in instance.computes if compute.id == compute_id), None)
    if present is None:
        raise failure(call, nvml_errors.Code.NOT_FOUND, f"compute instance {compute_id}")
    return present


def mig_uuid(gpu: port.GpuUuid, instance_id: int, compute_id: int) -> str:
    """Return the UUID of a MIG device; name-based, as on hardware."""
    return f"MIG-{uuid.uuid5(uuid.UUID(gpu.removeprefix(_GPU_PREFIX)), f'{instance_id}/{compute_id}')}"


def failure(call: str, code: nvml_errors.Code, detail: str = "") -> nvml_errors.CallError:
    """Return the error of a port method, under the name of its NVML call."""
    return nvml_errors.CallError(nvml_errors.CALLS.get(call, call), code, detail)


def _check_unused(gpu: state.GpuState, instance_id: int, call: str) -> None:
    users = [client.pid for client in gpu.clients if client.instance_id == instance_id]
    if users:
        raise failure(call, nvml_errors.Code.IN_USE, f"clients: {len(users)}")


def _check_mig(gpu: state.GpuState, call: str) -> None:
    if not gpu.mig_mode:
        raise failure(call, nvml_errors.Code.NOT_SUPPORTED, "MIG mode is off")


def _profile(model: machine.Model, profile_id: int, call: str) -> tuple[port.GpuInstanceProfile, tuple[port.Placement, ...]]:
    if profile_id not in model.profiles:
        raise failure(call, nvml_errors.Code.INVALID_ARGUMENT, f"no GPU instance profile {profile_id}")
    return model.profiles[profile_id]


def _lowest_free(taken: Iterable[int], first: int) -> int:
    used = set(taken)
    return next(number for number in itertools.count(first) if number not in used)


def _with_instances(gpu: state.GpuState, instances: tuple[state.Instance, ...]) -> state.GpuState:
    return dataclasses.replace(gpu, instances=tuple(sorted(instances, key=lambda present: present.instance.placement)))


def _with_computes(gpu: state.GpuState, changed: state.Instance, computes: tuple[state.Compute, ...]) -> state.GpuState:
    after = dataclasses.replace(changed, computes=computes)
    return dataclasses.replace(gpu, instances=tuple(after if instance is changed else instance for instance in gpu.instances))
