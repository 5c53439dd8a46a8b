"""Kubernetes' feature gates as one frozen value, and what disappears when a gate is off.

A gate that is off makes the server drop its fields silently, on create always, on update unless the stored object already uses one of
the gate's fields (ratcheting), so that switching a gate off never breaks objects that exist.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from drakit_cluster.objects import resources
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource


class Gate(enum.StrEnum):
    """The gates this server reads. All but the last three are Kubernetes' own names."""

    PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DEVICE_TAINTS = "DRADeviceTaints"
    DEVICE_TAINT_RULES = "DRADeviceTaintRules"
    """Whether scheduler and eviction follow DeviceTaintRules. Kubernetes 1.36 has it off, as the API that it needs is."""
    BINDING_CONDITIONS = "DRADeviceBindingConditions"
    LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
    NODE_ALLOCATABLE_RESOURCES = "DRANodeAllocatableResources"
    WORKLOAD_CLAIMS = "DRAWorkloadResourceClaims"
    """KEP-5729: claims of a PodGroup."""
    ADMIN_ACCESS = "DRAAdminAccess"
    PRIORITIZED_LIST = "DRAPrioritizedList"
    CLAIM_DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
    EXTENDED_RESOURCE = "DRAExtendedResource"
    CLAIM_STATUS_RIGHTS = "DRAResourceClaimGranularStatusAuthorization"
    RESOURCE_HEALTH = "ResourceHealthStatus"
    RESOURCE_HEALTH_MESSAGE = "ResourceHealthStatusMessage"
    RESERVED_FOR_WORKLOADS = "DRAReservedForWorkloads"
    """KEP-5194, which no released Kubernetes has: claims that are reserved for a workload, for any number of pods."""
    MIXINS = "DRAMixins"
    """Ours, off by default: ``mixins`` and ``includes`` in ResourceSlices, which no released Kubernetes has."""
    COUNTERS_BESIDE_DEVICES = "DRACountersBesideDevices"
    """Ours: the older rule (1.33, 1.34) under which one slice may hold both sharedCounters and devices."""


_NEEDS = {
    Gate.BINDING_CONDITIONS: Gate.CLAIM_DEVICE_STATUS,
    Gate.DEVICE_TAINT_RULES: Gate.DEVICE_TAINTS,
    Gate.RESOURCE_HEALTH_MESSAGE: Gate.RESOURCE_HEALTH,
}
"""Gates that are off unless the other gate is on too."""

_OFF_BY_DEFAULT = frozenset(
    {Gate.LIST_TYPE_ATTRIBUTES, Gate.NODE_ALLOCATABLE_RESOURCES, Gate.COUNTERS_BESIDE_DEVICES, Gate.MIXINS, Gate.WORKLOAD_CLAIMS}
)


@dataclass(frozen=True, kw_only=True)
class FeatureGates:
    """Which gates are on. The default is Kubernetes 1.36's, with claims for workloads and DeviceTaintRules on.

    Mixins are off: the models of released typed clients cannot read a slice that has them.
    """

    enabled: frozenset[Gate] = field(default_factory=lambda: frozenset(Gate) - _OFF_BY_DEFAULT)

    @classmethod
    def of(cls, changes: Mapping[str, bool]) -> Self:
        """Return the defaults with ``changes`` by Kubernetes' names; an unknown name raises ValueError."""
        known = {gate.value for gate in Gate}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"unknown feature gates {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        on = {Gate(name) for name, state in changes.items() if state}
        off = {Gate(name) for name, state in changes.items() if not state}
        return cls(enabled=(cls().enabled | on) - off)

    def on(self, gate: Gate) -> bool:
        """Return whether ``gate`` is on, and the gate that it needs."""
        return gate in self.enabled and _NEEDS.get(gate, gate) in self.enabled


