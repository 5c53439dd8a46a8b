"""An allocated ResourceClaim as a node driver sees it (resource.k8s.io/v1 ResourceClaim.status.allocation), and the result of a prepare call."""

import dataclasses
import enum
import types
from collections.abc import Mapping

from drakit.core import names, quantity, records


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimRef:
    """The kubelet's reference to a claim. The UID alone is its identity."""

    uid: names.ClaimUid
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ConfigSource(enum.Enum):
    """The author of a configuration: an admin in the DeviceClass, or a user in the claim."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpaqueConfig:
    """One entry of status.allocation.devices.config. Empty ``requests`` means all requests."""

    source: ConfigSource
    driver: str
    parameters: records.Record
    requests: tuple[str, ...] = ()

    def applies_to(self, request: str) -> bool:
        """Return whether the entry names the request, the parent of a sub-request ``parent/sub``, or nothing (all requests)."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllocationResult:
    """One device that is allocated to one request. ``share_id`` is set if and only if the device allows multiple allocations.

    The conditions are those of the device at its allocation (KEP-5007).
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: names.ShareId | None = None
    consumed_capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    admin_access: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "consumed_capacity", types.MappingProxyType(dict(self.consumed_capacity)))

    @property
    def base_request(self) -> str:
        """The request without its sub-request, as the kubelet knows it."""
        return self.request.partition("/")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """An allocated claim, with the results and configurations of every driver.

    ``pod_claim_name`` is the claim's name in its pod, if it comes from a template; else it is empty. ``is_reserved``: a pod may use the claim.
    """

    ref: ClaimRef
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()
    pod_claim_name: str = ""
    is_reserved: bool = False

    def results_of(self, driver: str) -> tuple[AllocationResult, ...]:
        """Return the results of one driver, in order."""
        return tuple(result for result in self.results if result.driver == driver)

    def configs_of(self, driver: str) -> tuple[OpaqueConfig, ...]:
        """Return the configurations of one driver from weakest to strongest: classes before the claim, later ones last."""
        own = [config for config in self.configs if config.driver == driver]
        return tuple(sorted(own, key=lambda config: config.source is ConfigSource.CLAIM))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """The claims of a list, and the UIDs of claims in it that cannot be read, so that their devices are unknown.

    ``is_complete``: a claim that is in neither does not exist.
    """

    claims: tuple[Claim, ...] = ()
    unreadable: frozenset[names.ClaimUid] = frozenset()
    is_complete: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class BindingState:
    """The progress of a claim towards its pod's binding (KEP-5007), for one driver's devices of one pool.

    ``allocated``: it has devices of the pool. ``waits``: the first binding condition of one of them is not True, and none has failed.
    """

    claim: ClaimRef
    allocated: bool
    waits: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedDevice:
    """One prepared device. ``request`` has no sub-request. ``cdi_ids`` is empty if the container needs no edit."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: names.ShareId | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The devices of a prepared claim, or a short error for the pod's event."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""
