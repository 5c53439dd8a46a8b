"""Kubernetes versions as data: feature gates, served API versions, fields, rules and limits, each row with its source.

Versions are 1.34 to 1.37, and 1.38 as its alpha releases (CHANGELOG-1.38) have it. A span names the versions that have something: ``1.36-`` since
1.36, ``1.36-1.36`` only 1.36, and ``""`` no released version. A row without another source was read in the published OpenAPI of these versions.
The known errors of schedulers are in ``scheduling.allocator.known_errors``.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from drakit_cluster.objects import resources
from drakit_cluster.objects.resources import Resource

ALL = ("1.34", "1.35", "1.36", "1.37", "1.38")
NEWEST = "1.37"
"""The newest released version."""
PLANNED = frozenset({"1.38"})


def within(span: str, version: str) -> bool:
    """Return whether a version is in a span; none is in the empty one."""
    first, _, last = span.partition("-")
    return bool(first) and _minor(first) <= _minor(version) <= _minor(last or ALL[-1])


def since(span: str) -> str:
    """Return where a span is, for people: ``1.36 and later``, ``only 1.36`` or ``no released version``."""
    first, dash, last = span.partition("-")
    if not first:
        return "no released version"
    if first == last or not dash:
        return f"only {first}"
    return f"{first} to {last}" if last else f"{first} and later"


def have_it(span: str) -> str:
    """Return which versions have something, as a clause: ``1.37 and later have it``."""
    named = since(span)
    return f"{named} {'have' if named[0].isdigit() else 'has'} it"


def _minor(version: str) -> int:
    return int(version.removeprefix("1."))


GATES: Mapping[str, str] = {
    "DRAAdminAccess": "1.32 alpha off, 1.34 beta on, 1.36 GA on",
    "DRAConsumableCapacity": "1.34 alpha off, 1.36 beta on",
    "DRADerivedAttributes": "1.37 alpha off",
    "DRADeviceBindingConditions": "1.34 alpha off, 1.36 beta on",
    "DRADeviceCompatibilityGroups": "1.37 alpha off",
    "DRADeviceTaintRules": "1.33 alpha on, 1.35 alpha off, 1.36 beta off, 1.37 GA on",
    "DRADeviceTaints": "1.33 alpha off, 1.36 beta on, 1.37 GA on",
    "DRAExtendedResource": "1.34 alpha off, 1.36 beta on, 1.37 GA on",
    "DRAFractionalCapacityRange": "1.37 beta on",
    "DRAListTypeAttributes": "1.36 alpha off",
    "DRANodeAllocatableResources": "1.36 alpha off",
    "DRAOptionalNodeOperations": "1.37 alpha off",
    "DRAPartitionableDevices": "1.33 alpha off, 1.36 beta on",
    "DRAPartitionableDevicesType": "1.37 alpha off",
    "DRAPrioritizedList": "1.33 alpha off, 1.34 beta on, 1.36 GA on",
    "DRAResourceClaimDeviceStatus": "1.32 alpha off, 1.33 beta on, 1.37 GA on",
    "DRAResourceClaimGranularStatusAuthorization": "1.36 beta on",
    "DRAResourcePoolStatus": "1.36 alpha off",
    "DRAWorkloadResourceClaims": "1.36 alpha off, 1.37 beta off",
    "GenericWorkload": "1.35 alpha off, 1.37 beta off",
    "ResourceHealthStatus": "1.31 alpha off, 1.36 beta on",
    "ResourceHealthStatusMessage": "1.36 beta on",
    "DRAReservedForWorkloads": "",
    "DRAResourceSliceMixins": "",
}
"""The stages of each gate, and its defaults; empty for a KEP that no released version has.

Sources: the scheduler's table of versioned gates in 1.37; kube_features.go of 1.36.2, and the feature gate page of 1.37, for those that only
other components read. DRADeviceTaintRules exists since 1.35; before, DRADeviceTaints alone decided, so here it is on. 1.38 has the defaults of
1.37.
"""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A gate in one version: ``alpha``, ``beta`` or ``GA``, and its default."""

    name: str
    on: bool


def stage(gate: str, version: str) -> Stage | None:
    """Return the stage of a gate in a version; None if the version does not have it."""
    found: Stage | None = None
    for row in filter(None, GATES[gate].split(", ")):
        first, name, state = row.split()
        if _minor(first) <= _minor(version):
            found = Stage(name=name, on=state == "on")
    return found


def gate_span(gate: str) -> str:
    """Return the span of versions that have a gate."""
    first = GATES[gate].partition(" ")[0]
    return f"{first}-" if first else ""


