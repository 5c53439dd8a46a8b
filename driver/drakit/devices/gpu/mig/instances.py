"""Making, finding and removing the instance that fills a slot: the steps that touch hardware, in the order that survives a crash between any two.

A MIG device is a GPU instance with one compute instance that fills it. Both are looked for by listing instances, because one without a compute
instance has no UUID and is in no list of MIG devices. Nothing is destroyed unless its profile and placement match, and, once they are known, its
ids and UUID as well: NVML gives ids out again, and probably UUIDs too.

What a process still uses is asked for again a few times, because a container's last process may be a moment behind its end.
"""

import contextlib
import functools
import logging
from collections.abc import Callable

from drakit.core import errors
from drakit.devices.gpu import identity, port
from drakit.devices.gpu.mig import ownership_markers

Pause = Callable[[float], None]

# Seconds before each further attempt at what is in use; the kubelet tries again after them.
PAUSES = (0.1, 0.2, 0.4, 0.8)

_log = logging.getLogger(__name__)
_GONE = frozenset({port.Code.NOT_FOUND, port.Code.NOT_SUPPORTED})
_LOST = _GONE | {port.Code.GPU_IS_LOST}


def blocking(hardware: port.GpuPort, wanted: identity.Identity) -> tuple[port.GpuInstance, ...]:
    """The instances in the way: those that overlap the slot, or any at all for a whole GPU."""
    found = hardware.gpu_instances(wanted.gpu)
    slot = wanted.slot
    return tuple(item for item in found if slot is None or item.placement.overlaps(slot.placement))


def find(hardware: port.GpuPort, slot: identity.Slot) -> identity.MigDevice | None:
    """The MIG device that fills the slot, or None when there is none or only half of one."""
    instance = _find_instance(hardware, slot)
    if instance is None:
        return None
    compute = _find_compute(hardware, slot, instance)
    return None if compute is None else _mig_device(instance, compute)


def find_static(hardware: port.GpuPort, slot: identity.Slot) -> identity.MigDevice | None:
    """The MIG device that fills the slot alone; None where its GPU instance is empty or shared by several compute instances."""
    with port.ignoring(_GONE):
        made = find(hardware, slot)
        if made is not None and len(hardware.compute_instances(slot.gpu, made.instance_id)) == 1:
            return made
    return None


def ensure(
    hardware: port.GpuPort, slot: identity.Slot, pause: Pause, marker: ownership_markers.Marker = ownership_markers.NO_MARKER
) -> identity.MigDevice:
    """The MIG device that fills the slot, made as far as it is not there.

    Raises DeviceBusyError when something else lies there, also a whole MIG device that has no mark, DeviceGoneError when the GPU or its MIG mode is
    gone, CallError otherwise. When the mark or the compute instance cannot be made, a GPU instance that was made here is removed at once. One that
    was found is left to whoever knows what else it is used for: it may be a device that another claim shares.
    """
    found = _find_instance(hardware, slot)
    if found is not None and _is_foreign(hardware, slot, found, marker):
        raise errors.DeviceBusyError(f"{describe(slot)} is taken by an instance that was not made by this driver")
    instance = found or _create(hardware, slot)
    try:
        marker.write(instance)
        compute = _find_compute(hardware, slot, instance) or _create_compute(hardware, slot, instance)
    except port.CallError as error:
        if found is None:
            _remove_after_error(hardware, slot, error, pause)
        raise
    return _mig_device(instance, compute)


def remove(
    hardware: port.GpuPort,
    slot: identity.Slot,
    known: identity.MigDevice | None,
    pause: Pause,
    marker: ownership_markers.Marker = ownership_markers.NO_MARKER,
) -> None:
    """Destroy what fills the slot, if it is what is known of it (None: it was being made, and its mark is all that is known).

    Whatever is gone already is success, once a second look agrees. Raises DeviceBusyError with the pids while processes still use it, HardwareError
    otherwise.
    """
    instance = _find_present(hardware, slot)
    if instance is None or (known is not None and instance.id != known.instance_id):
        return
    with port.ignoring(_GONE):
        computes = hardware.compute_instances(slot.gpu, instance.id)
        if known is not None and any(item.id == known.compute_id and item.mig_uuid != known.uuid for item in computes):
            return
        if known is None and computes and not marker.matches(instance):
            _log.warning(
                "MIG instance kept: another owner created it", extra={"gpu": slot.gpu, "instance": instance.id, "slot": describe(slot)}
            )
            return
        for compute in computes:
            with port.ignoring(_GONE):
                destroy = functools.partial(hardware.destroy_compute_instance, slot.gpu, instance.id, compute.id)
                _retry_while_in_use(hardware, slot.gpu, destroy, pause, instance)
        destroy = functools.partial(hardware.destroy_gpu_instance, slot.gpu, instance.id)
        _retry_while_in_use(hardware, slot.gpu, destroy, pause, instance)
    if _find_present(hardware, slot) == instance:
        raise errors.HardwareError(port.CALLS["destroy_gpu_instance"], f"{describe(slot)} is still there")


