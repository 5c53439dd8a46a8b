"""The parts of the API server's objects that the dashboard shows, decoded."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated

from drakit.core import claim as claims
from drakit.core import claim_status
from drakit.core.encoding import wire
from drakit.kube import api_objects, claim_codec, stored_claim, transport

_PODS = "pods"
NEVER = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """An object's metadata. ``deleted`` is the time of its deletion request, empty without one."""

    namespace: Annotated[str, wire.Field(name="metadata.namespace")] = ""
    name: Annotated[str, wire.Field(name="metadata.name")] = ""
    uid: Annotated[str, wire.Field(name="metadata.uid")] = ""
    created: Annotated[str, wire.Field(name="metadata.creationTimestamp")] = ""
    deleted: Annotated[str, wire.Field(name="metadata.deletionTimestamp")] = ""

    @property
    def label(self) -> str:
        """Return namespace/name."""
        return "/".join(filter(None, (self.namespace, self.name)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition of a pod or a node (status.conditions[])."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContainerStatus:
    """Why a container does not run yet (status.containerStatuses[].state.waiting)."""

    reason: Annotated[str, wire.Field(name="state.waiting.reason")] = ""
    message: Annotated[str, wire.Field(name="state.waiting.message")] = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodClaim:
    """A claim of a pod (spec.resourceClaims[]), or the name of a generated one (status.resourceClaimStatuses[])."""

    name: str = ""
    claim: Annotated[str, wire.Field(name="resourceClaimName")] = ""
    template: Annotated[str, wire.Field(name="resourceClaimTemplateName")] = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
    """What a container asks for (spec.containers[].resources.limits)."""

    limits: Annotated[Mapping[str, object], wire.Field(name="resources.limits")] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod(Named):
    """A pod."""

    node: Annotated[str, wire.Field(name="spec.nodeName")] = ""
    phase: Annotated[str, wire.Field(name="status.phase")] = ""
    claims: Annotated[tuple[PodClaim, ...], wire.Field(name="spec.resourceClaims")] = ()
    generated: Annotated[tuple[PodClaim, ...], wire.Field(name="status.resourceClaimStatuses")] = ()
    extended: Annotated[str, wire.Field(name="status.extendedResourceClaimStatus.resourceClaimName")] = ""
    containers: Annotated[tuple[Container, ...], wire.Field(name="spec.containers")] = ()
    conditions: Annotated[tuple[Condition, ...], wire.Field(name="status.conditions")] = ()
    statuses: Annotated[tuple[ContainerStatus, ...], wire.Field(name="status.containerStatuses")] = ()

    @property
    def resources(self) -> Mapping[str, object]:
        """Return the extended resources of the containers, whose names have a domain other than Kubernetes' own."""
        return {
            name: amount
            for container in self.containers
            for name, amount in container.limits.items()
            if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
        }

    @property
    def claim_names(self) -> Sequence[str]:
        """Return the names of the pod's claims as far as they exist."""
        generated = {entry.name: entry.claim for entry in self.generated}
        listed = [entry.claim or generated.get(entry.name, "") for entry in self.claims]
        return [name for name in (*listed, self.extended) if name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node(Named):
    """A node."""

    is_cordoned: Annotated[bool, wire.Field(name="spec.unschedulable")] = False
    conditions: Annotated[tuple[Condition, ...], wire.Field(name="status.conditions")] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return why no pod can start here: a cordon, or a node that is not ready."""
        ready = next((condition for condition in self.conditions if condition.type == "Ready"), Condition(status="True"))
        reason = ": ".join(filter(None, ("not ready", ready.message or ready.reason)))
        return (*(("cordoned",) if self.is_cordoned else ()), *((reason,) if ready.status != "True" else ()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """What a request asks for (spec.devices.requests[].exactly or an entry of firstAvailable)."""

    device_class: Annotated[str, wire.Field(name="deviceClassName")] = ""
    count: int = 1
    mode: Annotated[str, wire.Field(name="allocationMode")] = ""
    capacity: Annotated[Mapping[str, object], wire.Field(name="capacity.requests")] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        number = "all" if self.mode == "All" else f"{self.count} x"
        amounts = ", ".join(f"{name} {amount}" for name, amount in self.capacity.items())
        return f"{number} {self.device_class}" + (f" ({amounts})" if amounts else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a claim."""

    exactly: Ask | None = None
    first_available: tuple[Ask, ...] = ()

    @property
    def asks(self) -> tuple[Ask, ...]:
        """Return what it asks for, the preferred alternative first."""
        return self.first_available if self.exactly is None else (self.exactly, *self.first_available)

    def __str__(self) -> str:
        return " or ".join(filter(None, map(str, self.asks)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spec(Named):
    requests: Annotated[tuple[Request, ...], wire.Field(name="spec.devices.requests")] = ()
    reserved: Annotated[tuple[stored_claim.Consumer, ...], wire.Field(name="status.reservedFor")] = ()
    allocation: Annotated[object, wire.Field(name="status.allocation")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Network:
    interface: Annotated[str, wire.Field(name="networkData.interfaceName")] = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim. ``classes`` are those of its requests.

    ``devices`` is None without an allocation. ``prepared`` has the Ready condition of devices, and ``interfaces`` the name of their network interface
    in the pod, by driver, pool, name and share id, as far as their driver wrote one (status.devices[]).
    """

    meta: Named
    asks: str
    pods: tuple[str, ...]
    devices: claims.Claim | None
    prepared: Mapping[tuple[str, str, str, str], bool]
    interfaces: Mapping[tuple[str, str, str, str], str]
    classes: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Return what the claim is doing."""
        return "deleting" if self.meta.deleted else "waiting" if self.devices is None else "allocated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An Event of core/v1."""

    created: Annotated[str, wire.Field(name="metadata.creationTimestamp")] = ""
    about_kind: Annotated[str, wire.Field(name="involvedObject.kind")] = ""
    about_namespace: Annotated[str, wire.Field(name="involvedObject.namespace")] = ""
    about_name: Annotated[str, wire.Field(name="involvedObject.name")] = ""
    last_observed: Annotated[str, wire.Field(name="series.lastObservedTime")] = ""
    last_timestamp: str = ""
    event_time: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1

    @property
    def time(self) -> str:
        """Return when the event was last seen."""
        return self.last_observed or self.last_timestamp or self.event_time or self.created

    @property
    def about(self) -> str:
        """Return kind and name of the event's object."""
        return f"{self.about_kind} {'/'.join(filter(None, (self.about_namespace, self.about_name)))}"


def pod(item: transport.Object) -> Pod:
    """Return a pod."""
    return api_objects.FORMAT.decode(Pod, item)


def node(item: transport.Object) -> Node:
    """Return a node."""
    return api_objects.FORMAT.decode(Node, item)


def event(item: transport.Object) -> Event:
    """Return an event."""
    return api_objects.FORMAT.decode(Event, item)


def claim(item: transport.Object) -> Claim:
    """Return a claim."""
    spec = api_objects.FORMAT.decode(_Spec, item)
    stored = stored_claim.read(item)
    return Claim(
        meta=spec,
        asks=", ".join(filter(None, map(str, spec.requests))),
        pods=tuple(f"{spec.namespace}/{entry.name}" for entry in spec.reserved if entry.resource == _PODS and not entry.api_group),
        devices=None if spec.allocation is None else claim_codec.decode(item, claim_codec.ref_of(item)),
        prepared={
            (entry.driver, *entry.key): condition.get("status") == "True"
            for entry in stored.entries
            for condition in entry.conditions
            if condition.get("type") == claim_status.READY
        },
        interfaces={(entry.driver, *entry.key): api_objects.FORMAT.decode(_Network, entry.stored).interface for entry in stored.entries},
        classes=tuple(dict.fromkeys(ask.device_class for request in spec.requests for ask in request.asks)),
    )


def moment(text: str) -> datetime.datetime:
    """Return the moment of an RFC 3339 text, which may have fractions of a second; NEVER for a text that is no time."""
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return NEVER
