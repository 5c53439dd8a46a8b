"""One emulated machine: QEMU's command, its folder on the host, and the jobs that it runs.

The machine and the host share one folder by 9p. The host writes a job and the checkout into it, the machine its output and status
(``tests/vm/jobs``). ``FOLDER/console`` is a socket with the serial console, on which root is logged in.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence

KERNELS = ("6.12", "6.1", "5.15", "5.10")
"""The kernels that ``tests/vm/build`` installs. The first is the default."""

UNAVAILABLE, TIMED_OUT, DIED = 77, 124, 125
"""Exit statuses: QEMU or a package cannot be had; the machine did not finish in time; the machine ended before its job."""

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_POLL_SECONDS = 0.3
_DISK_BYTES = 1 << 30
_RESULTS = ("output", "journal.log", "results.xml")


class MachineError(Exception):
    """The machine did not run the job to its end. ``status`` is the exit status to end with."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def cache_folder() -> pathlib.Path:
    """Return the folder with the disk image, the kernels and QEMU: DRAKIT_VM_CACHE, or drakit-vm in the user's cache folder."""
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "drakit-vm"
    return pathlib.Path(os.environ.get("DRAKIT_VM_CACHE") or default)


def qemu_command(
    cache: pathlib.Path, *, kernel: str, memory_mb: int = 3072, iommu: bool = False, selinux: bool = False, disks: Sequence[str] = ()
) -> list[str]:
    """Return the command that starts the machine, to run in the machine's folder. QEMU runs from its unpacked packages, by their own loader.

    The first NIC is an Intel 82576 behind a root port, whose driver igb has up to seven virtual functions. The second is a virtio NIC. A hub
    without any way out connects the two, so a test can put the second into a namespace and have a partner on the wire. With ``iommu`` the machine
    has an Intel IOMMU, which puts each device into an IOMMU group. With ``selinux`` the kernel has SELinux instead of AppArmor, with Debian's policy,
    which is permissive until a test enforces it.

    ``disks`` are names of further, empty disks. A machine with them survives a reset, and starts its jobs without systemd. Any other ends at a reset.
    """
    qemu, root = cache / "qemu", cache / "root"
    # Without interrupt remapping, a virtio disk with MSI loses requests once there are virtual functions.
    disk = "virtio-blk-pci,drive=disk" + (",vectors=0" if iommu else "")
    return [
        str(root / _LIBRARIES / "ld-linux-x86-64.so.2"),
        *("--library-path", f"{qemu / _LIBRARIES}:{root / _LIBRARIES}"),
        str(qemu / "usr/bin/qemu-system-x86_64"),
        *("-L", str(qemu / "usr/share/qemu"), "-L", str(qemu / "usr/share/seabios")),
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-smp", "2", "-m", str(memory_mb)),
        *("-nodefaults", "-display", "none", "-pidfile", "pid"),
        *(() if disks else ("-no-reboot",)),
        *("-chardev", "socket,id=console,path=console,server=on,wait=off,logfile=console.log"),
        *("-serial", "chardev:console", "-qmp", "unix:qmp,server=on,wait=off"),
        *("-kernel", str(cache / f"vmlinuz-{kernel}"), "-initrd", str(cache / f"initrd-{kernel}")),
        *(
            "-append",
            "root=/dev/vda rw console=ttyS0 panic=1 systemd.show_status=no"
            + (" intel_iommu=on iommu=pt" if iommu else "")
            + (" security=selinux" if selinux else "")
            + (" init=/usr/local/sbin/jobs" if disks else ""),
        ),
        *(("-device", "intel-iommu,intremap=off,caching-mode=on") if iommu else ()),
        *("-drive", f"file={cache / 'disk'},if=none,id=disk,format=raw,snapshot=on,cache=unsafe", "-device", disk),
        *("-virtfs", "local,path=share,mount_tag=host,security_model=none"),
        *("-device", "pcie-root-port,id=port1,slot=1,chassis=1"),
        *("-netdev", "hubport,id=net1,hubid=1", "-device", "igb,bus=port1,netdev=net1,mac=52:54:00:00:00:01,romfile="),
        *("-netdev", "hubport,id=net2,hubid=1", "-device", "virtio-net-pci,netdev=net2,mac=52:54:00:00:00:02,romfile="),
        *("-device", "virtio-rng-pci"),
        *(word for name in disks for word in _disk(name)),
    ]


