"""The facts that Kubernetes and selectors know a PCI function by, read from sysfs by its address, such as ``0000:3b:00.0``.

``attributes`` returns the standard attributes ``resource.kubernetes.io/pciBusID``, ``pcieRoot`` and ``numaNode``: the same names and forms that the
Go helper ``deviceattribute`` gives, so that claims can match devices of several drivers by ``matchAttribute``. ``ids`` returns vendor and device,
``root`` the root complex.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping

from drakit import numa
from drakit.core import arguments, device, errors

SYSFS = pathlib.Path("/sys")
BUS_ID = "resource.kubernetes.io/pciBusID"
ROOT = "resource.kubernetes.io/pcieRoot"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ids:
    """The numbers of a PCI function as four lower-case hexadecimal digits, and its class as six, such as ``030200``."""

    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str
    class_code: str


@arguments.checked_call
def attributes(address: str, *, sysfs: pathlib.Path = SYSFS) -> Mapping[str, device.AttributeValue]:
    """Return the standard attributes of a PCI function for ``drakit.Device``; the NUMA node is left out where the firmware does not name it.

    Raises HardwareError for an address that is malformed or that this host does not have.
    """
    folder = _folder(address, sysfs)
    bus = root(folder)
    near = numa.attribute(numa.of_device(folder, sysfs / "devices/system"))
    return {BUS_ID: folder.name, **({ROOT: bus} if bus else {}), **near}


@arguments.checked_call
def ids(address: str, *, sysfs: pathlib.Path = SYSFS) -> Ids:
    """Return the numbers of a PCI function. Raises HardwareError as ``attributes`` does."""
    folder = _folder(address, sysfs)
    vendor, number, subsystem_vendor, subsystem_device, class_code = (
        _read(folder / name, "0x0").removeprefix("0x").lower()
        for name in ("vendor", "device", "subsystem_vendor", "subsystem_device", "class")
    )
    return Ids(
        vendor=vendor, device=number, subsystem_vendor=subsystem_vendor, subsystem_device=subsystem_device, class_code=class_code.zfill(6)
    )


@arguments.checked_call
def root(folder: pathlib.Path) -> str | None:
    """Return the root complex above a PCI function (``pci0000:00``) by its folder in sysfs; None where the kernel has no such folder."""
    try:
        parts = folder.resolve(strict=True).parts
    except OSError:
        return None
    return next((part for part in parts if _ROOT.fullmatch(part)), None)


def is_address(text: object) -> bool:
    """Return whether a text has the form of a PCI address in lower case."""
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


def _folder(address: str, sysfs: pathlib.Path) -> pathlib.Path:
    """Return the folder of a PCI function below its root complex."""
    if not is_address(address.lower()):
        raise errors.HardwareError("reading a PCI address", f"{address!r} is not DOMAIN:BUS:DEVICE.FUNCTION, such as 0000:3b:00.0")
    try:
        return (sysfs / "bus/pci/devices" / address.lower()).resolve(strict=True)
    except OSError as error:
        raise errors.HardwareError("reading a PCI address", f"this host has no PCI function {address}: {error.strerror}") from error


def _read(file: pathlib.Path, otherwise: str) -> str:
    try:
        return file.read_text("ascii").strip() or otherwise
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError) as error:
        raise errors.HardwareError("reading sysfs", f"{file}: {error}") from error
