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
from drakit_nic.discovery import hardware
from drakit_nic.passthrough import sriov

_log = drakit.get_logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A virtual function with the bus id of its parent, and its former and wanted settings."""

    function: sriov.Function
    parent: str
    former: sriov.Settings
    wanted: sriov.Settings


class VirtualFunctions:
    """The virtual functions of a machine."""

    def __init__(self, machine: port.Port, options: nic_options.NicOptions) -> None:
        self._machine, self._options = machine, options
        self._guaranteeing: frozenset[str] = frozenset()

    def plan(self, interface: port.Interface, chosen: config.NicConfig, *, rate: int) -> Plan | None:
        """Return what a claim with this rate in bits per second sets. None for another interface, or without the parent. Raises HardwareError."""
        parent = hardware.physical_functions(self._machine.interfaces() if _is_function(interface) else ()).get(_parent_of(interface))
        if parent is None or interface.pci is None or interface.pci.function_number is None:
            return None
        function = sriov.Function(parent=parent.name, number=interface.pci.function_number)
        former = self._machine.function(function)
        if former is None:
            return None
        limit = self._options.rule_for(interface).ceil
        ceil = chosen.ceil.value if chosen.ceil else 0
        maximum = max(rate, ceil if limit is None else min(ceil, limit.value))
        return Plan(
            function=function,
            parent=_parent_of(interface),
            former=former,
            wanted=sriov.wanted(former, chosen, min_rate=rate, max_rate=maximum),
        )

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
        try:
            function = self._present(plan, interface)
            if function is None:
                _log.warning("virtual function gone", interface=str(plan.function))
            else:
                self._machine.set_function(function, plan.former)
        except drakit.HardwareError as error:
            present = self._machine.host_state(interface)
            if present is not None:
                self._machine.mark(present, mark)
            raise drakit.ReleaseDeferredError(f"{interface} is on the host without its former settings: {error}") from error

    def _present(self, plan: Plan, interface: str) -> sriov.Function | None:
        """Return the function by the present name of its parent, which an admin may have changed, None if it is gone.

        Raises HardwareError where its interface is here, and its parent has none.
        """
        parent = hardware.physical_functions(self._machine.interfaces()).get(plan.parent)
        if parent is None:
            if self._machine.interface(interface) is not None:
                raise drakit.HardwareError("set_function", f"its physical function {plan.parent} has no interface on this host; return it")
            return None
        function = dataclasses.replace(plan.function, parent=parent.name)
        return None if self._machine.function(function) is None else function

    def guaranteeing(self, interfaces: Iterable[port.Interface]) -> frozenset[str]:
        """Return the bus ids of parents that guarantee their virtual functions a minimum rate, as far as claims have shown since the start.

        Nothing is tried without a claim: a trial beside a claim's own change, or a death in the middle of one, would leave a wrong rate.
        """
        listed, globs = tuple(interfaces), (*self._options.whole, *self._options.vfio)
        offered = {_parent_of(each) for each in listed if _is_function(each) and nic_options.matches(each, globs)}
        parents = hardware.physical_functions(listed)
        self._guaranteeing |= {bus_id for bus_id, parent in parents.items() if bus_id in offered and self._machine.guarantees(parent.name)}
        return self._guaranteeing


def _is_function(interface: port.Interface) -> bool:
    return bool(_parent_of(interface))


def _parent_of(interface: port.Interface) -> str:
    return interface.pci.physical_function if interface.pci else ""
