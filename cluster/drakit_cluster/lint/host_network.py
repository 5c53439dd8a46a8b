"""Requests for devices that are attached to a pod's own network namespace, such as NICs. A container in the host's network can have none."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object
from drakit_cluster.scheduling import extended


@dataclass(frozen=True, kw_only=True)
class NetworkDevices:
    """The drivers of such devices, and the names of the classes and extended resources that select their devices."""

    drivers: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()

    @classmethod
    def of(cls, drivers: frozenset[str], classes: Iterable[Object]) -> "NetworkDevices":
        """Return the devices of these drivers. A class that is not given counts if it has a driver's name."""
        given = {json_types.text(device_class, "metadata", "name"): device_class for device_class in classes}
        chosen = {name for name, device_class in given.items() if _selects(json_types.mapping(device_class, "spec"), drivers)}
        names = frozenset(chosen | (drivers - given.keys()))
        resources = {json_types.text(given[name], "spec", "extendedResourceName") for name in names & given.keys()} - {""}
        return cls(drivers=drivers, classes=names, resources=frozenset(resources | {f"{extended.CLASS_PREFIX}{name}" for name in names}))

    def requested_by(self, spec: Object) -> frozenset[str]:
        """Return the requests of a claim's spec that only these devices satisfy."""
        requests = json_types.objects(spec, "devices", "requests")
        return frozenset(json_types.text(request, "name") for request in requests if self._is_request(request))

    def _is_request(self, request: Object) -> bool:
        alternatives = [*json_types.objects(request, "firstAvailable")] or [json_types.mapping(request, "exactly")]
        return all(self.is_choice(choice) for choice in alternatives)

    def is_choice(self, choice: Object) -> bool:
        """Return whether only these devices satisfy a request or one of its alternatives, which has class and selectors."""
        return json_types.text(choice, "deviceClassName") in self.classes or _selects(choice, self.drivers)


def _selects(owner: Object, drivers: frozenset[str]) -> bool:
    """Return whether a selector requires one of the drivers, judged by the comparison in its text."""
    expressions = [json_types.text(selector, "cel", "expression") for selector in json_types.objects(owner, "selectors")]
    pattern = "|".join(rf"""device\.driver\s*==\s*(["']){re.escape(driver)}\{number}""" for number, driver in enumerate(sorted(drivers), 1))
    return bool(drivers) and any(re.search(pattern, text) for text in expressions)
