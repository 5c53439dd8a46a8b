"""What is around the library: the kernel's files, and nvidia-smi."""

import pathlib
import sys

from drakit_gpu import driver_root
from drakit_gpu.mock import mock_gpus


def host_root(directory: pathlib.Path, hardware: mock_gpus.MockGpus) -> pathlib.Path:
    """A root folder with what the kernel tells of the mock GPUs, MIG capabilities excepted."""
    proc, devices = directory / "proc", directory / "sys/bus/pci/devices"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(f"{hardware.boot_id()}\n")
    majors = hardware.device_majors()
    listing = f"Character devices:\n  1 mem\n{majors.nvidia} nvidia\n{majors.caps} nvidia-caps\n{majors.uvm} nvidia-uvm\n\nBlock devices:\n"
    (proc / "devices").write_text(listing)
    devices.mkdir(parents=True)
    bound = directory / "sys/bus/pci/drivers/nvidia"
    bound.mkdir(parents=True)
    (directory / "sys/module/nvidia").mkdir(parents=True)
    for gpu in hardware.gpus():
        (bound / gpu.pci_bus_id).symlink_to(devices / gpu.pci_bus_id)
        folder = directory / f"sys/devices/{gpu.pcie_root}" / gpu.pci_bus_id
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{next(iter(gpu.numa_nodes), -1)}\n")
        (devices / gpu.pci_bus_id).symlink_to(folder)
    return directory


def show_capabilities(root: pathlib.Path, hardware: mock_gpus.MockGpus) -> None:
    """Bring /proc/driver/nvidia/capabilities up to date with the instances there are."""
    for gpu in hardware.gpus():
        folder = root / f"proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig"
        for stale in folder.glob("gi*/ci*/access"):
            stale.unlink()
        for instance in hardware.gpu_instances(gpu.uuid):
            for compute in hardware.compute_instances(gpu.uuid, instance.id):
                minors = hardware.capability_minors(gpu.uuid, instance.id, compute.id)
                own = folder / f"gi{instance.id}"
                (own / f"ci{compute.id}").mkdir(parents=True, exist_ok=True)
                (own / "access").write_text(access(minors.gpu_instance))
                (own / f"ci{compute.id}" / "access").write_text(access(minors.compute_instance))


def access(minor_number: int) -> str:
    """An access file as the kernel driver writes it."""
    return f"DeviceFileMinor: {minor_number}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"


SMI = """#!{python}
import sys
_, command, flag, gpu, option, number = sys.argv
assert (command, flag, option) == ("compute-policy", "-i", "--set-timeslice"), sys.argv
if {mig!r}.get(gpu, True):
    sys.exit("Setting the time slice is not supported for GPU " + gpu)
with open({told!r}, "a") as log:
    log.write(gpu + " " + number + "\\n")
"""


def smi_root(directory: pathlib.Path, hardware: mock_gpus.MockGpus) -> driver_root.DriverRoot:
    """A driver root whose nvidia-smi notes time slices in ``slices``, and refuses those of a GPU that has MIG mode on now."""
    modes = {gpu.uuid: hardware.mig_mode(gpu.uuid) for gpu in hardware.gpus()}
    program = directory / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    on = {uuid: mode is not None and mode.current for uuid, mode in modes.items()}
    program.write_text(SMI.format(python=sys.executable, mig=on, told=str(directory / "slices")))
    program.chmod(0o755)
    return driver_root.DriverRoot(path=directory)
