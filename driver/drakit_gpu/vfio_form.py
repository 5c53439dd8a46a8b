"""The form of a whole GPU for virtual machines: NVIDIA's driver gives up the GPU, and vfio-pci gets it with its IOMMU group.

NVML sees a GPU that is passed no more, so discovery keeps it offered from the intents of claims. NVIDIA's driver waits for ever when a GPU is unbound
that a program has open, so it is locked first, which fails while a program has it open, this process included.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import drakit
from drakit import vfio
from drakit.vfio import leftovers
from drakit_gpu import cdi, config, identity, nvml_errors, port
from drakit_gpu.inventory import attributes

DRIVER = "nvidia"
_DISPLAY_CLASS = 0x03
_VENDOR = "10de"

Grant = drakit.Grant[Any]


class VfioForm:
    """Planning, preparing and unpreparing of GPUs for virtual machines. Claims end also where the form is no longer ``is_offered``."""

    def __init__(self, hardware: port.GpuPort, bus: vfio.Bus, *, is_offered: bool = True, iommufd: bool = False) -> None:
        self._hardware, self._bus, self._iommufd = hardware, bus, iommufd
        self.is_offered = is_offered

    def refusal(self, gpu: port.Gpu) -> vfio.Refusal | None:
        """Return why a GPU cannot be passed now, None if it can. Raises HardwareError."""
        return vfio.refusal(self._bus, gpu.pci_bus_id)

    def not_offered(self, gpus: Iterable[port.Gpu]) -> Iterator[drakit.NotOffered]:
        """Yield the GPUs that are not offered to virtual machines although the setting asks for it. Raises HardwareError."""
        for gpu in gpus if self.is_offered else ():
            refused = None if gpu.is_vgpu else self.refusal(gpu)
            if refused is not None:
                yield drakit.NotOffered(
                    kind="GPU for virtual machines",
                    name=f"gpu-{gpu.minor}",
                    reason=f"({gpu.pci_bus_id}) {refused.reason}",
                    change=refused.change,
                )

    def planned(self, grant: Grant, wanted: identity.Identity) -> identity.Identity:
        """Return the identity of a grant with the plan of the GPU's function.

        Raises ConfigError for a sharing strategy, DeviceBusyError for a GPU that is in use or cannot be passed, DeviceGoneError, HardwareError.
        """
        if isinstance(grant.config, config.GpuConfig) and grant.config.sharing is not None:
            raise drakit.ConfigError("is not for a GPU of a virtual machine, which has it alone; remove it", field="sharing")
        planned = vfio.plan(self._bus, _address_of(grant))
        pids = self._hardware.running_processes(wanted.gpu)
        if pids:
            raise drakit.DeviceBusyError(f"{grant.device.name} is in use by processes {', '.join(map(str, pids))}")
        return dataclasses.replace(wanted, recorded_plan=planned.to_record())

    def recalled(self, grant: Grant, wanted: identity.Identity) -> identity.Identity:
        """Return the identity with the plan as the bus shows it, after the journal was lost. Raises DeviceGoneError, HardwareError."""
        return dataclasses.replace(wanted, recorded_plan=vfio.recall(self._bus, _address_of(grant)).to_record())

    def is_bound(self, planned: vfio.Plan) -> bool:
        """Return whether the GPU of a plan is bound to vfio-pci with its group. Raises HardwareError."""
        return vfio.is_bound(self._bus, planned)

    def prepare(self, grant: Grant, planned: vfio.Plan) -> drakit.Prepared:
        """Bind the GPU to vfio-pci, and return the container's device nodes. Raises DeviceBusyError while a program has it open, HardwareError."""
        if not vfio.is_bound(self._bus, planned):
            self._lock(grant, planned)
            try:
                vfio.bind(self._bus, planned)
            except drakit.DrakitError:
                self._unlock(planned)
                raise
            finally:
                self._hardware.renew()
        name = cdi.variable(grant.request, grant.device.name)
        return drakit.Prepared(
            edits=drakit.Edits(
                env={"NVIDIA_VISIBLE_DEVICES": "void", name: planned.address},
                device_nodes=vfio.nodes(self._bus, planned, iommufd=self._iommufd),
            ),
            record={"uuid": str(grant.device.attributes.get(attributes.UUID))},
        )

    def release(self, planned: vfio.Plan) -> None:
        """Return the GPU to its former driver. Raises DeviceBusyError while a process uses it, HardwareError."""
        vfio.release(self._bus, planned)
        self._unlock(planned)
        self._hardware.renew()

    def unclaimed(self, intents: Callable[[], Iterable[drakit.Record]]) -> Iterator[drakit.Leftover]:
        """Yield the GPUs at vfio-pci that no intent names. Raises HardwareError."""
        return leftovers.find(self._bus, is_gpu, lambda: vfio.plans(intents()), lambda _: ()) if self.is_offered else iter(())

    def reclaim(self, leftover: drakit.Leftover) -> None:
        """Return a GPU to its default driver. Raises DeviceBusyError, HardwareError."""
        leftovers.release(self._bus, leftover)
        self._hardware.renew()

    def _lock(self, grant: Grant, planned: vfio.Plan) -> None:
        function = self._bus.function(planned.address)
        if function is None or function.driver != DRIVER:
            return
        try:
            self._hardware.lock_for_unbinding(planned.address)
        except nvml_errors.CallError as error:
            if error.code is nvml_errors.Code.IN_USE:
                raise drakit.DeviceBusyError(f"{grant.device.name}: {error}") from error
            raise

    def _unlock(self, planned: vfio.Plan) -> None:
        """Unlock a GPU that was locked and not unbound, because a failure or a death came between."""
        function = self._bus.function(planned.address)
        if function is not None and function.driver == DRIVER:
            self._hardware.unlock(planned.address)


def is_gpu(function: vfio.Function) -> bool:
    """Return whether a PCI function is a GPU of NVIDIA."""
    return function.code >> 16 == _DISPLAY_CLASS and function.vendor == _VENDOR


def _address_of(grant: Grant) -> str:
    return str(grant.device.attributes.get("resource.kubernetes.io/pciBusID", ""))
