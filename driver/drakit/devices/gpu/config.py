"""Opaque parameters a claim or class may carry for GPUs.

Neither kind has a field yet: they exist so that parameters are recognised and anything unknown in them is refused by name.
"""

import dataclasses
from typing import ClassVar

API_VERSION = "gpu.drakit.dev/v1alpha1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuConfig:
    """Parameters of a whole GPU."""

    api_version: ClassVar[str] = API_VERSION
    kind: ClassVar[str] = "GpuConfig"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MigConfig:
    """Parameters of a MIG partition."""

    api_version: ClassVar[str] = API_VERSION
    kind: ClassVar[str] = "MigConfig"


AnyConfig = GpuConfig | MigConfig
