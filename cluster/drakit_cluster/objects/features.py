"""A Kubernetes version and its feature gates as one frozen value, and what disappears when a gate is off.

A gate that is off makes the server drop its fields silently, on create always, on update unless the stored object already uses one of
the gate's fields (ratcheting), so that switching a gate off never breaks objects that exist.
"""

import enum
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeAlias

from drakit_cluster.objects import resources, versions
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


class Gate(enum.StrEnum):
    """The gates this server reads. ``versions.GATES`` has their stages and defaults."""

    PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DEVICE_TAINTS = "DRADeviceTaints"
    DEVICE_TAINT_RULES = "DRADeviceTaintRules"
    """Whether scheduler and eviction follow DeviceTaintRules."""
    BINDING_CONDITIONS = "DRADeviceBindingConditions"
    LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
    NODE_ALLOCATABLE_RESOURCES = "DRANodeAllocatableResources"
    FRACTIONAL_CAPACITY_RANGE = "DRAFractionalCapacityRange"
    """KEP-5075: ``validRange`` counts in thousandths instead of whole units."""
    COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
    """KEP-5963."""
    DERIVED_ATTRIBUTES = "DRADerivedAttributes"
    """KEP-6080."""
    PARTITION_TYPE = "DRAPartitionableDevicesType"
    """KEP-5677."""
    OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
    """KEP-5945."""
    WORKLOAD_CLAIMS = "DRAWorkloadResourceClaims"
    """KEP-5729: claims of a PodGroup."""
    GENERIC_WORKLOAD = "GenericWorkload"
    """Whether PodGroups are served, and pods may be in one."""
    RESOURCE_POOL_STATUS = "DRAResourcePoolStatus"
    """KEP-5677."""
    ADMIN_ACCESS = "DRAAdminAccess"
    PRIORITIZED_LIST = "DRAPrioritizedList"
    CLAIM_DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
    EXTENDED_RESOURCE = "DRAExtendedResource"
    CLAIM_STATUS_RIGHTS = "DRAResourceClaimGranularStatusAuthorization"
    RESOURCE_HEALTH = "ResourceHealthStatus"
    RESOURCE_HEALTH_MESSAGE = "ResourceHealthStatusMessage"
    RESERVED_FOR_WORKLOADS = "DRAReservedForWorkloads"
    """KEP-5194, which no released Kubernetes has: claims that are reserved for a workload, for any number of pods."""
    MIXINS = "DRAResourceSliceMixins"
    """KEP-4815, off by default: ``mixins`` and ``includes`` in ResourceSlices, which no released Kubernetes has."""


_NEEDS = {
    Gate.BINDING_CONDITIONS: Gate.CLAIM_DEVICE_STATUS,
    Gate.DEVICE_TAINT_RULES: Gate.DEVICE_TAINTS,
    Gate.FRACTIONAL_CAPACITY_RANGE: Gate.CONSUMABLE_CAPACITY,
    Gate.COMPATIBILITY_GROUPS: Gate.PARTITIONABLE_DEVICES,
    Gate.RESOURCE_HEALTH_MESSAGE: Gate.RESOURCE_HEALTH,
    Gate.WORKLOAD_CLAIMS: Gate.GENERIC_WORKLOAD,
}
"""Gates that are off unless the other gate is on too."""

_SERVED_WITH = {
    "DeviceTaintRule": Gate.DEVICE_TAINT_RULES,
    "ResourcePoolStatusRequest": Gate.RESOURCE_POOL_STATUS,
    "PodGroup": Gate.GENERIC_WORKLOAD,
}
_FORMER_NAMES = {"DRAMixins": Gate.MIXINS.value}

_ALSO_ON = frozenset({Gate.RESERVED_FOR_WORKLOADS, Gate.RESOURCE_POOL_STATUS, Gate.GENERIC_WORKLOAD})
"""What the local cluster has on besides the defaults of its version, if no version was chosen, so that drivers can be tried with it."""


@functools.cache
def _defaults(version: str) -> frozenset[Gate]:
    stages = {gate: versions.stage(gate.value, version) for gate in Gate}
    return frozenset(gate for gate, stage in stages.items() if stage is not None and stage.on)


