"""Real GPUs: the port on NVML, through NVIDIA's own binding (nvidia-ml-py), of which the modules of this package are the only importers.

``session`` begins NVML, turns its errors into the port's, and waits for events; ``properties`` reads what a GPU says of itself, ``instances`` reads
MIG's profiles and instances, ``adapter`` is the adapter.
"""

from drakit.devices.gpu.nvml.adapter import NvidiaSmi, NvmlGpus

__all__ = ["NvidiaSmi", "NvmlGpus"]
