"""The virtual functions of a mock machine: what their parents hold them to, in a file that outlives the driver.

What was never set is what a fresh function has: the address of its interface, no VLAN, no rates. A reboot forgets, as hardware does.
"""

import json

from drakit.core import errors
from drakit.devices import machines
from drakit.devices.nic import port
from drakit.devices.nic.passthrough import sriov

_STATE = "nic-functions.json"
_LOCK = "nic-functions.lock"


class MockFunctions:
    """Physical functions of the machine of a file."""

    _interfaces: tuple[port.Interface, ...]

    def __init__(self, choice: machines.Choice) -> None:
        self._folder = choice.directory

    def function(self, of: sriov.Function) -> sriov.Settings | None:
        found = self._function_interface(of)
        kept = self._functions().get(_key(of))
        return kept or (None if found is None else sriov.Settings(mac=found.mac))

    def set_function(self, of: sriov.Function, wanted: sriov.Settings) -> None:
        if self._function_interface(of) is None:
            raise errors.HardwareError("set_function", f"{of.parent} has no virtual function {of.number}")
        with machines.locked(self._folder, _LOCK):
            machines.rewrite(self._folder / _STATE, _encode({**self._functions(), _key(of): wanted}, machines.boot_id(self._folder)))

    def _function_interface(self, of: sriov.Function) -> port.Interface | None:
        parents = {item.pci.bus_id for item in self._interfaces if item.name == of.parent and item.pci}
        mine = (item for item in self._interfaces if item.pci and item.pci.physical_function in parents)
        return next((item for item in mine if item.pci and item.pci.function_number == of.number), None)

    def _functions(self) -> dict[str, sriov.Settings]:
        file = self._folder / _STATE
        try:
            document = json.loads(file.read_text("utf-8")) if file.exists() else {}
            if document.get("bootID") != machines.boot_id(self._folder):
                return {}
            found = {key: sriov.from_record(record) for key, record in document["functions"].items()}
        except (OSError, ValueError, AttributeError, KeyError) as error:
            raise errors.HardwareError("function", f"the mock machine's state: {error!r}") from error
        return {key: settings for key, settings in found.items() if settings is not None}


def _key(of: sriov.Function) -> str:
    return f"{of.parent} {of.number}"


def _encode(functions: dict[str, sriov.Settings], boot_id: str) -> str:
    return json.dumps({"bootID": boot_id, "functions": {key: dict(sriov.to_record(settings)) for key, settings in functions.items()}})