@dataclass(frozen=True, kw_only=True)
class FeatureGates:
    """A Kubernetes version, and which gates are on. The default is the newest released version's, with claims for workloads, pool statuses and
    PodGroups on.

    Mixins are off: the models of released typed clients cannot read a slice that has them.
    """

    enabled: frozenset[Gate] = field(default_factory=lambda: _defaults(versions.NEWEST) | _ALSO_ON)
    version: str = versions.NEWEST

    @classmethod
    def of(cls, changes: Mapping[str, bool], version: str = "") -> Self:
        """Return the defaults of a version, or the local cluster's, with ``changes`` by Kubernetes' names.

        Raises ValueError for an unknown version, an unknown gate, or one that the version does not have.
        """
        known = {gate.value for gate in Gate}
        changes = {_FORMER_NAMES.get(name, name): state for name, state in changes.items()}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"unknown feature gates {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        for name in changes if version else ():
            span = versions.gate_span(name)
            if span and not versions.within(span, versions.known(version)):
                raise ValueError(f"Kubernetes {version} has no feature gate {name}; {versions.have_it(span)}")
        on = {Gate(name) for name, state in changes.items() if state}
        off = {Gate(name) for name, state in changes.items() if not state}
        base = cls(version=version, enabled=_defaults(versions.known(version))) if version else cls()
        made = cls(version=base.version, enabled=(base.enabled | on) - off)
        for gate in sorted(on):
            if not made.on(gate):
                needed = _NEEDS[gate]
                raise ValueError(f"{gate.value} has no effect without {needed.value}: add --gate {needed.value}=true")
        return made

    def on(self, gate: Gate) -> bool:
        """Return whether ``gate`` is on, and the gate that it needs."""
        return gate in self.enabled and _NEEDS.get(gate, gate) in self.enabled

    @functools.cached_property
    def decoding(self) -> "FeatureGates":
        """The gates with which a server decodes writes: with those of unreleased KEPs on, so that stored fields survive until they are dropped."""
        unreleased = {gate for gate in Gate if not versions.gate_span(gate.value)}
        return FeatureGates(enabled=self.enabled | unreleased, version=self.version)

    def follows(self, rule: versions.Rule) -> bool:
        """Return whether the version has a rule."""
        return versions.within(versions.RULES[rule], self.version)

    @property
    def limits(self) -> versions.Limits:
        """The sizes that the version allows."""
        return versions.limits(self.version)

    def serves(self, resource: Resource) -> bool:
        """Return whether the local API server of this version serves a kind at its API version.

        Alpha and beta versions that a real server has off by default are served while their gate is on.
        """
        if resource.kind not in versions.SERVED:
            return True
        span = versions.SERVED[resource.kind].get(resource.version, "")
        gate = _SERVED_WITH.get(resource.kind)
        return versions.within(span, self.version) and (gate is None or resource.version == "v1" or self.on(gate))


def not_served(resource: Resource, gates: FeatureGates) -> str:
    """Return why a server of this version does not serve a kind at its API version, and what it serves."""
    span = versions.SERVED.get(resource.kind, {}).get(resource.version, "")
    if (gate := missing_gate(resource, gates)) is not None:
        return f"{resource.kind} of {resource.api_version} is off by default in Kubernetes {gates.version}: it needs feature gate {gate}"
    usable = [replace(resource, version=name) for name in versions.api_versions(resource.kind, gates.version)]
    served = [other.api_version for other in usable if other in resources.SERVED]
    has = f" by Kubernetes {gates.version}, but by {versions.since(span)}" if span else ""
    why = f"is not served{has}"
    if versions.within(span, gates.version):
        why = f"is not served here, as it is off by default in Kubernetes {gates.version}"
    return f"{resource.api_version} {why}: write {' or '.join(served) or 'another kind'}"


def gates_of_kind(resource: Resource) -> list[Gate]:
    """Return the gates that are on in a cluster with objects of a kind."""
    gate = _SERVED_WITH.get(resource.kind)
    return [gate, *filter(None, [_NEEDS.get(gate)])] if gate is not None else []


def missing_gate(resource: Resource, gates: FeatureGates) -> Gate | None:
    """Return the gate without which the version does not serve a kind at its API version; None if no gate decides that."""
    has = versions.within(versions.SERVED.get(resource.kind, {}).get(resource.version, ""), gates.version)
    return _SERVED_WITH.get(resource.kind) if has and not gates.serves(resource) else None


