"""Checks of NVML, NVIDIA's management library: whether it loads, its version, and whether each GPU answers."""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from drakit import settings as values
from drakit.cli import composition
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors
from drakit.telemetry import plurals

if TYPE_CHECKING:
    from drakit.devices.gpu import nvml

TOPIC = "nvml"


def examine(settings: values.Settings) -> Iterator[Finding]:
    """Check NVML if this node has NVIDIA's kernel driver; the check of devices reports a missing one."""
    if composition.AUTHORED.get() is None and settings.gpu.enabled and settings.mock.machine is None and composition.has_gpus(settings):
        yield of_library(functools.partial(_open, settings.gpu))


def of_library(begin: "Callable[[], nvml.NvmlGpus]") -> Finding:
    """Open a session with the library, check that all GPUs answer and report Xids, and close it."""
    from drakit.devices.gpu.inventory import discovery

    try:
        gpus = begin()
    except ImportError:
        return finding.failed(TOPIC, "nvidia-ml-py", "is not installed", "pip install 'drakit[gpu]'")
    except errors.DrakitError as error:
        return finding.failed(
            TOPIC, "NVML", str(error), "make nvidia-smi work on this node; check the settings gpu.library and gpu.driver_root"
        )
    try:
        versions, census = gpus.versions(), gpus.census()
        with gpus.events() as events:
            unmonitored = [f"gpu-{gpu.minor}" for gpu in census.gpus if gpu.uuid in events.unmonitored]
    except errors.DrakitError as error:
        return finding.failed(TOPIC, "NVML", str(error), "make nvidia-smi work on this node")
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


def _open(gpu: values.Gpu) -> "nvml.NvmlGpus":
    """Open NVML as the driver does."""
    from drakit.devices.gpu import host, nvml

    return nvml.NvmlGpus.open(gpu.library, root=host.DriverRoot(path=gpu.driver_root), kernel_root=gpu.kernel_root)
