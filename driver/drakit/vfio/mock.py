"""A mock machine's PCI bus, which binds drivers as the kernel does. Its state is a file that outlives the driver.

A function binds to its driver_override or else to its default driver, and only while that driver is loaded. Unbinding a function whose group is open
blocks for ever in a kernel; here it fails. The state of an earlier boot is ignored, because a kernel would have lost it.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated

from drakit import machines, vfio, wire
from drakit.core import edits, errors

_STATE, _LOCK = "pci.json", "pci.lock"
_MAJOR_GROUP, _MISC = 511, 10
_VFIO_MINOR, _IOMMU_MINOR = 196, 125


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binding:
    """The bound driver of a function and its driver_override."""

    driver: str = ""
    override: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The content of the state file: the functions that changed in a boot, and the groups that a virtual machine has open."""

    boot_id: Annotated[str, wire.Field(name="bootID")]
    functions: Mapping[str, Binding] = dataclasses.field(default_factory=dict)
    opened: tuple[int, ...] = ()


# A roll-back reads what a later version wrote.
_FORMAT = wire.Format(ignore_unknown=True)
_AS_BOOTED = State(boot_id="")


class MockBus:
    """The PCI functions of a mock machine. ``functions`` are those after a boot, each bound to its default driver.

    The kernel has their drivers and vfio-pci, except ``unloaded`` ones. ``in_use`` has the uses of functions by the host, ``with_devices`` the
    functions with an interface or a disk. ``has_iommufd`` is whether the kernel has iommufd. ``after_effect`` is called after each change.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        functions: Sequence[vfio.Function],
        *,
        unloaded: Collection[str] = (),
        in_use: Mapping[str, Sequence[str]] | None = None,
        with_devices: Collection[str] = (),
        has_iommufd: bool = True,
        after_effect: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._file = directory, machines.Mirror(directory / _STATE)
        self._initial = {function.address: function for function in sorted(functions, key=lambda function: function.address)}
        self._drivers = {vfio.DRIVER, *(function.driver for function in functions)} - {"", *unloaded}
        self._in_use, self._with_devices = in_use or {}, with_devices
        self._has_iommufd, self._after_effect = has_iommufd, after_effect
        self.resets: list[str] = []

    def boot_id(self) -> str:
        return machines.boot_id(self._directory)

    def functions(self) -> Sequence[vfio.Function]:
        state = self._read()
        return tuple(self._now(function, state) for function in self._initial.values())

    def function(self, address: str) -> vfio.Function | None:
        return self._now(self._initial[address], self._read()) if address in self._initial else None

    def group(self, number: int) -> Sequence[vfio.Function]:
        return tuple(function for function in self.functions() if function.group == number)

    def has_driver(self, driver: str) -> bool:
        return driver in self._drivers

    def uses(self, address: str) -> Sequence[str]:
        return self._in_use.get(address, ()) if self._is_default(address) else ()

    def has_own_devices(self, address: str) -> bool:
        return address in self._with_devices and self._is_default(address)

    def set_override(self, address: str, driver: str) -> None:
        self._change("driver_override", address, lambda now, _: dataclasses.replace(now, override=driver))

    def unbind(self, address: str) -> None:
        def unbound(now: Binding, state: State) -> Binding:
            if now.driver == vfio.DRIVER and self._initial[address].group in state.opened:
                raise errors.HardwareError("unbind", f"{address} is open, and a kernel would wait for ever")
            return dataclasses.replace(now, driver="")

        self._change("unbind", address, unbound)

    def probe(self, address: str) -> None:
        def probed(now: Binding, _: State) -> Binding:
            driver = now.driver or now.override or self._initial[address].driver
            return dataclasses.replace(now, driver=driver) if driver in self._drivers else now

        self._change("drivers_probe", address, probed)

    def reset(self, address: str) -> None:
        self._change("reset", address, lambda now, _: now)
        self.resets.append(address)

    def is_open(self, number: int) -> bool:
        return number in self._read().opened

    def nodes(self, function: vfio.Function, *, iommufd: bool) -> Sequence[edits.DeviceNode]:
        number = function.group or 0
        if iommufd:
            device = edits.DeviceNode(
                path=f"/dev/vfio/devices/vfio{number}", type="c", major=_MAJOR_GROUP - 1, minor=number, permissions="rw"
            )
            interface = edits.DeviceNode(path="/dev/iommu", type="c", major=_MISC, minor=_IOMMU_MINOR, permissions="rw")
            return (interface, device) if self._has_iommufd else ()
        interface = edits.DeviceNode(path="/dev/vfio/vfio", type="c", major=_MISC, minor=_VFIO_MINOR, permissions="rw")
        return interface, edits.DeviceNode(path=f"/dev/vfio/{number}", type="c", major=_MAJOR_GROUP, minor=number, permissions="rw")

    def open_group(self, number: int, *, is_open: bool = True) -> None:
        """Act as a virtual machine that opens or closes a group."""
        with self._locked("open"):
            state = self._read()
            others = tuple(other for other in state.opened if other != number)
            self._store(dataclasses.replace(state, boot_id=self.boot_id(), opened=(*others, number) if is_open else others))

    def _is_default(self, address: str) -> bool:
        function = self.function(address)
        return function is not None and function.driver == self._initial[address].driver

    def _now(self, function: vfio.Function, state: State) -> vfio.Function:
        binding = state.functions.get(function.address)
        return function if binding is None else dataclasses.replace(function, driver=binding.driver, override=binding.override)

    def _read(self) -> State:
        """Return the state of this boot. Without a state file this costs one ``stat``."""
        try:
            text = self._file.text()
            state = None if text is None else _FORMAT.decode(State, json.loads(text))
        except (OSError, ValueError, errors.ConfigError) as error:
            raise errors.HardwareError("mock", f"{self._directory / _STATE}: {error}") from error
        if state is None:
            return _AS_BOOTED
        return state if state.boot_id == self.boot_id() else _AS_BOOTED

    def _change(self, call: str, address: str, change: Callable[[Binding, State], Binding]) -> None:
        if address not in self._initial:
            raise errors.HardwareError(call, f"there is no PCI function {address}")
        with self._locked(call):
            state = self._read()
            initial = self._initial[address]
            now = state.functions.get(address, Binding(driver=initial.driver, override=initial.override))
            wanted = change(now, state)
            if wanted != now:
                self._store(dataclasses.replace(state, boot_id=self.boot_id(), functions={**state.functions, address: wanted}))
        self._after_effect()

    def _store(self, state: State) -> None:
        machines.rewrite(self._directory / _STATE, json.dumps(_FORMAT.encode(state), indent=1))

    @contextlib.contextmanager
    def _locked(self, call: str) -> Iterator[None]:
        try:
            with machines.locked(self._directory, _LOCK):
                yield
        except OSError as error:
            raise errors.HardwareError(call, f"the mock machine's state: {error}") from error
