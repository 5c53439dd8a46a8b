"""Create, find and delete the GPU instance of a slot: the steps that change hardware, in an order that survives a crash between any two.

A MIG device is a GPU instance with one compute instance that fills it. Both are found by listing instances, because a GPU instance without a
compute instance has no UUID and is in no list of MIG devices. An instance is deleted only if its profile and placement match and, once known, its
ids and UUID: NVML reuses ids, and probably UUIDs.

A marker (see ``markers``) is written before the GPU instance is created, and again with its id before its compute instance is. So an
instance that a crashed prepare may have left, and that has compute instances but no marker with its id, belongs to an admin. The health monitor
removes the marker of an instance that is gone, so one with the same ids that appears afterwards is not taken for it. Markers are not synced to disk:
they outlive the process and need not outlive the boot, because no instance does.

A call on an instance that a process still uses is retried a few times, because the last process of a container may end a moment later.
"""

import contextlib
import functools
from collections.abc import Callable

import drakit
from drakit_gpu import identity, nvml_errors, port
from drakit_gpu.mig import markers

Pause = Callable[[float], None]

# Seconds before each retry of a call on an instance in use; afterwards the kubelet retries.
PAUSES = (0.1, 0.2, 0.4, 0.8)

_log = drakit.get_logger(__name__)
_GONE = frozenset({nvml_errors.Code.NOT_FOUND, nvml_errors.Code.NOT_SUPPORTED})
_LOST = _GONE | {nvml_errors.Code.GPU_IS_LOST}


def blocking(hardware: port.GpuPort, wanted: identity.Identity) -> tuple[port.GpuInstance, ...]:
    """Return the instances in the way: those that overlap the slot, or all for a whole GPU."""
    slot = wanted.slot
    present = hardware.gpu_instances(wanted.gpu)
    return tuple(instance for instance in present if slot is None or instance.placement.overlaps(slot.placement))


