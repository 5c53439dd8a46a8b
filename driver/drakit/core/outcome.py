"""What a prepare call answers for one claim (kubelet DRA v1 NodePrepareResourceResponse)."""

import dataclasses

from drakit.core import names


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedDevice:
    """One prepared device. ``request`` is the base request, without a sub-request; ``cdi_ids`` is empty when the container needs no edit."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: names.ShareId | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Devices of a prepared claim, or a short error for the pod's event; never both."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""