_MIXINS = """spec.mixins spec.sharedCounters[].includes spec.devices[].includes spec.devices[].consumesCounters[].includes"""
_DERIVED = "{0}.devices.requests[].exactly.derivedAttributes {0}.devices.requests[].firstAvailable[].derivedAttributes"
FIELDS: Mapping[Resource, Mapping[str, str]] = {
    resources.SLICE: {
        "1.36-": """spec.devices[].attributes{}.bools spec.devices[].attributes{}.ints spec.devices[].attributes{}.strings
            spec.devices[].attributes{}.versions""",
        "1.36-1.36": "spec.devices[].nodeAllocatableResourceMappings",
        "1.37-": """spec.partitionTypeAttribute spec.skipNodeOperations spec.devices[].nodeAllocatableResources
            spec.devices[].consumesCounters[].compatibilityGroups""",
        "": _MIXINS,
    },
    resources.CLAIM: {
        "1.37-": f"{_DERIVED.format('spec')} status.allocation.devices.results[].skipNodeOperations",
        "": "spec.reservedFor status.allocation.reservedForAnyPod",
    },
    resources.CLAIM_TEMPLATE: {"1.37-": _DERIVED.format("spec.spec"), "": "spec.spec.reservedFor"},
    resources.TAINT_RULE: {"1.35-": "status"},
    resources.POD_GROUP: {
        "1.36-1.36": "spec.podGroupTemplateRef",
        "1.37-": "spec.workloadRef spec.parentCompositePodGroupName spec.preemptionPolicy",
    },
    resources.POD: {"1.36-": "spec.schedulingGroup"},
    resources.POOL_STATUS_REQUEST: {
        "1.37-": "spec.defaultPartitionTypeAttribute status.pools[].partitionSummary status.pools[].shareableSummary"
    },
}
"""By kind and span: the fields that not every version has. Fields of unreleased KEPs are there only if their gate is on."""

_CLAIMS_SERVED = {"v1": "1.34-", "v1beta2": "1.33-", "v1beta1": "1.32-1.37"}
SERVED: Mapping[str, Mapping[str, str]] = {
    "DeviceClass": _CLAIMS_SERVED,
    "ResourceClaim": _CLAIMS_SERVED,
    "ResourceClaimTemplate": _CLAIMS_SERVED,
    "ResourceSlice": _CLAIMS_SERVED,
    "DeviceTaintRule": {"v1": "1.37-", "v1beta2": "1.36-", "v1alpha3": "1.33-"},
    "ResourcePoolStatusRequest": {"v1alpha3": "1.36-"},
    "PodGroup": {"v1beta1": "1.37-", "v1alpha3": "1.37-", "v1alpha2": "1.36-1.36"},
}
"""By kind of resource.k8s.io, and for PodGroup of scheduling.k8s.io, and by API version: the versions that can serve it.

All but v1 are off by default and need ``--runtime-config`` (pkg/controlplane/instance.go). The end of v1beta1 is the one that the API's
prerelease lifecycle states.
"""


def api_versions(kind: str, version: str) -> list[str]:
    """Return the API versions of one of these kinds that a Kubernetes version can serve, the best first."""
    return [name for name, span in SERVED.get(kind, {}).items() if within(span, version)]


class Rule(enum.Enum):
    """A rule of validation or matching that not every version has; the value says what the rule is."""

    SEPARATE_COUNTERS = "a slice has either devices or sharedCounters"
    EFFECT_NONE = "a taint may have the effect None"
    ONE_SLASH = "names of attributes and capacities have at most one slash"
    ONE_NODE_TERM = "the nodeSelector of a device has one term"
    SELECTOR_REQUIRED = "a DeviceTaintRule without deviceSelector taints no device"
    QUALIFIED_CAPACITIES = "a request finds a capacity with and without the driver's domain"


RULES: Mapping[Rule, str] = {
    Rule.SEPARATE_COUNTERS: "1.35-",
    Rule.EFFECT_NONE: "1.35-",
    Rule.ONE_SLASH: "1.38-",  # kubernetes#141644, in v1.38.0-alpha.2
    Rule.ONE_NODE_TERM: "1.38-",  # kubernetes#141213, in v1.38.0-alpha.2
    Rule.SELECTOR_REQUIRED: "1.38-",  # kubernetes#141648, in v1.38.0-alpha.1
    Rule.QUALIFIED_CAPACITIES: "1.38-",  # kubernetes#142202, in v1.38.0-alpha.2
}


COUNTERS_SCALE = "1.37-"
"""Where kube-scheduler skips the counters of other nodes (kubernetes#138917, first in v1.37.0-alpha.1). Before, each pool with sharedCounters in the
cluster costs time on every node. Source: the public history of k8s.io/dynamic-resource-allocation.
"""

COUNTED_POOLS_MAX = 50
"""Pools with sharedCounters from which an older scheduler needs about a second for each claim (docs/reference/performance.md)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes that differ between versions. Sources: the descriptions in each version's OpenAPI."""

    taints: int
    """Taints of a device."""
    advanced_devices: int
    """Devices of a slice in which any has taints, counters or list attributes."""
    counter_sets: int
    consumed_sets: int
    """Counter sets of which one device consumes counters."""
    counters_in_all_sets: int = 0
    """Counters of a slice's counter sets together; 0 for no limit."""


_SINCE_1_35 = Limits(taints=16, advanced_devices=64, counter_sets=8, consumed_sets=2)
LIMITS: Mapping[str, Limits] = {
    "1.34-1.34": Limits(taints=4, advanced_devices=128, counter_sets=32, consumed_sets=32, counters_in_all_sets=32),
    "1.35-": _SINCE_1_35,
}


def limits(version: str) -> Limits:
    """Return the sizes that a version allows."""
    return next(entry for span, entry in LIMITS.items() if within(span, version))


def known(text: str) -> str:
    """Return a version of the table; raises ValueError for another one, naming those that exist."""
    if text not in ALL:
        raise ValueError(f"unknown Kubernetes version {text!r}; known are {', '.join(ALL)}")
    return text


def nearest(git_version: str) -> str:
    """Return the version of the table that is nearest to a server's, such as ``v1.36.2+k3s1``; the newest for an unreadable one."""
    major, _, rest = git_version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0].rstrip("+")
    if major != "1" or not minor.isdecimal():
        return NEWEST
    return f"1.{min(max(int(minor), _minor(ALL[0])), _minor(ALL[-1]))}"
