"""The virtual functions of claims: what a claim sets on one by its parent, and how it is restored.

A parent that has set an address on a virtual function may refuse every change by the function itself, and some drivers (igbvf) then read the address
only when the interface goes up. So to restore it, the parent first takes its address back (``release``), then the interface gets its own one, and
the parent sets its former address only if it still differs (``restore``).
"""

import contextlib
import dataclasses
from collections.abc import Iterable

import drakit
from drakit_nic import config, port
from drakit_nic import options as nic_options
from drakit_nic.passthrough import sriov

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A virtual function with its former and wanted settings."""

    function: sriov.Function
    former: sriov.Settings
    wanted: sriov.Settings


class VirtualFunctions:
    """The virtual functions of a machine."""

    def __init__(self, machine: port.Port, options: nic_options.NicOptions) -> None:
        self._machine, self._options = machine, options

    def plan(self, interface: port.Interface, chosen: config.NicConfig, *, rate: int) -> Plan | None:
        """Return what a claim with this rate in bits per second sets. None for another interface, or without the parent. Raises HardwareError."""
        parent = _parents(self._machine.interfaces() if _is_function(interface) else ()).get(_parent_of(interface), "")
        if not parent or interface.pci is None or interface.pci.function_number is None:
            return None
        function = sriov.Function(parent=parent, number=interface.pci.function_number)
        former = self._machine.function(function)
        if former is None:
            return None
        limit = self._options.rule_for(interface).ceil
        ceil = chosen.ceil.value if chosen.ceil else 0
        maximum = max(rate, ceil if limit is None else min(ceil, limit.value))
        minimum = rate if self._machine.takes_min_rate(parent) else 0
        return Plan(function=function, former=former, wanted=sriov.wanted(former, chosen, min_rate=minimum, max_rate=maximum))

    def release(self, plan: Plan) -> None:
        """Take back the address that the parent has set for a claim, so that the interface can get its own. A driver may refuse that."""
        present = self._machine.function(plan.function)
        if present is not None and plan.wanted.mac != plan.former.mac and present.mac == plan.wanted.mac:
            with contextlib.suppress(drakit.HardwareError):
                self._machine.set_function(plan.function, dataclasses.replace(present, mac=sriov.NULL_MAC))

    def restore(self, plan: Plan, *, interface: str, mark: str) -> None:
        """Restore the former settings of a function whose interface is back on the host. Raises HardwareError, ReleaseDeferredError.

        A function that is gone, as after a change of sriov_numvfs, is ignored. A parent may refuse the settings for now, as some do without a link.
        Then the mark of the claim keeps others from recording its settings as the former ones.
        """
        if self._machine.function(plan.function) is None:
            _log.warning("virtual function gone", interface=str(plan.function))
            return
        try:
            self._machine.set_function(plan.function, plan.former)
        except drakit.HardwareError as error:
            present = self._machine.host_state(interface)
            if present is not None:
                self._machine.mark(present, mark)
            raise drakit.ReleaseDeferredError(f"{interface} is on the host without its former settings: {error}") from error

    def guaranteeing(self, interfaces: Iterable[port.Interface]) -> frozenset[str]:
        """Return the bus ids of parents whose driver takes a minimum rate, of virtual functions that are offered in an exclusive form."""
        listed, globs = tuple(interfaces), (*self._options.whole, *self._options.vfio)
        offered = {_parent_of(each) for each in listed if _is_function(each) and nic_options.matches(each, globs)}
        return frozenset(bus_id for bus_id, name in _parents(listed).items() if bus_id in offered and self._takes_min_rate(name))

    def _takes_min_rate(self, parent: str) -> bool:
        try:
            return self._machine.takes_min_rate(parent)
        except drakit.HardwareError as error:
            _log.warning("minimum rate not tried", interface=parent, error=str(error))
            return False


def _is_function(interface: port.Interface) -> bool:
    return bool(_parent_of(interface))


def _parent_of(interface: port.Interface) -> str:
    return interface.pci.physical_function if interface.pci else ""


def _parents(interfaces: Iterable[port.Interface]) -> dict[str, str]:
    """Return the names of hardware by bus id."""
    return {interface.pci.bus_id: interface.name for interface in interfaces if interface.pci and not _is_function(interface)}
