"""What an operator may choose for the GPU driver."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSettings:
    """``library`` is the path of libnvidia-ml.so.1 (None: where the loader finds it).

    ``whole_beside_partitions`` offers an Ampere GPU whose MIG mode is on also as a whole, as KEP-4815's example does. It is then a promise of
    exclusive use only: CUDA sees no whole GPU while the mode is on, and changing the mode takes a reset that is the admin's to order. None leaves it
    to the machine: mock machines may ask for it, real ones do not.
    """

    library: pathlib.Path | None = None
    whole_beside_partitions: bool | None = None
