"""What a driver leaves on its node beside the devices of prepared claims: an optional protocol, for the removal of drakit from a node."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Removable(Protocol):
    """A driver that has more to remove than its claims. It is started (``Driver.start``) before ``remove_leftovers`` is called, and then stopped."""

    def leftovers(self) -> Sequence[str]:
        """Name what this driver made on the node and still has there, with that of prepared claims. Raises HardwareError."""

    def remove_leftovers(self) -> None:
        """Remove all that ``leftovers`` names; nothing to remove is success. Raises HardwareError."""
