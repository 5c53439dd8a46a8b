"""What sharing network interfaces needs: features of the kernel, and a program that the container runtime can run on the host.

The kernel is asked by doing: a share is made in a network namespace that is gone afterwards.
"""

import os
import pathlib
from collections.abc import Callable, Iterator

from drakit import settings as values
from drakit.cli import composition
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors
from drakit.devices.nic import port
from drakit.devices.nic.attach import service

KERNEL, HOOK = "kernel", "attach hook"
ENFORCE = pathlib.Path("/sys/fs/selinux/enforce")
_CLASSIFIERS = {
    port.Classifier.NETNS: "can enforce shares, and knows a sender by its network namespace",
    port.Classifier.MAC: "can enforce shares; knows a sender by its address only, which a pod with NET_RAW can forge",
}


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Kernel and hook, where real interfaces are served."""
    if composition.AUTHORED.get() is not None or not settings.nic.enabled or settings.mock.machine is not None:
        return
    yield of_kernel(lambda: _shaping(settings.nic.netns))
    yield of_program(service.program)
    yield from of_folder(settings.node.plugins_dir / settings.nic.driver_name / service.FOLDER)


def of_kernel(ask: Callable[[], port.Shaping]) -> Finding:
    """Whether the kernel holds shares to their rates."""
    try:
        shaping = ask()
    except errors.HardwareError as error:
        return finding.failed(KERNEL, "traffic control", str(error), "pip install 'drakit[nic]', and run as root")
    if shaping.missing:
        fix = "load sch_htb, ifb, cls_bpf and act_mirred, and run as root with NET_ADMIN and BPF; until then interfaces are not offered"
        return finding.failed(KERNEL, "traffic control", shaping.missing, fix)
    return finding.ok(KERNEL, "traffic control", _CLASSIFIERS[shaping.classifier])


def of_program(bring: Callable[[], bytes]) -> Finding:
    """Whether this installation has the program, or can make it."""
    try:
        content = bring()
    except errors.HardwareError as error:
        fix = "use the driver's image, or run driver/attach/build driver/drakit/devices/nic/attach/client before pip wheel"
        return finding.failed(HOOK, "program", f"{error}; no interface can be shared without it", fix)
    return finding.ok(HOOK, "program", f"is part of this installation, {len(content)} bytes")


def flags_of(path: pathlib.Path) -> int:
    """The mount flags of the file system that holds a path."""
    return os.statvfs(path).f_flag


def of_folder(folder: pathlib.Path, enforce: pathlib.Path = ENFORCE, flags: Callable[[pathlib.Path], int] = flags_of) -> Iterator[Finding]:
    """Whether programs can be run from the folder, or from where it will be made."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if flags(there) & os.ST_NOEXEC:
        fix = "mount it exec, or move node.plugins_dir"
        yield finding.failed(HOOK, str(folder), f"{there} is on a file system mounted noexec, so no runtime can run the hook", fix)
    else:
        yield finding.ok(HOOK, str(folder), "programs can be run from its file system")
    if not _is_enforcing(enforce):
        yield finding.ok(HOOK, "SELinux", "does not forbid anything")
        return
    fix = (
        "where pods fail with 'Permission denied' from the hook, ausearch -m avc shows why; give the folder a type that the runtime may execute, "
        f"with semanage fcontext and restorecon on {folder}"
    )
    message = (
        f"is enforcing, and {there} has the label {_label(there)}; the container runtime must be allowed to execute files of that type"
    )
    yield finding.warning(HOOK, "SELinux", message, fix)


def _shaping(netns: str | None) -> port.Shaping:
    from drakit.devices.nic import kernel_port

    return kernel_port.KernelPort(netns).shaping()


def _is_enforcing(enforce: pathlib.Path) -> bool:
    try:
        return enforce.read_text().strip() == "1"
    except OSError:
        return False


def _label(path: pathlib.Path) -> str:
    try:
        return os.getxattr(path, "security.selinux").decode(errors="replace").rstrip("\0")
    except OSError:
        return "unknown"
