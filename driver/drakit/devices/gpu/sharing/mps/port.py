"""What the GPU driver needs of MPS control daemons: one for each grant that shares its device by MPS.

Two adapters: ``mps.Daemons`` (child processes, which end with the driver's container) and ``daemons.pods.PodDaemons`` (a pod each).
"""

from collections.abc import Callable, Collection
from typing import Protocol

from drakit.core import edits
from drakit.devices.gpu.sharing import gpu_settings


class Daemons(Protocol):
    """The control daemons of a node. A daemon that runs is never ended while its grant is prepared, however slow it is."""

    def ensure(self, grant: str, device: str, wanted: gpu_settings.Mps, *, claim: str = "") -> None:
        """Have a daemon for the grant, with its limits, on the device with this UUID; ``claim`` is for people. Raises HardwareError, ApiError.

        It need not answer yet when this returns: ``check`` waits for it.
        """

    def check(self, grant: str) -> None:
        """Return once the daemon answers and has its limits. Raises HardwareError where it does not; it is left as it is."""

    def stop(self, grant: str) -> None:
        """End the daemon of a grant and remove its folder; nothing to stop is success. Raises HardwareError when it may live on."""

    def sweep(self, known: Callable[[], Collection[str]]) -> None:
        """Remove what is left of grants that are not known; ``known`` is called after looking. Never raises DrakitError."""

    def is_alive(self, grant: str) -> bool:
        """Whether the daemon of a grant is there; cheap."""

    def access(self, grant: str) -> edits.Edits:
        """Return what a container gets to use the daemon of a grant."""
