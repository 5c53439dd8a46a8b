"""NVML, NVIDIA's library: whether it is there, whether it works, and what it is."""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from drakit import settings as values
from drakit.cli import composition, output
from drakit.cli.doctor import finding
from drakit.cli.doctor.finding import Finding
from drakit.core import errors

if TYPE_CHECKING:
    from drakit.devices.gpu import nvml

TOPIC = "nvml"


def examine(settings: values.Settings) -> Iterator[Finding]:
    """NVML, where this node has NVIDIA's kernel driver; that it has none is said with the devices."""
    if composition.AUTHORED.get() is None and settings.gpu.enabled and settings.mock.machine is None and composition.has_gpus(settings):
        yield of_library(functools.partial(_open, settings.gpu))


def of_library(begin: "Callable[[], nvml.NvmlGpus]") -> Finding:
    """What a session with the library says; it is ended again."""
    from drakit.devices.gpu.inventory import discovery

    try:
        gpus = begin()
    except ImportError:
        return finding.failed(TOPIC, "nvidia-ml-py", "is not installed", "pip install 'drakit[gpu]'")
    except errors.DrakitError as error:
        return finding.failed(TOPIC, "NVML", str(error), "nvidia-smi must work on this node; see gpu.library and gpu.driver_root")
    try:
        versions, census = gpus.versions(), gpus.census()
        with gpus.events() as events:
            deaf = [f"gpu-{gpu.minor}" for gpu in census.gpus if gpu.uuid in events.unmonitored]
    except errors.DrakitError as error:
        return finding.failed(TOPIC, "NVML", str(error), "nvidia-smi must work on this node")
    finally:
        gpus.close()
    answering, counted = len(census.gpus), len(census.gpus) + len(census.silent)
    summary = f"answers for {answering} of {output.counted(counted, 'GPU')}, driver {versions.driver}, CUDA {versions.cuda}"
    if census.silent:
        named = discovery.describe(discovery.silent_gpus(census))
        return finding.failed(
            TOPIC, "NVML", f"{summary}; no answer from {named}", "nvidia-smi -q says more; reset the GPU, or reboot the node"
        )
    if deaf:
        summary += f"; no Xids of {', '.join(deaf)}, which are only looked at every few seconds"
        return finding.warning(TOPIC, "NVML", summary, "look for Xids of these GPUs in the kernel log of the node")
    return finding.ok(TOPIC, "NVML", summary)


def _open(gpu: values.Gpu) -> "nvml.NvmlGpus":
    """As the driver opens it."""
    from drakit.devices.gpu import host, nvml

    return nvml.NvmlGpus.open(gpu.library, root=host.DriverRoot(path=gpu.driver_root), kernel_root=gpu.kernel_root)
