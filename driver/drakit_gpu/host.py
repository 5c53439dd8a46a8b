"""The node's side of the GPUs: the kernel's files about them, their device nodes in /dev, and the installed NVIDIA driver.

``Host`` reads /proc/sys/kernel/random/boot_id, /proc/devices, /proc/driver/nvidia/capabilities, /sys/bus/pci and /sys/module/nvidia below a root. The
boot id may come from elsewhere, because a folder that stands in for the kernel driver's files has none.

NVIDIA's kernel modules create no device nodes. nvidia-modprobe does when a program asks for one, but not for MIG. ``ensure_device_nodes`` creates a
node that is missing, and replaces one with the numbers of an earlier boot. Any other file at that path is an error. Where this process may not create
nodes, the container runtime creates them in the container, because the container's edits carry the numbers. Each node gets its link
dev/char/MAJOR:MINOR, as udev creates for other drivers: without it, some versions of runc leave the device out of the container's systemd unit, and
``systemctl daemon-reload`` takes it from the running container.

The driver root is the machine's root, or a folder where a container carries the driver. A file of the driver has three paths: as this process sees it
(below ``path``), as the host's container runtime sees it (below ``on_host``), and as the container sees it (below ``/``).
"""

import contextlib
import dataclasses
import errno
import logging
import os
import pathlib
import platform
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping

