"""Checks of NVML, NVIDIA's management library (whether it loads, its version, whether each GPU answers), and of the links of device nodes."""

import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import drakit
from drakit import vfio
from drakit.vfio import checks as vfio_checks
from drakit.vfio import kernel
from drakit_gpu.options import GpuOptions

if TYPE_CHECKING:
    from drakit_gpu import nvml

TOPIC = "nvml"
_FIX = (
    "make nvidia-smi work on this node; check the settings gpu.driver_root, gpu.library_folders and gpu.library. "
    "A running driver finds NVML within seconds, without a restart"
)
_LINKS_FIX = (
    "run on the host, at every boot: nvidia-ctk system create-dev-char-symlinks --create-all; or let the driver write to gpu.dev_root"
)
_LINKS_SHOWN = 5


def of_library(begin: "Callable[[], nvml.NvmlGpus]") -> drakit.Finding:
    """Open a session with the library, check that all GPUs answer and report Xids, and close it."""
    try:
        gpus = begin()
    except ImportError:
        return drakit.Finding.failed(TOPIC, "nvidia-ml-py", "is not installed", "pip install nvidia-ml-py")
    except drakit.DrakitError as error:
        return drakit.Finding.failed(TOPIC, "NVML", str(error), _FIX)
    try:
        versions, census = gpus.versions(), gpus.census()
        with gpus.events() as events:
            unmonitored = [f"gpu-{gpu.minor}" for gpu in census.gpus if gpu.uuid in events.unmonitored]
    except drakit.DrakitError as error:
        return drakit.Finding.failed(TOPIC, "NVML", str(error), _FIX)
    finally:
        gpus.close()
    answering, counted = len(census.gpus), len(census.gpus) + len(census.silent)
    summary = f"answers for {answering} of {_counted(counted, 'GPU')}, driver {versions.driver}, CUDA {versions.cuda}"
    if census.silent:
        named = "; ".join(f"index {gpu.index}: {gpu.error}" for gpu in census.silent)
        return drakit.Finding.failed(
            TOPIC, "NVML", f"{summary}; no answer from {named}", "run nvidia-smi -q for details; reset the GPU, or reboot the node"
        )
    if unmonitored:
        summary += f"; NVML reports no Xids of {', '.join(unmonitored)}, so the driver only polls these GPUs every few seconds"
        return drakit.Finding.warning(TOPIC, "NVML", summary, "check the kernel log of the node for Xids of these GPUs")
    return drakit.Finding.ok(TOPIC, "NVML", summary)


def of_links(handed_out: Iterable[drakit.Edits], dev_root: pathlib.Path) -> Iterator[drakit.Finding]:
    """Check that dev/char has a link to each device node of the prepared claims. Without claims there is nothing to check."""
    from drakit_gpu import device_nodes  # noqa: PLC0415

    nodes = {node for given in handed_out for node in given.device_nodes}
    missing = sorted(f"{node.major}:{node.minor} ({node.path})" for node in nodes if not device_nodes.has_link(node, dev_root))
    subject = str(dev_root / "dev/char")
    if missing:
        more = f" and {len(missing) - _LINKS_SHOWN} more" if len(missing) > _LINKS_SHOWN else ""
        message = (
            f"no link for {', '.join(missing[:_LINKS_SHOWN])}{more}: with the systemd cgroup driver, systemctl daemon-reload may take GPUs"
        )
        yield drakit.Finding.warning("device links", subject, f"{message} from running containers", _LINKS_FIX)
    elif nodes:
        yield drakit.Finding.ok("device links", subject, f"has the links of {_counted(len(nodes), 'device node')}")


def of_vfio(options: GpuOptions, bus: vfio.Bus | None = None) -> Iterator[drakit.Finding]:
    """Check what passing GPUs to virtual machines needs, and which could be passed."""
    from drakit_gpu import vfio_form  # noqa: PLC0415

    present = bus or kernel.KernelBus(options.kernel_root, dev_root=options.dev_root)
    return vfio_checks.of_node(present, vfio_form.is_gpu, setting="gpu.vfio", is_on=options.vfio)


def opened(options: GpuOptions) -> "nvml.NvmlGpus":
    """Open NVML as the driver does."""
    from drakit_gpu import driver_root, nvml  # noqa: PLC0415 - the library is needed on nodes with real GPUs only

    root = driver_root.DriverRoot(path=options.driver_root, folders=options.library_folders)
    return nvml.NvmlGpus.open(options.library, root=root, kernel_root=options.kernel_root)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
