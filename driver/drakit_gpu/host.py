"""The kernel's files about the GPUs: boot id, device numbers, capabilities and PCI functions.

``Host`` reads /proc/sys/kernel/random/boot_id, /proc/devices, /proc/driver/nvidia/capabilities, /sys/bus/pci and /sys/module/nvidia below a root. The
boot id may come from elsewhere, because a folder that stands in for the kernel driver's files has none.
"""

import contextlib
import pathlib

from drakit import numa, pci
from drakit_gpu import nvml_errors, port

_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")
_CAPABILITY = "DeviceFileMinor"
# The first names are those of drivers from R530 on; older ones register the character device as nvidia-frontend.
_DRIVER_NAMES = ("nvidia", "nvidia-frontend")


class Host:
    """The kernel's files about GPUs; every method raises CallError under the name of the port's method."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/"), *, boot_id: pathlib.Path | None = None) -> None:
        self._proc = root / "proc"
        self._boot_id = boot_id or self._proc / "sys/kernel/random/boot_id"
        self._pci = root / "sys/bus/pci/devices"
        self._system = root / "sys/devices/system"
        self._bound = root / "sys/bus/pci/drivers/nvidia"
        self._module = root / "sys/module/nvidia"

    def has_driver(self) -> bool:
        """Return whether NVIDIA's kernel driver is loaded."""
        return (self._proc / "driver/nvidia/version").exists()

    def boot_id(self) -> str:
        """Return the id of the current boot."""
        return self._read(self._boot_id, "boot_id").strip()

    def device_majors(self) -> port.DeviceMajors:
        """Return the major numbers of the device nodes. DRIVER_NOT_LOADED: a module is missing. Whole GPUs need no capabilities."""
        listing = self._proc / "devices"
        text = self._read(listing, "device_majors")
        majors = {name: int(number) for number, _, name in (line.strip().partition(" ") for line in text.splitlines()) if number.isdigit()}
        return port.DeviceMajors(
            nvidia=_major(listing, majors, *_DRIVER_NAMES), uvm=_major(listing, majors, "nvidia-uvm"), caps=majors.get("nvidia-caps")
        )

    def capability_minors(self, minor: int, instance_id: int, compute_id: int) -> port.CapabilityMinors:
        """Return the minor numbers of a MIG device's capabilities. NOT_FOUND: the device is gone."""
        folder = self._proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{instance_id}"
        return port.CapabilityMinors(
            gpu_instance=self._capability(folder / "access"), compute_instance=self._capability(folder / f"ci{compute_id}" / "access")
        )

    def pcie_root(self, pci_bus_id: str) -> str | None:
        """Return the root complex above a PCI device (``pci0000:00``); None when sysfs does not know the device."""
        return pci.root(self._pci / pci_bus_id)

    def numa_nodes(self, pci_bus_id: str) -> tuple[int, ...]:
        """Return the NUMA node of a PCI device, and those as near; none if sysfs has none."""
        return numa.of_device(self._pci / pci_bus_id, self._system)

    def has_device(self, pci_bus_id: str) -> bool:
        """Return whether sysfs has a PCI device at that address. A device that has fallen off the bus stays listed until it is removed."""
        return (self._pci / pci_bus_id).exists()

    def lock_for_unbinding(self, pci_bus_id: str, *, locked: bool) -> None:
        """Lock a GPU of NVIDIA's driver for unbinding, or unlock it. IN_USE: a program has it open. A driver without locks has none to take."""
        call = "lock_for_unbinding" if locked else "unlock"
        file = self._proc / f"driver/nvidia/gpus/{pci_bus_id}/unbindLock"
        if not file.exists():
            return
        wanted = "1" if locked else "0"
        try:
            file.write_text(f"{wanted}\n", "ascii")
        except OSError as error:
            raise nvml_errors.CallError(nvml_errors.CALLS[call], nvml_errors.Code.UNKNOWN, f"{file}: {error}") from error
        if locked and self._read(file, call).strip() != wanted:
            fix = f"end it, and turn off persistence mode: nvidia-smi -i {pci_bus_id} -pm 0"
            raise nvml_errors.CallError(nvml_errors.CALLS[call], nvml_errors.Code.IN_USE, f"a program has the GPU {pci_bus_id} open; {fix}")

    def population(self) -> str:
        """Return the PCI devices of the driver and the inode of its module, which changes at every load."""
        with contextlib.suppress(OSError):
            bound = sorted(entry.name for entry in self._bound.iterdir() if ":" in entry.name)
            return f"{self._module.stat().st_ino} {' '.join(bound)}"
        return ""

    def _capability(self, file: pathlib.Path) -> int:
        call = "capability_minors"
        for line in self._read(file, call).splitlines():
            name, _, value = line.partition(":")
            if name.strip() == _CAPABILITY and value.strip().isdigit():
                return int(value)
        raise nvml_errors.CallError(nvml_errors.CALLS[call], nvml_errors.Code.UNKNOWN, f"{file} has no {_CAPABILITY}")

    @staticmethod
    def _read(file: pathlib.Path, call: str) -> str:
        try:
            return file.read_text("ascii")
        except FileNotFoundError as error:
            raise nvml_errors.CallError(nvml_errors.CALLS[call], nvml_errors.Code.NOT_FOUND, str(file)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise nvml_errors.CallError(nvml_errors.CALLS[call], nvml_errors.Code.UNKNOWN, f"{file}: {error}") from error


def of_this_machine(root: pathlib.Path) -> Host:
    """Return the kernel's files of this machine, whose GPU driver has its own below ``root``."""
    return Host(root, boot_id=_BOOT_ID)


def _major(listing: pathlib.Path, majors: dict[str, int], *names: str) -> int:
    for name in names:
        if name in majors:
            return majors[name]
    missing = f"{names[0]} is not in {listing}; load its kernel module (nvidia-modprobe, modprobe {names[0]})"
    raise nvml_errors.CallError(nvml_errors.CALLS["device_majors"], nvml_errors.Code.DRIVER_NOT_LOADED, missing)
