"""Checks of NVML, NVIDIA's management library (whether it loads, its version, whether each GPU answers), and of the links of device nodes."""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from drakit import settings as values
from drakit.cli import composition
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors, lifecycle
from drakit.telemetry import plurals

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


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check NVML if this node has NVIDIA's kernel driver; the check of devices reports a missing one."""
    if composition.AUTHORED.get() is None and settings.gpu.enabled and settings.mock.machine is None and composition.has_gpus(settings):
        yield of_library(functools.partial(_open, settings.gpu))


def of_library(begin: "Callable[[], nvml.NvmlGpus]") -> Finding:
    """Open a session with the library, check that all GPUs answer and report Xids, and close it."""
    from drakit_gpu.inventory import discovery

    try:
        gpus = begin()
    except ImportError:
        return finding.failed(TOPIC, "nvidia-ml-py", "is not installed", "pip install 'drakit[gpu]'")
    except errors.DrakitError as error:
        return finding.failed(TOPIC, "NVML", str(error), _FIX)
    try:
        versions, census = gpus.versions(), gpus.census()
        with gpus.events() as events:
            unmonitored = [f"gpu-{gpu.minor}" for gpu in census.gpus if gpu.uuid in events.unmonitored]
    except errors.DrakitError as error:
        return finding.failed(TOPIC, "NVML", str(error), _FIX)
    finally:
        gpus.close()
    answering, counted = len(census.gpus), len(census.gpus) + len(census.silent)
    summary = f"answers for {answering} of {plurals.counted(counted, 'GPU')}, driver {versions.driver}, CUDA {versions.cuda}"
    if census.silent:
        named = discovery.describe(discovery.silent_gpus(census))
        return finding.failed(
            TOPIC, "NVML", f"{summary}; no answer from {named}", "run nvidia-smi -q for details; reset the GPU, or reboot the node"
        )
    if unmonitored:
        summary += f"; NVML reports no Xids of {', '.join(unmonitored)}, so the driver only polls these GPUs every few seconds"
        return finding.warning(TOPIC, "NVML", summary, "check the kernel log of the node for Xids of these GPUs")
    return finding.ok(TOPIC, "NVML", summary)


def of_links(entries: Iterable[lifecycle.Entry], dev_root: pathlib.Path) -> Iterator[Finding]:
    """Check that dev/char has a link to each device node of the prepared claims. Without claims there is nothing to check."""
    from drakit_gpu import device_nodes

    handed_out = {node for entry in entries for grant in entry.grants if grant.edits for node in grant.edits.device_nodes}
    missing = sorted(f"{node.major}:{node.minor} ({node.path})" for node in handed_out if not device_nodes.has_link(node, dev_root))
    subject = str(dev_root / "dev/char")
    if missing:
        more = f" and {len(missing) - _LINKS_SHOWN} more" if len(missing) > _LINKS_SHOWN else ""
        message = (
            f"no link for {', '.join(missing[:_LINKS_SHOWN])}{more}: with the systemd cgroup driver, systemctl daemon-reload may take GPUs"
        )
        yield finding.warning("device links", subject, f"{message} from running containers", _LINKS_FIX)
    elif handed_out:
        yield finding.ok("device links", subject, f"has the links of {plurals.counted(len(handed_out), 'device node')}")


def _open(gpu: values.Gpu) -> "nvml.NvmlGpus":
    """Open NVML as the driver does."""
    from drakit_gpu import driver_root, nvml

    root = driver_root.DriverRoot(path=gpu.driver_root, folders=gpu.library_folders)
    return nvml.NvmlGpus.open(gpu.library, root=root, kernel_root=gpu.kernel_root)
