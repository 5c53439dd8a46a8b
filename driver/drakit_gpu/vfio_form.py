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

    def plan(self, grant: Grant) -> drakit.Record:
        """Return the plan of the GPU's function, for the intent.

        Raises ConfigError for a sharing strategy, DeviceBusyError for a GPU that is in use or cannot be passed, DeviceGoneError, HardwareError.
        """
        if isinstance(grant.config, config.GpuConfig) and grant.config.sharing is not None:
            raise drakit.ConfigError("is not for a GPU of a virtual machine, which has it alone; remove it", field="sharing")
        planned = vfio.plan(self._bus, _address_of(grant))
        pids = self._hardware.running_processes(identity.Identity.of(grant, boot=planned.boot).gpu)
        if pids:
            raise drakit.DeviceBusyError(f"{grant.device.name} is in use by processes {', '.join(map(str, pids))}")
        return planned.to_record()

    def recall(self, grant: Grant) -> drakit.Record:
        """Return the plan as the bus shows it, after the journal was lost. Raises DeviceGoneError, HardwareError."""
        return vfio.recall(self._bus, _address_of(grant)).to_record()

    def is_bound(self, wanted: identity.Identity) -> bool:
        """Return whether the GPU of an intent is bound to vfio-pci with its group. Raises HardwareError."""
        return vfio.is_bound(self._bus, _plan_of(wanted))

    def prepare(self, grant: Grant, wanted: identity.Identity) -> drakit.Prepared:
        """Bind the GPU to vfio-pci, and return the container's device nodes. Raises DeviceBusyError while a program has it open, HardwareError."""
        planned = _plan_of(wanted)
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
            record={"uuid": wanted.gpu},
        )

    def release(self, wanted: identity.Identity) -> None:
        """Return the GPU to its former driver. Raises DeviceBusyError while a process uses it, HardwareError."""
        planned = _plan_of(wanted)
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


def required(passing: VfioForm | None) -> VfioForm:
    """Return the form. Raises HardwareError where the driver has none."""
    if passing is None:
        raise drakit.HardwareError("vfio", "this driver passes no GPUs to virtual machines")
    return passing


def refusal_of(passing: VfioForm | None) -> Callable[[port.Gpu], vfio.Refusal | None] | None:
    """Return the check of whether a GPU can be passed, None where none is offered."""
    return passing.refusal if passing is not None and passing.is_offered else None


def planned(passing: VfioForm | None, grant: Grant, wanted: identity.Identity) -> identity.Identity:
    """Return the identity of a grant, with the plan of the GPU's function where a virtual machine gets it. Raises as ``VfioForm.plan``."""
    if not identity.is_vfio(grant.device) or wanted.borrowed:
        return wanted
    return dataclasses.replace(wanted, vfio=required(passing).plan(grant))


def not_offered(passing: VfioForm | None, gpus: Iterable[port.Gpu]) -> Iterator[drakit.NotOffered]:
    """Yield the GPUs that are not offered to virtual machines although the setting asks for it. Raises HardwareError."""
    for gpu in gpus if passing is not None and passing.is_offered else ():
        refused = passing.refusal(gpu) if passing is not None and not gpu.is_vgpu else None
        if refused is not None:
            yield drakit.NotOffered(
                kind="GPU for virtual machines",
                name=f"gpu-{gpu.minor}",
                reason=f"({gpu.pci_bus_id}) {refused.reason}",
                change=refused.change,
            )


def is_gpu(function: vfio.Function) -> bool:
    """Return whether a PCI function is a GPU of NVIDIA."""
    return function.code >> 16 == _DISPLAY_CLASS and function.vendor == _VENDOR


def _address_of(grant: Grant) -> str:
    return str(grant.device.attributes.get("resource.kubernetes.io/pciBusID", ""))


def _plan_of(wanted: identity.Identity) -> vfio.Plan:
    planned = vfio.Plan.from_record(wanted.vfio)
    if planned is None:
        raise drakit.JournalError("the journal's record of the device lacks the plan of its PCI function")
    return planned
