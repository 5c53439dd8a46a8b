"""The machine's virtual functions for VFIO, and the kernel's own word on a group."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import struct
import subprocess
from collections.abc import Iterator

from fakes import nic_attach

GROUPS = pathlib.Path("/sys/kernel/iommu_groups")
NETWORK = pathlib.Path("/sys/class/net")
DEVICES = pathlib.Path("/sys/bus/pci/devices")
_GROUP_GET_STATUS = 0x3B67
_VIABLE = 1
SETTLING_SECONDS = 120


def has_iommu() -> bool:
    """Return whether the machine was started with an IOMMU."""
    return GROUPS.is_dir() and any(GROUPS.iterdir())


def interfaces_of(address: str) -> list[str]:
    """The names of a function's interfaces on the host, also of a virtio one."""
    found = [*(DEVICES / address).glob("net/*"), *(DEVICES / address).glob("virtio*/net/*")]
    return sorted(entry.name for entry in found)


def address_of(driver: str) -> str:
    """The PCI address of the only interface with this driver."""
    (address,) = {
        part
        for interface in NETWORK.iterdir()
        if (interface / "device/driver").resolve().name == driver
        for part in (interface / "device").resolve().parts[-2:]
        if (DEVICES / part).exists() and (DEVICES / part / "class").read_text().startswith("0x02")
    }
    return address


@contextlib.contextmanager
def virtual_functions(count: int = 2) -> Iterator[tuple[str, ...]]:
    """The addresses of new virtual functions of the igb NIC, which has an up link meanwhile."""
    subprocess.run(["modprobe", "vfio-pci"], check=True)
    parent = address_of("igb")
    (name,) = interfaces_of(parent)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    numbers = DEVICES / parent / "sriov_numvfs"
    numbers.write_text("0")
    numbers.write_text(str(count))
    try:
        addresses = tuple((DEVICES / parent / f"virtfn{number}").resolve().name for number in range(count))
        subprocess.run(["udevadm", "settle"], check=True)
        nic_attach.until(lambda: all(map(interfaces_of, addresses)), "the virtual functions have no interfaces", seconds=SETTLING_SECONDS)
        yield addresses
    finally:
        numbers.write_text("0")
        subprocess.run(["ip", "link", "set", name, "down"], check=True)


@contextlib.contextmanager
def opened(group: str) -> Iterator[bool]:
    """Open a group's device node as a virtual machine does, and yield whether the kernel calls the group viable."""
    descriptor = os.open(group, os.O_RDWR | os.O_CLOEXEC)
    try:
        status = ctypes.create_string_buffer(struct.pack("=II", 8, 0), 8)
        fcntl.ioctl(descriptor, _GROUP_GET_STATUS, status)
        yield bool(struct.unpack("=II", status.raw)[1] & _VIABLE)
    finally:
        os.close(descriptor)
