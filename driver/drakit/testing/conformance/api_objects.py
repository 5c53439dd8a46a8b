"""The objects that the suite needs from an API server: claims, given or made, and the driver's slices.

A claim that is made here is allocated here too, as the scheduler would do it, but for no pod: so no kubelet prepares or unprepares it meanwhile.
"""

import contextlib
import functools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from drakit.kube import transport
from drakit_cluster.objects import json_types, resources
from drakit_cluster.objects.features import FeatureGates
from drakit_cluster.objects.json_types import Object
from drakit_cluster.objects.resources import Resource
from drakit_cluster.scheduling.explain import whatif

PUBLISH_SECONDS = 20.0
_API_VERSION = "resource.k8s.io/v1"


class ClaimError(Exception):
    """A claim that the suite cannot use; the text says why."""


class Objects:
    """The API server, as a user with rights to claims (and, to make some, to their status)."""

    def __init__(self, api: transport.Transport, *, node: str = "") -> None:
        self._api = api
        self._node = node

    def get(self, namespaced: str) -> Object:
        """Return a claim by ``NAMESPACE/NAME``."""
        namespace, _, name = namespaced.rpartition("/")
        return self._send("GET", resources.CLAIM.path(namespace or "default", name))

    def slices(self, driver: str) -> list[Object]:
        """Return the driver's slices for the node, or, without one, all of them."""
        mine = [one for one in self._list(resources.SLICE) if json_types.text(one, "spec", "driver") == driver]
        # drakit asks by a slice in a pool of its own which fields the server stores; it comes and goes.
        real = [one for one in mine if not json_types.text(one, "spec", "pool", "name").endswith("/probe")]
        return [one for one in real if not self._node or json_types.text(one, "spec", "nodeName") in ("", self._node)]

    @contextlib.contextmanager
    def made(self, classes: Sequence[str], namespace: str) -> Iterator[Callable[[str], list[Object]]]:
        """Yield a function that makes and allocates claims of these classes, two of each where devices allow; they are deleted afterwards."""
        with contextlib.ExitStack() as kept:

            def make(driver: str) -> list[Object]:
                made = []
                for name in classes:
                    made.append(_retried(functools.partial(self._allocated, name, namespace, driver, kept)))
                    with contextlib.suppress(ClaimError):  # One claim is enough where no device is left for a second.
                        made.append(self._allocated(name, namespace, driver, kept))
                return made

            yield make

    def _node_of(self, driver: str) -> str:
        names = {json_types.text(one, "spec", "nodeName") for one in self.slices(driver)} - {""}
        if self._node:
            return self._node
        if len(names) != 1:
            raise ClaimError(f"{driver} has slices for {', '.join(sorted(names)) or 'no node'}; name the node of the socket by --node")
        return names.pop()

    def _allocated(self, device_class: str, namespace: str, driver: str, kept: contextlib.ExitStack) -> Object:
        node = self._node_of(driver)
        claim = self._send("POST", resources.CLAIM.path(namespace), _claim(device_class, namespace))
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
            claims=[one for one in read[resources.CLAIM] if json_types.mapping(one, "status", "allocation")],
        )
        nodes = [one for one in self._list(resources.NODE) if json_types.text(one, "metadata", "name") == node]
        if not nodes:
            raise ClaimError(f"there is no node {node}")
        return whatif.Scheduler(world, FeatureGates(), nodes).alone(claim)

    def _list(self, resource: Resource) -> list[Object]:
        return [dict(one) for one in json_types.objects(self._send("GET", resource.path()), "items")]

    def _send(self, method: str, path: str, body: Object | None = None) -> Object:
        return cast("Object", self._api.request(method, path, body=body))


def _retried(make: Callable[[], Object]) -> Object:
    """A driver that was just started has not published its devices yet."""
    deadline = time.monotonic() + PUBLISH_SECONDS
    while True:
        try:
            return make()
        except ClaimError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(1)


def _claim(device_class: str, namespace: str) -> Object:
    request: Object = {"name": "device", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": f"conformance-{secrets.token_hex(4)}", "namespace": namespace},
        "spec": {"devices": {"requests": [request]}},
    }
