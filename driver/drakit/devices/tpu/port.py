"""What the driver needs of one node's TPU chips."""

import dataclasses
from typing import Protocol


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """One chip of this node: its device node and the numbers of it."""

    path: str
    major: int
    minor: int


class Port(Protocol):
    """The chips of one node. They are given to one user at a time, all together."""

    def chips(self) -> tuple[Chip, ...]:
        """All chips of the node; raises HardwareError."""

    def attach(self, user: str) -> None:
        """Give the chips to a user; theirs already is success. Raises DeviceBusyError while another has them, HardwareError."""

    def detach(self, user: str) -> None:
        """Take the chips from a user; not theirs is success. Raises HardwareError."""
