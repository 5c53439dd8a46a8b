"""Which feature gates the cluster has, read from what it stores and serves rather than from its version.

A gate that is off makes the API server drop its fields silently. So one dry run of an object that has the field tells whether the gate is on.
Gates of the kubelet alone are read from its metrics, which name them.
"""

import functools
import re
from collections.abc import Callable, Mapping

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Json, Object
from e2e.api import Api, ApiError

_DRIVER = "probe.e2e.drakit.dev"
_METRIC = re.compile(r'^kubernetes_feature_enabled\{name="([A-Za-z0-9]+)",[^}]*\} ([01])', re.MULTILINE)
KUBELET_GATES = ("ResourceHealthStatus", "KubeletPodResourcesDynamicResources", "DRAExtendedResource")


def _slice(device: Object | None = None, **fields: Json) -> Object:
    spec: Object = {"driver": _DRIVER, "nodeName": "probe", "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1}}
    if device is not None:
        spec["devices"] = [{"name": "d", **device}]
    return _object("ResourceSlice", spec={**spec, **fields})


def _claim(namespace: str, request: Object, **devices: Json) -> Object:
    return {
        **_object("ResourceClaim", spec={"devices": {"requests": [{"name": "r", **request}], **devices}}),
        "metadata": {"name": "e2e-probe", "namespace": namespace},
    }


def _object(kind: str, **fields: Json) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "e2e-probe"}, **fields}


def _probes(namespace: str, labelled: str) -> Mapping[str, tuple[Object, tuple[str | int, ...]]]:
    """Return by gate an object, and the path of the field that the gate is for."""
    exactly: Object = {"deviceClassName": "none"}
    counters: list[Json] = [{"name": "s", "counters": {"c": {"value": "1"}}}]
    taints: list[Json] = [{"key": "example.com/t", "effect": "NoSchedule"}]
    first: list[Json] = [{"name": "a", "deviceClassName": "none"}]
    bandwidth: Object = {"bandwidth": {"value": "1G", "requestPolicy": {"default": "1M", "validRange": {"min": "1M"}}}}
    conditions: Object = {"bindingConditions": ["example.com/a"], "bindingFailureConditions": ["example.com/b"]}
    device = ("spec", "devices", 0)
    request = ("spec", "devices", "requests", 0)
    shared: Object = {"allowMultipleAllocations": True, "capacity": bandwidth}
    return {
        "DRAPartitionableDevices": (_slice(sharedCounters=counters), ("spec", "sharedCounters")),
        "DRAConsumableCapacity": (_slice(shared), (*device, "allowMultipleAllocations")),
        "DRADeviceTaints": (_slice({"taints": taints}), (*device, "taints")),
        "DRADeviceBindingConditions": (_slice(conditions), (*device, "bindingConditions")),
        "DRAPrioritizedList": (_claim(namespace, {"firstAvailable": first}), (*request, "firstAvailable")),
        "DRAAdminAccess": (_claim(labelled, {"exactly": {**exactly, "adminAccess": True}}), (*request, "exactly", "adminAccess")),
        "DRAExtendedResource": (
            _object("DeviceClass", spec={"extendedResourceName": "example.com/probe"}),
            ("spec", "extendedResourceName"),
        ),
    }


class Gates:
    """The gates of one cluster. ``namespace`` is any one, ``labelled`` one that allows admin access, ``node`` is the node under test."""

    def __init__(self, api: Api, *, namespace: str, labelled: str, node: str) -> None:
        self._api = api
        self._node = node
        self._probes = _probes(namespace, labelled)
        self._others: Mapping[str, Callable[[], bool]] = {
            "DRADeviceTaintRules": lambda: self.taint_rules_version() != "",
            "DRAResourceClaimDeviceStatus": lambda: self.is_on("DRADeviceBindingConditions"),
        }
        self._known: dict[str, bool] = {}

    def is_on(self, gate: str) -> bool:
        """Return whether the cluster has a gate on; raise KeyError for one that this suite does not know."""
        if gate not in self._known:
            self._known[gate] = self._ask(gate)
        return self._known[gate]

    def missing(self, names: tuple[str, ...]) -> list[str]:
        """Return those of the gates that are off."""
        return [name for name in names if not self.is_on(name)]

    def taint_rules_version(self) -> str:
        """Return the newest API version that serves DeviceTaintRules, empty where none does."""
        for version in ("v1", "v1beta2", "v1beta1", "v1alpha3"):
            try:
                served = self._api.request("GET", f"/apis/resource.k8s.io/{version}")
            except ApiError:
                continue
            if any(json_types.text(one, "name") == "devicetaintrules" for one in json_types.objects(served, "resources")):
                return version
        return ""

    def _ask(self, gate: str) -> bool:
        if gate in self._probes:
            item, path = self._probes[gate]
            if not self._stores(item, path):
                return False
        elif gate in self._others:
            return self._others[gate]()
        elif gate not in KUBELET_GATES:
            raise KeyError(gate)
        # A gate that the kubelet does not name (an older or newer one) is taken to be on: the check itself then tells.
        return gate not in KUBELET_GATES or self._kubelet.get(gate, True)

    def _stores(self, item: Object, path: tuple[str | int, ...]) -> bool:
        try:
            return json_types.at(self._api.create(item, dry_run=True), *path) is not None
        except ApiError as error:
            if error.status in (400, 422):
                # Without the field the object says nothing, and is refused.
                return False
            raise

    @functools.cached_property
    def _kubelet(self) -> Mapping[str, bool]:
        text = self._api.kubectl("get", "--raw", f"/api/v1/nodes/{self._node}/proxy/metrics", check=False)
        return {name: state == "1" for name, state in _METRIC.findall(text)}
