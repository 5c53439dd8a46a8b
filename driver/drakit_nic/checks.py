"""Checks of what shared network interfaces need: features of the kernel, and a program that the container runtime can run on the host.

The kernel is checked by making a share in a temporary network namespace.
"""

import functools
import json
import os
import pathlib
from collections.abc import Callable, Iterator

import drakit
from drakit import vfio
from drakit.vfio import checks as vfio_checks
from drakit.vfio import kernel
from drakit_nic import port
from drakit_nic.attach import hook_program
from drakit_nic.discovery import hardware
from drakit_nic.passthrough import differences, rdma_devices, vfio_form

KERNEL, HOOK, RDMA, RETURNED, FUNCTIONS = "kernel", "attach hook", "RDMA", "returned interface", "SR-IOV"
ENFORCE = pathlib.Path("/sys/fs/selinux/enforce")
_HOOK_TYPES = frozenset({"container_file_t", "container_var_lib_t"})
"""Types of files that a container runtime runs as ``spc_t``, the driver's own type, in the policies of Debian (selinux-policy-default) and of Fedora
and RHEL (container-selinux, container.te). The kubelet's folder has one of them.
"""
_FORGEABLE = (
    "can enforce shares, but identifies a sender by its MAC address only, which a pod with NET_RAW can forge: this kernel has no "
    "bpf_get_netns_cookie for traffic control, and no /sys/kernel/btf/vmlinux with net.net_cookie that this process may use"
)


def of_node(home: pathlib.Path, netns: str | None) -> Iterator[drakit.Finding]:
    """Check the kernel, the attach hook and the driver's folder."""
    yield of_kernel(lambda: _machine(netns).shaping())
    yield of_program(hook_program.program)
    yield from of_folder(home / hook_program.FOLDER)
    yield from of_functions(_machine(netns))
    yield from of_rdma(functools.partial(rdma_devices.subsystem, netns))
    yield from of_returned(home, functools.partial(differences.present, netns))


def of_kernel(ask: Callable[[], port.Shaping]) -> drakit.Finding:
    """Check that the kernel can enforce the rates of shares."""
    try:
        shaping = ask()
    except drakit.HardwareError as error:
        return drakit.Finding.failed(KERNEL, "traffic control", str(error), "do what the error says; run the driver as root")
    if shaping.missing:
        fix = (
            "use Linux 5.14 or later, load sch_htb, ifb, cls_bpf and act_mirred, and run as root with NET_ADMIN and BPF; "
            "until then no interface is offered"
        )
        return drakit.Finding.failed(KERNEL, "traffic control", shaping.missing, fix)
    if shaping.classifier is not port.Classifier.NETNS:
        fix = "use a kernel with BTF and without the lockdown mode confidentiality, give the driver PERFMON, or let no pod have NET_RAW"
        return drakit.Finding.warning(KERNEL, "traffic control", _FORGEABLE, fix)
    way = ", which it reads from the kernel's memory" if shaping.reads_memory else ""
    return drakit.Finding.ok(KERNEL, "traffic control", f"can enforce shares; identifies a sender by its network namespace{way}")


def of_functions(machine: port.Port) -> Iterator[drakit.Finding]:
    """Report which rates each NIC with virtual functions enforces on them, as far as the present ones show. Nothing is tried."""
    try:
        interfaces = machine.interfaces()
        with_functions = {interface.pci.physical_function for interface in interfaces if interface.pci}
        for bus_id, interface in sorted(hardware.physical_functions(interfaces).items()):
            if bus_id not in with_functions:
                continue
            if machine.guarantees(interface.name):
                text = "virtual functions get a minimum and a maximum rate"
            else:
                text = f"virtual functions get a maximum rate; a claim shows whether {interface.driver} takes a minimum rate too (attribute minRate)"
            yield drakit.Finding.ok(FUNCTIONS, interface.name, text)
    except drakit.HardwareError as error:
        yield drakit.Finding.unknown(FUNCTIONS, "virtual functions", str(error), "run as root on the host's network")


def of_program(bring: Callable[[], bytes]) -> drakit.Finding:
    """Check that this installation has the hook's program, or can build it."""
    try:
        content = bring()
    except drakit.HardwareError as error:
        fix = "use the driver's image, or run: driver/attach/build driver/drakit_nic/attach/client, then pip wheel"
        return drakit.Finding.failed(HOOK, "program", f"{error}; no interface can be shared without it", fix)
    return drakit.Finding.ok(HOOK, "program", f"is installed, {len(content)} bytes")