# Field paths by gate: "[]" walks a list, "{}" a map, a plain word names a field. Source: the drop functions of each kind's strategy
# in Kubernetes 1.36 and 1.37; the mixins rows are ours.
_SLICE: dict[Gate, str] = {
    Gate.DEVICE_TAINTS: "spec.devices[].taints",
    Gate.PARTITIONABLE_DEVICES: """spec.sharedCounters spec.perDeviceNodeSelection spec.devices[].consumesCounters
        spec.devices[].nodeName spec.devices[].nodeSelector spec.devices[].allNodes""",
    Gate.BINDING_CONDITIONS: """spec.devices[].bindingConditions spec.devices[].bindingFailureConditions
        spec.devices[].bindsToNode""",
    Gate.CONSUMABLE_CAPACITY: "spec.devices[].allowMultipleAllocations spec.devices[].capacity{}.requestPolicy",
    Gate.LIST_TYPE_ATTRIBUTES: """spec.devices[].attributes{}.bools spec.devices[].attributes{}.ints
        spec.devices[].attributes{}.strings spec.devices[].attributes{}.versions""",
    Gate.NODE_ALLOCATABLE_RESOURCES: "spec.devices[].nodeAllocatableResourceMappings spec.devices[].nodeAllocatableResources",
    Gate.COMPATIBILITY_GROUPS: "spec.devices[].consumesCounters[].compatibilityGroups",
    Gate.PARTITION_TYPE: "spec.partitionTypeAttribute",
    Gate.OPTIONAL_NODE_OPERATIONS: "spec.skipNodeOperations",
    Gate.MIXINS: """spec.mixins spec.sharedCounters[].includes spec.devices[].includes
        spec.devices[].consumesCounters[].includes""",
}
_CLAIM_SPEC: dict[Gate, str] = {
    Gate.PRIORITIZED_LIST: "spec.devices.requests[].firstAvailable",
    Gate.ADMIN_ACCESS: "spec.devices.requests[].exactly.adminAccess",
    Gate.DEVICE_TAINTS: "spec.devices.requests[].exactly.tolerations spec.devices.requests[].firstAvailable[].tolerations",
    Gate.CONSUMABLE_CAPACITY: """spec.devices.requests[].exactly.capacity spec.devices.requests[].firstAvailable[].capacity
        spec.devices.constraints[].distinctAttribute""",
    Gate.DERIVED_ATTRIBUTES: """spec.devices.requests[].exactly.derivedAttributes
        spec.devices.requests[].firstAvailable[].derivedAttributes""",
    Gate.RESERVED_FOR_WORKLOADS: "spec.reservedFor",
}
_RESULTS = "status.allocation.devices.results[]"
_CLAIM_STATUS: dict[Gate, str] = {
    Gate.ADMIN_ACCESS: f"{_RESULTS}.adminAccess",
    Gate.DEVICE_TAINTS: f"{_RESULTS}.tolerations",
    Gate.CONSUMABLE_CAPACITY: f"{_RESULTS}.shareID {_RESULTS}.consumedCapacity status.devices[].shareID",
    Gate.BINDING_CONDITIONS: f"{_RESULTS}.bindingConditions {_RESULTS}.bindingFailureConditions",
    Gate.CLAIM_DEVICE_STATUS: "status.devices",
    Gate.OPTIONAL_NODE_OPERATIONS: f"{_RESULTS}.skipNodeOperations",
    Gate.RESERVED_FOR_WORKLOADS: "status.allocation.reservedForAnyPod",
}
_HEALTH = tuple(
    f"status.{kind}[].allocatedResourcesStatus" for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
)
_FIELDS: dict[Resource, dict[Gate, str]] = {
    resources.SLICE: _SLICE,
    resources.CLAIM: {gate: f"{_CLAIM_SPEC.get(gate, '')} {_CLAIM_STATUS.get(gate, '')}" for gate in (_CLAIM_SPEC | _CLAIM_STATUS)},
    resources.CLAIM_TEMPLATE: {gate: " ".join(f"spec.{path}" for path in paths.split()) for gate, paths in _CLAIM_SPEC.items()},
    resources.POD_GROUP: {Gate.WORKLOAD_CLAIMS: "spec.resourceClaims status.resourceClaimStatuses"},
    resources.CLASS: {Gate.EXTENDED_RESOURCE: "spec.extendedResourceName"},
    resources.POOL_STATUS_REQUEST: {Gate.PARTITION_TYPE: "spec.defaultPartitionTypeAttribute"},
    resources.POD: {
        Gate.GENERIC_WORKLOAD: "spec.schedulingGroup",
        Gate.EXTENDED_RESOURCE: "status.extendedResourceClaimStatus",
        Gate.RESOURCE_HEALTH: " ".join(_HEALTH),
        Gate.RESOURCE_HEALTH_MESSAGE: " ".join(f"{path}[].resources[].message" for path in _HEALTH),
    },
}


def _rules(resource: Resource) -> list[tuple[Gate, list[str]]]:
    return [(gate, paths.split()) for gate, paths in _FIELDS.get(resource, {}).items()]


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.replace("[]", ".[]").replace("{}", ".{}").split("."))


