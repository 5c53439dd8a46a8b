"""How the health of devices shows in the status of the pods that have them.

Source: KEP-4680 and the kubelet of 1.36: containerStatuses[].allocatedResourcesStatus, of regular containers and for claims that they list.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drakit_cluster.client import pod_claims
from drakit_cluster.kubelet.plugins.health import HealthTable
from drakit_cluster.kubelet.pods.preparation import Preparation
from drakit_cluster.kubelet.pods.records import PreparedDevice
from drakit_cluster.objects import json_types
from drakit_cluster.objects.json_types import Object


@dataclass(frozen=True, kw_only=True)
class PodHealth:
    """The health of the devices of pods. ``table`` is None where the gate is off; ``messages`` says whether texts are shown."""

    preparation: Preparation
    table: HealthTable | None
    messages: bool = True

    def statuses(self, pod: Object) -> dict[str, list[Object]]:
        """Return allocatedResourcesStatus of each regular container that uses claims, by its name; a container without devices has no entry."""
        found = {json_types.text(one, "name"): self._container(pod, one) for one in json_types.objects(pod, "spec", "containers")}
        return {name: statuses for name, statuses in found.items() if statuses}

    def due(self, pod: Object) -> float | None:
        """Return after how many seconds some device of the pod will be Unknown if nothing is heard of it; None for never."""
        if self.table is None:
            return None
        containers = json_types.objects(pod, "spec", "containers")
        used = [(driver, device) for one in containers for _, driver, device in self.preparation.uses(pod, one)]
        left = [self.table.of(driver, device)[2] for driver, device in used]
        return min((seconds for seconds in left if seconds is not None), default=None)

    def _container(self, pod: Object, container: Object) -> list[Object]:
        if self.table is None:
            return []
        claims = {reference.name: reference.claim for reference in pod_claims.references(pod) if not reference.special}
        statuses: dict[str, list[Object]] = {}
        for use in json_types.objects(container, "resources", "claims"):
            name, request = json_types.text(use, "name"), json_types.text(use, "request")
            devices = self.preparation.used(pod, claims.get(name) or "", request)
            if devices:
                statuses[f"claim:{name}/{request}" if request else f"claim:{name}"] = self._resources(self.table, devices)
        return [{"name": name, "resources": json_types.from_objects(resources)} for name, resources in statuses.items()]

    def _resources(self, table: HealthTable, devices: Sequence[tuple[str, PreparedDevice]]) -> list[Object]:
        """Return one entry for each resource ID, which is a device's first CDI name: devices with the same one hide each other."""
        resources: dict[str, Object] = {}
        for driver, device in devices:
            health, message, _ = table.of(driver, device)
            resource = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
            shown: Object = {"resourceID": resource, "health": health}
            resources[resource] = {**shown, "message": message} if message and self.messages else shown
        return list(resources.values())
