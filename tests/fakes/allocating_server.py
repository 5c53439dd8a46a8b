"""API servers over HTTPS on one store, and a client that allocates claims there as a scheduler does, one at a time and without a thread."""

import contextlib
import itertools
import uuid
from collections.abc import Iterator

from drakit_cluster.api.apiserver import ApiServer
from drakit_cluster.api.registry import Registry
from drakit_cluster.api.storage.store import Store
from drakit_cluster.cel import Selectors
from drakit_cluster.client.api import Api
from drakit_cluster.client.client import ApiClient
from drakit_cluster.objects import json_types
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import CLAIM, CLASS, SLICE
from drakit_cluster.scheduling.allocator.allocator import Allocator
from drakit_cluster.scheduling.allocator.state import AllocatedState
from drakit_cluster.scheduling.taint_rules import tainted
from unit.cluster_kubelet import objects

ON = FeatureGates()
ADMIN_NAMESPACE = "admin"
_NODE: Object = {"metadata": {"name": objects.NODE, "labels": {"kubernetes.io/hostname": objects.NODE}}}


@contextlib.contextmanager
def serve(store: Store | None = None, gates: FeatureGates = ON) -> Iterator[ApiClient]:
    """Yield an administrator's client of an API server; servers on one store are those of one cluster."""
    with ApiServer(Registry(store, gates=gates)) as server:
        token = server.issue_token("tester", ("system:masters",))
        with ApiClient(server=server.url, ca_pem=server.ca_pem, token=token) as client:
            yield client


class AllocatingServer:
    """Publishes, claims and allocates on one node. The gates are the scheduler's; those of ``api`` are its own."""

    def __init__(self, api: Api | None = None, gates: FeatureGates = ON) -> None:
        self.api: Api = api or Registry()
        self.gates = gates
        self.node = _NODE
        self._numbers = itertools.count()
        self.api.create(CLASS, objects.device_class())

    def offer(self, *devices: Json, generation: int = 1) -> Object:
        """Publish the devices of the only pool, or publish them anew; return the slice as stored."""
        spec = objects.resource_slice(*devices, generation=generation)["spec"]
        known = self.api.list(SLICE).items
        if known:
            return self.api.update(SLICE, known[0] | {"spec": spec})
        return self.api.create(SLICE, {"metadata": {"name": "s"}, "spec": spec})

    def ask(self, *requests: Object, name: str = "", constraints: tuple[Object, ...] = ()) -> str:
        """Make a claim; return its name."""
        made = objects.claim(name or f"c{next(self._numbers)}", *requests, constraints=constraints)
        return json_types.text(self.api.create(CLAIM, made), "metadata", "name")

    def results(self, claim: str) -> list[Object]:
        """Allocate a claim and return its results as the API server has them; [] where it does not fit.

        The allocation is written through the status of the claim, so that the server's rules judge it.
        """
        claims = self.api.list(CLAIM).items
        wanted = next(one for one in claims if json_types.text(one, "metadata", "name") == claim)
        rules: list[Object] = []
        allocator = Allocator(
            [tainted(one, rules) for one in self.api.list(SLICE).items],
            {json_types.text(one, "metadata", "name"): one for one in self.api.list(CLASS).items},
            Selectors(self.gates),
            self.gates,
        )
        found = allocator.allocate(
            claims=[wanted],
            node=self.node,
            allocated=AllocatedState.of(claims, consumable_capacity=self.gates.on(Gate.CONSUMABLE_CAPACITY)),
            new_share_id=lambda: str(uuid.uuid4()),
        )
        if found is None:
            return []
        stored = self.api.update(CLAIM, wanted | {"status": {"allocation": found[0]}}, subresource="status")
        return json_types.objects(stored, "status", "allocation", "devices", "results")

    def take(self, *requests: Object, constraints: tuple[Object, ...] = ()) -> list[str]:
        """Make and allocate a claim; return the names of its devices."""
        return [json_types.text(one, "device") for one in self.results(self.ask(*requests, constraints=constraints))]

    def consume(self, capacity: str | None, name: str = "bandwidth") -> str:
        """Make and allocate a claim for so much of a capacity; return what it consumed, "" where it does not fit."""
        asked = objects.request() if capacity is None else objects.request(capacity={"requests": {name: capacity}})
        results = self.results(self.ask(asked))
        return json_types.text(results[0], "consumedCapacity", name) if results else ""

    def release(self, claim: str) -> None:
        """Take a claim's devices away and delete it."""
        held = self.api.get(CLAIM, claim, "default")
        self.api.update(CLAIM, held | {"status": {}}, subresource="status")
        self.api.delete(CLAIM, claim, namespace="default")
