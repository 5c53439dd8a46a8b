"""Real GPUs: the port on NVML, through NVIDIA's binding (nvidia-ml-py), which only this package imports.

``session`` starts NVML, converts its errors into the port's, and waits for events. ``properties`` reads the properties of a GPU, ``instances`` MIG's
profiles and instances. ``adapter`` implements the port.
"""

from drakit_gpu.nvml.adapter import NvidiaSmi, NvmlGpus

__all__ = ["NvidiaSmi", "NvmlGpus"]
