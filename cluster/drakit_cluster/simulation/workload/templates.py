"""The request of one pod: claims that are allocated together on one node."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from drakit_cluster.objects import json_types, mixins, nodes, quantity
from drakit_cluster.objects.json_types import Object

SHORTHAND = "mig=PROFILE, gpu=COUNT or nic=BANDWIDTH, joined by +"
MIG_CLASS, GPU_CLASS, NIC_CLASS = "mig.drakit.dev", "gpu.drakit.dev", "nic.drakit.dev"
"""The DeviceClasses that shorthand uses: those of ``drakit demo``."""
GPU_DRIVER = "gpu.drakit.dev"
_MIG = "mig="


class WorkloadError(ValueError):
    """A workload that cannot be read. The message names the place and the fix."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PodTemplate:
    """The request of every pod of one kind. Templates are compared by identity, because caches use them as keys."""

    name: str
    claims: Sequence[Object]
    node_selector: Object = field(default_factory=dict)
    tolerations: Sequence[Object] = ()
    profiles: Sequence[str] = ()
    """The MIG profiles that shorthand names."""

    nodes: frozenset[str] | None = None
    """The only nodes on which a pod may run, because of claims that have devices there; None for any node."""

    def may_run_on(self, node: Object) -> bool:
        """Return whether labels, taints, cordon and other claims allow a pod on the node, regardless of free devices."""
        return not self.exclusion(node)

    def exclusion(self, node: Object) -> str:
        """Return why the node is none for a pod, regardless of free devices; "" if it is."""
        if json_types.at(node, "spec", "unschedulable") is True:
            return "the node is cordoned"
        if self.nodes is not None and json_types.text(node, "metadata", "name") not in self.nodes:
            return "another claim of the pod is allocated on another node"
        reason = nodes.exclusion(node, self.node_selector, self.tolerations)
        return f"the node {reason}" if reason else ""


def from_claim_spec(name: str, spec: Object) -> PodTemplate:
    """Return a template of one claim with this spec."""
    return PodTemplate(name=name, claims=[_claim(name, spec)])


def combined(name: str, parts: Sequence[PodTemplate]) -> PodTemplate:
    """Return a template with the claims of all parts."""
    profiles = dict.fromkeys(profile for part in parts for profile in part.profiles)
    return PodTemplate(name=name, claims=[claim for part in parts for claim in part.claims], profiles=tuple(profiles))


def from_shorthand(text: str) -> PodTemplate:
    """Return the template of a text such as ``mig=1g.5gb+nic=10G`` or ``gpu=2``. Raises WorkloadError."""
    parts = [part.strip() for part in text.split("+")]
    kinds = [part.partition("=")[0] for part in parts]
    names = [kind if kinds.count(kind) == 1 else f"{kind}-{number}" for number, kind in enumerate(kinds, 1)]
    requests = [_request(name, part, text) for name, part in zip(names, parts, strict=True)]
    profiles = dict.fromkeys(part.removeprefix(_MIG).partition("*")[0] for part in parts if part.startswith(_MIG))
    spec: Object = {"devices": {"requests": json_types.from_objects(requests)}}
    return PodTemplate(name=text, claims=[_claim(text, spec)], profiles=tuple(profiles))


def require_profiles(pods: Iterable[PodTemplate], slices: Iterable[Object]) -> None:
    """Raise WorkloadError for the first MIG profile that shorthand names and no device of the slices has."""
    offered = set().union(*(_profiles(entry) for entry in slices))
    for template in pods:
        for profile in template.profiles:
            if profile not in offered:
                there = f"they have {', '.join(sorted(offered))}" if offered else "they have no MIG partitions"
                raise WorkloadError(f"{template.name}: no GPU of these nodes has MIG profile {profile!r}; {there}")


def _profiles(entry: Object) -> set[str]:
    spec = json_types.mapping(entry, "spec")
    try:
        spec = mixins.flatten(spec)
    except mixins.MixinError:
        return set()  # The allocator names the error.
    devices = json_types.objects(spec, "devices")
    return {profile for device in devices if (profile := json_types.text(device, "attributes", "profile", "string"))}


def profile_selector(profile: str) -> str:
    """Return the CEL expression that selects the partitions of a MIG profile."""
    return f'device.attributes["{GPU_DRIVER}"].profile == "{profile}"'


def _claim(name: str, spec: Object) -> Object:
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec}


def _request(name: str, part: str, text: str) -> Object:
    kind, _, value = part.partition("=")
    value, _, times = value.partition("*")
    count = times or "1"
    if kind == "gpu" and value.isdecimal() and not times:
        count = value
    if not count.isdecimal() or not 1 <= int(count) <= 32:
        raise WorkloadError(f"{text}: a request has 1 to 32 devices, not {count}")
    exact: Object = {"allocationMode": "ExactCount", "count": int(count)}
    if kind == "mig" and value:
        exact |= {"deviceClassName": MIG_CLASS, "selectors": [{"cel": {"expression": profile_selector(value)}}]}
    elif kind == "gpu" and value.isdecimal():
        exact |= {"deviceClassName": GPU_CLASS}
    elif kind == "nic" and value:
        exact |= {"deviceClassName": NIC_CLASS, "capacity": {"requests": {"bandwidth": _bandwidth(value, text)}}}
    else:
        raise WorkloadError(f"{text}: no template of this name, and {part!r} is not {SHORTHAND}")
    return {"name": name, "exactly": exact}


def _bandwidth(value: str, text: str) -> str:
    try:
        quantity.parse(value)
    except quantity.QuantityError as error:
        raise WorkloadError(f"{text}: {value} is not a bandwidth: {error}") from error
    return value
