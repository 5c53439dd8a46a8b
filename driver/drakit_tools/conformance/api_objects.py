"""The objects that the suite needs from an API server: existing or new claims, and the driver's slices.

The suite allocates a new claim as the scheduler would, but for no pod. So no kubelet prepares or unprepares it meanwhile.
"""

import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from drakit.kube import transport
from drakit_cluster.objects import json_types, resources, versions
from drakit_cluster.objects.features import FeatureGates, Gate
from drakit_cluster.objects.json_types import Json, Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.scheduling.explain import whatif

PUBLISH_SECONDS = 20.0
_API_VERSION = "resource.k8s.io/v1"


class ClaimError(Exception):
    """A claim that the suite cannot use, with the reason."""


class Objects:
    """The API server. The user needs rights to claims and, to create some, to their status."""

    def __init__(self, api: transport.Transport, *, node: str = "") -> None:
        self._api = api
        self._node = node

    @functools.cached_property
    def server(self) -> FeatureGates:
        """The server's version with every gate that it can have: a field that the server stored is not one that it drops."""
        version = versions.nearest(str(self._send("GET", "/version").get("gitVersion", "")))
        spans = {gate: versions.gate_span(gate.value) for gate in Gate}
        enabled = frozenset(gate for gate, span in spans.items() if not span or versions.within(span, version))
        return FeatureGates(version=version, enabled=enabled)

    def get(self, namespaced: str) -> Object:
        """Return a claim by ``NAMESPACE/NAME``."""
        namespace, _, name = namespaced.rpartition("/")
        return self._send("GET", resources.CLAIM.path(namespace or "default", name))

    def slices(self, driver: str) -> list[Object]:
        """Return the driver's slices for the node; all of them if no node is set."""
        of_driver = [entry for entry in self._list(resources.SLICE) if json_types.text(entry, "spec", "driver") == driver]
        # drakit tests by a temporary slice in the pool "probe" which fields the server stores.
        without_probe = [entry for entry in of_driver if not json_types.text(entry, "spec", "pool", "name").endswith("/probe")]
        return [entry for entry in without_probe if not self._node or json_types.text(entry, "spec", "nodeName") in ("", self._node)]

    @contextlib.contextmanager
    def made(self, classes: Sequence[str], namespace: str) -> Iterator[Callable[[str], list[Object]]]:
        """Yield a function that makes and allocates claims of these classes, and deletes them afterwards.

        It makes three claims of each class as far as there are devices; the third has two requests. Raises ClaimError if none can be allocated.
        """
        with contextlib.ExitStack() as kept:

            def make(driver: str) -> list[Object]:
                made = []
                for name in classes:
                    made.append(_retried(functools.partial(self._allocated, name, namespace, driver, kept)))
                    for requests in (1, 2):
                        with contextlib.suppress(ClaimError):  # One claim is enough where no device is left for others.
                            made.append(self._allocated(name, namespace, driver, kept, requests=requests))
                return made

            yield make

    def _node_of(self, driver: str) -> str:
        names = {json_types.text(entry, "spec", "nodeName") for entry in self.slices(driver)} - {""}
        if self._node:
            return self._node
        if len(names) != 1:
            raise ClaimError(f"{driver} has slices for {', '.join(sorted(names)) or 'no node'}; name the node of the socket by --node")
        return names.pop()

    def _allocated(self, device_class: str, namespace: str, driver: str, kept: contextlib.ExitStack, *, requests: int = 1) -> Object:
        node = self._node_of(driver)
        claim = self._send("POST", resources.CLAIM.path(namespace), _claim(device_class, namespace, requests))
        path = resources.CLAIM.path(namespace, json_types.text(claim, "metadata", "name"))
        with contextlib.ExitStack() as undo:
            undo.callback(self._send, "DELETE", path)
            decision = self._decide(claim, node)
            if not decision.fits:
                raise ClaimError(f"a claim of class {device_class} does not fit on {node}: {decision.message}")
            claim["status"] = {"allocation": decision.given[0].allocation}
            allocated = self._send("PUT", f"{path}/status", claim)
            kept.enter_context(undo.pop_all())
        return allocated

    def _decide(self, claim: Object, node: str) -> whatif.Decision:
        read: Mapping[Resource, list[Object]] = {kind: self._list(kind) for kind in (resources.SLICE, resources.CLASS, resources.CLAIM)}
        world = whatif.World(
            slices=read[resources.SLICE],
            classes=read[resources.CLASS],
            claims=[entry for entry in read[resources.CLAIM] if json_types.mapping(entry, "status", "allocation")],
        )
        nodes = [entry for entry in self._list(resources.NODE) if json_types.text(entry, "metadata", "name") == node]
        if not nodes:
            raise ClaimError(f"there is no node {node}")
        return whatif.Scheduler(world, self.server, nodes).alone(claim)

    def _list(self, resource: Resource) -> list[Object]:
        return [dict(entry) for entry in json_types.objects(self._send("GET", resource.path()), "items")]

    def _send(self, method: str, path: str, body: Object | None = None) -> Object:
        return cast("Object", self._api.request(method, path, body=body))


def _retried(make: Callable[[], Object]) -> Object:
    """Return a new claim. Retry for a while, because a driver that just started has not published its devices yet."""
    deadline = time.monotonic() + PUBLISH_SECONDS
    while True:
        try:
            return make()
        except ClaimError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(1)


def _claim(device_class: str, namespace: str, requests: int) -> Object:
    wanted: list[Json] = [{"name": f"device-{number}", "exactly": {"deviceClassName": device_class}} for number in range(requests)]
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": f"conformance-{secrets.token_hex(4)}", "namespace": namespace},
        "spec": {"devices": {"requests": wanted}},
    }