# Field paths by gate: "[]" walks a list, "{}" a map, a plain word names a field. Source: the drop functions of each kind's strategy
# in Kubernetes 1.36; the mixins rows are ours.
_SLICE: dict[Gate, str] = {
    Gate.DEVICE_TAINTS: "spec.devices[].taints",
    Gate.PARTITIONABLE_DEVICES: """spec.sharedCounters spec.perDeviceNodeSelection spec.devices[].consumesCounters
        spec.devices[].nodeName spec.devices[].nodeSelector spec.devices[].allNodes""",
    Gate.BINDING_CONDITIONS: """spec.devices[].bindingConditions spec.devices[].bindingFailureConditions
        spec.devices[].bindsToNode""",
    Gate.CONSUMABLE_CAPACITY: "spec.devices[].allowMultipleAllocations spec.devices[].capacity{}.requestPolicy",
    Gate.LIST_TYPE_ATTRIBUTES: """spec.devices[].attributes{}.bools spec.devices[].attributes{}.ints
        spec.devices[].attributes{}.strings spec.devices[].attributes{}.versions""",
    Gate.NODE_ALLOCATABLE_RESOURCES: "spec.devices[].nodeAllocatableResourceMappings",
    Gate.MIXINS: """spec.mixins spec.sharedCounters[].includes spec.devices[].includes
        spec.devices[].consumesCounters[].includes""",
}
_CLAIM_SPEC: dict[Gate, str] = {
    Gate.PRIORITIZED_LIST: "spec.devices.requests[].firstAvailable",
    Gate.ADMIN_ACCESS: "spec.devices.requests[].exactly.adminAccess",
    Gate.DEVICE_TAINTS: "spec.devices.requests[].exactly.tolerations spec.devices.requests[].firstAvailable[].tolerations",
    Gate.CONSUMABLE_CAPACITY: """spec.devices.requests[].exactly.capacity spec.devices.requests[].firstAvailable[].capacity
        spec.devices.constraints[].distinctAttribute""",
    Gate.RESERVED_FOR_WORKLOADS: "spec.reservedFor",
}
_RESULTS = "status.allocation.devices.results[]"
_CLAIM_STATUS: dict[Gate, str] = {
    Gate.ADMIN_ACCESS: f"{_RESULTS}.adminAccess",
    Gate.DEVICE_TAINTS: f"{_RESULTS}.tolerations",
    Gate.CONSUMABLE_CAPACITY: f"{_RESULTS}.shareID {_RESULTS}.consumedCapacity status.devices[].shareID",
    Gate.BINDING_CONDITIONS: f"{_RESULTS}.bindingConditions {_RESULTS}.bindingFailureConditions",
    Gate.CLAIM_DEVICE_STATUS: "status.devices",
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
    resources.POD: {
        Gate.EXTENDED_RESOURCE: "status.extendedResourceClaimStatus",
        Gate.RESOURCE_HEALTH: " ".join(_HEALTH),
        Gate.RESOURCE_HEALTH_MESSAGE: " ".join(f"{path}[].resources[].message" for path in _HEALTH),
    },
}


def _rules(resource: Resource) -> list[tuple[Gate, list[str]]]:
    return [(gate, paths.split()) for gate, paths in _FIELDS.get(resource, {}).items()]


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.replace("[]", ".[]").replace("{}", ".{}").split("."))


def _parents(value: Json, steps: tuple[str, ...], path: str = "") -> list[tuple[Object, str]]:
    """Return every object that holds the last step's field, with the field's path."""
    step, remaining = steps[0], steps[1:]
    if not remaining:
        return [(value, f"{path}.{step}".lstrip("."))] if isinstance(value, dict) and step in value else []
    children: list[tuple[Json, str]] = []
    if isinstance(value, list):
        children = [(child, f"{path}[{place}]") for place, child in enumerate(value)] if step == "[]" else []
    elif isinstance(value, dict) and step == "{}":
        children = [(child, f"{path}[{name}]") for name, child in value.items()]
    elif isinstance(value, dict):
        children = [(value.get(step), f"{path}.{step}")]
    return [parent for child, below in children for parent in _parents(child, remaining, below)]


def disabled_fields(resource: Resource, obj: Object, gates: FeatureGates) -> list[tuple[Gate, str, int]]:
    """Return what a server would drop from a new object: gate, path of the first such field, and the number of such fields."""
    off = [(gate, _parents(obj, _steps(path))) for gate, paths in _rules(resource) if not gates.on(gate) for path in paths]
    return [(gate, places[0][1], len(places)) for gate, places in off if places]


def unknown_fields(resource: Resource, gates: FeatureGates) -> list[tuple[str, ...]]:
    """Return the fields that a server without these gates does not know, as steps. No released Kubernetes has them."""
    unreleased = (Gate.MIXINS, Gate.RESERVED_FOR_WORKLOADS)
    return [_steps(path) for gate, paths in _rules(resource) if gate in unreleased and not gates.on(gate) for path in paths]


def drop_disabled(resource: Resource, new: Object, old: Object | None, gates: FeatureGates) -> None:
    """Remove from ``new`` the fields of gates that are off, unless ``old`` already uses that gate."""
    for gate, paths in _rules(resource):
        if gates.on(gate):
            continue
        steps = [_steps(path) for path in paths]
        if old is not None and any(_parents(old, step) for step in steps):
            continue
        for field_steps in steps:
            for parent, _ in _parents(new, field_steps):
                del parent[field_steps[-1]]