@dataclass(frozen=True)
class _Branch:
    """The fields that are looked for in an object, each with the positions of its paths in a list, and the branches below it."""

    fields: dict[str, list[int]] = field(default_factory=dict)
    below: dict[str, "_Branch"] = field(default_factory=dict)


_Trail: TypeAlias = "tuple[_Trail, str, str | int] | None"


class _Place(NamedTuple):
    """A field of an object: the object, the field's name, and the way to the object, step by step from the last."""

    parent: Object
    name: str
    trail: _Trail

    @property
    def path(self) -> str:
        """The field's path."""
        steps, trail = [f".{self.name}"], self.trail
        while trail is not None:
            trail, step, key = trail
            steps.append(f"[{key}]" if step in ("[]", "{}") else f".{step}")
        return "".join(reversed(steps)).lstrip(".")


def _tree(paths: Iterable[tuple[str, ...]]) -> _Branch:
    root = _Branch()
    for position, (*above, name) in enumerate(paths):
        branch = root
        for step in above:
            branch = branch.below.setdefault(step, _Branch())
        branch.fields.setdefault(name, []).append(position)
    return root


def _places(value: Json, branch: _Branch, trail: _Trail = None) -> Iterator[tuple[int, _Place]]:
    """Yield every place of the fields of a tree, with the position of its path; in one walk, because an object may have thousands of members."""
    if isinstance(value, dict):
        for name, positions in branch.fields.items():
            if name in value:
                for position in positions:
                    yield position, _Place(value, name, trail)
    for step, below in branch.below.items():
        for key, child in _members(value, step):
            yield from _places(child, below, (trail, step, key))


def _members(value: Json, step: str) -> Iterable[tuple[str | int, Json]]:
    """Return what is one step below a value, each with its name or place there."""
    if step == "[]":
        return enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict):
        return ()
    if step == "{}":
        return value.items()
    return ((step, value[step]),) if step in value else ()


def _grouped(value: Json, branch: _Branch) -> list[tuple[int, list[_Place]]]:
    """Return the places of each path that has some, in the order of the paths."""
    groups: dict[int, list[_Place]] = {}
    for position, place in _places(value, branch):
        groups.setdefault(position, []).append(place)
    return sorted(groups.items())


@functools.lru_cache(maxsize=256)
def _disabled(resource: Resource, gates: FeatureGates) -> tuple[tuple[Gate, ...], _Branch]:
    """Return the gates of the paths that a server drops because they are off, and the tree of the paths."""
    off = [(gate, _steps(path)) for gate, paths in _rules(resource) if not gates.on(gate) for path in paths]
    return tuple(gate for gate, _ in off), _tree(steps for _, steps in off)


def disabled_fields(resource: Resource, obj: Object, gates: FeatureGates) -> list[tuple[Gate, str, int]]:
    """Return what a server would drop from a new object: gate, path of the first such field, and the number of such fields."""
    off, tree = _disabled(resource, gates)
    return [(off[position], places[0].path, len(places)) for position, places in _grouped(obj, tree)]


def absent_fields(resource: Resource, gates: FeatureGates) -> list[tuple[str, tuple[str, ...]]]:
    """Return the fields that the version does not have, as steps, each with the span of versions that have it.

    A field of an unreleased KEP is absent unless its gate is on.
    """
    unreleased = {path for gate, paths in _rules(resource) if not versions.gate_span(gate.value) and gates.on(gate) for path in paths}
    return [
        (span, _steps(path))
        for span, paths in versions.FIELDS.get(resource, {}).items()
        for path in paths.split()
        if not versions.within(span, gates.version) and path not in unreleased
    ]


@functools.lru_cache(maxsize=256)
def _absent(resource: Resource, gates: FeatureGates) -> tuple[tuple[str, ...], _Branch]:
    absent = absent_fields(resource, gates)
    return tuple(span for span, _ in absent), _tree(steps for _, steps in absent)


def absent_places(resource: Resource, obj: Object, gates: FeatureGates) -> list[tuple[str, str, int]]:
    """Return what a server drops from an object as unknown: span of versions, path of the first such field, and the number of such fields."""
    spans, tree = _absent(resource, gates)
    return [(spans[position], places[0].path, len(places)) for position, places in _grouped(obj, tree)]


def drop_disabled(resource: Resource, new: Object, old: Object | None, gates: FeatureGates) -> None:
    """Remove from ``new`` the fields of gates that are off, unless ``old`` already uses that gate."""
    off, tree = _disabled(resource, gates)
    used = {off[position] for position, _ in _places(old, tree)}
    for position, place in list(_places(new, tree)):
        if off[position] not in used:
            place.parent.pop(place.name, None)