from drakit.core import edits, errors
from drakit_gpu import port

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
        with contextlib.suppress(OSError):
            parts = (self._pci / pci_bus_id).resolve(strict=True).parts
            return next((part for part in parts if part.startswith("pci") and ":" in part), None)
        return None

    def numa_node(self, pci_bus_id: str) -> int | None:
        """Return the NUMA node of a PCI device; None where sysfs has none."""
        with contextlib.suppress(OSError, ValueError):
            node = int((self._pci / pci_bus_id / "numa_node").read_text("ascii"))
            return node if node >= 0 else None
        return None

    def has_device(self, pci_bus_id: str) -> bool:
        """Return whether sysfs has a PCI device at that address. A device that has fallen off the bus stays listed until it is removed."""
        return (self._pci / pci_bus_id).exists()

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
        raise port.CallError(port.CALLS[call], port.Code.UNKNOWN, f"{file} has no {_CAPABILITY}")

    @staticmethod
    def _read(file: pathlib.Path, call: str) -> str:
        try:
            return file.read_text("ascii")
        except FileNotFoundError as error:
            raise port.CallError(port.CALLS[call], port.Code.NOT_FOUND, str(file)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise port.CallError(port.CALLS[call], port.Code.UNKNOWN, f"{file}: {error}") from error


def of_this_machine(root: pathlib.Path) -> Host:
    """Return the kernel's files of this machine, whose GPU driver has its own below ``root``."""
    return Host(root, boot_id=_BOOT_ID)


def _major(listing: pathlib.Path, majors: dict[str, int], *names: str) -> int:
    for name in names:
        if name in majors:
            return majors[name]
    missing = f"{names[0]} is not in {listing}; load its kernel module (nvidia-modprobe, modprobe {names[0]})"
    raise port.CallError(port.CALLS["device_majors"], port.Code.DRIVER_NOT_LOADED, missing)


_log = logging.getLogger(__name__)
_MODE = 0o666
_FOLDER_MODE = 0o755
_LINKS = "dev/char"
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def ensure_device_nodes(nodes: Iterable[edits.DeviceNode], root: pathlib.Path) -> None:
    """Create missing device nodes below ``root`` and their links in dev/char; raises HardwareError for another file in a node's place."""
    for node in nodes:
        path, number = root / node.path.lstrip("/"), os.makedev(node.major or 0, node.minor or 0)
        try:
            earlier = _ensure_node(path, number, node.file_mode or _MODE)
            if earlier is not None:
                _remove_link(path, root, earlier)
            _ensure_link(path, root, number)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise errors.HardwareError("mknod", f"{path}: {error.strerror}") from error
            _log.debug("device node creation forbidden", extra={"path": str(path), "error": error.strerror})


def has_link(node: edits.DeviceNode, root: pathlib.Path) -> bool:
    """Return whether dev/char below ``root`` leads to the node."""
    number = os.makedev(node.major or 0, node.minor or 0)
    return _leads_to(_link_of(root, number), root, number)


def _ensure_node(path: pathlib.Path, number: int, mode: int) -> int | None:
    """Create a missing node; return the number of the node that it replaces, None where there was none."""
    earlier: int | None = None
    try:
        status = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == number:
            return None
        if not stat.S_ISCHR(status.st_mode):
            raise errors.HardwareError("mknod", f"{path} is in the way: it is not a character device")
        earlier = status.st_rdev
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _create_node(path, number, mode)
    return earlier


def _link_of(root: pathlib.Path, number: int) -> pathlib.Path:
    return root / _LINKS / f"{os.major(number)}:{os.minor(number)}"


def _target(path: pathlib.Path, root: pathlib.Path) -> str:
    return f"../{path.relative_to(root / 'dev')}"


def _is_device(path: str, number: int) -> bool:
    """Return whether a path leads to a node with this number."""
    try:
        status = os.stat(path)  # noqa: PTH116 - every prepare looks at all links, and a Path costs more than the call
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == number


def _leads_to(link: pathlib.Path, root: pathlib.Path, number: int) -> bool:
    """Return whether a link leads to a node with this number. An absolute link, such as NVIDIA's, begins at ``root``."""
    try:
        target = link.readlink()
    except OSError:
        return False
    return _is_device(str(root / str(target).lstrip("/") if target.is_absolute() else link.parent / target), number)


def _ensure_link(path: pathlib.Path, root: pathlib.Path, number: int) -> None:
    """Link a node in dev/char, as udev does for devices of other drivers. A link that leads to such a node is kept, and so is any other file."""
    if _is_device(f"{root}/{_LINKS}/{os.major(number)}:{os.minor(number)}", number):
        return
    link = _link_of(root, number)
    if _leads_to(link, root, number):
        return
    if not link.is_symlink() and link.exists():
        _log.warning("device link not created: another file is in the way", extra={"path": str(link)})
        return
    link.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    beside = _beside(link)
    beside.symlink_to(_target(path, root))
    try:
        beside.replace(link)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _remove_link(path: pathlib.Path, root: pathlib.Path, number: int) -> None:
    """Remove the link of a node's earlier number, where the link is ours."""
    link = _link_of(root, number)
    with contextlib.suppress(FileNotFoundError):
        if link.is_symlink() and str(link.readlink()) == _target(path, root):
            link.unlink()


def _create_node(path: pathlib.Path, number: int, mode: int) -> None:
    """Create the node under a temporary name and rename it, so that it always has its mode."""
    beside = _beside(path)
    os.mknod(beside, mode | stat.S_IFCHR, number)
    try:
        beside.chmod(mode)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _beside(path: pathlib.Path) -> pathlib.Path:
    """Return a temporary name beside a file, which no other thread uses."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    return beside


PROGRAM_FOLDERS = (
    *("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin"),
    *("usr/lib/nvidia/current", "opt/nvidia/current/bin", "home/kubernetes/bin/nvidia/bin", "run/current-system/sw/bin"),
    *("usr/libexec/nvidia/tesla/bin", "libexec/nvidia/tesla/bin"),
)
_MULTIARCH = f"usr/lib/{platform.machine()}-linux-gnu"
# The folders that the dynamic linkers of common images search, most specific first. In a container a library keeps its place there.
_LINKER_FOLDERS = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"),
    "usr/local/nvidia/lib64",
)
# The folders of other systems: Debian, NixOS, Talos, Bottlerocket, Google's Container-Optimized OS, Flatcar, then Arch and roots that lead to the
# driver alone. No container's linker searches them, so in a container their libraries are in the folder of Debian's images.
_OTHER_FOLDERS = (
    *("usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current", "run/opengl-driver/lib"),
    *("usr/local/glibc/usr/lib", "usr/lib/nvidia/tesla", "lib/nvidia/tesla"),
    *(f"{machine}-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla" for machine in ("x86_64", "aarch64")),
    *("home/kubernetes/bin/nvidia/lib64", "opt/nvidia/current/usr/lib64", "opt/nvidia/current/lib64"),
    *("usr/lib", "lib"),
)
LIBRARY_FOLDERS = (*_LINKER_FOLDERS, *_OTHER_FOLDERS)
_ROOT = pathlib.Path("/")
_LINKS_MAX = 40
"""The number of links that Linux follows in one path."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that differs.

    ``folders`` are folders below it with the driver's libraries, which are searched before the usual ones.

    Links are followed as they lead on the host: an absolute one, such as those of Debian's /etc/alternatives, begins at the driver root again, and
    none leads out of it.
    """

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None
    folders: tuple[str, ...] = ()

    def program(self, name: str) -> pathlib.Path | None:
        """Return the real path of a program of the driver, as this process sees it; None where it is not installed."""
        return self._first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """Return the real path of a library of the driver, as this process sees it; None where it is not installed.

        Where the link ``libnvidia-ml.so.1`` is missing, the only file of that library is returned.
        """
        if (linked := self._first(f"{folder}/{name}" for folder in self._library_places())) is not None:
            return linked
        stem = name.partition(".so")[0]
        versions = {self.resolve(file) for folder in self.library_folders() for file in folder.glob(f"{stem}.so.*.*")} - {None}
        return versions.pop() if len(versions) == 1 else None

    def library_folders(self) -> Mapping[pathlib.Path, str]:
        """Return the real paths of the existing library folders, each once, with their paths in a container."""
        folders: dict[pathlib.Path, str] = {}
        for place in self._library_places():
            folder = self.resolve(self.path / place)
            if folder is not None and folder.is_dir():
                folders.setdefault(folder, f"/{place if place in _LINKER_FOLDERS else _MULTIARCH}")
        return folders

    def places(self) -> Iterator[pathlib.Path]:
        """Return the folders of libraries and programs, whether or not they exist."""
        return (self.path / place for place in (*self._library_places(), *PROGRAM_FOLDERS))

    def searched(self) -> str:
        """Return a text that names the folders that were searched for libraries: those that exist, and those of the settings."""
        usual = (place for place in LIBRARY_FOLDERS if (folder := self.resolve(self.path / place)) is not None and folder.is_dir())
        return f"searched below {self.path}: {', '.join([*self.folders, *usual]) or 'none of the usual folders exists'}"

    def resolve(self, file: pathlib.Path) -> pathlib.Path | None:
        """Return the path of a file below the root with every link followed below the root; None where there is no file, or its links loop."""
        waiting = list(reversed(file.relative_to(self.path).parts))
        current, links = self.path, 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                current = current if current == self.path else current.parent
                continue
            try:
                target = (current / part).readlink()
            except OSError as error:
                if error.errno != errno.EINVAL:
                    return None
                current /= part
                continue
            links += 1
            if links > _LINKS_MAX:
                return None
            if target.is_absolute():
                current = self.path
            waiting += reversed(target.relative_to("/").parts if target.is_absolute() else target.parts)
        return current

    def host(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver in a container, where that is its path on the host."""
        return str(_ROOT / file.relative_to(self.path))

    def _library_places(self) -> tuple[str, ...]:
        return (*(folder.strip("/") for folder in self.folders), *LIBRARY_FOLDERS)

    def _first(self, places: Iterable[str]) -> pathlib.Path | None:
        """Return the real path of the first of these files that exists."""
        return next((file for place in places if (file := self.resolve(self.path / place)) is not None and file.is_file()), None)
