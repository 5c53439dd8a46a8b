"""The node's side of the GPUs: the kernel's files about them, their device nodes in /dev, and the installed NVIDIA driver.

``Host`` reads /proc/sys/kernel/random/boot_id, /proc/devices, /proc/driver/nvidia/capabilities, /sys/bus/pci and /sys/module/nvidia below a root. The
boot id may come from elsewhere, because a folder that stands in for the kernel driver's files has none.

NVIDIA's kernel modules create no device nodes. nvidia-modprobe does when a program asks for one, but not for MIG. ``ensure_device_nodes`` creates a
node that is missing, and replaces one with the numbers of an earlier boot. Any other file at that path is an error. Where this process may not create
nodes, the container runtime creates them in the container, because the container's edits carry the numbers.

The driver root is the machine's root, or a folder where a container carries the driver. A file of the driver has three paths: as this process sees it
(below ``path``), as the host's container runtime sees it (below ``on_host``), and as the container sees it (below ``/``). ``run_program`` starts one
of its programs without a shell and without this process's environment, and limits its time and its output.
"""

import contextlib
import dataclasses
import errno
import logging
import os
import pathlib
import signal
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drakit.core import edits, errors
from drakit.devices.gpu import port

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
_FORBIDDEN = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def ensure_device_nodes(nodes: Iterable[edits.DeviceNode], root: pathlib.Path) -> None:
    """Create missing device nodes below ``root``; raises HardwareError for another file in the way."""
    for node in nodes:
        path = root / node.path.lstrip("/")
        try:
            _ensure_node(path, os.makedev(node.major or 0, node.minor or 0), node.file_mode or _MODE)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise errors.HardwareError("mknod", f"{path}: {error.strerror}") from error
            _log.debug("device node creation forbidden", extra={"path": str(path), "error": error.strerror})


def _ensure_node(path: pathlib.Path, number: int, mode: int) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == number:
            return
        if not stat.S_ISCHR(status.st_mode):
            raise errors.HardwareError("mknod", f"{path} is in the way: it is not a character device")
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    _create_node(path, number, mode)


def _create_node(path: pathlib.Path, number: int, mode: int) -> None:
    """Create the node under a temporary name and rename it, so that it always has its mode."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    os.mknod(beside, mode | stat.S_IFCHR, number)
    try:
        beside.chmod(mode)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


PROGRAM_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin", "opt/bin", "usr/local/nvidia/toolkit", "usr/local/nvidia/bin")
LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
)
_ROOT = pathlib.Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverRoot:
    """The folder below which the driver is installed; ``on_host`` is its path on the host, where that differs."""

    path: pathlib.Path = _ROOT
    on_host: pathlib.Path | None = None

    def program(self, name: str) -> pathlib.Path | None:
        """Return the path of a program of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in PROGRAM_FOLDERS)

    def library(self, name: str) -> pathlib.Path | None:
        """Return the path of a library of the driver, as this process sees it; None where it is not installed."""
        return self.first(f"{folder}/{name}" for folder in LIBRARY_FOLDERS)

    def first(self, places: Iterable[str]) -> pathlib.Path | None:
        """Return the first of these files that exists."""
        return next((file for place in places if (file := self.path / place).is_file()), None)

    def library_folders(self) -> Iterator[pathlib.Path]:
        """Return the existing library folders, each once: ``lib64`` is often a link to ``usr/lib64``."""
        seen: set[pathlib.Path] = set()
        for place in LIBRARY_FOLDERS:
            folder = self.path / place
            if folder.is_dir() and (real := folder.resolve()) not in seen:
                seen.add(real)
                yield folder

    def host(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver on the host."""
        return str((self.on_host or self.path) / file.relative_to(self.path))

    def inside(self, file: pathlib.Path) -> str:
        """Return the path of a file of the driver in a container."""
        return str(_ROOT / file.relative_to(self.path))


OUTPUT_MAX = 4 << 20
_SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MESSAGE_MAX = 300
_KILL_SECONDS = 2.0


class ProgramError(errors.HardwareError):
    """A program that failed, was too slow or printed too much; ``status`` is its exit status, None where it has none."""

    def __init__(self, program: str, message: str, *, status: int | None = None) -> None:
        super().__init__(program, message)
        self.status = status


def run_program(
    program: pathlib.Path,
    *arguments: str,
    seconds: float,
    env: Mapping[str, str] | None = None,
    standard_input: str = "",
    before: Sequence[str] = (),
) -> str:
    """Run a program and return its output. ``before`` is a command line that starts it.

    Raises ProgramError; a program that is too slow is killed with all its children.
    """
    command = [*before, str(program), *arguments]
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": _SEARCH_PATH, **(env or {})},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(program.name, f"cannot run {program}: {error.strerror}") from error
    try:
        output, error_output = running.communicate(standard_input, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        ending = "" if _kill(running) else f"; process {running.pid} does not end, so the kernel's driver may hang"
        raise ProgramError(program.name, f"did not end within {seconds:g} s{ending}") from error
    if running.returncode:
        raise ProgramError(
            program.name, f"failed with {running.returncode}: {_one_line(error_output or output)}", status=running.returncode
        )
    if len(output) > OUTPUT_MAX:
        raise ProgramError(program.name, f"printed over {OUTPUT_MAX} characters")
    return output


def _kill(running: "subprocess.Popen[str]") -> bool:
    """Kill a program with its children, and return whether it has ended. One that hangs in the kernel does not end; it is left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    try:
        running.communicate(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        for stream in (running.stdin, running.stdout, running.stderr):
            if stream is not None:
                stream.close()
        return running.poll() is not None
    return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_MAX]
