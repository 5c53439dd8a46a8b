"""Claims and pods as users write them, for a driver's own checks at admission and in ``lint``: what they request, before a device is allocated.

Every ``field`` is the path in the object that the user wrote, such as ``spec.devices.requests[0]``, and the field of an error about it.
"""

import dataclasses
import types
from collections.abc import Mapping

from drakit.core import quantity, records


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """One request of a claim (resource.k8s.io/v1 DeviceRequest).

    ``is_own``: only devices of this driver satisfy it, as its class or a selector shows. It is False where that is not known. With ``alternatives``
    (firstAvailable, each named ``request/alternative``), it is own if each of them is, and they have class, selectors, count and capacity instead.
    ``class_configs`` are those of the class for this driver, as far as the class is known; the claim's are stronger.
    ``selectors`` are CEL expressions, without those of the class. ``count`` is None for all matching devices. ``capacity`` is what is requested of
    each device.
    """

    name: str
    field: str
    is_own: bool
    device_class: str = ""
    class_configs: "tuple[ConfigSpec, ...]" = ()
    selectors: tuple[str, ...] = ()
    count: int | None = 1
    admin_access: bool = False
    capacity: Mapping[str, quantity.Quantity] = dataclasses.field(default_factory=dict)
    alternatives: "tuple[RequestSpec, ...]" = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", types.MappingProxyType(dict(self.capacity)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigSpec:
    """Valid parameters of a claim or DeviceClass for this driver, decoded as one of ``config_types``. Empty ``requests`` means all requests.

    ``field`` is the path of the parameters: ``spec.devices.config[0].opaque.parameters``, in a class ``spec.config[0].opaque.parameters``.
    """

    config: object
    field: str
    requests: tuple[str, ...] = ()

    def applies_to(self, request: str) -> bool:
        """Return whether it is for a request or an alternative ``request/alternative``. One that names no request is for each that it fits."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimSpec:
    """A ResourceClaim or ResourceClaimTemplate as its user wrote it. ``configs`` are those for this driver, the later ones stronger.

    ``name`` is empty if the API server generates it. ``spec`` is the JSON of the ResourceClaimSpec, with all that has no field here.
    """

    namespace: str
    name: str
    requests: tuple[RequestSpec, ...]
    configs: tuple[ConfigSpec, ...]
    spec: records.Record

    @property
    def own_requests(self) -> tuple[RequestSpec, ...]:
        """The requests that only devices of this driver satisfy."""
        return tuple(request for request in self.requests if request.is_own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestUse:
    """A request whose devices a container gets. ``claim`` is the claim's name in the pod; empty for a request by an extended resource.

    ``field`` is in the pod: ``spec.containers[0].resources.claims[0]``.
    """

    container: str
    claim: str
    request: RequestSpec
    field: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodSpec:
    """A pod as its user wrote it, with its claims.

    ``claims`` are by their names in the pod; one that does not exist yet, or cannot be read, is missing. ``uses`` are in the order of the containers,
    those of init containers first. A container that names a claim without a request uses all of its requests. ``spec`` is the JSON of the pod's spec,
    and ``field`` its path: ``spec``, or ``spec.template.spec`` in a Deployment that ``lint`` checks.
    """

    namespace: str
    name: str
    field: str
    host_network: bool
    claims: Mapping[str, ClaimSpec]
    uses: tuple[RequestUse, ...]
    spec: records.Record

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", types.MappingProxyType(dict(self.claims)))
