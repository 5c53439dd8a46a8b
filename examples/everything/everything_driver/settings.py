"""What an admin may set; a profile that has more settings than these adds them. The group is the profile's name: ``gpu.devices``, GPU_DEVICES."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every profile."""

    devices: int = 8
    """How many devices this node pretends to have."""

    folder: pathlib.Path = pathlib.Path("/var/lib/everything-driver")
    """A file with a device's name in this folder marks the device as broken."""
