"""The interface to MPS control daemons: one for each grant that shares its device by MPS.

Two adapters: ``child_daemons.ChildDaemons`` (child processes, which end with the driver's container) and ``pod_daemons.PodDaemons`` (a pod each).
"""

from collections.abc import Callable, Collection
from typing import Protocol

from drakit.core import edits
from drakit.devices.gpu.sharing import gpu_settings


class Daemons(Protocol):
    """The control daemons of a node. A running daemon is never stopped while its grant is prepared, even if it does not answer."""

    def ensure(self, grant: str, device: str, wanted: gpu_settings.Mps, *, claim: str = "") -> None:
        """Start a daemon for the grant, with its limits, on the device with this UUID, where none runs. Raises HardwareError, ApiError.

        ``claim`` is shown to people. The daemon need not answer yet when this returns: ``check`` waits for it.
        """

    def check(self, grant: str) -> None:
        """Return once the daemon answers and has its limits. Raises HardwareError where it does not; the daemon is left alone."""

    def stop(self, grant: str) -> None:
        """Stop the daemon of a grant and remove its folder; a missing daemon is success. Raises HardwareError when it may still run."""

    def sweep(self, known: Callable[[], Collection[str]]) -> None:
        """Remove the remains of unknown grants; ``known`` is called after they are listed. Never raises DrakitError."""

    def is_alive(self, grant: str) -> bool:
        """Return whether the daemon of a grant runs; cheap."""

    def access(self, grant: str) -> edits.Edits:
        """Return what a container gets to use the daemon of a grant."""
