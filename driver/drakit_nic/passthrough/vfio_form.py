"""The form of a NIC or virtual function for virtual machines: the host gives up its interface, and vfio-pci gets the PCI function.

The intent is that of a whole interface, with the plan of the PCI function and its IOMMU group. ``prepare`` sets a virtual function by its parent, and
binds the group to vfio-pci, which deletes the interface. ``unprepare`` binds the former driver, whose interface then gets its state on the host back,
as one that returns from a pod. The interface stays offered meanwhile (``whole_interface.away``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import drakit
from drakit import vfio
from drakit.vfio import leftovers
from drakit_nic import config, port
from drakit_nic import options as nic_options
from drakit_nic import share as shares
from drakit_nic.discovery import attributes, device_names
from drakit_nic.passthrough import whole_interface

_NETWORK_CLASS = 0x02

Grant = drakit.Grant[Any]


class VfioForm:
    """Planning, preparing and unpreparing of NICs for virtual machines."""

    def __init__(self, machine: port.Port, bus: vfio.Bus, whole: whole_interface.Whole, options: nic_options.NicOptions) -> None:
        self._machine, self._bus, self._whole, self._options = machine, bus, whole, options

    def passed(self, interfaces: Iterable[port.Interface]) -> Mapping[str, vfio.Refusal | None]:
        """Return the hardware that matches nic.vfio by bus id, with the reason why one cannot be passed. Raises HardwareError."""
        globs = self._options.vfio
        matching = (interface for interface in interfaces if globs and not interface.is_virtual and nic_options.matches(interface, globs))
        return {interface.pci.bus_id: vfio.refusal(self._bus, interface.pci.bus_id) for interface in matching if interface.pci}

    def plan(self, grant: Grant, find: Callable[[drakit.Device], port.Interface]) -> drakit.Record:
        """Return the intent. ``find`` returns the interface of a device.

        Raises ConfigError, DeviceBusyError for a function that must stay with the host, DeviceGoneError, HardwareError.
        """
        planned = vfio.plan(self._bus, _address_of(grant.device))
        interface = find(grant.device)
        config.check_passed(config.of(grant), is_function=bool(interface.pci and interface.pci.physical_function))
        return {**self._whole.plan(grant, interface), vfio.KEY: planned.to_record()}

    def prepare(self, grant: Grant) -> drakit.Prepared:
        """Bind the function to vfio-pci, and return the container's device nodes.

        For a prepared grant whose function is gone, or that is of an earlier boot, the record is empty.
        """
        planned, whole = self._plan_of(grant), whole_interface.intent_of(grant.intent)
        is_lost = planned.boot != self._bus.boot_id() or self._bus.function(planned.address) is None
        if is_lost and grant.record:
            return drakit.Prepared()
        if not vfio.is_bound(self._bus, planned) and whole is not None and whole.virtual is not None:
            self._machine.set_function(whole.virtual.function, whole.virtual.wanted)
        vfio.bind(self._bus, planned)
        return drakit.Prepared(
            edits=drakit.Edits(
                env=_env_of(grant, planned, whole),
                device_nodes=vfio.nodes(self._bus, planned, iommufd=self._options.vfio_nodes == "iommufd"),
            ),
            record={vfio.KEY: planned.to_record()},
        )

    def unprepare(self, grant: Grant) -> None:
        """Return the function to its former driver, and restore its interface. Raises DeviceBusyError while a process uses it, HardwareError."""
        try:
            planned = self._plan_of(grant)
        except drakit.DeviceGoneError:
            return
        if planned.boot != self._bus.boot_id():
            return
        vfio.release(self._bus, planned)
        function = self._bus.function(planned.address)
        if function is not None and function.driver:
            self._whole.unprepare(grant)

    def unclaimed(self, intents: Callable[[], Iterable[drakit.Record]]) -> Iterator[drakit.Leftover]:
        """Yield the NICs at vfio-pci that no intent names, where any may be passed. Raises HardwareError."""
        if self._options.vfio:
            yield from leftovers.find(
                self._bus, is_nic, lambda: vfio.plans(intents()), lambda function: (device_names.of_function(function.address),)
            )

    def reclaim(self, leftover: drakit.Leftover) -> None:
        """Return a NIC to its default driver. Raises DeviceBusyError, HardwareError."""
        leftovers.release(self._bus, leftover)

    def _plan_of(self, grant: Grant) -> vfio.Plan:
        """Return the plan of a grant. Without a journal it is what the bus shows. Raises DeviceGoneError, HardwareError."""
        return next(vfio.plans((grant.intent, grant.record)), None) or vfio.recall(self._bus, _address_of(grant.device))


def is_nic(function: vfio.Function) -> bool:
    """Return whether a PCI function is a network controller."""
    return function.code >> 16 == _NETWORK_CLASS


def _address_of(device: drakit.Device) -> str:
    return str(device.attributes.get(attributes.PCI_ADDRESS, ""))


def _env_of(grant: Grant, planned: vfio.Plan, whole: whole_interface.Intent | None) -> Mapping[str, str]:
    facts = {"DEVICE": grant.device.name, "PCI": planned.address}
    if whole is not None and whole.virtual is not None:
        facts |= {"BANDWIDTH": str(shares.bandwidth(grant.device, grant.consumed_capacity, "")), "MAC": whole.virtual.wanted.mac}
    return shares.variables(grant.request, shares.id_on_node(grant.claim, grant.device, grant.share_id), facts)
