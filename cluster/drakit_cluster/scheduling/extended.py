"""Extended resources by devices: a pod asks for an amount of a named resource, and gets a claim for it. Pure. Source: KEP-5004.

A resource belongs to the DeviceClass that names it; if several do, to the newest, then to the first by name. A resource with the prefix
belongs to the class of its name. The scheduler makes one special claim per pod, with a request ``container-<i>-request-<j>`` for
container *i* (init containers first) and its *j*-th resource by name. An init container that ends before others begin uses the devices of
those containers. If it needs more, one extra request covers the rest, shared by all init containers that end. The pod's status tells the
kubelet which container gets which requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import key_of, uid_of
from drakit_cluster.objects import json_types, quantity
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import POD

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
_MAX_BASE = 57
_SUFFIX = "-extended-resources-"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The requests of the special claim, and status.extendedResourceClaimStatus.requestMappings of the pod."""

    requests: list[Object]
    mappings: list[Object]


def class_names(classes: Iterable[Object], gates: FeatureGates) -> dict[str, str]:
    """Return the DeviceClass names by extended resource, prefixed names included; empty if the gate is off."""
    names: dict[str, str] = {}
    if not gates.on(Gate.EXTENDED_RESOURCE):
        return names
    by_name = sorted(classes, key=lambda device_class: json_types.text(device_class, "metadata", "name"))
    for device_class in sorted(
        by_name, key=lambda device_class: json_types.text(device_class, "metadata", "creationTimestamp"), reverse=True
    ):
        name = json_types.text(device_class, "metadata", "name")
        names[f"{CLASS_PREFIX}{name}"] = name
        if resource := json_types.text(device_class, "spec", "extendedResourceName"):
            names.setdefault(resource, name)
    return names


def requested(pod: Object) -> set[str]:
    """Return the extended resources that the pod's containers ask for."""
    return {name for container in _containers(pod) for name in _amounts(container) if _is_extended(name)}


def offered(node: Object, resource: str) -> int:
    """Return how much of a resource a device plugin of the node offers."""
    return _amount(json_types.mapping(node, "status", "allocatable").get(resource))


def amount(pod: Object, resource: str) -> int:
    """Return the most of a resource that a pod uses at one time. Init containers run one by one; sidecars stay."""
    inits = json_types.objects(pod, "spec", "initContainers")
    staying, peak = 0, 0
    for container in inits:
        own = _amounts(container).get(resource, 0)
        peak = max(peak, staying + own)
        staying += own if json_types.text(container, "restartPolicy") == "Always" else 0
    return max(peak, staying + sum(_amounts(container_).get(resource, 0) for container_ in json_types.objects(pod, "spec", "containers")))


def plan(pod: Object, resources: Mapping[str, str]) -> Plan:
    """Return the requests and mappings for ``resources``, which map resource names to class names."""
    requests: list[Object] = []
    mappings: list[Object] = []
    for resource in sorted(resources):
        added, mapped = _RequestPlanner(pod, resource, resources[resource]).plan()
        requests += added
        mappings += mapped
    return Plan(requests=sorted(requests, key=lambda request: json_types.text(request, "name")), mappings=mappings)


def claim(pod: Object, requests: Sequence[Object]) -> Object:
    """Return the special claim to create for the pod."""
    name, namespace = key_of(pod).name, key_of(pod).namespace
    owner: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": name,
        "uid": uid_of(pod),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: Object = {
        "generateName": f"{name[: _MAX_BASE - len(_SUFFIX)]}{_SUFFIX}",
        "namespace": namespace,
        "annotations": {ANNOTATION: "true"},
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "spec": {"devices": {"requests": json_types.from_objects(requests)}}}


def is_special(candidate: Object, pod: Object) -> bool:
    """Return whether a claim is the pod's special one."""
    return pod_claims.is_owned_by(candidate, POD, pod) and json_types.text(candidate, "metadata", "annotations", ANNOTATION) == "true"


class _RequestPlanner:
    """Plans the requests of one pod for one resource."""

    def __init__(self, pod: Object, resource: str, class_name: str) -> None:
        self._containers = _containers(pod)
        self._inits = len(json_types.objects(pod, "spec", "initContainers"))
        self._resource = resource
        self._class_name = class_name

    def plan(self) -> tuple[list[Object], list[Object]]:
        long_running = {index: self._request(index, count) for index, count in self._counts() if self._is_long_running(index)}
        mappings = [self._mapping(index, request) for index, request in long_running.items()]
        ending, shared = self._for_ending_inits(long_running)
        mappings += [self._mapping(index, request) for index, request in ending]
        return [*([shared] if shared else []), *long_running.values()], mappings

    def _for_ending_inits(self, long_running: Mapping[int, Object]) -> tuple[list[tuple[int, Object]], Object | None]:
        """Return the requests that each ending init container uses, and the extra request that they share (None if not needed)."""
        uses: list[tuple[int, Object]] = []
        extra: list[tuple[int, int]] = []
        for index, count in self._counts():
            missing = 0 if self._is_long_running(index) else count
            for later in (request for position, request in long_running.items() if position > index):
                if missing <= 0:
                    break
                uses.append((index, later))
                missing -= _count(later)
            if missing > 0:
                extra.append((index, missing))
        if not extra:
            return uses, None
        largest = max(extra, key=lambda entry: entry[1])
        shared = self._request(*largest)
        return [*uses, *((index, shared) for index, _ in extra)], shared

    def _counts(self) -> list[tuple[int, int]]:
        counts = [(index, _amounts(container).get(self._resource, 0)) for index, container in enumerate(self._containers)]
        return [(index, count) for index, count in counts if count > 0]

    def _is_long_running(self, index: int) -> bool:
        """Return whether a container runs as long as the pod: all but init containers that are not sidecars."""
        return index >= self._inits or json_types.text(self._containers[index], "restartPolicy") == "Always"

    def _request(self, index: int, count: int) -> Object:
        position = sorted(_requests(self._containers[index])).index(self._resource)
        exactly: Object = {"deviceClassName": self._class_name, "allocationMode": "ExactCount", "count": count}
        return {"name": f"container-{index}-request-{position}", "exactly": exactly}

    def _mapping(self, index: int, request: Object) -> Object:
        name = json_types.text(self._containers[index], "name")
        return {"containerName": name, "resourceName": self._resource, "requestName": request["name"]}


def _count(request: Object) -> int:
    return json_types.number(request, "exactly", "count")


def _containers(pod: Object) -> list[Object]:
    return [*json_types.objects(pod, "spec", "initContainers"), *json_types.objects(pod, "spec", "containers")]


def _requests(container: Object) -> Object:
    """Return the container's requests; a limit without a request counts as a request."""
    return json_types.mapping(container, "resources", "limits") | json_types.mapping(container, "resources", "requests")


def _amounts(container: Object) -> dict[str, int]:
    return {name: _amount(value) for name, value in _requests(container).items() if _is_extended(name) and _amount(value) > 0}


def _amount(value: json_types.Json) -> int:
    """Return a whole amount; 0 if the value is missing or malformed."""
    try:
        return quantity.parse(value).units if value is not None else 0
    except quantity.QuantityError:
        return 0


def _is_extended(name: str) -> bool:
    if name.startswith(CLASS_PREFIX):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
