"""A cluster in one thread: the API server's registry, and the scheduler's own decisions and writes, one pod at a time when a test says so.

Nothing waits and nothing runs beside the test. What a pod got is read from its claims, as a scheduler that starts anew would read it.
"""

from collections.abc import Mapping, Sequence

from drakit_cluster import cel as selectors
from drakit_cluster.api.patching import PatchKind
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage.store import Key, Store
from drakit_cluster.client import pod_claims
from drakit_cluster.client.informer import key_of
from drakit_cluster.client.sharing import Sharing
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, NODE, POD, POD_GROUP, SLICE
from drakit_cluster.scheduling import placement, reservation
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.placement import Placement, Refusal

DRIVER = "gpu.nvidia.com"
MIXINS = FeatureGates.of({"DRAResourceSliceMixins": True})
"""What a server has on that takes the text's samples as they are."""
KINDS = {(one.api_version, one.kind): one for one in resources.ALL}


class SingleThreadedCluster:
    """``gates`` are the server's, ``scheduler`` those of the scheduler where they differ; ``nodes`` have their names as hostnames."""

    def __init__(
        self, *nodes: str, gates: FeatureGates | None = None, scheduler: FeatureGates | None = None, store: Store | None = None
    ) -> None:
        self.api = Registry(store, gates=gates or MIXINS)
        self.gates = scheduler or gates or MIXINS
        if store is None:
            for name in nodes or ("node-1",):
                self.api.create(NODE, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})

    def restarted(self, *, gates: FeatureGates | None = None, scheduler: FeatureGates | None = None) -> "SingleThreadedCluster":
        """Return a cluster on the same objects, with other gates."""
        return SingleThreadedCluster(gates=gates, scheduler=scheduler, store=self.api.store)

    def apply(self, *objects: Object) -> None:
        """Create objects in the default namespace."""
        for obj in objects:
            resource = KINDS[json_types.text(obj, "apiVersion"), json_types.text(obj, "kind")]
            self.api.create(resource, obj, namespace="default" if resource.namespaced else "")

    def device_class(self, name: str, expression: str = f"device.driver == '{DRIVER}'") -> None:
        self.api.create(CLASS, {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}})

    def claim(self, name: str, *requests: Object, constraints: Sequence[Object] = ()) -> None:
        """Create a claim."""
        devices: Object = {"requests": json_types.from_objects(requests)}
        if constraints:
            devices["constraints"] = json_types.from_objects(constraints)
        self.api.create(CLAIM, {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}})

    def schedule(self, name: str, *claims: str, **spec: Json) -> str:
        """Create a pod with claims and decide upon it; return its node, or "" where it has to wait."""
        uses: list[Json] = [{"name": f"c{place}", "resourceClaimName": claim} for place, claim in enumerate(claims)]
        containers: list[Json] = [{"name": "main", "image": "none"}]
        body: Object = {"containers": containers, "resourceClaims": uses, **spec}
        self.api.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": body})
        return self.decide(name)

    def decide(self, name: str) -> str:
        """Decide upon a pod, again if need be, and write what follows."""
        pod = self.api.get(POD, name, "default")
        found = placement.place(pod, self._site())
        if isinstance(found, Refusal):
            return ""
        self._write(pod, found)
        return found.node

    def refusal(self, name: str) -> str:
        """Return why a pod would have to wait now."""
        found = placement.place(self.api.get(POD, name, "default"), self._site())
        return found.message if isinstance(found, Refusal) else ""

    def take(self, name: str, request: Object) -> list[str]:
        """Create a claim and a pod of one name, schedule the pod, and return the devices that it got."""
        self.claim(name, request)
        self.schedule(name, name)
        return self.devices(name)

    def end(self, name: str) -> None:
        """Delete a pod; its claims lose its reservation, with the last one their devices."""
        pod = self.api.get(POD, name, "default")
        for reference in pod_claims.references(pod):
            claim = self.api.get(CLAIM, reference.claim or "", "default")
            if pod_claims.is_allocated(claim):
                reservation.release(self.api, claim, {json_types.text(pod, "metadata", "uid")})
        self.api.delete(POD, name, namespace="default", grace_seconds=0)

    def allocation(self, claim: str) -> Object:
        return pod_claims.allocation(self.api.get(CLAIM, claim, "default"))

    def devices(self, claim: str) -> list[str]:
        """Return the devices that a claim has now."""
        return [json_types.text(one, "device") for one in json_types.objects(self.allocation(claim), "devices", "results")]

    def _site(self) -> placement.Site:
        claims = self.api.list(CLAIM).items
        classes: Mapping[str, Object] = {json_types.text(one, "metadata", "name"): one for one in self.api.list(CLASS).items}
        numbers = iter(range(10_000))
        return placement.Site(
            nodes=self.api.list(NODE).items,
            claims={Key("default", json_types.text(one, "metadata", "name")): one for one in claims},
            allocator=Allocator(self.api.list(SLICE).items, classes, selectors.Selectors(self.gates), self.gates),
            allocated=AllocatedState.of(
                [one for one in claims if pod_claims.is_allocated(one)], consumable_capacity=self.gates.on(Gate.CONSUMABLE_CAPACITY)
            ),
            new_share_id=lambda: f"00000000-0000-4000-8000-{next(numbers):012}",
            sharing=Sharing.of(self.gates),
            groups=self._groups(),
            is_first=lambda _pod: True,
            resources={},
            taken=lambda _node, _resource: 0,
            apart=lambda _node: "",
            holders=dict,
        )

    def _groups(self) -> dict[Key, Object]:
        return {key_of(group): group for group in self.api.list(POD_GROUP).items}

    def _write(self, pod: Object, found: Placement) -> None:
        sharing, groups = Sharing.of(self.gates), self._groups()
        for claim, allocation in found.allocate:
            reservation.allocate(self.api, claim, allocation, sharing.consumer(claim, pod, groups), sharing)
        for claim in found.reserve:
            reservation.reserve(self.api, claim, sharing.consumer(claim, pod, groups), sharing)
        name = json_types.text(pod, "metadata", "name")
        self.api.patch(POD, name, {"spec": {"nodeName": found.node}}, namespace="default", kind=PatchKind.MERGE)


def device_request(device_class: str, expression: str = "", *, name: str = "r", **fields: Json) -> Object:
    """A request for exactly one device."""
    exactly: Object = {"deviceClassName": device_class, **fields}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}