def flags_of(path: pathlib.Path) -> int:
    """Return the mount flags of the file system of a path."""
    return os.statvfs(path).f_flag


def label_of(path: pathlib.Path) -> str:
    """Return the SELinux label of a path, ``unknown`` where it cannot be read."""
    try:
        return os.getxattr(path, "security.selinux").decode(errors="replace").rstrip("\0")
    except OSError:
        return "unknown"


def of_folder(
    folder: pathlib.Path,
    enforce: pathlib.Path = ENFORCE,
    flags: Callable[[pathlib.Path], int] = flags_of,
    label: Callable[[pathlib.Path], str] = label_of,
) -> Iterator[drakit.Finding]:
    """Check that programs can run from the folder, or from its nearest parent that exists, which is at most the kubelet's plugin folder."""
    existing = next((path for path in (folder, *folder.parents[:2]) if path.exists()), None)
    if existing is None:
        yield drakit.Finding.unknown(HOOK, str(folder), "skipped: no kubelet folder here")
        return
    if flags(existing) & os.ST_NOEXEC:
        fix = "mount it without noexec, or move node.plugins_dir"
        yield drakit.Finding.failed(
            HOOK, str(folder), f"{existing} is on a file system mounted noexec, so the container runtime cannot run the hook", fix
        )
    else:
        yield drakit.Finding.ok(HOOK, str(folder), "programs can run from its file system")
    if not _is_enforcing(enforce):
        yield drakit.Finding.ok(HOOK, "SELinux", "is not enforcing")
        return
    present = label(existing)
    if _HOOK_TYPES & set(present.split(":")):
        yield drakit.Finding.ok(HOOK, "SELinux", f"is enforcing; container runtimes may run the hook from {existing} ({present})")
        return
    fix = (
        "if the hook fails with 'Permission denied', run ausearch -m avc to see why, then give the folder a type that the runtime may execute: "
        f"semanage fcontext and restorecon on {folder}"
    )
    message = f"is enforcing, and {existing} has the label {present}; the container runtime needs permission to execute files of that type"
    yield drakit.Finding.warning(HOOK, "SELinux", message, fix)


def of_rdma(read: Callable[[], rdma_devices.Subsystem | None]) -> Iterator[drakit.Finding]:
    """Report the mode of the RDMA subsystem, where it has devices."""
    try:
        subsystem = read()
    except OSError as error:
        yield drakit.Finding.unknown(RDMA, "mode", error.strerror or str(error), "run as root in the host's network namespace")
        return
    if subsystem is None or not subsystem.names:
        return
    devices = ", ".join(subsystem.names)
    if subsystem.exclusive:
        yield drakit.Finding.ok(RDMA, "mode", f"is exclusive: a device moves to the pod of its whole interface; the host has {devices}")
    else:
        yield drakit.Finding.ok(
            RDMA,
            "mode",
            f"is shared: every container that can open a device's nodes can use it ({devices}), beside the limits of shares; "
            "drakit gives the nodes to the pod of the whole interface only",
        )


def of_returned(home: pathlib.Path, differing: Callable[[str, drakit.Record], tuple[str, ...]]) -> Iterator[drakit.Finding]:
    """Report the interfaces that came back from a pod without some property of theirs, as long as they lack it."""
    try:
        for file, interface, recorded in differences.read(home):
            names = differing(interface, recorded)
            if names:
                values = "; ".join(f"{name} was {json.dumps(drakit.thaw_record(recorded[name]))}" for name in names)
                fix = f"set it again, or remove {file} to keep the present value"
                yield drakit.Finding.warning(RETURNED, interface, f"came back from a pod with other properties: {values}", fix)
    except (OSError, ValueError, TypeError, drakit.HardwareError) as error:
        fix = f"run as root; remove a damaged file from {home / differences.FOLDER}"
        yield drakit.Finding.unknown(RETURNED, str(home / differences.FOLDER), str(error), fix)


def of_vfio(bus: vfio.Bus | None = None, *, is_on: bool) -> Iterator[drakit.Finding]:
    """Check what passing NICs to virtual machines needs, and which could be passed."""
    return vfio_checks.of_node(bus or kernel.KernelBus(), vfio_form.is_nic, setting="nic.vfio", is_on=is_on)


def _machine(netns: str | None) -> port.Port:
    from drakit_nic import kernel_port  # noqa: PLC0415

    return kernel_port.KernelPort(netns)


def _is_enforcing(enforce: pathlib.Path) -> bool:
    try:
        return enforce.read_text().strip() == "1"
    except OSError:
        return False
