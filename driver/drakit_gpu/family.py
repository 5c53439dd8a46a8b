"""The GPU family as drakit's commands know it, before NVML is loaded."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import drakit
from drakit_gpu.options import GpuOptions

LABELS: Mapping[str, str | None] = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
    "nvidia.com/gpu.present": "true",
    "cloud.google.com/gke-accelerator": None,
    "kubernetes.azure.com/accelerator": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "drakit.dev/gpu": "true",
}
"""The node labels of which the manifests need one to place the GPU driver, with their values; None stands for any value."""


class GpuFamily(drakit.Family[GpuOptions]):
    """NVIDIA GPUs: whole, as MIG partitions, and shared."""

    name = "gpu"
    options = GpuOptions
    machine_key: ClassVar[str] = "gpus"

    def driver_name(self, options: GpuOptions) -> str:
        return options.driver_name

    def is_enabled(self, options: GpuOptions) -> bool:
        return options.enabled

    def build(self, options: GpuOptions, site: drakit.Site) -> drakit.Driver[Any]:
        from drakit_gpu import assembly  # noqa: PLC0415 - commands that open no GPU need none of it

        return assembly.assemble(options, site)

    def missing(self, options: GpuOptions) -> str:
        from drakit_gpu import host  # noqa: PLC0415

        if host.Host(options.kernel_root).has_driver():
            return ""
        file = options.kernel_root / "proc/driver/nvidia/version"
        return f"GPUs are not served: {file} is missing, so NVIDIA's kernel driver is not loaded; to use mock hardware, add --mock MACHINE"

    def rules(self, options: GpuOptions) -> drakit.Rules:  # noqa: ARG002
        from drakit_gpu import config as parameters  # noqa: PLC0415

        return parameters.rules()

    def check_node(self, options: GpuOptions, site: drakit.Site) -> Iterator[drakit.Finding]:  # noqa: ARG002
        from drakit_gpu import checks  # noqa: PLC0415

        yield checks.of_library(lambda: checks.opened(options))
        yield from checks.of_vfio(options)

    def check_claims(self, options: GpuOptions, handed_out: Sequence[drakit.Edits]) -> Iterable[drakit.Finding]:
        from drakit_gpu import checks  # noqa: PLC0415

        return checks.of_links(handed_out, options.dev_root)

    def rights(self, options: GpuOptions) -> Sequence[drakit.Right]:
        if options.mps_template is None:
            return ()
        namespace, _, name = options.mps_template.partition("/")
        why, verbs = "to run MPS daemons in pods", ("create", "get", "list", "delete")
        return (
            drakit.Right(group="", resource="pods", verbs=verbs, needed=False, why=why, namespace=namespace),
            drakit.Right(group="", resource="podtemplates", verbs=("get",), needed=False, why=why, name=name, namespace=namespace),
        )

    def placing_labels(self) -> Mapping[str, str | None]:
        return LABELS

    def local_path(self, options: GpuOptions, path: pathlib.Path) -> pathlib.Path | None:
        on_host = options.driver_root_on_host
        if on_host is not None and path.is_relative_to(on_host):
            return options.driver_root / path.relative_to(on_host)
        return None


FAMILY = GpuFamily()
