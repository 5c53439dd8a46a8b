"""Which fixed layout a GPU has by the settings, and why a GPU cannot have it. Pure functions."""

import dataclasses
from collections.abc import Sequence

from drakit_gpu import port
from drakit_gpu.mig import layouts, partitioning
from drakit_gpu.options import MigLayout

KEY = "gpu.mig_layouts"
NOT_IN_LAYOUT = f"{KEY} does not name it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedLayout:
    """The layout of one GPU. ``is_whole`` is true where it has no partitions. ``reason`` and ``fix`` say why the GPU cannot have it, or are empty."""

    partitions: tuple[partitioning.Partition, ...] = ()
    is_whole: bool = False
    reason: str = ""
    fix: str = ""

    @property
    def why_outside(self) -> str:
        """Why a device that the GPU could have is not offered."""
        return f"{self.reason}; {self.fix}" if self.reason else NOT_IN_LAYOUT


def of_gpu(
    gpu: port.Gpu,
    device: str,
    mode: port.MigMode | None,
    possible: Sequence[partitioning.Partition],
    settings: Sequence[MigLayout],
    *,
    can_be_whole: bool,
) -> FixedLayout | None:
    """Return the layout of a GPU, None where no setting matches. A GPU that cannot have its layout is offered in no form.

    ``device`` is the name of its whole device, ``possible`` are the partitions that it can have now.
    """
    matching = ((number, layout) for number, layout in enumerate(settings) if layout.matches(device=device, product=gpu.product_name))
    number, layout = next(matching, (0, None))
    if layout is None:
        return None
    key = f"{KEY}[{number}]"
    if (unfit := _mode_error(gpu, mode, layout, key, has_partitions=bool(possible), can_be_whole=can_be_whole)) is not None:
        return unfit
    try:
        return FixedLayout(partitions=layouts.place(possible, layout.partitions), is_whole=not layout.partitions)
    except layouts.LayoutError as error:
        fix = f"correct {key}.partitions; nvidia-smi mig -lgip and -lgipp list profiles and placements"
        return FixedLayout(reason=f"{key}.partitions: {error}", fix=fix)


def _mode_error(
    gpu: port.Gpu, mode: port.MigMode | None, layout: MigLayout, key: str, *, has_partitions: bool, can_be_whole: bool
) -> FixedLayout | None:
    """Return why the GPU's MIG mode does not fit its layout, None if it does."""
    nvidia_smi, narrow = f"nvidia-smi -i {gpu.pci_bus_id} -mig", f"write a glob in {key}.match that does not match this GPU"
    wanted = f"{key}.partitions names {layouts.describe(layout.partitions)}"
    if not layout.partitions and not can_be_whole:
        return FixedLayout(
            reason=f"{key}.partitions is empty, so the GPU is offered as a whole only, but MIG mode is on",
            fix=f"turn MIG mode off ({nvidia_smi} 0), or name profiles in {key}.partitions",
        )
    if layout.partitions and not has_partitions and mode is None:
        return FixedLayout(reason=f"{wanted}, but the GPU has no MIG", fix=narrow)
    if layout.partitions and not has_partitions:
        return FixedLayout(reason=f"{wanted}, but MIG mode is off", fix=f"turn MIG mode on ({nvidia_smi} 1), or {narrow}")
    return None
