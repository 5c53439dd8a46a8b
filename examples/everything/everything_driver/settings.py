"""What an admin may set; a profile that has more settings than these adds them. The group is the profile's name: ``gpu.devices``, GPU_DEVICES."""

import dataclasses
import pathlib
import platform


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every profile."""

    devices: int = 8
    """How many devices this node pretends to have."""

    node: str = platform.node()
    """What the UUIDs of the devices are made of: the node's name, so that they outlive the driver's pod."""

    folder: pathlib.Path = pathlib.Path("/var/lib/everything-driver")
    """A file with a device's name in this folder marks the device as broken."""
