"""The adapter of ``vfio.Bus`` for Linux: sysfs of the PCI bus, of IOMMU groups and of VFIO.

Files: Documentation/ABI/testing/sysfs-bus-pci (driver_override, reset, drivers_probe), sysfs-kernel-iommu_groups, and sysfs-devices-vfio-dev. Device
nodes carry the numbers that sysfs has, so that neither this process nor the container runtime needs a node of the host.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence

from drakit import vfio
from drakit.core import edits, errors

_ROOT = pathlib.Path("/")
_NO_OVERRIDE = "(null)"
_NO_IOMMU = "vfio-noiommu"
_SIOCGIFADDR = 0x8915
_GLOBAL_SCOPE = 0x00
_DISKS = ("block", "nvme")


class KernelBus:
    """The PCI bus of this machine.

    ``root`` is the folder with ``sys`` and ``proc``, ``dev_root`` the one with the host's ``dev``. ``after_effect`` is called after each change,
    where tests let the process die.
    """

    def __init__(
        self, root: pathlib.Path = _ROOT, *, dev_root: pathlib.Path = _ROOT, after_effect: Callable[[], None] = lambda: None
    ) -> None:
        self._pci, self._classes = root / "sys/bus/pci", root / "sys/class"
        self._groups, self._proc = root / "sys/kernel/iommu_groups", root / "proc"
        self._devices, self._dev = self._pci / "devices", dev_root / "dev"
        self._after_effect = after_effect

    def boot_id(self) -> str:
        return _text(_ROOT / "proc/sys/kernel/random/boot_id")

    def functions(self) -> Sequence[vfio.Function]:
        return tuple(function for name in _names(self._devices) if (function := self.function(name)) is not None)

    def function(self, address: str) -> vfio.Function | None:
        folder = self._devices / address
        if not address or not folder.exists():
            return None
        override, group = _text(folder / "driver_override"), _target(folder / "iommu_group")
        return vfio.Function(
            address=address,
            driver=_target(folder / "driver"),
            override="" if override == _NO_OVERRIDE else override,
            group=int(group) if group and _text(self._groups / group / "name") != _NO_IOMMU else None,
            code=int(_text(folder / "class") or "0", 16),
            vendor=_text(folder / "vendor").removeprefix("0x"),
        )

    def group(self, number: int) -> Sequence[vfio.Function]:
        folder = self._groups / str(number) / "devices"
        others = ((name, _target(folder / name / "driver")) for name in _names(folder))
        return tuple(self.function(name) or vfio.Function(address=name, driver=driver, group=number) for name, driver in others)

    def has_driver(self, driver: str) -> bool:
        return (self._pci / "drivers" / driver).exists()

    def uses(self, address: str) -> Sequence[str]:
        uses = [f"has the disk {name}" for kind in _DISKS for name in self._below(address, kind)]
        functions = _text(self._devices / address / "sriov_numvfs")
        if functions not in {"", "0"}:
            uses.append(f"has {functions} virtual functions")
        if _text(self._devices / address / "boot_vga") == "1":
            uses.append("is the display of the host's console")
        return (*uses, *(use for name in self._below(address, "net") if (use := self._use_of_interface(name))))

    def has_own_devices(self, address: str) -> bool:
        return any(True for kind in ("net", *_DISKS) for _ in self._below(address, kind))

    def set_override(self, address: str, driver: str) -> None:
        function = self.function(address)
        if function is not None and function.override != driver:
            self._write(self._devices / address / "driver_override", f"{driver}\n")

    def unbind(self, address: str) -> None:
        if (self._devices / address / "driver").exists():
            self._write(self._devices / address / "driver" / "unbind", address)

    def probe(self, address: str) -> None:
        if not (self._devices / address / "driver").exists():
            self._write(self._pci / "drivers_probe", address)

    def reset(self, address: str) -> None:
        file = self._devices / address / "reset"
        if file.exists():
            self._write(file, "1")

    def is_open(self, number: int) -> bool:
        # A group can be opened only once (vfio_group_fops_open), and not while one of its devices is open by iommufd.
        node = self._node(self._classes / "vfio" / str(number), f"/dev/vfio/{number}")
        if node is None:
            return False
        try:
            with self._file_of(node) as file:
                os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == errno.EBUSY:
                return True
            fix = "; let the driver's container be privileged" if error.errno in {errno.EPERM, errno.EACCES} else ""
            raise errors.HardwareError("open", f"{node.path}: {error.strerror}{fix}") from error
        return False

    def nodes(self, function: vfio.Function, *, iommufd: bool) -> Sequence[edits.DeviceNode]:
        if iommufd:
            names = _names(self._devices / function.address / "vfio-dev")
            wanted = [self._node(self._classes / "misc/iommu", "/dev/iommu")]
            wanted += [self._node(self._classes / "vfio-dev" / name, f"/dev/vfio/devices/{name}") for name in names[:1]]
        else:
            wanted = [self._node(self._classes / "misc/vfio", "/dev/vfio/vfio")]
            wanted += [self._node(self._classes / "vfio" / str(function.group), f"/dev/vfio/{function.group}")]
        present = tuple(node for node in wanted if node is not None)
        return present if len(present) == len(("interface", "device")) else ()

    def _below(self, address: str, kind: str) -> Iterator[str]:
        """Yield the names of the devices of a class that the function has: their paths contain its address."""
        for name in _names(self._classes / kind):
            with contextlib.suppress(OSError):
                if f"/{address}/" in os.readlink(self._classes / kind / name):  # noqa: PTH115 - the text of the link
                    yield name

    def _use_of_interface(self, name: str) -> str:
        """Return a use of an interface by the host, empty if there is none. Link-local addresses do not count."""
        upper = next((entry.removeprefix("upper_") for entry in _names(self._classes / "net" / name) if entry.startswith("upper_")), "")
        if upper:
            return f"has the interface {name}, which carries {upper}"
        if _has_ipv4_address(name) or any(
            fields[-1] == name and int(fields[3], 16) == _GLOBAL_SCOPE for fields in _rows(self._proc / "net/if_inet6")
        ):
            return f"has the interface {name}, which has an address of the host"
        if any(fields[0] == name for fields in _rows(self._proc / "net/route")):
            return f"has the interface {name}, which has a route of the host"
        return ""

    def _node(self, folder: pathlib.Path, path: str) -> edits.DeviceNode | None:
        major, colon, minor = _text(folder / "dev").partition(":")
        return edits.DeviceNode(path=path, type="c", major=int(major), minor=int(minor), permissions="rw") if colon else None

    @contextlib.contextmanager
    def _file_of(self, node: edits.DeviceNode) -> Iterator[pathlib.Path]:
        """Yield the device node's file: the host's, or a temporary one where this process does not see the host's. Raises OSError."""
        file, number = self._dev / pathlib.Path(node.path).relative_to("/dev"), os.makedev(node.major or 0, node.minor or 0)
        if file.exists() and file.stat().st_rdev == number:
            yield file
            return
        with tempfile.TemporaryDirectory(prefix="drakit-vfio-") as folder:
            made = pathlib.Path(folder) / "group"
            os.mknod(made, stat.S_IFCHR | stat.S_IRUSR | stat.S_IWUSR, number)
            yield made

    def _write(self, file: pathlib.Path, text: str) -> None:
        """Write to a file of sysfs. A file that is gone is an error too. Raises HardwareError."""
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode("ascii"))
            finally:
                os.close(descriptor)
        except OSError as error:
            fix = "; let the driver's container be privileged" if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM} else ""
            raise errors.HardwareError(file.name, f"{file}: {error.strerror}{fix}") from error
        self._after_effect()


def _text(file: pathlib.Path) -> str:
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _target(link: pathlib.Path) -> str:
    """Return the last part of a link's target, empty if there is no link."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def _names(folder: pathlib.Path) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names only
    except OSError:
        return ()


def _rows(file: pathlib.Path) -> Iterator[Sequence[str]]:
    yield from (line.split() for line in _text(file).splitlines() if line.strip())


def _has_ipv4_address(name: str) -> bool:
    request = struct.pack("16s24x", name.encode(errors="surrogateescape"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return False
    return True
