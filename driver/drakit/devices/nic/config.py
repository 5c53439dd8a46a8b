"""Opaque parameters of NIC claims."""

import dataclasses
import re
from typing import ClassVar

from drakit.core import errors

_IF_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,14}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NicConfig:
    """How a share is presented to the container.

    ``interface_name`` is the name the share is to have in the pod: 1 to 15 letters, digits, '-', '_' and '.', the first one no '.'. This release
    tells it to the container (see ``edits``) and makes no interface. Empty: the container is told no name. Raises ConfigError.
    """

    api_version: ClassVar[str] = "nic.drakit.dev/v1alpha1"
    kind: ClassVar[str] = "NicConfig"

    interface_name: str = ""

    def __post_init__(self) -> None:
        if self.interface_name and not _IF_NAME.fullmatch(self.interface_name):
            raise errors.ConfigError(
                f"{self.interface_name[:64]!r} is not an interface name (1 to 15 letters, digits, '-', '_' and '.', first no '.')",
                field="interfaceName",
            )
        if self.interface_name == "lo":
            raise errors.ConfigError("'lo' is the loopback of every pod", field="interfaceName")