def _disk(name: str) -> tuple[str, ...]:
    """A disk with a write cache that the guest must flush, found by its serial number."""
    return (
        "-drive",
        f"file={name}.disk,if=none,id={name},format=raw,cache=writeback",
        "-device",
        f"virtio-blk-pci,drive={name},serial={name}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that is or will be running, with its folder on the host."""

    kernel: str
    cache: pathlib.Path
    folder: pathlib.Path
    iommu: bool = False
    selinux: bool = False
    disks: Sequence[str] = ()
    """The names of its further disks. A machine with such disks can be reset."""

    @property
    def share(self) -> pathlib.Path:
        """The folder that the machine mounts as /host."""
        return self.folder / "share"

    @property
    def pid(self) -> int | None:
        """The process of QEMU, None if the machine is not running."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "pid").read_text("ascii"))
            if b"qemu-system" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def start(self) -> None:
        """Start QEMU in the background. Its complaints go to ``FOLDER/qemu.log``."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.share.mkdir(parents=True)
        shutil.copy(pathlib.Path(__file__).with_name("jobs"), self.share)
        for name in self.disks:
            disk = self.folder / f"{name}.disk"
            disk.touch()
            os.truncate(disk, _DISK_BYTES)
        modules = {"QEMU_MODULE_DIR": str(self.cache / "qemu" / _LIBRARIES / "qemu"), "TMPDIR": str(self.folder)}
        with (self.folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                qemu_command(self.cache, kernel=self.kernel, iommu=self.iommu, selinux=self.selinux, disks=self.disks),
                cwd=self.folder,
                env={**os.environ, **modules},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while self.pid is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise MachineError(f"QEMU does not start: {(self.folder / 'qemu.log').read_text('utf-8').strip()}", UNAVAILABLE)
            time.sleep(_POLL_SECONDS)

    def run(self, script: str, *, checkout: pathlib.Path, keep: bool, timeout_s: float) -> int:
        """Run a shell script in a copy of the checkout, print its output as it comes, and return its exit status. Raises MachineError."""
        self.submit(script, checkout=checkout, keep=keep)
        status = self.wait(time.monotonic() + timeout_s)
        assert status is not None
        return status

    def submit(self, script: str, *, checkout: pathlib.Path, keep: bool) -> None:
        """Give the machine a script, to run in a copy of the checkout as soon as it can."""
        for name in ("job", "status", *_RESULTS):
            (self.share / name).unlink(missing_ok=True)
        (self.share / "keep").touch() if keep else (self.share / "keep").unlink(missing_ok=True)
        _pack(checkout, self.share)
        (self.share / "job.new").write_text(script, "utf-8")
        (self.share / "job.new").rename(self.share / "job")

    def wait(self, deadline: float, *, until: pathlib.Path | None = None) -> int | None:
        """Print the output of the script as it comes. Return its exit status, or None once the file ``until`` exists. Raises MachineError."""
        try:
            return self._wait(deadline, until)
        finally:
            for name in _RESULTS:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(self.share / name, self.folder)

    def reset(self) -> None:
        """Reset the machine, as its reset button does. It starts again, and has to be given the whole checkout again."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self.folder / "qmp"))
            with control.makefile("rw", encoding="utf-8") as stream:
                for name in ("qmp_capabilities", "system_reset"):
                    stream.write(json.dumps({"execute": name}) + "\n")
                    stream.flush()
                    while "return" not in (answer := json.loads(stream.readline())):
                        if "error" in answer:
                            raise MachineError(f"QEMU does not reset: {answer['error']}", DIED)
        (self.share / "packed.json").unlink()

    def stop(self, grace_s: float = 20) -> None:
        """End QEMU, after the time that the machine may take to power off."""
        deadline = time.monotonic() + grace_s
        while (pid := self.pid) is not None:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def _wait(self, deadline: float, until: pathlib.Path | None) -> int | None:
        shown = 0
        while True:
            status, running = self.share / "status", self.pid is not None
            ended = status.exists()
            shown += _show(self.share / "output", shown)
            if ended:
                return int(status.read_text("ascii"))
            if until is not None and until.exists():
                return None
            if not running:
                raise MachineError(f"the machine ended before its job; the end of {self._console()}", DIED)
            if time.monotonic() > deadline:
                # A job that still runs would run beside the next one.
                self.stop(grace_s=0)
                raise MachineError(f"the machine did not finish in time and was turned off; the end of {self._console()}", TIMED_OUT)
            time.sleep(_POLL_SECONDS)

    def _console(self) -> str:
        log = self.folder / "console.log"
        return f"{log}:\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])


def _show(path: pathlib.Path, start: int) -> int:
    """Write what a file has from a position on to standard output, and return how many bytes that are."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return 0
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return len(content)


def _pack(checkout: pathlib.Path, share: pathlib.Path) -> None:
    """Write the files of a checkout that git tracks, or does not ignore, to an archive: those that changed since the last job of the machine.

    ``removed`` lists files of the last job that are no longer there, each ended by a zero byte.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=checkout, check=True, capture_output=True
    )
    names = [name for name in sorted(set(listed.stdout.decode().split("\0")) - {""}) if os.path.lexists(checkout / name)]
    states = {name: [(checkout / name).lstat().st_mtime_ns, (checkout / name).lstat().st_size] for name in names}
    packed = share / "packed.json"
    before = json.loads(packed.read_text("utf-8")) if packed.exists() else {}
    with tarfile.open(share / "checkout.tar", "w") as archive:
        for name in (name for name in names if before.get(name) != states[name]):
            archive.add(checkout / name, arcname=name, recursive=False)
    (share / "removed").write_bytes(b"".join(f"{name}\0".encode() for name in before if name not in states))
    packed.write_text(json.dumps(states), "utf-8")


def pytest_script(arguments: Sequence[str]) -> str:
    """Return the script of a job that runs pytest with these arguments."""
    return f"exec pytest -p no:cacheprovider --junitxml /host/results.xml {shlex.join(arguments)}\n"
