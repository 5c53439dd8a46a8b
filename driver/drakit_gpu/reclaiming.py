"""MIG instances and MPS daemons that no claim of the journal has, and their release.

The hardware stores no owner of a MIG instance. The marker of a slot proves that drakit created the instance in it (see ``mig.instances``). It is in
the driver's folder and is lost with it. Any other instance without a claim may be an admin's.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import drakit
from drakit_gpu import identity, nvml_errors, port
from drakit_gpu.inventory import gpu_devices
from drakit_gpu.mig import instances, markers, partitioning
from drakit_gpu.sharing.mps import daemon_folder, pod_daemons

INSTANCE, DAEMON = "MIG instance", "MPS daemon"
_NAME = re.compile(r"gpu-(\d+)/gi-(\d+)")


class Unclaimed:
    """Finds and releases what no intent names."""

    def __init__(
        self,
        hardware: port.GpuPort,
        intents: drakit.Intents,
        *,
        markers: markers.MarkerStore,
        daemons: pod_daemons.PodDaemons,
        pause: Callable[[float], None],
    ) -> None:
        self._hardware, self._intents = hardware, intents
        self._markers, self._daemons, self._pause = markers, daemons, pause

    def find(self) -> Sequence[drakit.Leftover]:
        """Return all leftovers. A GPU that does not answer has none. Raises HardwareError."""
        boot = self._hardware.boot_id()
        before = tuple(self._intents())
        present = [(gpu, instance) for gpu in self._hardware.census().gpus for instance in self._instances(gpu)]
        daemons = self._daemons.running()
        known = (*before, *self._intents())
        # A borrowed slot is an admin's device that a claim uses.
        claimed = {grant.slot for grant in identity.from_intents(known, boot)}
        unclaimed = [(gpu, instance) for gpu, instance in present if identity.Slot.of(gpu.uuid, instance) not in claimed]
        found = [leftover for gpu, instance in unclaimed if (leftover := self._leftover(boot, gpu, instance)) is not None]
        kept = {daemon_folder.name_of(holder) for holder in identity.holders(known)}
        return [*found, *(drakit.Leftover(kind=DAEMON, name=name) for name in daemons if name not in kept)]

    def release(self, leftover: drakit.Leftover) -> None:
        """Release a leftover; one that is gone is ignored. Raises HardwareError, DeviceBusyError while processes use it."""
        if leftover.kind == DAEMON:
            self._daemons.end_folder(leftover.name)
            return
        match = _NAME.fullmatch(leftover.name)
        for gpu in self._hardware.census().gpus if match else ():
            for instance in self._instances(gpu) if match and gpu.minor == int(match[1]) else ():
                if match and instance.id == int(match[2]):
                    instances.remove(self._hardware, identity.Slot.of(gpu.uuid, instance), None, self._pause)
                    self._marker(self._hardware.boot_id(), gpu, instance).remove()

    def _instances(self, gpu: port.Gpu) -> Iterable[port.GpuInstance]:
        try:
            mode = None if gpu.is_vgpu else self._hardware.mig_mode(gpu.uuid)
            return self._hardware.gpu_instances(gpu.uuid) if mode is not None and mode.current else ()
        except nvml_errors.CallError:
            return ()  # Discovery reports a GPU that does not answer.

    def _marker(self, boot: str, gpu: port.Gpu, instance: port.GpuInstance) -> markers.Marker:
        return self._markers.of(identity.Identity(boot=boot, gpu=gpu.uuid, slot=identity.Slot.of(gpu.uuid, instance), marked=True))

    def _leftover(self, boot: str, gpu: port.Gpu, instance: port.GpuInstance) -> drakit.Leftover | None:
        """Return an instance as a leftover; None if it is gone by now. What else cannot be read is left out, and never counts as unused."""
        marker, slot = self._marker(boot, gpu, instance), identity.Slot.of(gpu.uuid, instance)
        devices, pids = "", ""
        try:
            devices = ", ".join(compute.mig_uuid for compute in self._hardware.compute_instances(gpu.uuid, instance.id))
            pids = ", ".join(map(str, self._hardware.running_processes(gpu.uuid, instance.id)))
        except nvml_errors.CallError as error:
            if error.code is nvml_errors.Code.NOT_FOUND:
                return None
            pids = f"that could not be listed ({error})"
        try:
            locks = self._locks(gpu, instance)
        except nvml_errors.CallError:
            return None  # Without the locks of its device, a prepare could complete it while it is released.
        return drakit.Leftover(
            kind=INSTANCE,
            name=f"gpu-{gpu.minor}/gi-{instance.id}",
            detail=f"{instances.describe(slot)}{f', {devices}' if devices else ''}",
            locks=locks,
            is_marked=marker.is_of(instance.id) or instances.is_unfinished(self._hardware, slot, instance, marker),
            user=f"processes {pids}" if pids else "",
        )

    def _locks(self, gpu: port.Gpu, instance: port.GpuInstance) -> tuple[str, ...]:
        """Return the locks of the GPU, and those of the partition in this place, which may draw no counters of the GPU. Raises CallError."""
        profiles = (profile for profile in self._hardware.gpu_instance_profiles(gpu.uuid) if profile.id == instance.profile_id)
        parts = (partitioning.Partition(profile=profile, placement=instance.placement) for profile in profiles)
        names = [gpu_devices.whole_name(gpu), *(gpu_devices.partition_name(gpu, part) for part in parts)]
        return tuple(lock for name in names for lock in gpu_devices.locks_of(name))