def find_instance(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance | None:
    """Return the GPU instance that fills the slot, or None."""
    return next(filter(slot.is_instance, hardware.gpu_instances(slot.gpu, slot.profile_id)), None)


def find(hardware: port.GpuPort, slot: identity.Slot) -> identity.MigDevice | None:
    """Return the MIG device that fills the slot; None when there is none, or only a GPU instance without its compute instance."""
    instance = find_instance(hardware, slot)
    return None if instance is None else mig_device(hardware, slot, instance)


def mig_device(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> identity.MigDevice | None:
    """Return the MIG device of the instance that fills the slot; None without its compute instance. Raises CallError (NOT_FOUND: it is gone)."""
    compute = _find_compute(hardware, slot, instance)
    return None if compute is None else _mig_device(instance, compute)


def find_static(hardware: port.GpuPort, slot: identity.Slot) -> identity.MigDevice | None:
    """Return the MIG device that fills the slot alone; None if its GPU instance has no compute instance or several."""
    with nvml_errors.ignoring(_GONE):
        made = find(hardware, slot)
        if made is not None and len(hardware.compute_instances(slot.gpu, made.instance_id)) == 1:
            return made
    return None


def is_unfinished(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance, marker: markers.Marker) -> bool:
    """Return whether this driver created an instance in this boot that has no compute instance, so that no process can use it. Raises CallError."""
    try:
        return (marker.is_of(instance.id) or marker.is_of(None)) and not hardware.compute_instances(slot.gpu, instance.id)
    except nvml_errors.CallError as error:
        if error.code not in _GONE:
            raise
        return False


def is_marked(hardware: port.GpuPort, slot: identity.Slot, marker: markers.Marker) -> bool:
    """Return whether a marker file names the instance that fills the slot. Raises CallError; a lost GPU has no instance."""
    if marker.file is None:
        return False
    instance = _find_present(hardware, slot)
    return instance is not None and marker.matches(instance)


def ensure(
    hardware: port.GpuPort, slot: identity.Slot, pause: Pause, marker: markers.Marker, *, is_shared: bool = False, is_trusted: bool = False
) -> identity.MigDevice:
    """Return the MIG device of the slot; create what is missing.

    For a shared slot, look for an existing instance first; for any other, only if the slot is occupied. A trusted instance needs no marker: a claim
    that was planned without markers holds it.

    Raises DeviceBusyError when another instance is there, also a complete MIG device without a marker, DeviceGoneError when the GPU or its MIG mode
    is gone, CallError otherwise. When the marker or the compute instance cannot be created, a GPU instance created here is deleted at once. One
    that existed before is kept, because another claim may share it.
    """
    instance = find_instance(hardware, slot) if is_shared else None
    is_new = False
    if instance is None:
        try:
            marker.announce()
            instance, is_new = _create(hardware, slot), True
        except drakit.DeviceBusyError:
            if (instance := find_instance(hardware, slot)) is None:
                raise
    # Drakit creates compute instances after the marker, so an instance with some and without a marker is an admin's.
    if not (is_new or is_trusted or marker.matches(instance)) and hardware.compute_instances(slot.gpu, instance.id):
        raise drakit.DeviceBusyError(f"{describe(slot)} is taken by an instance that was not made by this driver")
    try:
        marker.write(instance)
        compute = None if is_new else _find_compute(hardware, slot, instance)
        compute = compute or hardware.create_compute_instance(slot.gpu, instance.id, _full_profile(hardware, slot, instance).id)
    except nvml_errors.CallError as error:
        if is_new:
            try:
                remove(hardware, slot, None, pause)
            except drakit.DrakitError as failure:
                error.add_note(f"the new GPU instance could not be deleted either: {failure}")
        raise
    return _mig_device(instance, compute)


def remove(
    hardware: port.GpuPort,
    slot: identity.Slot,
    recorded: identity.MigDevice | None,
    pause: Pause,
    marker: markers.Marker = markers.NO_MARKER,
) -> None:
    """Delete the instance that fills the slot, if it is the ``recorded`` one (None: its creation was interrupted) and has its marker.

    Another instance is deleted if the marker names it: a share created it after the recorded one was deleted, and the caller is the last holder.
    An instance that is gone already is success, once a second listing agrees. Raises DeviceBusyError with the pids while processes still use it,
    HardwareError otherwise.
    """
    instance = _find_present(hardware, slot)
    if instance is None:
        return
    if recorded is not None and instance.id != recorded.instance_id:
        if not marker.is_of(instance.id):
            return
        # The recorded one was deleted, and another share, which is gone by now, created this one: nobody else would delete it.
        recorded = None
    with nvml_errors.ignoring(_GONE):
        computes = hardware.compute_instances(slot.gpu, instance.id)
        if recorded is not None and any(compute.id == recorded.compute_id and compute.mig_uuid != recorded.uuid for compute in computes):
            return
        if (recorded is not None or computes) and not marker.matches(instance):
            _log.warning("MIG instance kept: another owner created it", gpu=slot.gpu, instance=instance.id, slot=describe(slot))
            return
        for compute in computes:
            with nvml_errors.ignoring(_GONE):
                destroy = functools.partial(hardware.destroy_compute_instance, slot.gpu, instance.id, compute.id)
                _retry_while_in_use(hardware, slot.gpu, destroy, pause, instance)
        destroy = functools.partial(hardware.destroy_gpu_instance, slot.gpu, instance.id)
        _retry_while_in_use(hardware, slot.gpu, destroy, pause, instance)
    if _find_present(hardware, slot) == instance:
        raise drakit.HardwareError(nvml_errors.CALLS["destroy_gpu_instance"], f"{describe(slot)} still exists")


def set_mode(hardware: port.GpuPort, gpu: port.Gpu, *, enabled: bool, pause: Pause) -> None:
    """Turn MIG on or off where that needs no reset. Elsewhere, and where the mode is right already, do nothing.

    The mode is read before each attempt: another process may have changed it meanwhile and created the first instance, which keeps the GPU in use.
    Raises DeviceBusyError with the pids while processes keep the GPU from changing.
    """

    def change() -> None:
        if not has_mode(hardware, gpu, enabled=enabled):
            hardware.set_mig_mode(gpu.uuid, enabled=enabled)

    if gpu.switches_mig_at_once:
        _retry_while_in_use(hardware, gpu.uuid, change, pause)


def has_mode(hardware: port.GpuPort, gpu: port.Gpu, *, enabled: bool) -> bool:
    """Return whether MIG mode is as given; a GPU without MIG has it off."""
    mode = hardware.mig_mode(gpu.uuid)
    return (mode is not None and mode.current) == enabled


def describe(slot: identity.Slot) -> str:
    """Return the text of a slot for errors and logs."""
    return f"profile {slot.profile_id} at memory slice {slot.placement.start} of {slot.gpu}"


def _find_present(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance | None:
    """Return the instance that fills the slot; None once the GPU or its MIG mode is gone, which a second call has to confirm.

    A lost GPU comes back after a reset or a reboot, and keeps no instance over either.
    """
    try:
        return find_instance(hardware, slot)
    except nvml_errors.CallError as error:
        if error.code not in _LOST:
            raise
        gpu = hardware.gpu(slot.gpu)
        if gpu is not None and has_mode(hardware, gpu, enabled=True):
            raise
        return None


def _full_profile(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> port.ComputeInstanceProfile:
    """Return the profile that fills the GPU instance: the one with most slices, and of those the plain one (lowest enum)."""
    profiles = hardware.compute_instance_profiles(slot.gpu, instance)
    return max(profiles, key=lambda profile: (profile.slices, -profile.enum))


def _find_compute(hardware: port.GpuPort, slot: identity.Slot, instance: port.GpuInstance) -> port.ComputeInstance | None:
    computes = hardware.compute_instances(slot.gpu, instance.id)
    full = _full_profile(hardware, slot, instance) if computes else None
    return next((compute for compute in computes if full is not None and compute.profile_id == full.id), None)


def _create(hardware: port.GpuPort, slot: identity.Slot) -> port.GpuInstance:
    try:
        created = hardware.create_gpu_instance(slot.gpu, slot.profile_id, slot.placement)
    except nvml_errors.CallError as error:
        if error.code is nvml_errors.Code.INSUFFICIENT_RESOURCES:
            raise drakit.DeviceBusyError(f"{describe(slot)} is taken: {error}") from error
        if error.code in _GONE:
            raise drakit.DeviceGoneError(f"{describe(slot)} cannot be created, the GPU or its MIG mode is gone: {error}") from error
        raise
    if not slot.is_instance(created):
        hardware.destroy_gpu_instance(slot.gpu, created.id)
        raise drakit.HardwareError(nvml_errors.CALLS["create_gpu_instance"], f"created {created} instead of {describe(slot)}")
    return created


def _mig_device(instance: port.GpuInstance, compute: port.ComputeInstance) -> identity.MigDevice:
    return identity.MigDevice(uuid=compute.mig_uuid, instance_id=instance.id, compute_id=compute.id)


def _retry_while_in_use(
    hardware: port.GpuPort, gpu: port.GpuUuid, act: Callable[[], None], pause: Pause, instance: port.GpuInstance | None = None
) -> None:
    """Run ``act``; retry after each pause while the instance or GPU is in use."""
    for seconds in (*PAUSES, None):
        try:
            return act()
        except nvml_errors.CallError as error:
            if error.code is not nvml_errors.Code.IN_USE:
                raise
            if seconds is None:
                users, subject = _users(hardware, gpu, instance), str(gpu)
                if instance is not None:
                    subject = describe(identity.Slot.of(gpu, instance))
                raise drakit.DeviceBusyError(f"{subject} is still in use by {users}: {error}") from error
            pause(seconds)
    return None


def _users(hardware: port.GpuPort, gpu: port.GpuUuid, instance: port.GpuInstance | None) -> str:
    """Return the users of an instance or a GPU as text for an error. NVML may not see a process in another PID namespace."""
    with contextlib.suppress(nvml_errors.CallError):
        pids = hardware.running_processes(gpu, None if instance is None else instance.id)
        if pids:
            return f"processes {', '.join(map(str, pids))}"
    return "a process that NVML does not name"