def set_mode(hardware: port.GpuPort, gpu: port.Gpu, *, enabled: bool, pause: Pause) -> None:
    """Turn MIG on or off where that takes no reset; elsewhere, and where the mode is right already, nothing happens.

    Raises DeviceBusyError with the pids while processes keep the GPU from changing.
    """
    if gpu.switches_mig_at_once and not has_mode(hardware, gpu, enabled=enabled):
        _retry_while_in_use(hardware, gpu.uuid, functools.partial(hardware.set_mig_mode, gpu.uuid, enabled=enabled), pause)


def has_mode(hardware: port.GpuPort, gpu: port.Gpu, *, enabled: bool) -> bool:
    """Whether MIG is on, or off, as wanted; a GPU without MIG has it off."""
    mode = hardware.mig_mode(gpu.uuid)
    return (mode is not None and mode.current) == enabled


def describe(slot: identity.Slot) -> str:
    """A slot in words for an error."""
    return f"profile {slot.profile_id} at memory slice {slot.placement.start} of {slot.gpu}"


def _is_foreign(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance, marker: ownership_markers.Marker) -> bool:
    """Whether an instance that fills the slot is not this driver's: it has compute instances, which are made after the mark, and no mark."""
    return not marker.matches(instance) and bool(hardware.compute_instances(slot.gpu, instance.id))


def _find_instance(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance | None:
    return next(filter(slot.is_instance, hardware.gpu_instances(slot.gpu)), None)


def _find_present(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance | None:
    """What fills the slot; nothing does once the GPU or its MIG mode is gone, but one error is not believed to say so.

    A GPU that is lost comes back by a reset or a reboot, and neither leaves it an instance.
    """
    try:
        return _find_instance(hardware, slot)
    except port.CallError as error:
        if error.code in _LOST and not _has_mig(hardware, slot.gpu):
            return None
        raise


def _has_mig(hardware: port.GpuPort, gpu: port.GpuUuid) -> bool:
    if hardware.gpu(gpu) is None:
        return False
    mode = hardware.mig_mode(gpu)
    return mode is not None and mode.current


def _full_profile(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> port.ComputeInstanceProfile:
    """The profile that fills the GPU instance: the most slices, and of those the plain one (lowest enum)."""
    profiles = hardware.compute_instance_profiles(slot.gpu, instance.id)
    return max(profiles, key=lambda item: (item.slices, -item.enum))


def _find_compute(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> port.ComputeInstance | None:
    found = hardware.compute_instances(slot.gpu, instance.id)
    if not found:
        return None
    whole = _full_profile(hardware, slot, instance)
    return next((item for item in found if item.profile_id == whole.id), None)


def _create(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance:
    try:
        created = hardware.create_gpu_instance(slot.gpu, slot.profile_id, slot.placement)
    except port.CallError as error:
        if error.code is port.Code.INSUFFICIENT_RESOURCES:
            raise errors.DeviceBusyError(f"{describe(slot)} is taken: {error}") from error
        if error.code in _GONE:
            raise errors.DeviceGoneError(f"{describe(slot)} cannot be made, the GPU or its MIG mode is gone: {error}") from error
        raise
    if not slot.is_instance(created):
        hardware.destroy_gpu_instance(slot.gpu, created.id)
        raise errors.HardwareError(port.CALLS["create_gpu_instance"], f"made {created} instead of {describe(slot)}")
    return created


def _create_compute(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> port.ComputeInstance:
    return hardware.create_compute_instance(slot.gpu, instance.id, _full_profile(hardware, slot, instance).id)


def _remove_after_error(hardware: port.GpuPort, slot: identity.Slot, cause: port.CallError, pause: Pause) -> None:
    try:
        remove(hardware, slot, None, pause)
    except errors.DrakitError as error:
        cause.add_note(f"and what had been made could not be removed: {error}")


def _mig_device(instance: port.GpuInstance, compute: port.ComputeInstance) -> identity.MigDevice:
    return identity.MigDevice(uuid=compute.mig_uuid, instance_id=instance.id, compute_id=compute.id)


def _retry_while_in_use(
    hardware: port.GpuPort, gpu: port.GpuUuid, act: Callable[[], None], pause: Pause, instance: port.GpuInstance | None = None
) -> None:
    """Act, again after each pause while something is in use."""
    for seconds in PAUSES:
        try:
            return act()
        except port.CallError as error:
            if error.code is not port.Code.IN_USE:
                raise
        pause(seconds)
    try:
        return act()
    except port.CallError as error:
        if error.code is not port.Code.IN_USE:
            raise
        what = gpu if instance is None else describe(identity.Slot(gpu=gpu, profile_id=instance.profile_id, placement=instance.placement))
        raise errors.DeviceBusyError(f"{what} is still in use by {_users(hardware, gpu, instance)}: {error}") from error


def _users(hardware: port.GpuPort, gpu: port.GpuUuid, instance: port.GpuInstance | None) -> str:
    """Who uses an instance, or a GPU, in words; one that NVML does not name may be in a container of its own."""
    with contextlib.suppress(port.CallError):
        pids = hardware.running_processes(gpu, None if instance is None else instance.id)
        if pids:
            return f"processes {', '.join(map(str, pids))}"
    return "a process that NVML does not name"
