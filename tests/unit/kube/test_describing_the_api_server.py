"""What is known of an API server that does not describe itself, or not at once, seen at the store's transport."""

from typing import Any

import pytest

from drakit.core import device, errors, inventory, ports
from drakit.kube import discovery, slices, transport
from drakit.node.publishing import publisher
from fakes import fake_transport, manual_clock
from fakes import slice_samples as samples

FAILURES = [
    errors.ApiError("the API server answered 503: unavailable", status=503),
    errors.ApiError("the API server did not answer in time"),
    errors.ApiError("the API server answered no JSON", reason=transport.UNREADABLE),
    errors.ApiError("the API server answered 401: Unauthorized", status=401),
    errors.ApiError("the API server answered 404: not found", status=404),
]
GROUP = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceSlice"}
WITHOUT_MIXINS: transport.Object = {
    "components": {
        "schemas": {
            "slice": {"x-kubernetes-group-version-kind": [GROUP], "properties": {"spec": {"$ref": "#/components/schemas/spec"}}},
            "spec": {"properties": {"sharedCounters": {}, "devices": {}, "partitionTypeAttribute": {}, "skipNodeOperations": {}}},
        }
    }
}
Answer = fake_transport.Answer
each_failure = pytest.mark.parametrize("failure", FAILURES, ids=str)


class Server(fake_transport.FakeTransport):
    """A server that gives these answers about itself, and stores the slices that are created."""

    def __init__(self, version: Answer, schema: Answer) -> None:
        super().__init__(self._answered)
        self.answers = {discovery.VERSION_PATH: version, discovery.SCHEMA_PATH: schema}

    def _answered(self, request: fake_transport.Request) -> Answer:
        if request.path in self.answers:
            return self.answers[request.path]
        if request.method == "POST" and request.body is not None:
            return {**request.body, "metadata": {"name": "slice", "uid": "u", "resourceVersion": "1"}}
        return {"items": []}

    def asked(self, path: str) -> int:
        return sum(request.path == path for request in self.requests)

    def probes(self) -> int:
        created: list[Any] = [request.body for request in self.requests if request.method == "POST"]
        return sum(body["spec"]["pool"]["name"].endswith("/probe") for body in created)


def version(text: str) -> transport.Object:
    return {"gitVersion": text}


def store_of(server: Server) -> tuple[slices.ApiSlices, manual_clock.ManualClock]:
    clock = manual_clock.ManualClock()
    return slices.ApiSlices(server, driver=samples.DRIVER, clock=clock), clock


def publisher_of(store: slices.ApiSlices, clock: manual_clock.ManualClock) -> publisher.Publisher:
    """A publisher that has something to probe: a shared device."""
    made = publisher.Publisher(publisher.Target(driver=samples.DRIVER, node="", pool="p"), store=store, clock=clock)
    made.offer(inventory.Inventory.of([device.Device(name="a", allow_multiple_allocations=True)]))
    return made


@each_failure
def test_slices_are_published_though_the_schema_is_never_read(failure: Exception) -> None:
    server = Server(version("v1.36.2"), failure)
    store, clock = store_of(server)
    made = publisher_of(store, clock)
    made.reconcile()
    assert made.published.is_set()
    assert store.server() == ports.ApiServer(version="v1.36.2"), "nothing is known to be lacking"


@each_failure
def test_a_schema_that_cannot_be_read_is_read_later_after_growing_pauses(failure: Exception) -> None:
    server = Server(version("v1.36.2"), failure)
    store, clock = store_of(server)
    for _ in range(3600):
        store.server()
        clock.moment += 1
    assert 60 <= server.asked(discovery.SCHEMA_PATH) <= 70
    server.answers[discovery.SCHEMA_PATH] = WITHOUT_MIXINS
    clock.moment += discovery.VERSION_SECONDS
    assert store.server() == ports.ApiServer(version="v1.36.2", lacks=frozenset({"DRAResourceSliceMixins"}))
    asked = server.asked(discovery.SCHEMA_PATH)
    clock.moment += discovery.VERSION_SECONDS
    store.server()
    assert server.asked(discovery.SCHEMA_PATH) == asked, "a schema that was read is not read again"


@each_failure
def test_a_version_that_is_known_stays_known_while_the_server_does_not_say_it(failure: Exception) -> None:
    server = Server(version("v1.36.2"), WITHOUT_MIXINS)
    store, clock = store_of(server)
    described = store.server()
    server.answers[discovery.VERSION_PATH] = failure
    seen = set()
    for _ in range(10):
        clock.moment += discovery.VERSION_SECONDS
        seen.add(store.server())
    assert seen == {described}
    assert server.asked(discovery.SCHEMA_PATH) == 1


@each_failure
def test_the_schema_is_read_though_the_version_is_never_said(failure: Exception) -> None:
    store, _ = store_of(Server(failure, WITHOUT_MIXINS))
    assert store.server() == ports.ApiServer(version="", lacks=frozenset({"DRAResourceSliceMixins"}))


@each_failure
def test_nothing_is_known_to_be_lacking_in_a_new_version_until_its_schema_is_read(failure: Exception) -> None:
    server = Server(version("v1.36.2"), WITHOUT_MIXINS)
    store, clock = store_of(server)
    store.server()
    server.answers = {discovery.VERSION_PATH: version("v1.37.0"), discovery.SCHEMA_PATH: failure}
    clock.moment += discovery.VERSION_SECONDS
    assert store.server() == ports.ApiServer(version="v1.37.0")


@pytest.mark.parametrize("path", [discovery.VERSION_PATH, discovery.SCHEMA_PATH])
@each_failure
def test_a_description_that_fails_between_two_answers_causes_no_new_probe(failure: Exception, path: str) -> None:
    server = Server(version("v1.36.2"), WITHOUT_MIXINS)
    if path == discovery.SCHEMA_PATH:
        server.answers[path] = failure
    store, clock = store_of(server)
    made = publisher_of(store, clock)
    made.reconcile()
    probes = server.probes()
    server.answers = {discovery.VERSION_PATH: version("v1.36.2"), discovery.SCHEMA_PATH: WITHOUT_MIXINS, path: failure}
    clock.moment += discovery.VERSION_SECONDS
    made.reconcile()
    server.answers = {discovery.VERSION_PATH: version("v1.36.2"), discovery.SCHEMA_PATH: WITHOUT_MIXINS}
    clock.moment += discovery.VERSION_SECONDS
    made.reconcile()
    assert store.server().lacks == {"DRAResourceSliceMixins"}
    assert server.probes() == probes >= 1
